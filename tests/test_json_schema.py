"""JSON Schema: keyword by keyword, then random schemas and texts judged by a validator and the reference recogniser."""

import contextlib
import gc
import json
import os
import random
import time
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import accepts, alive

from gdlib.grammar.nodes import (
    Alt,
    ByteClass,
    Character,
    Counted,
    Dfa,
    Grammar,
    GrammarError,
    Lazy,
    Literal,
    Repeat,
    Seq,
    Words,
)
from gdlib.grammar.schema import SchemaError, explain, from_json_schema

OPEN = {"type": "object"}
CARD = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "tag": {"enum": ["x", "é\n"]}},
    "required": ["n"],
    "additionalProperties": False,
}
# schema; texts that are in; texts that are not
LANGUAGES = [
    (True, ['{"a": [1e5, -0, null]}', ' "x"'[1:], "false"], ["", "[1,]", "{a: 1}", " 1", "1 "]),
    ({}, ["0", "[[], {}]"], ["nul"]),
    ({"type": ["null", "boolean"]}, ["null", "true"], ["0", '"true"']),
    ({"type": "integer"}, ["0", "-7", "5.0"], ["5.5", "05", "1e2"]),
    ({"minimum": 2, "exclusiveMaximum": 3}, ["2", "2.9", '"x"'], ["3", "1.99", "3.0"]),
    ({"type": "number", "minimum": 0}, ["1e-07", "2.5e+17", "0", "0.00001"], ["-1e-07", "-1"]),
    ({"type": "number", "maximum": 10, "exclusiveMaximum": True}, ["9.9"], ["10"]),
    ({"type": "string", "maxLength": 2}, ['"é\\u00e9"', '""', '"\\/"'], ['"abc"', '"a', '"\t"']),
    ({"type": "string", "pattern": "^a+$", "minLength": 2, "maxLength": 3}, ['"aa"', '"aaa"'], ['"a"', '"aaaa"']),
    ({"type": "string", "pattern": "b|cc", "maxLength": 2}, ['"b"', '"ab"', '"cc"'], ['"abb"', '"c"', '""']),
    ({"type": "string", "format": "ipv4", "pattern": "^1"}, ['"1.2.3.4"'], ['"2.2.3.4"', '"1.2.3"']),
    ({"not": {"type": "string", "pattern": "^a"}}, ['"b"', "1"], ['"a"', '"ab"']),
    ({"not": {"multipleOf": 3}, "type": "integer"}, ["1", "-2"], ["0", "3.0", "-6"]),
    ({"const": 1}, ["1", "1.0", "1.000"], ["true", "10", "1e0"]),
    (
        {"enum": [0.5, 1e-8, "a", {"k": [True]}]},
        ["0.5", "0.50", "1e-08", '"a"', '{ "k": [true] }'],
        ["5", '{"k": [1]}'],
    ),
    (CARD, ['{"n": 1}', '{"tag": "x", "n": 2}', '{"n":3,"tag":"é\\n"}'], ['{"tag": "x"}', '{"n": 1, "n": 2}', "{}"]),
    ({**CARD, "additionalProperties": {"type": "null"}}, ['{"z": null, "n": 1}'], ['{"n": 1, "z": 1}', '{"z": null}']),
    ({"type": "object", "required": ["a", "b"], "maxProperties": 2}, ['{"b": 1, "a": 2}'], ['{"a": 1, "c": 1}']),
    ({"type": "object", "minProperties": 2, "maxProperties": 3}, ['{"b": 1, "a": 2}'], ['{"a": 1}']),
    (
        {"type": "object", "properties": {"a": False, "b": {}}, "minProperties": 1, "additionalProperties": False},
        ['{"b": 0}'],
        ["{}", '{"a": 0}', '{"a": 0, "b": 0}'],
    ),
    (
        {"patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}}, "additionalProperties": {"const": 0}},
        ['{"x": 1, "y": 7, "xy": 6, "z": 0}', "1"],
        ['{"xy": 4}', '{"x": 1.5}', '{"z": 1}', '{"y": 1}'],
    ),
    ({"allOf": [{"patternProperties": {"^n": {}}}, {"additionalProperties": False}]}, ["{}"], ['{"n": 1}']),
    ({"propertyNames": {"maxLength": 2, "pattern": "a"}}, ['{"ab": 1, "a": 2}', "[]"], ['{"b": 1}', '{"aab": 1}']),
    ({"dependentRequired": {"a": ["b"], "b": ["c"]}}, ["{}", '{"c": 1, "b": 1}'], ['{"a": 1}', '{"a": 1, "b": 1}']),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, ['{"b": 1, "a": 1}'], ['{"a": 1}']),
    ({"dependencies": {"a": ["b"], "c": {"maxProperties": 1}}}, ['{"c": 1}'], ['{"a": 1}', '{"c": 1, "d": 1}']),
    ({"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2}, ["[null]", "[ null ,null]"], ["[]"]),
    ({"items": [{"const": 1}], "additionalItems": {"const": 2}}, ["[1, 2, 2]", "[]"], ["[2]", "[1, 1]"]),
    ({"prefixItems": [True, False]}, ["[]", "[1]"], ["[1, 1]"]),
    ({"type": "array", "minItems": 10**9}, [], ["[]", "[1]"]),
    ({"contains": {"const": 7}, "maxContains": 1, "maxItems": 2}, ["[7]", "[7, 1]"], ["[]", "[7, 7]", "[1, 1]"]),
    ({"uniqueItems": True, "items": {"enum": ["a", "b", 1]}}, ['["b", 1, "a"]', "[]"], ['["a", "a"]', "[1, 1.0]"]),
    ({"uniqueItems": True, "maxItems": 1}, ["[{}]"], ["[1, 2]"]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, ["1", "2.5", '"a"'], ["3", "1.5"]),
    (
        {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ['{"a": 1}', '{"b": 1, "c": 1}'],
        ["{}", '{"a": 1, "b": 1}'],
    ),
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"maxProperties": 0}}, ["{}"], ['{"a": 1}']),
    ({"not": {"additionalProperties": {"type": "integer"}}}, ['{"a": 1, "b": "x"}'], ['{"a": 1}', "{}", "1"]),
    ({"not": {"items": {"type": "integer"}}}, ['[1, "x"]'], ["[1]", "[]"]),
    ({"not": {"propertyNames": {"pattern": "^a"}}}, ['{"a": 1, "b": 1}'], ['{"a": 1}', "{}"]),
    (
        {
            "anyOf": [{"properties": {"a": {}}}, {"required": ["b"], "properties": {"b": {}}}],
            "unevaluatedProperties": False,
        },
        ['{"a": 1}', '{"a": 1, "b": 1}'],
        ['{"c": 1}'],
    ),
    ({"prefixItems": [{}], "contains": {"const": 1}, "unevaluatedItems": False}, ["[1]", "[0, 1]"], ["[1, 0]"]),
    (
        {"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "array", "items": {"$ref": "#"}}}},
        ["[[], [[]]]"],
        ["[1]"],
    ),
    (
        {
            "$id": "http://x/y",
            "$ref": "z#q",
            "$defs": {"k": {"$id": "z", "$defs": {"w": {"$anchor": "q", "const": 1}}}},
        },
        ["1"],
        ["2"],
    ),
    (
        {"anyOf": [{"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, {"const": 1}]},
        ['{"a": 1}'],
        ["{}"],
    ),
    (
        {"$schema": "http://json-schema.org/draft-04/schema#", "const": 1, "$ref": "#/x", "x": {}, "type": "null"},
        ["2"],
        [],
    ),
    (
        {"properties": {"a": {"enum": ["x"]}}, "$schema": "http://json-schema.org/draft-07/schema#"},
        ['{"a": "x"}'],
        ['{"a": 1}'],
    ),
]
REFUSED = [
    ({"type": "text"}, "#", "type"),
    ({"properties": {"a/b": {"minLength": "2"}}}, "#/properties/a~1b", "minLength"),
    ({"required": True}, "#", "required"),
    ({"items": {"pattern": "(a)\\1"}}, "#/items", "pattern"),
    ({"items": {"pattern": "(a|b)*a(a|b){30}", "maxLength": 50}}, "#/items", "pattern"),
    ({"$ref": "http://elsewhere/x.json"}, "#", "$ref"),
    ({"$ref": "#/nowhere"}, "#", "$ref"),
    ({"$ref": "#"}, "#", "$ref"),
    ({"anyOf": [{"$ref": "#"}, {"const": 1}]}, "#", "$ref"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "#", "$ref"),
    ({"type": "array", "uniqueItems": True}, "#", "uniqueItems"),
    ({"not": {"type": "array", "uniqueItems": True}}, "#/not", "uniqueItems"),
    ({"enum": []}, "#", "enum"),
    ({"enum": ["\ud800"]}, "#", "enum"),
    ({"minimum": float("nan")}, "#", "minimum"),
    ({"multipleOf": 0}, "#", "multipleOf"),
    ({"items": 3}, "#", "items"),
    ({"allOf": []}, "#", "allOf"),
    ({"format": "regex"}, "#", "format"),
    ({"$schema": "https://example.com/mine"}, "", "$schema"),
    ({"allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(30)]}, "#", "schema"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "", "schema"),
    ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "", "schema"),
    ({"allOf": [{"const": "a"}, {"const": "b"}]}, "", "schema"),
    (False, "", "schema"),
    ([], "", "schema"),
]


@pytest.mark.parametrize(("schema", "good", "bad"), LANGUAGES, ids=[json.dumps(case[0])[:70] for case in LANGUAGES])
def test_language(schema, good, bad):
    grammar = from_json_schema(schema)
    assert [t for t in good if not accepts(grammar, t.encode())] == []
    assert [t for t in bad if accepts(grammar, t.encode())] == []
    for text in good:
        assert all(alive(grammar, text.encode()[:i]) for i in range(len(text.encode())))


@pytest.mark.parametrize(("schema", "path", "keyword"), REFUSED, ids=[repr(case[0])[:70] for case in REFUSED])
def test_refused_with_its_place(schema, path, keyword):
    with pytest.raises(SchemaError) as caught:
        from_json_schema(schema)
    assert (caught.value.path, caught.value.keyword) == (path, keyword)
    assert any((row.path, row.keyword, row.status) == (path or "#", keyword, "refused") for row in explain(schema))


def test_a_member_never_leads_nowhere():
    # b asks for c, which has no value; d would leave no room for a
    schema = {
        "type": "object",
        "properties": {"a": {"type": "null"}, "b": {}, "c": False, "d": {}},
        "required": ["a"],
        "maxProperties": 1,
        "dependentRequired": {"b": ["c"]},
    }
    grammar = from_json_schema(schema)
    assert accepts(grammar, b'{"a":null}')
    assert not any(alive(grammar, text) for text in (b'{"b"', b'{"c"', b'{"d"', b'{"a":null,', b'{"other"', b"{}"))
    assert not alive(from_json_schema({"type": "array", "items": {"type": "null"}, "maxItems": 1}), b"[null,")
    numbers = {"enum": [["a", 1], ["b", 2]], "contains": {"const": 2}}
    assert not alive(from_json_schema(numbers), b'["a"')


def test_whitespace():
    schema = {"type": "object", "properties": {"a": {"type": "array"}}, "additionalProperties": False}
    texts = {"loose": b'{ "a"\t: [1 ,\n2 ] }', "tight": b'{"a":[1,2]}', "usual": b'{"a": [1, 2]}'}
    expected = {"any": {"loose", "tight", "usual"}, "compact": {"tight"}, (", ", ": "): {"usual"}}
    for whitespace, names in expected.items():
        grammar = from_json_schema(schema, whitespace=whitespace)
        assert {name for name, text in texts.items() if accepts(grammar, text)} == names
    for wrong in ("none", (",", "="), (", ",), 3):
        with pytest.raises(GrammarError, match="whitespace"):
            from_json_schema(schema, whitespace=wrong)


def test_order_of_members():
    schema = {"type": "object", "properties": {"b": {}, "a": {}, "c": {}}, "required": ["a"]}
    ordered = from_json_schema(schema, order="schema")
    for text in ('{"a":1}', '{"b":1,"a":1,"c":1,"z":1}', '{"a":1,"z":1,"y":1}'):
        assert accepts(ordered, text.encode())
    for text in ('{"a":1,"b":1}', '{"z":1,"a":1}', '{"c":1,"a":1}', '{"a":1,"z":1,"c":1}'):
        assert not accepts(ordered, text.encode())
        assert accepts(from_json_schema(schema), text.encode())
    assert not alive(ordered, b'{"c"')
    assert not alive(ordered, b'{"z"')
    with pytest.raises(GrammarError, match="order"):
        from_json_schema(schema, order="random")


def test_formats():
    schema = {"type": "string", "format": "date"}
    assert not accepts(from_json_schema(schema), b'"2023-02-30"')
    assert accepts(from_json_schema(schema, formats="annotate"), b'"2023-02-30"')
    assert accepts(from_json_schema({"format": "no such format"}), b'"anything"')
    with pytest.raises(GrammarError, match="formats"):
        from_json_schema(schema, formats="maybe")


def test_spellings():
    grammar = from_json_schema({"properties": {"é\n": {"const": "/é"}, "f": {"type": "string"}}})
    assert accepts(grammar, '{"é\\n":"/é"}'.encode())
    assert not accepts(grammar, b'{"\\u00e9\\n":1}'), "another spelling of a listed name is no unlisted name"
    assert accepts(grammar, b'{"f":"\\u0066\\/"}')


def test_explain_tells_every_keyword():
    schema = {
        "title": "t",
        "properties": {
            "a": {"type": "integer", "minimum": 0, "x-mine": 1},
            "b": {"type": "array", "uniqueItems": True},
        },
        "if": {},
        "additionalItems": False,
        "oneOf": [{"required": 3}, {"$ref": "#/nowhere"}],
    }
    found = {(row.path, row.keyword): row.status for row in explain(schema)}
    assert found["#", "title"] == "annotation"
    assert found["#", "properties"] == "narrowed"
    assert found["#", "if"] == found["#", "additionalItems"] == "annotation"
    assert found["#/properties/a", "type"] == "enforced"
    assert found["#/properties/a", "minimum"] == "narrowed"
    assert found["#/properties/a", "x-mine"] == "annotation"
    assert {k for k, v in found.items() if v == "refused"} == {
        ("#/properties/b", "uniqueItems"),
        ("#/oneOf/0", "required"),
        ("#/oneOf/1", "$ref"),
    }
    assert [row.status for row in from_json_schema({"type": "null"}).explain()] == ["enforced"]
    old = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/d",
        "minimum": 3,
        "definitions": {"d": {}},
    }
    assert {r.keyword: r.note for r in explain(old)}["minimum"] == "not read beside $ref in this dialect"


def test_explain_tells_where_a_repeated_name_counts():
    rules = {"maxProperties": 3, "additionalProperties": {"type": "string"}, "patternProperties": {"^a": {}}}
    notes = {(row.path, row.keyword): row.note for row in explain({"minProperties": 2, "not": rules})}
    assert notes["#", "minProperties"] == notes["#/not", "maxProperties"] != ""
    assert all("written again" in notes["#/not", k] for k in ("additionalProperties", "patternProperties"))
    assert not any("written again" in row.note for row in explain(rules))
    grammar = from_json_schema({"not": {"additionalProperties": {"type": "string"}}})
    assert accepts(grammar, b'{"a": 1, "a": "x"}') and not accepts(grammar, b'{"a": "x", "a": "x"}')


def test_the_collector_runs_again_whatever_becomes_of_a_schema():
    for schema in ({"type": "null"}, {"type": 3}, False):
        with contextlib.suppress(SchemaError):
            from_json_schema(schema)
        assert gc.isenabled()


def nested(keyword: str, wrap, depth: int = 5000):
    schema = {"type": "null"}
    for _ in range(depth):
        schema = {keyword: wrap(schema)}
    return schema


def told_apart(kinds: int, names: int) -> dict:
    """Objects whose kind is told by one member: what most unions in real schemas are."""
    branches = []
    for kind in range(kinds):
        members = {f"m{i}": {"type": "string" if (kind + i) % 2 else "integer"} for i in range(names)}
        branches.append(
            {
                "type": "object",
                "properties": {"kind": {"enum": [f"k{kind}", kind]}, **members},
                "required": ["kind", "m0"],
                "additionalProperties": kind % 2 == 0,
            }
        )
    return {"oneOf": branches}


def test_the_negation_of_kinds_told_apart_is_their_sum_and_not_their_product():
    from_json_schema({"not": told_apart(12, 6)})  # 8 ** 12 alternatives otherwise
    schema = {"not": told_apart(3, 2)}
    grammar, validator = from_json_schema(schema, whitespace="compact"), jsonschema_rs.Draft202012Validator(schema)
    taken = 0
    for kind in (None, "k0", 0, "k1", 2, "k3", 1.5):
        for m0 in (None, "x", 3):
            for m1 in (None, "y", 4):
                for more in (None, [1]):
                    members = {"kind": kind, "m0": m0, "m1": m1, "z": more}
                    value = {name: given for name, given in members.items() if given is not None}
                    text = json.dumps(value, separators=(",", ":")).encode()
                    assert accepts(grammar, text) == validator.is_valid(value), text
                    taken += validator.is_valid(value)
    assert 0 < taken < 7 * 3 * 3 * 2


def test_hostile_schemas_end_soon():
    value = []
    for _ in range(20_000):
        value = [value]
    required = {"type": "null"}
    for _ in range(5000):
        required = {"type": "object", "properties": {"a": required}, "required": ["a"]}
    chain = {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(5000)} | {"5000": {"type": "null"}}
    cases = [
        *(nested(k, lambda s: s) for k in ("items", "not", "if", "contains", "propertyNames", "additionalProperties")),
        *(nested(k, lambda s: [s]) for k in ("allOf", "anyOf", "oneOf", "prefixItems")),
        *(nested(k, lambda s: {"a": s}) for k in ("properties", "patternProperties", "dependentSchemas")),
        {"const": value},
        required,
        {"$ref": "#/$defs/0", "$defs": chain},
        {"$ref": "#" + "/a" * 100_000},
        {"enum": [f"value {i}" for i in range(50_000)]},
        {"type": "array", "minItems": 10**9, "maxItems": 10**9 + 1},
        {"contains": {}, "minContains": 10**9},
        {"pattern": "a", "maxLength": 10**9},
        {"minLength": 10**5000},
        {"minimum": 10**5000},
        {"properties": {f"p{i}": {} for i in range(3000)}, "required": [f"p{i}" for i in range(3000)]},
    ]
    for schema in cases:
        start = time.perf_counter()
        try:
            assert isinstance(from_json_schema(schema), Grammar)
        except SchemaError as error:
            assert len(str(error)) < 1000
        assert time.perf_counter() - start < 120  # it ends; the first call may compile


def test_a_large_enum_is_one_table():
    grammar = from_json_schema({"enum": [f"value {i}" for i in range(20_000)]})
    assert accepts(grammar, b'"value 19999"')
    assert not accepts(grammar, b'"value 20000"')


# Random schemas

NAMES = ["a", "b", "c", "ab", "x1"]
PATTERNS = ["a", "^a", "b$", "^[a-c]+$", "^x\\d$", ""]
TEXTS = ["", "a", "b", "ab", "c", "x1", "abc"]


def random_value(rng: random.Random, depth: int = 3):
    kind = rng.randrange(8 if depth else 5)
    if kind < 5:
        pick = (None, rng.random() < 0.5, rng.randrange(-2, 8), rng.choice([0.5, 1.0, 2.0, -0.5, 3.25]))
        return pick[kind] if kind < 4 else rng.choice(TEXTS)
    if kind == 5:
        return rng.choice(TEXTS)
    if kind == 6:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {n: random_value(rng, depth - 1) for n in rng.sample(NAMES, rng.randrange(4))}


def random_schema(rng: random.Random, depth: int = 3):
    if rng.random() < 0.08:
        return rng.random() < 0.6

    def below():
        return random_schema(rng, depth - 1) if depth else rng.choice([True, {}, {"type": "string"}, {"const": 1}])

    def several():
        return [below() for _ in range(rng.randrange(1, 4))]

    makers = {
        "minimum": lambda: rng.choice([0, 1, 2.5]),
        "exclusiveMaximum": lambda: rng.choice([1, 3, 2.5]),
        "multipleOf": lambda: rng.choice([1, 2, 0.5, 3]),
        "minLength": lambda: rng.randrange(3),
        "maxLength": lambda: rng.randrange(4),
        "pattern": lambda: rng.choice(PATTERNS),
        "enum": lambda: [random_value(rng, 1) for _ in range(rng.randrange(1, 4))],
        "const": lambda: random_value(rng, 2),
        "properties": lambda: {n: below() for n in rng.sample(NAMES, rng.randrange(1, 4))},
        "required": lambda: rng.sample(NAMES, rng.randrange(3)),
        "additionalProperties": below,
        "patternProperties": lambda: {p: below() for p in rng.sample(PATTERNS, rng.randrange(1, 3))},
        "propertyNames": lambda: rng.choice([{"pattern": "^a"}, {"maxLength": 1}, {"not": {"const": "a"}}, below()]),
        "minProperties": lambda: rng.randrange(3),
        "maxProperties": lambda: rng.randrange(3),
        "dependentRequired": lambda: {rng.choice(NAMES): rng.sample(NAMES, rng.randrange(3))},
        "dependentSchemas": lambda: {rng.choice(NAMES): below()},
        "items": below,
        "prefixItems": lambda: several()[:2],
        "minItems": lambda: rng.randrange(3),
        "maxItems": lambda: rng.randrange(4),
        "contains": below,
        "minContains": lambda: rng.randrange(3),
        "maxContains": lambda: rng.randrange(3),
        "uniqueItems": lambda: rng.random() < 0.3,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": below,
        "if": below,
        "then": below,
        "else": below,
        "unevaluatedProperties": lambda: False,
        "unevaluatedItems": lambda: False,
    }
    chosen = rng.sample(sorted(makers), rng.choice([0, 1, 2, 2, 3, 3, 4]))
    schema = {keyword: makers[keyword]() for keyword in chosen}
    if rng.random() < 0.5:
        types = ["string", "integer", "number", "object", "object", "array", "array", "boolean", "null"]
        schema["type"] = rng.choice(types) if rng.random() < 0.8 else sorted(set(rng.sample(types, 2)))
    return schema


class TooLongError(Exception):
    """The random text grows without end."""


def random_text(grammar: Grammar, rng: random.Random, budget: int = 400) -> bytes:
    """A text that the tree spells out when choices are made at random; fails where a choice leads nowhere."""
    made, out, stack, steps = {}, bytearray(), [grammar.root], 0
    while stack:
        node, steps = stack.pop(), steps + 1
        if steps > 10 * budget:
            raise TooLongError
        if isinstance(node, Literal):
            out += node.text
        elif isinstance(node, ByteClass):
            out.append(rng.choice(sorted(node.allowed)))
        elif isinstance(node, Character):
            low, high = rng.choice(node.ranges)
            plain = [c for c in map(chr, range(max(low, 32), min(high, 126) + 1)) if c not in '"\\'] or [chr(high)]
            out += json.dumps(rng.choice(plain), ensure_ascii=False)[1:-1].encode()
        elif isinstance(node, Seq):
            stack += reversed(node.parts)
        elif isinstance(node, Alt):
            stack.append(rng.choice(node.choices))
        elif isinstance(node, Repeat):
            high = node.low + 2 if node.high is None else min(node.high, node.low + 2)
            stack += [node.node] * rng.randint(node.low, node.low if steps > budget else high)
        elif isinstance(node, Lazy):
            if node.key not in made:
                made[node.key] = node.make()
            stack.append(made[node.key])
        elif isinstance(node, Words):
            options = [i for i in range(len(node.table.texts)) if not node.skip >> i & 1]
            index = rng.choice(options + ([-1] if node.other is not None else []))
            other = b'"zz"' if isinstance(node.other, Character) else random_walk(node.other, rng) if index < 0 else b""
            if index < 0 and other in node.table.texts:
                raise TooLongError
            out += other if index < 0 else node.table.texts[index]
            stack.append(node.then(index))
        else:
            out += random_walk(node, rng)
    return bytes(out)


def random_walk(machine: Dfa | Counted, rng: random.Random) -> bytes:
    counted = machine if isinstance(machine, Counted) else None
    machine = counted.machine if counted else machine
    state, count, out = 0, 0, bytearray()
    while True:
        done = machine.accepting[state] and not (counted and count < counted.low)
        if done and (rng.random() < 0.4 or len(out) > 30):
            return bytes(out)
        if counted and counted.starts[state]:
            count += 1
            if count == len(counted.useful):
                if not counted.saturated:
                    assert done
                    return bytes(out)
                count -= 1
        following = {b: machine.delta[state, machine.columns[b]] for b in range(256)}
        bytes_on = [b for b, s in following.items() if s >= 0 and not (counted and not counted.useful[count, s])]
        if not bytes_on:
            assert done, "a text that cannot be completed"
            return bytes(out)
        byte = rng.choice([b for b in bytes_on if chr(b) in "abcx120."] or bytes_on)
        out.append(byte)
        state = following[byte]
        if len(out) > 300:
            raise TooLongError


def has_repeated_names(text: bytes) -> bool:
    found = []
    json.loads(text, object_pairs_hook=lambda pairs: found.append(len({k for k, _ in pairs}) < len(pairs)))
    return any(found)


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 10**9))
def test_random_schemas_against_a_validator(seed):
    rng = random.Random(seed)
    schema, examples = random_schema(rng), [random_value(rng) for _ in range(15)]
    judge = jsonschema_rs.Draft202012Validator(schema)
    try:
        grammar = from_json_schema(schema)
    except SchemaError as error:
        if "no JSON value" in str(error):
            assert not any(judge.is_valid(value) for value in examples)
        return
    for value in examples:
        assert accepts(grammar, json.dumps(value).encode()) == judge.is_valid(value), (schema, value)
    for _ in range(3):
        try:
            text = random_text(grammar, rng)
        except TooLongError:
            continue
        value = json.loads(text)
        # numbers that a float cannot hold are judged as other numbers
        if not has_repeated_names(text) and not any(len(run) > 12 for run in text.replace(b".", b"").split()):
            assert judge.is_valid(value), (schema, text)


@pytest.mark.skipif("GDLIB_SUITE" not in os.environ, reason="GDLIB_SUITE: folder of the official draft2020-12 tests")
def test_official_suite():
    passed, wrong = 0, []
    for path in sorted(Path(os.environ["GDLIB_SUITE"]).glob("*.json")):
        for group in json.loads(path.read_text()):
            try:
                grammar = from_json_schema(group["schema"], formats="annotate")
            except SchemaError as error:
                if "no JSON value" in str(error):
                    wrong += [(path.name, t["description"]) for t in group["tests"] if t["valid"]]
                    passed += len(group["tests"])
                continue
            for test in group["tests"]:
                text = json.dumps(test["data"], ensure_ascii=False).encode()
                passed += 1
                if accepts(grammar, text) != test["valid"]:
                    wrong.append((path.name, group["description"], test["description"]))
    assert wrong == []
    assert passed >= 1150
