"""Nodes, segments, and the machine built from them, against `re`, `json` and enumeration."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_grammars import grammars, pattern, sentences, texts

from gdlib.grammar import Grammar, GrammarError
from gdlib.grammar.nodes import Alt, ByteClass, Repeat, Seq, byte_class, literal, longest
from gdlib.grammar.regular import contains, dfa
from gdlib.grammar.segments import boolean, integer, items, members, text, word


def build_fsm(grammar, max_states=100_000):
    return dfa(grammar.root, max_states)


accepts = contains


@settings(max_examples=150, deadline=None)
@given(grammars())
def test_machine_agrees_with_re(grammar):
    fsm, judge = build_fsm(grammar), re.compile(pattern(grammar.root))
    for data in texts(5):
        assert accepts(fsm, data) == (judge.fullmatch(data) is not None), data


@settings(max_examples=100, deadline=None)
@given(grammars())
def test_every_state_can_still_reach_an_end(grammar):
    fsm = build_fsm(grammar)
    alive = set(map(int, fsm.accepting.nonzero()[0]))
    while True:
        more = {s for s in range(len(fsm.delta)) if s not in alive and set(map(int, fsm.delta[s])) & alive}
        if not more:
            break
        alive |= more
    assert len(alive) == len(fsm.delta)


@settings(max_examples=100, deadline=None)
@given(grammars(unbounded=False))
def test_longest_is_the_longest_sentence(grammar):
    assert longest(grammar.root) == max(map(len, sentences(grammar.root)))


def test_longest_without_bound():
    assert longest(Repeat(literal("a"), 0, None)) is None
    assert longest(Repeat(literal(""), 0, None)) == 0


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: byte_class(b""), "empty byte class"),
        (lambda: ByteClass(frozenset([256])), "outside 0..255"),
        (lambda: Alt(()), "without choices"),
        (lambda: Repeat(literal("a"), 3, 2), r"\{3,2\}"),
        (lambda: Repeat(literal("a"), -1, None), r"\{-1,None\}"),
    ],
)
def test_bad_nodes_are_named(build, says):
    with pytest.raises(GrammarError, match=says):
        build()


def test_a_machine_that_grows_without_end_is_refused():
    with pytest.raises(GrammarError, match="more than 50 states"):
        build_fsm(Grammar(literal("a" * 100)), max_states=50)
    with pytest.raises(GrammarError, match="states"):
        build_fsm(Grammar(Repeat(literal("a"), 0, 10**9)), max_states=1000)


@given(st.integers(0, 99_999))
def test_integer_is_what_json_writes(value):
    fsm = build_fsm(Grammar(integer(3)))
    assert accepts(fsm, str(value).encode()) == (value < 1000)


@pytest.mark.parametrize("bad", ["", "-", "00", "01", "+1", "1.0", "1e3", "-0x1", " 1"])
def test_integer_takes_nothing_else(bad):
    assert not accepts(build_fsm(Grammar(integer(3, signed=True))), bad.encode())


def test_fixed_integer_allows_the_leading_zero_that_json_does_not():
    fsm = build_fsm(Grammar(integer(2, fixed=True)))
    assert accepts(fsm, b"07") and not accepts(fsm, b"7")


@settings(max_examples=300)
@given(st.text(min_size=1, max_size=6))
def test_text_takes_what_json_writes(value):
    fsm = build_fsm(Grammar(text(6)))
    raw = json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")
    surrogate = any(0xD800 <= ord(c) <= 0xDFFF for c in value)
    assert accepts(fsm, raw) == (not surrogate)
    escaped = json.dumps(value).encode()
    # outside the basic plane JSON escapes a character as two surrogates; the segment leaves those out
    assert accepts(fsm, escaped) == all(ord(c) < 0x10000 and not 0xD800 <= ord(c) <= 0xDFFF for c in value)


@settings(max_examples=300)
@given(st.binary(max_size=8))
def test_text_never_takes_what_json_refuses(data):
    if accepts(build_fsm_of_text, b'"' + data + b'"'):
        json.loads(b'"' + data + b'"')


build_fsm_of_text = build_fsm(Grammar(text(8)))


def test_text_counts_characters_not_bytes():
    fsm = build_fsm(Grammar(text(2)))
    assert accepts(fsm, '"zł"'.encode()) and not accepts(fsm, '"złe"'.encode()) and not accepts(fsm, b'""')


def test_members_and_items_write_compact_json():
    node = members([("a", integer(1)), ("b", Seq((literal("["), items(boolean(), 1, 2, ","), literal("]"))))])
    fsm = build_fsm(Grammar(node))
    for value in ({"a": 1, "b": [True]}, {"a": 0, "b": [True, False]}):
        assert accepts(fsm, json.dumps(value, separators=(",", ":")).encode())
    for wrong in ('{"a":1,"b":[]}', '{"a":1,"b":[true,true,true]}', '{"b":[true],"a":1}', '{"a":1}'):
        assert not accepts(fsm, wrong.encode())


def test_keys_are_written_as_json_writes_them():
    fsm = build_fsm(Grammar(members([('say "hi"', integer(1))])))
    assert accepts(fsm, json.dumps({'say "hi"': 1}, separators=(",", ":")).encode())
    assert accepts(build_fsm(Grammar(members([]))), b"{}")


def test_word_bounds():
    bounded, fixed = build_fsm(Grammar(word(3))), build_fsm(Grammar(word(3, fixed=True)))
    assert [accepts(bounded, b"x" * n) for n in range(5)] == [False, True, True, True, False]
    assert [accepts(fixed, b"x" * n) for n in range(5)] == [False, False, False, True, False]
