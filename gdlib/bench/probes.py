"""What each engine can express: small probes, one feature each, judged by texts that must and must not be taken.

Speed means little where an engine takes what it should refuse. For JSON Schema the judge is jsonschema-rs; for GBNF and
regex, whose dialects have no common judge, every text says itself what it is. Tokens are single bytes, so that no
vocabulary can be to blame.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pandas as pd
from jsonschema_rs import Draft202012Validator

from gdlib.bench import peers
from gdlib.tokens.vocabulary import Vocabulary

EOS = 256
VERDICTS = ("ok", "too strict", "too loose", "both", "refuses", "no front end", "left out", "not installed")


@dataclass(frozen=True)
class Probe:
    """One feature: a grammar, texts of its language, and texts that are not.

    `feature` is the keyword for JSON Schema. Several probes may share one. `open`: some value is left free altogether,
    which costs an engine that writes it out as a regex ten seconds and more.
    """

    front: str
    group: str
    feature: str
    grammar: str
    good: tuple[str, ...]
    bad: tuple[str, ...]
    open: bool = False


def _schema(group: str, feature: str, schema: dict, good: Sequence[str], bad: Sequence[str], open=False) -> Probe:
    return Probe("json_schema", group, feature, json.dumps(schema), tuple(good), tuple(bad), open)


def _typed(name: str) -> dict:
    return {"type": name}


_INT, _TEXT = _typed("integer"), _typed("string")
_OPEN = {"type": "object", "properties": {"a": _INT}}
_NODE = {"type": "object", "properties": {"n": {"$ref": "#/$defs/node"}}, "additionalProperties": False}
_TREE = {"$ref": "#/$defs/node", "$defs": {"node": _NODE}}
_FORMATS = {
    "date": (["2024-02-29", "2031-12-01"], ["2023-02-29", "2024-13-01", "24-01-01"]),
    "time": (["08:15:42Z", "23:59:59.5+01:00"], ["25:00:00Z", "08:15"]),
    "date-time": (["2024-02-29T08:15:42Z"], ["2024-02-30T08:15:42Z", "2024-02-29"]),
    "duration": (["P1Y2M", "PT5H"], ["P", "1D"]),
    "email": (["ann@example.org"], ["ann", "ann@"]),
    "hostname": (["a-b.example.org"], ["-a.org", "a..b"]),
    "ipv4": (["127.0.0.1"], ["256.0.0.1", "1.2.3"]),
    "ipv6": (["::1", "2001:db8::8:800:200c:417a"], ["1::2::3", "12345::"]),
    "uri": (["https://example.org/a?b=c#d"], ["//example.org", "a b"]),
    "uri-reference": (["/a?b#c", "b"], ["\\\\a"]),
    "json-pointer": (["/a/b~0", ""], ["a", "/~"]),
    "idn-email": (["änn@example.org"], ["ann"]),
    "regex": (["^a[b-d]$"], ["^(a", "[b-"]),
    "uuid": (["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8"]),
}

SCHEMAS = (
    _schema("values", "type: string", _TEXT, ['"a"', '""', '"ä\\n\\u00e9"'], ["1", '"a', '"\n"']),
    _schema("values", "type: integer", _INT, ["0", "-12", "1000000000000000000000"], ["1.5", "01", '"1"']),
    _schema("values", "type: integer", _INT, ["1.0"], ["1.05"]),
    _schema("values", "type: number", _typed("number"), ["0", "-1.5", "1e3", "2.5E-3"], [".5", "1.", "+1"]),
    _schema("values", "type: list", {"type": ["integer", "null"]}, ["3", "null"], ["true", '"3"']),
    _schema("values", "type: object", _typed("object"), ['{"a": [1, {}]}', "{}"], ["[]", '{"a"}'], open=True),
    _schema("values", "type: array", _typed("array"), ['[1, "a", [null]]', "[]"], ["{}", "[1,]"], open=True),
    _schema("values", "enum", {"enum": [1, "a", None, [1, 2]]}, ["1", '"a"', "null", "[1, 2]"], ["2", '"b"', "[1]"]),
    _schema("values", "const", {"const": {"a": 1}}, ['{"a": 1}'], ['{"a": 2}', "{}"]),
    _schema("values", "true schema", {}, ["1", '{"a": []}', "false"], ["nul", "{"]),
    _schema("values", "enum, escaped spelling", {"enum": ["a", "é"]}, ['"\\u0061"', '"\\u00e9"'], ['"\\u0062"']),
    _schema("strings", "minLength", _TEXT | {"minLength": 2}, ['"ab"', '"äöü"'], ['"a"', '"ä"', '""']),
    _schema("strings", "maxLength", _TEXT | {"maxLength": 2}, ['"ab"', '"äö"', '""'], ['"abc"']),
    _schema("strings", "maxLength", _TEXT | {"maxLength": 2}, ['"\\n\\""'], ['"\\n\\"a"']),
    _schema("strings", "pattern", _TEXT | {"pattern": "^[a-c]+$"}, ['"abc"'], ['"abd"', '""']),
    _schema("strings", "pattern, not anchored", _TEXT | {"pattern": "b+"}, ['"abc"', '"bb"'], ['"ac"', '""']),
    _schema("strings", "pattern, look-ahead", _TEXT | {"pattern": "^(?!ab)[a-z]*$"}, ['"ba"'], ['"abc"']),
    _schema("strings", "pattern, back-reference", _TEXT | {"pattern": "^(a|b)\\1$"}, ['"aa"', '"bb"'], ['"ab"']),
    _schema("strings", "pattern, escaped spelling", _TEXT | {"pattern": "^[a-c]+$"}, ['"\\u0061"'], ['"\\u0064"']),
    _schema(
        "strings",
        "pattern with maxLength",
        _TEXT | {"pattern": "^[a-z]+$", "maxLength": 3},
        ['"abc"'],
        ['"abcd"', '"1"'],
    ),
    _schema("numbers", "minimum", _INT | {"minimum": -5}, ["-5", "100"], ["-6", "-50"]),
    _schema("numbers", "maximum", _INT | {"maximum": 120}, ["120", "-1000"], ["121", "1000"]),
    _schema(
        "numbers",
        "minimum, maximum",
        _typed("number") | {"minimum": 0.5, "maximum": 2},
        ["1.25", "2"],
        ["0.49", "2.01"],
    ),
    _schema("numbers", "exclusiveMinimum", _INT | {"exclusiveMinimum": 5}, ["6"], ["5"]),
    _schema("numbers", "exclusiveMaximum", _typed("number") | {"exclusiveMaximum": 1}, ["0.99", "-3"], ["1", "1.0"]),
    _schema("numbers", "bounds, with exponent", _typed("number") | {"minimum": 5}, ["1e1", "0.5E1"], ["1e-1"]),
    _schema("numbers", "multipleOf", _INT | {"multipleOf": 7}, ["0", "49", "-14"], ["48", "1"]),
    _schema("numbers", "multipleOf", _typed("number") | {"multipleOf": 0.01}, ["1.25"], ["1.255"]),
    _schema("objects", "properties", _OPEN, ['{"a": 1}', "{}", '{"b": "x"}'], ['{"a": "x"}', "1"]),
    _schema(
        "objects",
        "properties in any order",
        {"type": "object", "properties": {"a": _INT, "b": _INT}, "additionalProperties": False},
        ['{"a": 1, "b": 2}', '{"b": 2, "a": 1}'],
        ['{"b": "x"}'],
    ),
    _schema(
        "objects",
        "required",
        {"type": "object", "properties": {"a": _INT, "b": _INT}, "required": ["b"], "additionalProperties": False},
        ['{"a": 1, "b": 2}', '{"b": 2}'],
        ['{"a": 1}', "{}"],
    ),
    _schema(
        "objects",
        "required, not in properties",
        {"type": "object", "required": ["z"]},
        ['{"z": 1}'],
        ["{}", '{"y": 1}'],
        open=True,
    ),
    _schema(
        "objects", "additionalProperties: false", _OPEN | {"additionalProperties": False}, ['{"a": 1}'], ['{"b": 1}']
    ),
    _schema(
        "objects", "additionalProperties", _OPEN | {"additionalProperties": _TEXT}, ['{"a": 1, "b": "x"}'], ['{"b": 1}']
    ),
    _schema(
        "objects",
        "patternProperties",
        {"type": "object", "patternProperties": {"^n_": _INT}, "additionalProperties": False},
        ['{"n_a": 1, "n_b": 2}', "{}"],
        ['{"n_a": "x"}', '{"m": 1}'],
    ),
    _schema(
        "objects",
        "propertyNames",
        {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}},
        ['{"ab": 1}'],
        ['{"A": 1}'],
        open=True,
    ),
    _schema(
        "objects",
        "minProperties",
        {"type": "object", "minProperties": 2},
        ['{"a": 1, "b": 2}'],
        ['{"a": 1}', "{}"],
        open=True,
    ),
    _schema(
        "objects",
        "maxProperties",
        {"type": "object", "maxProperties": 1},
        ['{"a": 1}', "{}"],
        ['{"a": 1, "b": 2}'],
        open=True,
    ),
    _schema(
        "objects",
        "dependentRequired",
        {"type": "object", "properties": {"a": _INT, "b": _INT}, "dependentRequired": {"a": ["b"]}},
        ['{"a": 1, "b": 2}', '{"b": 2}'],
        ['{"a": 1}'],
    ),
    _schema(
        "objects",
        "dependentSchemas",
        {"type": "object", "properties": {"a": _INT}, "dependentSchemas": {"a": {"required": ["b"]}}},
        ['{"a": 1, "b": 2}', "{}"],
        ['{"a": 1}'],
    ),
    _schema(
        "objects",
        "unevaluatedProperties",
        {"type": "object", "allOf": [{"properties": {"a": _INT}}], "unevaluatedProperties": False},
        ['{"a": 1}', "{}"],
        ['{"b": 1}'],
    ),
    _schema(
        "objects",
        "member name, escaped spelling",
        _OPEN | {"additionalProperties": False},
        ['{"\\u0061": 1}'],
        ['{"\\u0062": 1}'],
    ),
    _schema(
        "objects",
        "unevaluatedProperties over anyOf",
        {
            "type": "object",
            "anyOf": [{"properties": {"a": _INT}, "required": ["a"]}, {"properties": {"b": _INT}, "required": ["b"]}],
            "unevaluatedProperties": False,
        },
        ['{"a": 1}', '{"a": 1, "b": 2}'],
        ['{"c": 1}', '{"a": 1, "c": 2}'],
    ),
    _schema("arrays", "items", {"type": "array", "items": _INT}, ["[]", "[1, 2]"], ['["a"]', "[1, null]"]),
    _schema(
        "arrays",
        "prefixItems",
        {"type": "array", "prefixItems": [_INT, _TEXT]},
        ['[1, "a"]', "[1]", '[1, "a", 2]'],
        ['["a"]'],
    ),
    _schema(
        "arrays",
        "prefixItems, items: false",
        {"type": "array", "prefixItems": [_INT, _TEXT], "items": False},
        ['[1, "a"]', "[]"],
        ['[1, "a", 2]', "[1, 2]"],
    ),
    _schema(
        "arrays", "minItems", {"type": "array", "items": _INT, "minItems": 2}, ["[1, 2]", "[1, 2, 3]"], ["[1]", "[]"]
    ),
    _schema("arrays", "maxItems", {"type": "array", "items": _INT, "maxItems": 2}, ["[]", "[1, 2]"], ["[1, 2, 3]"]),
    _schema(
        "arrays",
        "uniqueItems",
        {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True},
        ["[1, 2]"],
        ["[1, 1]"],
    ),
    _schema(
        "arrays", "uniqueItems, of any text", {"items": _TEXT, "uniqueItems": True}, ['["a", "b"]'], ['["a", "a"]']
    ),
    _schema("arrays", "contains", {"type": "array", "contains": _INT}, ['["a", 1]', "[1]"], ['["a"]', "[]"], open=True),
    _schema(
        "arrays",
        "minContains, maxContains",
        {"type": "array", "contains": _INT, "minContains": 2, "maxContains": 2},
        ['[1, "a", 2]'],
        ["[1]", "[1, 2, 3]"],
        open=True,
    ),
    _schema(
        "arrays",
        "unevaluatedItems",
        {"type": "array", "allOf": [{"prefixItems": [_INT]}], "unevaluatedItems": False},
        ["[1]", "[]"],
        ["[1, 2]"],
    ),
    _schema("combining", "anyOf", {"anyOf": [_INT, _TEXT | {"maxLength": 1}]}, ["1", '"a"'], ['"ab"', "null"]),
    _schema("combining", "oneOf", {"oneOf": [_INT, _TEXT]}, ["1", '"a"'], ["null"]),
    _schema(
        "combining",
        "oneOf that overlaps",
        {"oneOf": [_INT | {"minimum": 0}, _INT | {"maximum": 10}]},
        ["-1", "11"],
        ["5", "0"],
    ),
    _schema("combining", "allOf", {"allOf": [_INT | {"minimum": 3}, {"maximum": 5}]}, ["3", "5"], ["2", "6"]),
    _schema(
        "combining", "keywords beside anyOf", _INT | {"anyOf": [{"minimum": 5}, {"maximum": 1}]}, ["5", "1"], ["3"]
    ),
    _schema("combining", "not", {"type": "integer", "not": {"const": 3}}, ["2", "33"], ["3"]),
    _schema(
        "combining",
        "if, then, else",
        {"if": _INT, "then": {"minimum": 5}, "else": {"type": "null"}},
        ["5", "null"],
        ["4", '"a"'],
    ),
    _schema(
        "combining",
        "not, of an object",
        {"type": "object", "not": {"required": ["a"]}},
        ['{"b": 1}'],
        ['{"a": 1}'],
        open=True,
    ),
    _schema("references", "$ref to $defs", {"$ref": "#/$defs/a", "$defs": {"a": _INT}}, ["1"], ['"a"']),
    _schema("references", "$ref, recursive", _TREE, ['{"n": {"n": {}}}', "{}"], ['{"n": 1}', '{"m": {}}']),
    _schema(
        "references",
        "keywords beside $ref",
        {"$ref": "#/$defs/a", "maximum": 3, "$defs": {"a": _INT}},
        ["3"],
        ["4", '"a"'],
    ),
    _schema(
        "references", "$anchor", {"$ref": "#a", "$defs": {"x": {"$anchor": "a", "type": "integer"}}}, ["1"], ['"a"']
    ),
    _schema(
        "references",
        "$id",
        {"$id": "http://example.org/r", "$ref": "s", "$defs": {"x": {"$id": "s", "type": "integer"}}},
        ["1"],
        ['"a"'],
    ),
    _schema(
        "references",
        "$dynamicRef",
        {"$dynamicRef": "#n", "$defs": {"x": {"$dynamicAnchor": "n", "type": "integer"}}},
        ["1"],
        ['"a"'],
    ),
    *(
        _schema(
            "formats", f"format: {name}", _TEXT | {"format": name}, [f'"{t}"' for t in good], [f'"{t}"' for t in bad]
        )
        for name, (good, bad) in _FORMATS.items()
    ),
)


def _gbnf(feature: str, grammar: str, good: Sequence[str], bad: Sequence[str]) -> Probe:
    return Probe("gbnf", "GBNF", feature, grammar, tuple(good), tuple(bad))


def _regex(feature: str, pattern: str, good: Sequence[str], bad: Sequence[str]) -> Probe:
    return Probe("regex", "regex", feature, pattern, tuple(good), tuple(bad))


GRAMMARS = (
    _gbnf("sequence, choice, rules", 'root ::= "a" b | "c"\nb ::= "b"', ["ab", "c"], ["a", "abc"]),
    _gbnf("classes", "root ::= [a-c] [^a-c\\n]", ["ad", "cä"], ["aa", "d", "a\n"]),
    _gbnf("any character", "root ::= . .", ["aä", "€x"], ["a", "abc"]),
    _gbnf("? * +", 'root ::= "a"? "b"* "c"+', ["c", "abbcc"], ["ab", "aac"]),
    _gbnf("{n,m}", 'root ::= "a"{2} "b"{1,3} "c"{1,}', ["aabc", "aabbbcc"], ["abc", "aabbbbc", "aab"]),
    _gbnf("groups over lines, comments", 'root ::= ( # one\n  "a" |\n  "b" )+ # two', ["ab", "ba"], ["", "c"]),
    _gbnf("escapes", 'root ::= "\\x41\\u00e9\\n\\"" [\\]\\-]', ['Aé\n"]', 'Aé\n"-'], ['Aé\n"a', "A"]),
    _gbnf("recursion", 'root ::= "(" root ")" | ""', ["", "(())"], ["(", "())"]),
    _gbnf("left recursion", 'root ::= root "+" n | n\nn ::= [0-9]', ["1", "1+2+3"], ["+1", "1+"]),
    _gbnf("ambiguity", 'root ::= a a\na ::= "x"*', ["", "xxx"], ["y"]),
    _gbnf("empty alternative", 'root ::= "a" ( "b" | ) "c"', ["abc", "ac"], ["ab", "bc"]),
    _regex("classes, ranges", "[a-c][^x]\\d\\w", ["ab1_", "cc9z"], ["ax1a", "db1a"]),
    _regex("groups, choice, bounds", "(ab|c){2,3}x?", ["abc", "cccx"], ["ab", "ccccc"]),
    _regex("non-capturing, lazy", "(?:ab)+?c*?", ["ab", "ababcc"], ["c", "abab1"]),
    _regex("Unicode", "[é-ü]€.", ["ü€x", "é€€"], ["e€x", "é€"]),
    _regex("anchors at the ends", "^ab$", ["ab"], ["a", "abb"]),
    _regex("look-ahead", "(?!ab)[a-z]{2}", ["ba", "aa"], ["ab"]),
    _regex("look-behind", "a(?<=a)b", ["ab"], ["bb", "a"]),
    _regex("word boundary", "a\\b b", ["a b"], ["ab", "a"]),
    _regex("back-reference", "(a|b)\\1", ["aa"], ["ab"]),
    _regex("Unicode property", "\\p{Lu}\\p{Ll}+", ["Äb", "Abc"], ["ab", "A1"]),
)

PROBES = SCHEMAS + GRAMMARS


def byte_vocabulary() -> tuple[Vocabulary, peers.Encode]:
    """One token a byte, and an eos."""
    return Vocabulary([bytes([b]) for b in range(256)] + [b""], [EOS]), lambda text: list(text.encode())


def probe_trials(
    arms: Sequence[str], fronts: Sequence[str] = peers.FRONTS, nothing_open: Collection[str] = ()
) -> pd.DataFrame:
    """One row a probe and engine: its verdict (see VERDICTS), counts of wrong texts, and the first of them.

    nothing_open: arms for which probes that leave a value free altogether are recorded as "left out".
    AssertionError where jsonschema-rs (with formats asserted) says otherwise of a text than the probe.
    """
    vocab, encode = byte_vocabulary()
    engines, missing = peers.open_engines(arms, vocab, encode)
    rows = []
    for number, probe in enumerate(probe for probe in PROBES if probe.front in fronts):
        if probe.front == "json_schema":
            _judge(probe)
        for arm in arms:
            row = {
                "probe": number,
                "front": probe.front,
                "group": probe.group,
                "feature": probe.feature,
                "arm": arm,
                "version": peers.version(arm),
            }
            if arm in missing:
                verdict = ("not installed", 0, 0, missing[arm], "")
            elif probe.open and arm in nothing_open:
                verdict = ("left out", 0, 0, "this sweep does not ask it for values that are left free", "")
            else:
                verdict = _verdict(engines[arm], probe, encode)
            names = ("verdict", "too_strict_count", "too_loose_count", "reason", "example")
            texts = len(probe.good) + len(probe.bad)
            rows.append(row | dict(zip(names, verdict, strict=True)) | {"texts_count": texts})
    return pd.DataFrame(rows).rename(columns={"probe": "probe_id"})


def _verdict(engine: peers.Engine, probe: Probe, encode: peers.Encode) -> tuple[str, int, int, str, str]:
    if probe.front not in engine.fronts:
        return "no front end", 0, 0, "", ""
    if reason := peers.refusal(engine, probe.grammar, probe.front):
        return "refuses", 0, 0, reason, ""
    strict = [text for text in probe.good if not peers.takes(engine, encode(text), EOS)]
    loose = [text for text in probe.bad if peers.takes(engine, encode(text), EOS)]
    verdict = "both" if strict and loose else "too strict" if strict else "too loose" if loose else "ok"
    return verdict, len(strict), len(loose), "", json.dumps([*loose, *strict][0]) if strict or loose else ""


def _judge(probe: Probe) -> None:
    validator = Draft202012Validator(json.loads(probe.grammar), validate_formats=True)
    for text, wanted in [(t, True) for t in probe.good] + [(t, False) for t in probe.bad]:
        try:
            valid = validator.is_valid(json.loads(text))
        except ValueError:  # not JSON at all
            valid = False
        if valid != wanted:
            raise AssertionError(f"{probe.feature}: {text!r} is said to be {'valid' if wanted else 'invalid'}")
