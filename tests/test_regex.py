"""Patterns against `re`: the same texts, in every place an anchor or a lookaround can stand."""

import itertools
import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdlib.grammar.nodes import ANY_CHARACTER, Character, Dfa, GrammarError, Literal, Repeat, Seq
from gdlib.grammar.regex import parse, search, search_dfa, whole
from gdlib.grammar.regular import complement_ranges, contains, dfa, is_empty, words

TEXTS = ["".join(t) for n in range(5) for t in itertools.product("ab\n", repeat=n)]


def patterns(*zero_width: str, looks: bool = False):
    """Small patterns over a, b and the newline, with these assertions anywhere."""
    leaves = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", r"\n", r"\w", r"\S", "", "ab", *zero_width])

    def larger(inner):
        group = inner.map(lambda p: f"(?:{p})")
        kinds = [
            st.lists(group | leaves, min_size=1, max_size=4).map("".join),
            st.lists(inner, min_size=2, max_size=3).map("|".join),
            st.tuples(group, st.sampled_from(["*", "+?", "?", "{2}", "{1,}", "{0,2}", "{2,3}?"])).map("".join),
        ]
        if looks:
            kinds.append(st.tuples(st.sampled_from(["(?=", "(?!"]), inner).map(lambda t: f"{t[0]}{t[1]})"))
        return st.one_of(kinds)

    return st.recursive(leaves, larger, max_leaves=7)


def in_python(pattern: str) -> re.Pattern:
    """For `re`, where $ also matches before a last newline and \\w takes more."""
    return re.compile(pattern.replace("$", r"\Z"), re.ASCII)


def assert_agrees(pattern: str, texts=TEXTS):
    judge = in_python(pattern)
    for style in ("utf8", "json"):
        somewhere, exact = search_dfa(pattern, style), whole(pattern, style)
        exact = exact if isinstance(exact, Dfa) else dfa(exact)
        for text in texts:
            data = text.encode() if style == "utf8" else json.dumps(text, ensure_ascii=False)[1:-1].encode()
            assert contains(somewhere, data) == (judge.search(text) is not None), (pattern, text, style)
            assert contains(exact, data) == (judge.fullmatch(text) is not None), (pattern, text, style)


@settings(max_examples=80, deadline=None)
@given(patterns())
def test_plain_patterns_agree_with_re(pattern):
    assert_agrees(pattern)
    assert not isinstance(search(pattern), Dfa)


@settings(max_examples=100, deadline=None)
@given(patterns("^", "$"))
def test_anchors_anywhere_agree_with_re(pattern):
    assert_agrees(pattern)
    found = search(pattern)
    assert not isinstance(found, Dfa) or is_empty(found)


@settings(max_examples=100, deadline=None)
@given(patterns("^", "$", r"\b", looks=True))
def test_lookarounds_anywhere_agree_with_re(pattern):
    assert_agrees(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "^ab|ba$",
        "(^a|b)a",
        "a$|b",
        "a^",
        "$^",
        "(^)*a",
        "(?:a$|b)*",
        "^(?:^a$|^b$)$",
        "(?:^a|b){2,3}$",
        "(^|b)a(b|$)",
        "^(?!ab)[ab]+$",
        "^(?=.*b)(?!.*ba)(?!b$).{2,}$",
        "^(?:(?!ab).)*$",
        "^(?:a(?=b)|b)+$",
        "a(?=b(?!a))",
        "(?!^a)b",
        "(?!^ab$)a",
        "^(?!^ab$)^.*$",
        "(?<=a)b(?<!ab)|(?<!b)a$",
        "(?<=^a)b",
        "(?<!^)a",
        "^(?=(?<=^)a)",
        r"\ba\b",
        r"\Ba|b\B",
        r"a(?!b\b)",
        r"(?!\bab\b)b",
        r"^(?:(?!\bab\b).)*$",
        "(?=a)*b|a(?=$)".replace("(?=a)*", "(?:(?=a))*"),
        "(?=ab|b)(?:)",
    ],
)
def test_chosen_patterns_agree_with_re(pattern):
    assert_agrees(pattern)


def test_lookbehinds_of_any_width():
    machine = search_dfa("(?<=ab*)c")
    assert [t for t in ("c", "ac", "abbc", "bc", "abcc") if contains(machine, t.encode())] == ["ac", "abbc", "abcc"]


def code_points(pattern: str) -> set[int]:
    """What a pattern of one character takes."""
    node = parse(pattern)
    ranges = node.ranges if isinstance(node, Character) else ()
    return {code for low, high in ranges for code in range(low, high + 1)}


def of(text: str) -> set[int]:
    return set(map(ord, text))


@pytest.mark.parametrize(
    "pattern, expected",
    [
        (r"[^\D]", of("0123456789")),
        (r"[\w-]", of("-_") | {c for c in range(128) if chr(c).isalnum()}),
        (r"[\w-.]", of("-._") | {c for c in range(128) if chr(c).isalnum()}),
        (r"[+--]", of("+,-")),
        (r"[a\-z]", of("a-z")),
        (r"[-a]", of("-a")),
        (r"[a-]", of("-a")),
        (r"[\b]", {8}),
        (r"[\]\[^]", of("[]^")),
        (r"[.*(){}|$]", of(".*(){}|$")),
        (r"\cJ", {10}),
        (r"\0", {0}),
        (r"\x41", {0x41}),
        (r"\u00e9", {0xE9}),
        (r"\u{1F432}", {0x1F432}),
        (r"\uD83D\uDC32", {0x1F432}),
        (r"[\uD83D\uDC32-\uD83D\uDC34]", {0x1F432, 0x1F433, 0x1F434}),
        (r"\t|\n|\v|\f|\r", {9, 10, 11, 12, 13}),
        (r"\-", of("-")),
        (r"\/", of("/")),
        (r"\ ", of(" ")),
        (r"]", of("]")),
        (r"}", of("}")),
        (r"{", of("{")),
        (r"[]", set()),
        (r"\uD83D", set()),
        (r"[a\uD800-\uDFFF]", of("a")),
        (r"(?i)k", {0x4B, 0x6B, 0x212A}),
        (r"(?i)[a-c]", of("abcABC")),
        (r"(?i)\u00e9", {0xC9, 0xE9}),
        (r"\p{ASCII}", set(range(128))),
        (r"\p{Zs}", {0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000}),
    ],
)
def test_single_characters(pattern, expected):
    assert code_points(pattern) == expected


def test_wide_classes():
    assert parse("[^]") == parse(r"[\s\S]") == parse(r"\p{Any}") == Character(ANY_CHARACTER)
    assert parse(r"\p{L}") == parse(r"\p{Letter}") == parse(r"\p{General_Category=L}")
    assert parse(r"\P{L}").ranges == complement_ranges(parse(r"\p{L}").ranges)
    assert {0xFEFF, 0x2029, 0x3000, 0x0B} < code_points(r"\s") and 0x85 not in code_points(r"\s")
    assert not code_points(".") & {0x0A, 0x0D, 0x2028, 0x2029} and 0x85 in code_points(".")
    assert not code_points("[^x]") & set(range(0xD800, 0xE000))
    assert ord("é") in code_points(r"\p{Ll}") and 0x1F432 in code_points(r"\p{So}")


def test_trees_keep_counts_and_fixed_text():
    anything = Repeat(Character(ANY_CHARACTER), 0, None)
    assert whole(".{0,100000}") == search("^.{0,100000}$") == Repeat(parse("."), 0, 100000)
    assert search("^x_") == Seq((Literal(b"x_"), anything))
    assert search("") == search("a*") == search("^a*") == search("(a|)$|^") == anything
    assert search("^[a-z]+", "json").parts[1] == Repeat(Character(ANY_CHARACTER, "json"), 0, None)
    assert search("^(a|b|c)$") == Character(((97, 99),))
    assert (
        parse("(a+)+") == parse("a+")
        and parse("((a{0,3}){0,4})") == parse("a{0,12}")
        and parse("a{0}b?") == parse("b?")
    )
    assert parse("a{,b}{") == Literal(b"a{,b}{")
    assert whole("(?<year>[0-9])(?P<b>x)") == whole("[0-9]x")
    assert isinstance(search("^(?!x)"), Dfa) and is_empty(search("x^"))
    assert search("a") is search("a")


def test_case_is_ignored_where_asked():
    assert words(dfa(whole("(?i)no[t]")), 99) == sorted(
        "".join(t).encode() for t in itertools.product("nN", "oO", "tT")
    )


@pytest.mark.parametrize(
    "pattern, reason",
    [
        (r"(a)\1", "offset 3: .*backreference"),
        (r"(?<n>a)\k<n>", "backreference"),
        (r"\a", "no escape"),
        (r"\Aa", r"write \^"),
        (r"a\Z", r"write \$"),
        (r"\_a\i", "offset 3"),
        (r"a(?i)b", "not supported"),
        (r"(?i:a)", "not supported"),
        (r"(?>a)", "not supported"),
        (r"(?P=n)", "not supported"),
        (r"\p{Script=Greek}", "general categories"),
        (r"\p{Greek}", "general categories"),
        (r"\pL", r"\\p\{L\}"),
        ("a**", r"nothing to repeat before '\*'"),
        ("*a", "nothing to repeat"),
        ("a{2}{3}", "nothing to repeat"),
        ("a++", "nothing to repeat"),
        ("(?=a)*", "nothing to repeat"),
        ("(|*)", "nothing to repeat"),
        ("^*", "nothing to repeat"),
        ("a{,3}", r"write \{0,3\}"),
        ("a{3,2}", "above the most"),
        ("a{" + "9" * 5000 + "}", "5000|digits"),
        ("(a", "offset 0: group is never closed"),
        ("a)", "unmatched"),
        ("[a", "class is never closed"),
        ("[z-a]", "runs backwards"),
        ("a\\", "backslash at the end"),
        (r"\u12", "hexadecimal"),
        (r"\x1", "hexadecimal"),
        (r"\u{110000}", "10ffff"),
        (r"\u{}", "10ffff"),
        (r"\01", "octal"),
        (r"\c1", "no escape"),
        ("(?<1>a)", "group name"),
        ("(?<=a$)b", "offset 0: a lookbehind that looks ahead"),
        (r"(?<=\b)b", "lookbehind that looks ahead"),
        ("a(?=b(?<=ab))", "offset 1: a lookbehind inside a lookahead"),
        ("(" * 10_000 + "a" + ")" * 10_000, "more than 100 groups"),
        ("(^|a){1000}", "anchor"),
        ("(^a?|b?)" * 2000, "too many places"),
    ],
)
def test_refusals_name_the_place(pattern, reason):
    with pytest.raises(GrammarError, match=reason):
        search(pattern)


def test_parse_wants_no_anchor():
    for pattern in ("^a", "a$", r"\ba", "(?=a)"):
        with pytest.raises(GrammarError, match="use `whole` or `search`"):
            parse(pattern)


def test_hostile_patterns_end_soon():
    start = time.perf_counter()
    nested = "(?:" * 90 + "^a?|b?" + "c?)" * 90
    for pattern in (
        "(a+)+$",
        "(a|a)*b",
        "((a{0,100}){0,100}){0,100}",
        "(" * 90 + "a" + ")*" * 90,
        nested,
        "{" * 20_000,
    ):
        assert not isinstance(search(pattern), Dfa)
    for pattern in ("a{1000000000}", "^(((a|bb){0,100}){0,100}){0,100}$"):
        node = search(pattern)
        with pytest.raises(GrammarError, match="Lower the count"):
            dfa(node)
    for pattern in ("(?=.*a.{15}b$)b", "^(?!.*a.{30}b)", "(?!(a|b){1000000})c"):
        with pytest.raises(GrammarError, match="more than 20000 states"):
            search(pattern)
    search("(?=a" * 30 + ")" * 30)
    assert time.perf_counter() - start < 120  # it ends; the first call may compile
