"""A matcher against the definition of what it answers: the mask is what `accept` takes, whatever is stored and evicted.

The stored parts of masks (loops of characters, tries of what leaves them, machines' own masks) and the arenas behind
them exist only for speed, so each is provoked here (thresholds of one, room for little) and must change no bit.
"""

import functools
import json

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_grammars import grammars, pattern, recursive_grammars, texts

from gdlib import recognizers
from gdlib.grammar.nodes import Alt, ByteClass, Grammar, GrammarError, Literal, Seq
from gdlib.recognizers.arena import Arena
from gdlib.tokens import forest
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

KINDS = ("fsm", "pda", "earley")
SMALL = 1 / 64

short_tokens = st.lists(st.text("abc", max_size=4).map(str.encode), min_size=1, max_size=12)
PIECES = [*'{}[]",:ab\\1-. e', "é", "\n"]
json_tokens = st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map(lambda p: "".join(p).encode()), max_size=24)
USUAL = [
    b'x":',
    b'","',
    b'"}',
    b'"]',
    b'":"',
    b'", "',
    b"\\",
    b'\\"',
    b"\xc3",
    b"\xa9",
    b"\xa9b",
    b'\xa9":',
    b'"ab":',
    b'"a',
]


@pytest.fixture(scope="module", autouse=True)
def stored_early():
    """Everything that is stored when it is met often, or is large, is stored at once."""
    patch = pytest.MonkeyPatch()
    for name in ("HEAVY", "VISITS", "WORTH"):
        patch.setattr(forest, name, 1)
    yield
    patch.undo()


@pytest.fixture(scope="module")
def arenas():
    return {}


def arena_of(arenas, kind):
    """The shared arena of a kind, a fresh one where it fills up."""
    if kind not in arenas or arenas[kind].full() > 0.4:
        arenas[kind] = Arena(earley=kind == "earley", scale=SMALL)
    return arenas[kind]


def taken(matcher):
    """What `accept` takes, by trying all."""
    return [i for i in range(len(matcher.vocab)) if matcher.copy().accept(i)]


def check_mask(matcher):
    """The mask is right when it is made, when it is made again, and when what it is made of was stored meanwhile."""
    want = taken(matcher)
    for _ in range(4):
        matcher._store.kept.clear()
        matcher._store.only.clear()
        assert matcher.allowed_ids().tolist() == want
        assert matcher.only_token() == (want[0] if len(want) == 1 else -1)
    assert matcher.can_stop() == (bool(matcher.vocab.eos_ids) and matcher.vocab.eos_ids[0] in want)
    return want


def same_as_fresh(matcher, past):
    """A matcher that goes back and forth stands where one stands that only read what is kept."""
    fresh = Matcher(matcher._recognizer.grammar, matcher.vocab, matcher._recognizer.kind)
    assert all(fresh.accept(i) for i in past)
    assert np.array_equal(fresh.mask(), matcher.mask()) and fresh.can_stop() == matcher.can_stop()


def walk(matchers, data, steps):
    """Go a random way with matchers of one vocabulary that must agree; now and then some of it is taken back."""
    vocab, past = matchers[0].vocab, []
    for _ in range(steps):
        legal = check_mask(matchers[0])
        for other in matchers[1:]:
            assert check_mask(other) == legal
        if past and data.draw(st.integers(0, 3)) == 0:
            back = data.draw(st.integers(0, len(past)))
            del past[len(past) - back :]
            for matcher in matchers:
                matcher.rollback(back)
                same_as_fresh(matcher, past)
        going_on = [i for i in legal if i not in vocab.eos_ids and matchers[0].copy().accept(i)]
        if not going_on:
            break
        token = data.draw(st.sampled_from(going_on))
        left = [m.copy() for m in matchers]
        assert all(m.accept(token) for m in matchers)
        assert all(m.accepted() == len(past) for m in left)
        past.append(token)
    for matcher in matchers:
        same_as_fresh(matcher, past)
        matcher.reset()
        same_as_fresh(matcher, [])


def matchers_of(grammar, vocab, arenas):
    """One of every recogniser that can read the grammar; recursive and left-recursive ones leave some out."""
    found = []
    for kind in KINDS:
        try:
            found.append(Matcher(grammar, vocab, kind, arena_of(arenas, kind)))
        except GrammarError:
            assert kind != "earley"
    return found


@settings(max_examples=80, deadline=None)
@given(st.one_of(grammars(), recursive_grammars()), short_tokens, st.data())
def test_masks_of_all_recognisers_are_what_accept_takes(arenas, grammar, tokens, data):
    vocab = Vocabulary([*tokens, b"", b"a", b"b", b"c"], [len(tokens)])
    try:
        walk(matchers_of(grammar, vocab, arenas), data, 5)
    except GrammarError as refused:
        assert "open readings" in str(refused)
        assume(False)


STRINGS = [
    r'root ::= "[" (item ("," item)*)? "]"' "\n" r'item ::= "\"" ([^"\\] | "\\" ["\\n])* "\""',
    r'root ::= "{" pair ("," pair){0,2} "}"' "\n" r'pair ::= "\"" [^"\\]{1,3} "\":" ("\"" [^"\\]{2,} "\"" | [0-9]+)',
    r'root ::= [a-z]* ("\"" [^"]* "\"" [a-z:,]*)*',
    r'root ::= ([^"]+ | "\"" [^"]{0,4} "\"")*',
    r'root ::= .{2,7} "\"" .*',
    {"type": "object", "additionalProperties": {"type": "string"}},
    {"properties": {"a": {"type": "string", "maxLength": 3}, "ab": {"type": "integer"}}, "type": "object"},
    {"type": "object", "properties": {"ab": {"const": "a"}}, "required": ["ab"], "patternProperties": {"^b": {}}},
    {"type": "array", "items": {"type": "string", "minLength": 2, "pattern": "^[ab]"}},
    {"type": "string", "pattern": r"\p{L}{2}"},
    {"enum": ["a", "ab", 'b"', "é", 1, 11, [1], {"a": ["b"]}]},
    {},
]


@functools.cache
def string_grammar(index):
    source = STRINGS[index]
    return Grammar.from_gbnf(source) if isinstance(source, str) else Grammar.from_json_schema(source)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(STRINGS) - 1), json_tokens, st.data())
def test_what_is_stored_of_strings_changes_no_mask(arenas, index, tokens, data):
    grammar = string_grammar(index)
    vocab = Vocabulary([*tokens, *USUAL, *(p.encode() for p in PIECES), *tokens[:2], b""], [])
    vocab = Vocabulary(vocab.tokens, [len(vocab) - 1])
    walk([Matcher(grammar, vocab, "pda", arena_of(arenas, "pda"))], data, 6)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, len(STRINGS) - 1), json_tokens, st.data())
def test_little_room_for_masks_changes_none(index, tokens, data):
    grammar, all_tokens = string_grammar(index), [*tokens, *USUAL, *(p.encode() for p in PIECES), b""]
    little, plenty = (Vocabulary(all_tokens, [len(all_tokens) - 1]) for _ in range(2))
    little.mask_bytes = 1
    here, there = Matcher(grammar, little), Matcher(grammar, plenty)
    for _ in range(40):
        assert np.array_equal(here.mask(), there.mask())
        legal = [i for i in there.allowed_ids().tolist() if i != there.vocab.eos_ids[0]]
        if not legal or data.draw(st.integers(0, 7)) == 0:
            back = data.draw(st.integers(0, here.accepted()))
            here.rollback(back)
            there.rollback(back)
            continue
        token = data.draw(st.sampled_from(legal))
        assert here.accept(token) and there.accept(token)
    assert len(here._store.kept) < 24


class SmallArena(Arena):
    def __init__(self, earley=False, scale=1 / 256):
        super().__init__(earley, scale)


LONG = [
    ('root ::= "a"{0,3000} "b"', b"a" * 1500),
    ('root ::= "[" (root ("," root)*)? "]" | [a-z]{2,9}', b"[[ab,cde]," * 400),
    ('root ::= root "+" term | term\nterm ::= "(" root ")" | [0-9]{1,5}', b"(12+(3+(456+1)+" * 300),
    ('root ::= "a" root "a" | "b" root "b" | "c"', b"abbab" * 120),
]


@pytest.mark.parametrize(("text", "data"), LONG)
@pytest.mark.parametrize("own_arena", [True, False])
def test_moving_to_another_arena_changes_no_mask(monkeypatch, text, data, own_arena):
    vocab = Vocabulary([*(bytes([b]) for b in range(128)), b"aa", b"[[", b"ab,", b"(1", b"+(", b"b]", b""], [134])
    grammar = Grammar.from_gbnf(text)
    plain = Matcher(grammar, vocab)
    earley = plain._recognizer.kind == "earley"
    if own_arena:
        tiny = Arena(earley, SMALL)
    else:  # every arena of the process begins tiny, so that one text outgrows several
        monkeypatch.setattr(recognizers, "_ARENAS", {})
        monkeypatch.setattr(recognizers, "Arena", SmallArena)
        tiny = None
    matcher = Matcher(grammar, vocab, arena=tiny)
    homes, copies = {id(matcher._recognizer.arena): matcher._recognizer.arena}, []
    for place, byte in enumerate(data):
        assert np.array_equal(matcher.mask(), plain.mask()), place
        assert matcher.accept(byte) and plain.accept(byte)
        homes[id(matcher._recognizer.arena)] = matcher._recognizer.arena
        if place % 100 == 0:
            copies.append((matcher.copy(), plain.mask().copy()))
    assert len(homes) > 1, "the text was meant to outgrow its arena"
    for copy, mask in copies:
        assert np.array_equal(copy.mask(), mask)
    while matcher.accepted():
        back = min(50, matcher.accepted())
        matcher.rollback(back)
        plain.rollback(back)
        assert np.array_equal(matcher.mask(), plain.mask())


# ----------------------------------------------------------------------------------------------- judges from elsewhere

names = st.sampled_from(["a", "b", "ab", ""])
atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([0.5, -1.5, 2.0, 1e3]),
    st.sampled_from(["", "a", "ab", "é"]),
)
values = st.recursive(
    atoms, lambda v: st.one_of(st.lists(v, max_size=3), st.dictionaries(names, v, max_size=3)), max_leaves=5
)
counts = st.integers(0, 3)
numbers = st.sampled_from([-2, 0, 1, 3, 10, 0.5, 2.5])


def schema_of(children):
    """Schemas of a few keywords, those that ask for others made of `children`."""
    several = st.lists(children, min_size=1, max_size=2)
    keywords = {
        "type": st.one_of(
            st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"]),
            st.lists(
                st.sampled_from(["null", "integer", "string", "array", "object"]), min_size=1, max_size=3, unique=True
            ),
        ),
        "const": values,
        "enum": st.lists(values, min_size=1, max_size=4, unique_by=json.dumps),
        "minimum": numbers,
        "maximum": numbers,
        "exclusiveMinimum": numbers,
        "exclusiveMaximum": numbers,
        "multipleOf": st.sampled_from([1, 2, 3, 0.5]),
        "minLength": counts,
        "maxLength": counts,
        "pattern": st.sampled_from(["a", "^a", "b$", "^(a|b)*$", "^.{2}$", "[^a]"]),
        "items": children,
        "prefixItems": several,
        "contains": children,
        "minContains": counts,
        "maxContains": counts,
        "minItems": counts,
        "maxItems": counts,
        "uniqueItems": st.booleans(),
        "properties": st.dictionaries(names, children, max_size=2),
        "patternProperties": st.dictionaries(st.sampled_from(["a", "^b", "b$"]), children, max_size=1),
        "additionalProperties": children,
        "propertyNames": children,
        "required": st.lists(names, max_size=2, unique=True),
        "dependentRequired": st.dictionaries(names, st.lists(names, max_size=1), max_size=1),
        "dependentSchemas": st.dictionaries(names, children, max_size=1),
        "minProperties": counts,
        "maxProperties": counts,
        "unevaluatedProperties": children,
        "unevaluatedItems": children,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": children,
        "if": children,
        "then": children,
        "else": children,
    }
    chosen = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True)
    return chosen.flatmap(lambda keys: st.fixed_dictionaries({key: keywords[key] for key in keys}))


schemas = st.recursive(st.one_of(st.booleans(), schema_of(st.booleans())), schema_of, max_leaves=4)
JSON_BYTES = Vocabulary([bytes([b]) for b in range(256)] + [b""], [256])


@settings(max_examples=150, deadline=None)
@given(schemas, st.lists(values, min_size=4, max_size=8))
def test_schemas_take_what_a_validator_takes(schema, instances):
    try:
        matcher = Matcher(Grammar.from_json_schema(schema), JSON_BYTES)
    except GrammarError as refused:
        assert str(refused)
        return
    judge = jsonschema_rs.Draft202012Validator(schema)
    for value in instances:
        text = json.dumps(value, ensure_ascii=False).encode()
        matcher.reset()
        assert (all(map(matcher.accept, text)) and matcher.can_stop()) == judge.is_valid(value), (schema, text)


def as_ebnf(node):
    """A regular node in xgrammar's notation."""
    if isinstance(node, Literal):
        return json.dumps(node.text.decode())
    if isinstance(node, ByteClass):
        return f"[{''.join(map(chr, sorted(node.allowed)))}]"
    if isinstance(node, Seq):
        return "(" + (" ".join(map(as_ebnf, node.parts)) or '""') + ")"
    if isinstance(node, Alt):
        return "(" + " | ".join(map(as_ebnf, node.choices)) + ")"
    return f"({as_ebnf(node.node)}){{{node.low},{'' if node.high is None else node.high}}}"


def test_xgrammar_takes_the_same_texts():
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string as accepts

    @settings(max_examples=40, deadline=None)
    @given(grammars())
    def check(grammar):
        try:
            judge = xgrammar.Grammar.from_ebnf("root ::= " + as_ebnf(grammar.root))
        except RuntimeError:  # an empty language, or a dialect that cannot say it
            return
        matcher = Matcher(grammar, JSON_BYTES)
        for text in texts(3):
            matcher.reset()
            assert (all(map(matcher.accept, text)) and matcher.can_stop()) == accepts(judge, text.decode()), text

    check()


def test_llguidance_takes_the_same_texts():
    llguidance = pytest.importorskip("llguidance")
    tokenizer = llguidance.LLTokenizer("byte")

    @settings(max_examples=40, deadline=None)
    @given(grammars())
    def check(grammar):
        # one expression: its lexer takes the longest match of each terminal, so that several are another language
        source = llguidance.LLMatcher.grammar_from_regex(pattern(grammar.root).decode())
        judge = llguidance.LLMatcher(tokenizer, source, log_level=0)
        if judge.is_error():
            return
        matcher = Matcher(grammar, JSON_BYTES)
        for text in texts(3):
            matcher.reset()
            judge.reset()
            want = judge.try_consume_tokens(list(text)) == len(text) and judge.is_accepting()
            assert (all(map(matcher.accept, text)) and matcher.can_stop()) == want, text

    check()
