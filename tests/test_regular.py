"""Regular languages over bytes against `json`, UTF-8 and enumeration."""

import itertools
import json
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdlib.grammar.nodes import (
    ANY_CHARACTER,
    EMPTY,
    Alt,
    ByteClass,
    Character,
    GrammarError,
    Lazy,
    Ref,
    Repeat,
    Seq,
    byte_class,
    literal,
)
from gdlib.grammar.regular import (
    NOTHING,
    Ahead,
    Behind,
    character_dfa,
    complement_ranges,
    contains,
    counted,
    dfa,
    difference,
    intersect,
    intersect_ranges,
    is_empty,
    minimize,
    union,
    union_ranges,
    words,
)

EDGES = [0, 8, 9, 0xA, 0xB, 0xD, 0x1F, 0x20, 0x22, 0x2F, 0x5C, 0x7E, 0x7F, 0x80, 0xE9, 0x7FF, 0x800, 0xD7FF, 0xE000]
EDGES += [0xFEFF, 0xFFFF, 0x10000, 0x1F432, 0xFFFFF, 0x100000, 0x10FFFF]
TEXTS = [bytes(t) for n in range(5) for t in itertools.product(b"abc", repeat=n)]
ANY = Character(ANY_CHARACTER)


def trees():
    leaves = st.sampled_from(
        [byte_class(b"a"), byte_class(b"bc"), literal(""), literal("ab"), literal("ca"), Character(((97, 98),))]
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda parts: Seq(tuple(parts))),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: Alt(tuple(parts))),
            st.tuples(inner, st.integers(0, 2), st.sampled_from([0, 1, 2, None])).map(
                lambda t: Repeat(t[0], t[1], None if t[2] is None else t[1] + t[2])
            ),
        ),
        max_leaves=6,
    )


def spelled(node) -> str:
    """The tree as `re` writes it."""
    if isinstance(node, ByteClass):
        return "[" + "".join(map(chr, sorted(node.allowed))) + "]"
    if isinstance(node, Character):
        return "[ab]"
    if isinstance(node, Seq):
        return "(?:" + "".join(map(spelled, node.parts)) + ")"
    if isinstance(node, Alt):
        return "(?:" + "|".join(map(spelled, node.choices)) + ")"
    if isinstance(node, Repeat):
        return f"(?:{spelled(node.node)}){{{node.low},{'' if node.high is None else node.high}}}"
    return node.text.decode()


def language(machine) -> set[bytes]:
    return {text for text in TEXTS if contains(machine, text)}


def assert_sound(machine):
    """Trimmed, and no column or state number out of range."""
    alive = set(np.flatnonzero(machine.accepting).tolist())
    for _ in range(len(machine.delta)):
        alive |= {s for s, row in enumerate(machine.delta.tolist()) if alive & set(row)}
    assert alive == set(range(len(machine.delta)))
    assert machine.columns.dtype == np.uint8 and machine.delta.dtype == np.int32 and machine.accepting.dtype == bool
    assert machine.columns.max() < machine.delta.shape[1] and machine.delta.max(initial=-1) < len(machine.delta)


@settings(max_examples=100, deadline=None)
@given(trees())
def test_tree_agrees_with_re(tree):
    machine, judge = dfa(tree), re.compile(spelled(tree))
    assert_sound(machine)
    assert language(machine) == {text for text in TEXTS if judge.fullmatch(text.decode())}


@settings(max_examples=80, deadline=None)
@given(trees(), trees())
def test_boolean_operations_agree_with_sets(left, right):
    a, b = dfa(left), dfa(right)
    for operation, expected in (
        (intersect, language(a) & language(b)),
        (union, language(a) | language(b)),
        (difference, language(a) - language(b)),
    ):
        made = operation(a, b)
        assert_sound(made)
        assert language(made) == expected
        small = minimize(made)
        assert_sound(small)
        assert language(small) == expected and len(small.delta) <= len(made.delta)
        assert is_empty(difference(made, small)) and is_empty(difference(small, made))
        assert len(minimize(dfa(Seq((EMPTY, made)))).delta) == len(small.delta)  # smallest, whatever it came from


@settings(max_examples=80, deadline=None)
@given(trees(), st.integers(0, 12))
def test_words_and_counted_agree_with_enumeration(tree, limit):
    machine = dfa(tree)
    found = words(machine, limit)
    endless = not is_empty(counted(machine, len(machine.delta), None, "utf8"))
    if endless:
        assert found is None
    else:
        every = words(machine, 10**6)
        assert every is None or (every == sorted(set(every)) and language(machine) == set(every) & set(TEXTS))
        assert found == (every if every is not None and len(every) <= limit else None)
    assert language(counted(machine, 1, 3, "utf8")) == {t for t in language(machine) if 1 <= len(t) <= 3}
    assert language(counted(machine, 2, None, "json")) == {t for t in language(machine) if len(t) >= 2}


def test_machines_of_machines():
    inner = dfa(Alt((literal("ab"), literal("c"))))
    assert words(dfa(Seq((inner, literal("a"), Repeat(inner, 0, 1)))), 10) == [
        b"aba",
        b"abaab",
        b"abac",
        b"ca",
        b"caab",
        b"cac",
    ]
    assert is_empty(dfa(Seq((inner, NOTHING)))) and is_empty(dfa(Character(())))
    assert words(dfa(Alt((inner, NOTHING))), 5) == [b"ab", b"c"]
    assert words(dfa(Repeat(NOTHING, 0, None)), 5) == [b""] and is_empty(dfa(Repeat(NOTHING, 1, 2)))
    assert is_empty(union(NOTHING, NOTHING)) and words(union(NOTHING, inner), 5) == [b"ab", b"c"]
    assert words(NOTHING, 5) == [] and not contains(NOTHING, b"") and is_empty(minimize(NOTHING))
    assert contains(dfa(literal(bytes(range(256)))), bytes(range(256)))


@pytest.mark.parametrize("code", EDGES)
def test_one_character_in_every_style(code):
    char = chr(code)
    ranges = ((code, code),)
    assert words(character_dfa(ranges, "utf8"), 9) == [char.encode()]
    assert words(character_dfa(ranges, "json"), 9) == [json.dumps(char, ensure_ascii=False)[1:-1].encode()]
    spellings = words(character_dfa(ranges, "json_any"), 10**5)
    assert all(json.loads(b'"' + text + b'"') == char for text in spellings)
    escape = json.dumps(char)[1:-1]
    hexed = "".join(
        f"\\u{int.from_bytes(char.encode('utf-16-be')[i : i + 2]):04x}" for i in (0, 2)[: 1 + (code > 0xFFFF)]
    )
    for text in (escape, hexed, hexed.replace("\\u", "?").upper().replace("?", "\\u")):
        assert text.encode() in spellings
    letters = sum(c in "abcdef" for c in hexed.replace("\\u", ""))
    short = (code in (8, 9, 10, 12, 13, 0x22, 0x2F, 0x5C)) + (code >= 0x20 and code not in (0x22, 0x5C))
    assert len(spellings) == 2**letters + short


def test_every_character_and_nothing_else():
    machines = {style: character_dfa(ANY_CHARACTER, style) for style in ("utf8", "json", "json_any")}
    for code in [*range(0x900), *range(0xD700, 0xD800), *range(0xE000, 0xE100), *range(0xFFF0, 0x10010), 0x10FFFF]:
        char = chr(code)
        assert contains(machines["utf8"], char.encode())
        assert contains(machines["json"], json.dumps(char, ensure_ascii=False)[1:-1].encode())
        assert contains(machines["json_any"], json.dumps(char)[1:-1].encode())
    wrong = [
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\x80",
    ]
    wrong += [b"\xff", b"ab", b""]
    for machine in machines.values():
        assert not any(contains(machine, text) for text in wrong)
    wrong = [b'"', b"\\", b"\n", b"\\x", b"\\ud83d", b"\\ude00", b"\\ude00\\ud83d", b"\\ud83d\\u0041", b"\\u12"]
    for style in ("json", "json_any"):
        assert not any(contains(machines[style], text) for text in wrong)
    for text in (b"\\/", b"\\u0041", b"\\u000A", b"\\u000a", b"\\u001F"):  # right, but not how json.dumps spells it
        assert not contains(machines["json"], text) and contains(machines["json_any"], text)
    with pytest.raises(GrammarError, match="style 'utf-8'"):
        character_dfa(ANY_CHARACTER, "utf-8")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(EDGES), st.sampled_from(EDGES)).map(sorted), max_size=4))
def test_ranges_agree_with_sets_of_edges(pairs):
    ranges = union_ranges(map(tuple, pairs))
    assert complement_ranges(complement_ranges(ranges)) == ranges
    assert intersect_ranges(ranges, complement_ranges(ranges)) == ()
    assert union_ranges(ranges, complement_ranges(ranges)) == ANY_CHARACTER
    for style in ("utf8", "json", "json_any"):
        machine = character_dfa(ranges, style)
        if ranges:
            assert_sound(machine)
        for code in EDGES:
            inside = any(low <= code <= high for low, high in pairs)
            assert inside == any(low <= code <= high for low, high in ranges)
            text = chr(code) if style == "utf8" else json.dumps(chr(code), ensure_ascii=False)[1:-1]
            assert contains(machine, text.encode()) == inside


def test_counted_counts_characters_not_bytes():
    body = dfa(Repeat(Character(ANY_CHARACTER, "json"), 0, None))
    two = counted(body, 2, 2, "json")
    for text in ("ab", "\u4e2d\U0001f600", '"\\', "\n\x01"):
        assert contains(two, json.dumps(text, ensure_ascii=False)[1:-1].encode())
        assert not contains(two, json.dumps(text + "x", ensure_ascii=False)[1:-1].encode())
    some = counted(dfa(Repeat(byte_class(b"ab"), 1, None)), 0, 10_000, "json")
    assert len(some.delta) == 10_001
    assert is_empty(counted(body, 3, 2, "json"))


def test_looking_around():
    ends_in_b = Behind(dfa(Seq((Repeat(ANY, 0, None), literal("b")))))
    starts_with_a = Ahead(dfa(Seq((literal("a"), Repeat(ANY, 0, None)))), "utf8")
    machine = dfa(Repeat(Alt((Seq((starts_with_a, ANY)), Seq((ends_in_b, literal("b"))), literal("b"))), 0, None))
    assert language(machine) == {t for t in TEXTS if set(t) <= set(b"ab")}
    assert words(dfa(Seq((ends_in_b, literal("a"))), before=b"b"), 3) == [b"a"]
    assert is_empty(dfa(Seq((ends_in_b, literal("a")))))


@pytest.mark.parametrize("node", [Ref("x"), Lazy("k", lambda: EMPTY), Seq((literal("a"), Ref("x")))])
def test_what_is_not_regular_is_refused(node):
    with pytest.raises(GrammarError, match="no machine of its own"):
        dfa(node)


def test_hostile_trees_end_soon():
    a, start = byte_class(b"a"), time.perf_counter()
    with pytest.raises(GrammarError, match=r"\{0,1000000000\}"):
        dfa(Repeat(a, 0, 10**9))
    with pytest.raises(GrammarError, match=r"\{0,300\}"):
        dfa(Seq((Repeat(byte_class(b"ab"), 0, None), a, Repeat(byte_class(b"ab"), 0, 300))))
    deep, wide = a, a
    for _ in range(2000):
        deep = Repeat(Alt((Seq((deep,)), EMPTY)), 0, None)
    for _ in range(60):
        wide = Seq((wide, wide))
    assert len(minimize(dfa(deep)).delta) == 1
    with pytest.raises(GrammarError, match="too large"):
        dfa(wide)
    with pytest.raises(GrammarError, match="more than 5 states"):
        dfa(Repeat(a, 0, 5), max_states=5)
    with pytest.raises(GrammarError, match="more than 100 states"):
        counted(dfa(Repeat(a, 0, None)), 0, 100, "utf8", max_states=100)
    with pytest.raises(GrammarError, match="more than 20 states"):
        intersect(dfa(Repeat(Repeat(a, 4, 4), 0, None)), dfa(Repeat(Repeat(a, 7, 7), 0, None)), max_states=20)
    assert time.perf_counter() - start < 120  # it ends; the first call may compile
