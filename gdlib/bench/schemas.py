"""JSON Schemas made to measure, each family growing along one axis, with texts that are valid and texts that are not.

A schema's cost hangs on what it is made of, so every family grows in one thing alone and its texts stay about as long.
Names and words are drawn from a seed: no two trials see the same grammar, and what an engine keeps of one is no use
to it in the next beyond what all grammars share.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

TEXT_CHARACTERS = 120  # the longest string of a valid text, however long one may be


@dataclass(frozen=True)
class Workload:
    """texts: (JSON text, whether its value is valid under the schema)."""

    schema: dict
    texts: tuple[tuple[str, bool], ...]


def _name(rng: random.Random) -> str:
    syllables = ["ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu"]
    return "".join(rng.choice(syllables) for _ in range(rng.randint(2, 4)))


def _names(rng: random.Random, count: int) -> list[str]:
    """Distinct names: syllables, and a number where they would repeat."""
    return [f"{_name(rng)}_{index}" for index in range(count)]


def _sentence(rng: random.Random, characters: int) -> str:
    text = ""
    while len(text) < characters:
        text += ("" if not text else " ") + _name(rng)
    return text[:characters].rstrip().ljust(characters, "a")


def _object(properties: dict, required: list[str]) -> dict:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _workload(schema: dict, good: list, bad: list) -> Workload:
    texts = [(json.dumps(value, ensure_ascii=False), True) for value in good]
    return Workload(schema, tuple(texts + [(json.dumps(value, ensure_ascii=False), False) for value in bad]))


_KINDS = (
    ({"type": "string", "maxLength": 40}, lambda rng: _sentence(rng, 20)),
    ({"type": "integer"}, lambda rng: rng.randrange(10**6)),
    ({"type": "boolean"}, lambda rng: rng.random() < 0.5),
    ({"type": "array", "items": {"type": "number"}}, lambda rng: [rng.randrange(100), 0.5]),
)


def _properties(rng: random.Random, count: int) -> Workload:
    """An object of `count` properties of four kinds; a text has up to eight of them, from all over the schema."""
    names = _names(rng, count)
    kinds = [_KINDS[index % len(_KINDS)] for index in range(count)]
    chosen = sorted(rng.sample(range(count), min(8, count)))
    schema = _object({name: kind[0] for name, kind in zip(names, kinds, strict=True)}, [names[i] for i in chosen[:3]])
    good = {names[i]: kinds[i][1](rng) for i in chosen}
    lacking = {name: value for name, value in good.items() if name != names[chosen[min(2, len(chosen) - 1)]]}
    unknown = {names[chosen[0]]: good[names[chosen[0]]], names[chosen[0]] + "x": 1}
    return _workload(schema, [good], [lacking, unknown])


def _depth(rng: random.Random, levels: int) -> Workload:
    """Objects in objects, `levels` of them, a number inside."""
    schema: dict = {"type": "integer"}
    good, bad = rng.randrange(1000), "none"
    for name in _names(rng, levels):
        schema = _object({name: schema}, [name])
        good, bad = {name: good}, {name: bad}
    return _workload(schema, [good], [bad])


def _enum(rng: random.Random, count: int) -> Workload:
    """One of `count` words."""
    code, note = _names(rng, 2)
    words = _names(rng, count)
    schema = _object({code: {"enum": words}, note: {"type": "string"}}, [code])
    good = [{code: rng.choice(words), note: _sentence(rng, 20)} for _ in range(3)]
    return _workload(schema, good, [{code: words[-1] + "0"}, {code: words[0][:-2]}])


def _characters(rng: random.Random, count: int) -> Workload:
    """A string of at most `count` characters."""
    name = _name(rng)
    schema = _object({name: {"type": "string", "minLength": 1, "maxLength": count}}, [name])
    good = [{name: _sentence(rng, min(count, TEXT_CHARACTERS))}, {name: '"' + _sentence(rng, min(count, 9) - 1)}]
    bad = {name: _sentence(rng, count + 1) if count < TEXT_CHARACTERS else ""}
    return _workload(schema, good, [bad])


def _choices(rng: random.Random, count: int) -> Workload:
    """One of `count` objects, told apart by what `kind` says."""
    kinds = _names(rng, count)
    fields = _names(rng, count)
    variants = [
        _object({"kind": {"const": kind}, field: _KINDS[i % len(_KINDS)][0]}, ["kind", field])
        for i, (kind, field) in enumerate(zip(kinds, fields, strict=True))
    ]
    picked = [rng.randrange(count) for _ in range(3)]
    good = [{"kind": kinds[i], fields[i]: _KINDS[i % len(_KINDS)][1](rng)} for i in picked]
    return _workload({"anyOf": variants}, good, [{"kind": kinds[picked[0]], "other": 1}, {"kind": kinds[0]}])


def _tree(rng: random.Random, depth: int) -> Workload:
    """A recursive schema; its text is a tree of that depth."""
    name, children = _names(rng, 2)
    node = _object({name: {"type": "string"}, children: {"type": "array", "items": {"$ref": "#/$defs/node"}}}, [name])
    good: dict = {name: _name(rng)}
    bad: dict = {name: 1}
    for _ in range(depth - 1):
        leaf = {name: _name(rng)}
        good, bad = {name: _name(rng), children: [leaf, good]}, {name: _name(rng), children: [leaf, bad]}
    return _workload({"$ref": "#/$defs/node", "$defs": {"node": node}}, [good], [bad])


def _digits(rng: random.Random, count: int) -> Workload:
    """An integer between two bounds of `count` digits."""
    name = _name(rng)
    low = rng.randrange(10 ** (count - 1), 5 * 10 ** (count - 1))
    high = low + rng.randrange(10 ** (count - 1), 4 * 10 ** (count - 1))
    schema = _object({name: {"type": "integer", "minimum": low, "maximum": high}}, [name])
    good = [{name: low}, {name: high}, {name: rng.randint(low, high)}]
    return _workload(schema, good, [{name: low - 1}, {name: high + 1}])


# family -> what makes it, and what its level counts
FAMILIES: dict[str, tuple[Callable[[random.Random, int], Workload], str]] = {
    "properties": (_properties, "properties of an object"),
    "depth": (_depth, "objects in one another"),
    "enum": (_enum, "words of an enum"),
    "characters": (_characters, "longest string (characters)"),
    "choices": (_choices, "objects to choose from"),
    "tree": (_tree, "depth of a recursive text"),
    "digits": (_digits, "digits of an integer's bounds"),
}


def workload(family: str, level: int, seed: int) -> Workload:
    """The schema and texts of one family at one level; the same for the same seed.

    ValueError, naming what there is, for another family or a level below one.
    """
    if family not in FAMILIES:
        raise ValueError(f"family {family!r}: there is {', '.join(FAMILIES)}")
    if level < 1:
        raise ValueError(f"{family}: level {level}: at least 1")
    return FAMILIES[family][0](random.Random(f"{family}/{level}/{seed}"), level)
