"""What is decoded: the oracle's random JSON texts, and extraction prompts for a real model."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jsonschema_rs import Draft202012Validator

from gdlib.grammar import Grammar
from gdlib.grammar.nodes import Node, Seq, literal
from gdlib.grammar.segments import boolean, integer, items, members, text, word

# Printable ASCII, one token a character: enough for every text of the three families, and for a free decoder to err.
CHARACTERS = "".join(chr(c) for c in range(0x20, 0x7F))

INT_DIGITS = 2
ITEMS = (2, 3, 4)  # an array example has one of these lengths
FIXED_ITEMS = 3  # what a template with a fixed number of items provides for


def _word(rng: random.Random, length: int) -> str:
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(length))


def _int(rng: random.Random) -> int:
    return rng.randrange(10**INT_DIGITS)


def _flat(rng: random.Random, length: int) -> dict:
    return {"name": _word(rng, length), "age": _int(rng), "active": rng.random() < 0.5}


def _nested(rng: random.Random, length: int) -> dict:
    return {"user": {"name": _word(rng, length), "age": _int(rng)}, "verified": rng.random() < 0.5}


def _array(rng: random.Random, length: int) -> dict:
    return {"items": [{"id": _int(rng), "tag": _word(rng, length)} for _ in range(rng.choice(ITEMS))]}


def _quoted(length: int, fixed: bool) -> Node:
    return Seq((literal('"'), word(length, fixed), literal('"')))


def _flat_node(length: int, fixed: bool) -> Node:
    return members(
        [("name", _quoted(length, fixed)), ("age", integer(INT_DIGITS, fixed)), ("active", boolean())],
    )


def _nested_node(length: int, fixed: bool) -> Node:
    user = members([("name", _quoted(length, fixed)), ("age", integer(INT_DIGITS, fixed))])
    return members([("user", user), ("verified", boolean())])


def _array_node(length: int, fixed: bool) -> Node:
    item = members([("id", integer(INT_DIGITS, fixed)), ("tag", _quoted(length, fixed))])
    low, high = (FIXED_ITEMS, FIXED_ITEMS) if fixed else (1, max(ITEMS))
    return members([("items", Seq((literal("["), items(item, low, high, ","), literal("]"))))])


def _object(**properties) -> dict:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _word_schema(length: int) -> dict:
    return {"type": "string", "pattern": "^[a-z]+$", "minLength": 1, "maxLength": length}


_INT_SCHEMA = {"type": "integer", "minimum": 0, "maximum": 10**INT_DIGITS - 1}
_BOOL_SCHEMA = {"type": "boolean"}


def _flat_schema(length: int) -> dict:
    return _object(name=_word_schema(length), age=_INT_SCHEMA, active=_BOOL_SCHEMA)


def _nested_schema(length: int) -> dict:
    return _object(user=_object(name=_word_schema(length), age=_INT_SCHEMA), verified=_BOOL_SCHEMA)


def _array_schema(length: int) -> dict:
    item = _object(id=_INT_SCHEMA, tag=_word_schema(length))
    return _object(items={"type": "array", "items": item, "minItems": 1, "maxItems": max(ITEMS)})


@dataclass(frozen=True)
class Family:
    """One schema family: `sample` draws an example, `grammar` and `schema` say what is allowed, twice over.

    The grammar constrains and the JSON Schema judges (by jsonschema-rs, which knows nothing of the grammar).
    """

    sample: Callable[[random.Random, int], dict]
    node: Callable[[int, bool], Node]
    schema: Callable[[int], dict]

    def gold(self, rng: random.Random, length: int) -> str:
        return json.dumps(self.sample(rng, length), separators=(",", ":"))

    def grammar(self, length: int, fixed: bool = False) -> Grammar:
        return Grammar(self.node(length, fixed))


FAMILIES = {
    "flat": Family(_flat, _flat_node, _flat_schema),
    "nested": Family(_nested, _nested_node, _nested_schema),
    "array": Family(_array, _array_node, _array_schema),
}


def family_of(schema: str) -> Family:
    """ValueError, naming what there is, for a schema that is not one of FAMILIES."""
    if schema not in FAMILIES:
        raise ValueError(f"schema={schema!r}: there is {', '.join(FAMILIES)}")
    return FAMILIES[schema]


def _refuse(constant: str):
    raise ValueError(f"{constant} is not JSON")


def is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def conforms(text: str, schema: dict) -> bool:
    """True where `text` is JSON and valid under `schema`, as jsonschema-rs judges it."""
    return is_json(text) and Draft202012Validator(schema).is_valid(json.loads(text))


@dataclass(frozen=True)
class Prompt:
    """One extraction task. fields: (name, kind, limit) with kind text, int or bool; gold: the right answer."""

    id: str
    family: str
    text: str
    fields: tuple[tuple, ...]
    gold: dict

    def grammar(self, comma: str = ", ", colon: str = ": ") -> Grammar:
        """One line of JSON, members in order, as `json.dumps` writes it by default."""
        kinds = {"text": text, "int": lambda digits: integer(digits, signed=True), "bool": boolean}
        return Grammar(members([(name, kinds[kind](*limit)) for name, kind, *limit in self.fields], comma, colon))

    def schema(self) -> dict:
        def of(kind: str, limit: int = 0) -> dict:
            if kind == "text":
                return {"type": "string", "minLength": 1, "maxLength": limit}
            if kind == "int":
                return {"type": "integer", "minimum": 1 - 10**limit, "maximum": 10**limit - 1}
            return {"type": "boolean"}

        return _object(**{name: of(kind, *limit) for name, kind, *limit in self.fields})

    def messages(self, example: Prompt | None = None) -> list[dict[str, str]]:
        """The chat: what is wanted, with one worked example where `example` is given, then the text."""
        what = {"text": "string", "int": "integer", "bool": "true or false"}
        keys = ", ".join(f'"{name}" ({what[kind]})' for name, kind, *_ in self.fields)
        task = f"Extract from the text one line of JSON with the keys {keys}. Write nothing else."
        turns = []
        if example is not None:
            turns += [
                {"role": "user", "content": f"{task}\nText: {example.text}"},
                {"role": "assistant", "content": json.dumps(example.gold, ensure_ascii=False)},
            ]
        return [*turns, {"role": "user", "content": f"{task}\nText: {self.text}"}]


def load_prompts(path: str | Path) -> list[Prompt]:
    """Read a file of prompts, one JSON object a line (see workloads/README.md)."""
    prompts = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            fields = tuple(tuple(field) for field in row["fields"])
            prompts.append(Prompt(row["id"], row["family"], row["text"], fields, row["gold"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not a prompt ({error!r})") from error
    if not prompts:
        raise ValueError(f"{path}: no prompts in it")
    return prompts


def first_of_each_family(prompts: list[Prompt], count: int, families: int = 0) -> list[Prompt]:
    """The first `count` prompts of the first `families` families, in file order; 0 is all of either."""
    seen: dict[str, int] = {}
    chosen = []
    for prompt in prompts:
        if families and prompt.family not in seen and len(seen) == families:
            continue
        seen[prompt.family] = seen.get(prompt.family, 0) + 1
        if not count or seen[prompt.family] <= count:
            chosen.append(prompt)
    return chosen


FAILURES = ("fence", "prose", "truncated", "not JSON", "wrong field")


def failure(text: str, schema: dict, stopped: bool) -> str:
    """Why an answer is not valid under the schema: one of FAILURES, or "" where it is valid.

    stopped: whether decoding ended by itself; a text cut by the token limit counts as truncated, unless it is wrong
    from its first character.
    """
    if conforms(text, schema):
        return ""
    start = text.lstrip()
    if start.startswith("```"):
        return "fence"
    if not start.startswith(("{", "[")):
        return "prose"
    if is_json(text):
        return "wrong field"
    if not stopped:
        return "truncated"
    try:
        _, end = json.JSONDecoder().raw_decode(start)
    except ValueError:
        return "not JSON"
    return "prose" if start[end:].strip() else "not JSON"
