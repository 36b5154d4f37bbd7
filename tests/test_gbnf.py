"""The GBNF reader: what it accepts and means, what it refuses and where, and that neither size nor depth is special."""

import itertools
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdlib.grammar.gbnf import MAX_DEPTH, from_gbnf
from gdlib.grammar.nodes import (
    EMPTY,
    Alt,
    ByteClass,
    Character,
    Grammar,
    GrammarError,
    Literal,
    Node,
    Ref,
    Repeat,
    Seq,
    byte_class,
    optional,
)

COUNTS = {"?": (0, 1), "*": (0, None), "+": (1, None), "{2}": (2, 2), "{1,2}": (1, 2), "{2,}": (2, None), "{0}": (0, 0)}


def matches(grammar: Grammar, text: str | bytes) -> bool:
    """Whether the grammar describes the text, by growing the spans of every rule until nothing changes."""
    data = text.encode() if isinstance(text, str) else text
    spans: dict[str, list[set[int]]] = {name: [set() for _ in range(len(data) + 1)] for name in grammar.rules}
    while True:
        grown = {
            name: [ends(body, data, i, spans) for i in range(len(data) + 1)] for name, body in grammar.rules.items()
        }
        if grown == spans:
            return len(data) in ends(grammar.root, data, 0, spans)
        spans = grown


def ends(node: Node, data: bytes, at: int, spans: dict[str, list[set[int]]]) -> set[int]:
    """Where a text of `node` that starts at `at` may end."""
    if isinstance(node, Ref):
        return spans[node.name][at]
    if isinstance(node, Literal):
        return {at + len(node.text)} if data.startswith(node.text, at) else set()
    if isinstance(node, ByteClass):
        return {at + 1} if at < len(data) and data[at] in node.allowed else set()
    if isinstance(node, Character):
        first = data[at : at + 1]
        size = 1 + (first >= b"\xc0") + (first >= b"\xe0") + (first >= b"\xf0")
        try:
            code = ord(data[at : at + size].decode())
        except (UnicodeDecodeError, TypeError):
            return set()
        return {at + size} if any(low <= code <= high for low, high in node.ranges) else set()
    if isinstance(node, Alt):
        return set().union(*(ends(choice, data, at, spans) for choice in node.choices))
    if isinstance(node, Seq):
        here = {at}
        for part in node.parts:
            here = {end for start in here for end in ends(part, data, start, spans)}
        return here
    top = node.high if node.high is not None else node.low + len(data) + 1
    here, found = {at}, {at} if node.low == 0 else set()
    for i in range(1, top + 1):
        here = {end for start in here for end in ends(node.node, data, start, spans)}
        found |= here if i >= node.low else set()
    return found


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        # literals and escapes
        (r'root ::= "a\"\\\n\r\t\[\]\-"', ['a"\\\n\r\t[]-'], ["a"]),
        (r'root ::= "\x41\xe9\u00e9\U0001F600"', ["Aéé😀"], ["A\xc3\xa9"]),
        ('root ::= "é😀#|)"', ["é😀#|)"], ["é😀"]),
        ('root ::= "two\nlines"', ["two\nlines"], ["two"]),
        ('root ::= "ab"{2} "c" "d"', ["ababcd"], ["abbcd"]),
        ('root ::= "it\'s"', ["it's"], []),
        # classes
        ("root ::= [a-cx]", ["a", "c", "x"], ["d", "-", "", "ab"]),
        (r"root ::= [a\-c]", ["a", "-", "c"], ["b"]),
        ("root ::= [-a] [a-]", ["--", "aa"], ["b-"]),
        ("root ::= [a-c-e]", ["b", "-", "e"], ["d"]),
        (r"root ::= [\]\[\"]", ["]", "[", '"'], ["\\"]),
        ("root ::= [a^]", ["a", "^"], ["b"]),
        ("root ::= [^^]", ["a", "é"], ["^", ""]),
        (r"root ::= [^\n-]", ["a", "é", "😀"], ["\n", "-", b"\xff", b"\xc3"]),
        (r"root ::= [\x7f-\xff]", ["\x7f", "ÿ"], [b"\xff", "~", "Ā"]),
        ("root ::= [あ-ん#]", ["か", "#"], ["ア"]),
        (r"root ::= [\u0000-\U0010FFFF]", ["\0", "\U0010ffff"], [b"\xed\xa0\x80"]),
        ("root ::= . .", ["a\n", "é😀"], ["a", b"a\x80"]),
        # counts
        ('root ::= "a"{2}', ["aa"], ["a", "aaa"]),
        ('root ::= "a"{2,}', ["aa", "aaaaa"], ["a"]),
        ('root ::= "a"{1,2}', ["a", "aa"], ["", "aaa"]),
        ('root ::= "a"{ 0 , 2 }', ["", "aa"], ["aaa"]),
        ('root ::= "a"{0} "b"{0,0} "c"', ["c"], ["ac"]),
        ('root ::= "a" * "b" ? "c" +', ["c", "aabcc"], ["aab"]),
        ('root ::= ("a" | "b"){2}?', ["", "ab"], ["a"]),
        ('root ::= "a"+? "b"?* ("c"+)+', ["c", "aabbcc"], ["ab"]),
        ('root ::= ("" | "a")* ("b"*)*', ["", "aabb"], ["ba"]),
        # alternatives, empty ones too
        ('root ::= "a" | "b"', ["a", "b"], ["ab", ""]),
        ('root ::= | "a"', ["", "a"], ["aa"]),
        ('root ::= "a" |', ["", "a"], []),
        ('root ::= "a" ( ) "b" (|"c") ""', ["ab", "abc"], ["a"]),
        ('root ::= "a" x\nx ::= "b" |\ny ::= "z"', ["a", "ab"], ["az"]),
        ("root ::=", [""], ["a"]),
        # lines, comments, spaces
        ('# head\nroot ::= "a" # "b"\n# tail', ["a"], ["ab"]),
        ('root ::=\n  "a" |\n\n # why\n "b" (\n "c"\n # more\n "d"\n) "e"\n', ["a", "bcde"], ["b"]),
        ('root ::= "a"\n  | "b"\n\n# c\n  | x\nx ::= "c"', ["a", "b", "c"], ["x"]),
        ('\r\nroot ::= "a"\r\n  | x\r\n\r\nx ::= "b"\r\n', ["a", "b"], ["\r\n"]),
        ('root\t::=\t"a"\t|\tx\t\nx ::="b"', ["a", "b"], []),
        ('root::="a"|x\rx::=[b]', ["a", "b"], []),
        # rules
        ('x-1 ::= "b"\nroot ::= x-1 X_2 3\nX_2 ::= "c"\n3 ::= "d"', ["bcd"], ["bc"]),
        ('root ::= "a"\nunused ::= "b" unused', ["a"], ["b"]),
        ('root ::= root "a" | "b"', ["b", "baa"], ["a", "ab", ""]),
        ('root ::= x "1" | "2"\nx ::= root "3"', ["2", "231", "23131"], ["21", "31"]),
        ('root ::= s root "x" | "y"\ns ::= "-"?', ["y", "--yxx", "-yxx"], ["--yx", "x"]),
    ],
)
def test_meaning(text, yes, no):
    grammar = from_gbnf(text)
    for sample in yes:
        assert matches(grammar, sample), sample
    for sample in no:
        assert not matches(grammar, sample), sample


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        (r'root ::= "\xff\x80é"', [b"\xff\x80\xc3\xa9"], [b"\xc3\xbf\xc2\x80\xc3\xa9"]),
        (r"root ::= [\x80-\xff\^] [^\x00-\xfe]", [b"\x80\xff", b"^\xff"], [b"\x7f\xff", b"\x80\xfe"]),
        (r'root ::= [^"\\]*', [b"\xff\n", b""], [b'"']),
        ('root ::= "a"\n "b" x\nx ::= [c-d]{2}\n "e" y ::= "f"', [b"abcde"], [b"abce", b"abcdef"]),
    ],
)
def test_bytes_only(text, yes, no):
    grammar = from_gbnf(text, bytes_only=True)
    assert all(matches(grammar, sample) for sample in yes)
    assert not any(matches(grammar, sample) for sample in no)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no text at all"),
        (" \n\t\r\n", "no text at all"),
        ("# only a comment", "line 1, column 17: found end of text, expected a rule 'root ::= ...'"),
        ('start ::= "a"\n', "line 2, column 1: found end of text, expected a rule 'root ::= ...' to start from"),
        ("grammars/json.gbnf", "looks like a path"),
        ("C:\\grammars\\json.gbnf\n", "looks like a path"),
        ("json.gbnf", "looks like a path"),
        ('root ::= "a" missing\n', "line 1, column 14: found 'missing', which no rule defines"),
        ('root ::= "a"\nunused ::= gone{0}', "line 2, column 12: found 'gone', which no rule defines"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1: found a second rule 'root'"),
        ('root ::= "é" %', "line 1, column 14: found '%', expected a literal"),
        ('root ::= "a"\r\n\r\n ;', "line 3, column 2: found ';', expected a rule"),
        ('root ::= "a"\n "b"', "line 2, column 2: found '\"b\"', expected a rule"),
        ('root ::= "a" x ::= "b"', "line 1, column 14: found 'x ::=', expected a line break"),
        ('root ::= "a" ::= "b"', "line 1, column 14: found '::=', expected the name of a rule"),
        ('root = "a"', "line 1, column 1: found 'root', expected a rule"),
        ("<root> ::= 'a'", "line 1, column 1: found '<', expected a rule"),
        ("root ::= 'a'", 'line 1, column 10: found "\'", expected a literal'),
        ("| root ::= [a]", "line 1, column 1: found '|', expected a rule"),
        ('root ::= "a', "line 1, column 10: found '\"', expected a closing '\"'"),
        ('root ::= "a\\', "line 1, column 10: found '\"', expected a closing '\"'"),
        ("root ::= [a", "line 1, column 10: found '[', expected a closing ']'"),
        ("root ::= []", "line 1, column 10: found '[]', expected at least one character"),
        ("root ::= []a]", "line 1, column 10: found '[]', expected at least one character"),
        ("root ::= [^]", "line 1, column 10: found '[^]', expected at least one character"),
        ("root ::= [xz-a]", "line 1, column 12: found 'z-a', expected a range that goes upwards"),
        (r"root ::= [^\u0000-\U0010FFFF]", "expected a class that some character belongs to"),
        (r"root ::= [\uD800-\uDFFF]", "expected a class that some character belongs to"),
        (r'root ::= "ab\d"', "line 1, column 13: found '\\\\d', expected one of the escapes"),
        (r"root ::= [ab\d]", "line 1, column 13: found '\\\\d', expected one of the escapes"),
        (r'root ::= "\^"', "expected one of the escapes"),
        (r'root ::= "\x4"', "line 1, column 11: found '\\\\x', expected 2 hex digits"),
        (r'root ::= "\u12g4"', "expected 4 hex digits"),
        (r"root ::= [\U0001F60]", "expected 8 hex digits"),
        (r'root ::= "\U00110000"', "expected a code point up to"),
        (r'root ::= "\ud83d\ude00"', "line 1, column 11: found half of a surrogate pair, U+D83D"),
        ('root ::= "ab\ud83d"', "line 1, column 13: found half of a surrogate pair, U+D83D"),
        ("root ::= *", "line 1, column 10: found '*', expected something to repeat"),
        ('root ::= "a" | {2}', "line 1, column 16: found '{2}', expected something to repeat"),
        ('root ::= "a"{,3}', "line 1, column 13: found '{,3}', expected {m}, {m,} or {m,n}"),
        ('root ::= "a"{x}', "expected {m}, {m,} or {m,n}"),
        ('root ::= "a"{-1}', "expected {m}, {m,} or {m,n}"),
        ('root ::= "a"{3,2}', "line 1, column 13: found '{3,2}', expected a first count that is at most the second"),
        ('root ::= "a"{' + "9" * 5000 + "}", "expected counts up to 1000000000"),
        ('root ::= "a"{2', "line 1, column 13: found '{', expected a closing '}'"),
        ('root ::= ("a"', "found end of text, expected a closing ')' for the group opened at line 1, column 10"),
        ('root ::= ("a"\nx ::= "b")', "line 2, column 1: found 'x ::=', expected a closing ')'"),
        ('root ::= "a")', "line 1, column 13: found ')', expected a '(' that it closes"),
        ("root ::= <think> .*", "line 1, column 10: found '<', expected text, classes or rule names"),
        ("root ::= !<[1000]>", "line 1, column 10: found '!', expected text, classes or rule names"),
        ("\ufeffroot ::= [a]", "line 1, column 1: found '\\ufeff', expected a rule"),
    ],
)
def test_refused_with_its_place(text, says):
    with pytest.raises(GrammarError) as e:
        from_gbnf(text)
    assert says in str(e.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (r'root ::= "\u0041"', "one of the escapes"),
        (r"root ::= [\U00000041]", "one of the escapes"),
        ("root ::= [é]", "line 1, column 11: found 'é', expected bytes"),
        ("root ::= .", "there is no '.'"),
        (r"root ::= [^\x00-\xff]", "a class that some character belongs to"),
    ],
)
def test_refused_in_bytes_only(text, says):
    with pytest.raises(GrammarError) as e:
        from_gbnf(text, bytes_only=True)
    assert says in str(e.value)


@pytest.mark.parametrize("text", [Path("json.gbnf"), b'root ::= "a"', None])
def test_only_text_is_read(text):
    with pytest.raises(GrammarError, match="read"):
        from_gbnf(text)


@pytest.mark.parametrize(
    ("body", "node"),
    [
        ('"a" "b" ("c")', Literal(b"abc")),
        ('((((("a")))))', Literal(b"a")),
        ('"" () ("" "")', EMPTY),
        ("[0-9]", byte_class(b"0123456789")),
        ("[^0-9]", Character(((0, 0x2F), (0x3A, 0xD7FF), (0xE000, 0x10FFFF)))),
        ("[é-üa-cb-de]", Character(((97, 101), (0xE9, 0xFC)))),
        (r"[^\x01-\U0010FFFF]", Character(((0, 0),))),
        (".", Character(((0, 0xD7FF), (0xE000, 0x10FFFF)))),
        ('"a"{1}', Literal(b"a")),
        ('"a"?*+', Repeat(Literal(b"a"), 0, None)),
        ('"a"{2}?', optional(Repeat(Literal(b"a"), 2, 2))),
        ('"a" | root "b" |', Alt((Literal(b"a"), Seq((Ref("root"), Literal(b"b"))), EMPTY))),
    ],
)
def test_tree_is_as_small_as_it_can_be(body, node):
    assert from_gbnf(f"root ::= {body}").rules["root"] == node


@pytest.mark.parametrize(("inner", "outer"), list(itertools.product(COUNTS, COUNTS)))
def test_repetitions_of_repetitions(inner, outer):
    grammar = from_gbnf(f'root ::= "a"{inner}{outer} "b"')
    meant = Seq((Repeat(Repeat(Literal(b"a"), *COUNTS[inner]), *COUNTS[outer]), Literal(b"b")))
    for n in range(7):
        assert matches(grammar, "a" * n + "b") == matches(Grammar(meant), "a" * n + "b")


def depth(node: Node) -> int:
    if isinstance(node, Seq | Alt):
        return 1 + max(map(depth, node.parts if isinstance(node, Seq) else node.choices), default=0)
    return 1 + depth(node.node) if isinstance(node, Repeat) else 1


@pytest.mark.parametrize("levels", [1, 30, 70])
def test_what_nests_deeply_becomes_rules(levels):
    grammar = from_gbnf('root ::= "[" ' + '("a" ' * levels + '"."' + ' | "b")?' * levels)
    assert max(map(depth, grammar.rules.values())) <= MAX_DEPTH + 2
    assert (len(grammar.rules) > 1) == (levels > 20)
    for body, good in [("", True), ("aaab", levels > 3), ("a" * levels + ".", True), (".", False), ("ac", False)]:
        assert matches(grammar, "[" + body) == good


@pytest.mark.parametrize(
    "text",
    [
        "root ::= " + "(" * 60_000 + '"k"' + ")" * 60_000,
        "root ::= " + '("k" ' * 20_000 + '"k"' + ")?" * 20_000,
        'root ::= "k"' + "?*+" * 20_000,
        'root ::= "k"' + "{2}" * 2_000,
        "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(5_000)) + 'r5000 ::= "k"',
        'root ::= "k" | ' + " | ".join(f'"name {i}"' for i in range(50_000)),
        "root ::= " + '"k" ' * 50_000,
        'root ::= "k' + r"\x41" * 50_000 + '"',
    ],
    ids=["parentheses", "groups", "postfixes", "counts", "chain", "alternatives", "sequence", "escapes"],
)
def test_large_texts_are_read_in_linear_time(text):
    start = time.process_time()
    assert "root" in from_gbnf(text).rules
    assert time.process_time() - start < 120  # it ends


@pytest.mark.parametrize(
    "text", ["root ::= " + "(" * 60_000, 'root ::= "' + 'a\\"' * 500_000, "root ::= " + "{" * 500_000]
)
def test_large_faults_are_found_in_linear_time(text):
    start = time.process_time()
    with pytest.raises(GrammarError, match="closing"):
        from_gbnf(text)
    assert time.process_time() - start < 120  # it ends


# Random grammars over three characters, written down in a random way and read again. In the bytes-only dialect the
# third is the byte E9, else the character U+00E9.

SYMBOLS = "abé"
RULES = ("root", "x", "y")


def spelled(symbols: str, bytes_only: bool) -> bytes:
    return symbols.encode("latin-1" if bytes_only else "utf-8")


def bodies(bytes_only: bool):
    def one_of(symbols: set[str]) -> Node:
        codes = sorted(map(ord, symbols))
        return byte_class(codes) if bytes_only else Character(tuple((code, code) for code in codes))

    leaves = st.one_of(
        st.text(SYMBOLS, max_size=2).map(lambda s: Literal(spelled(s, bytes_only))),
        st.sets(st.sampled_from(SYMBOLS), min_size=1).map(one_of),
        st.sampled_from(RULES).map(Ref),
    )
    counts = st.sampled_from(sorted(COUNTS.values(), key=str))

    def grow(children):
        return st.one_of(
            st.lists(children, min_size=2, max_size=4).map(lambda c: Seq(tuple(c))),
            st.lists(children, min_size=2, max_size=3).map(lambda c: Alt(tuple(c))),
            st.tuples(children, counts).map(lambda c: Repeat(c[0], *c[1])),
        )

    return grow(st.recursive(leaves, grow, max_leaves=5))


def random_grammars(bytes_only: bool = False):
    return st.tuples(*[bodies(bytes_only)] * 3).map(lambda b: Grammar(Ref("root"), dict(zip(RULES, b, strict=True))))


def write(node: Node, rng, bytes_only: bool, inside: bool) -> str:
    """`node` as GBNF; line breaks may be written where it stands `inside` parentheses."""
    codec = "latin-1" if bytes_only else "utf-8"

    def gap(inside: bool) -> str:
        return rng.choice([" ", "\t ", "  ", *([" # (c) |\n ", "\r\n", "\n\n\t"] if inside else [])])

    def symbol(c: str) -> str:
        plain = [] if bytes_only and c == "é" else [c]
        long = [] if bytes_only else [f"\\u{ord(c):04x}", f"\\U{ord(c):08X}"]
        return rng.choice([*plain, f"\\x{ord(c):02x}", *long])

    def group(inner: Node) -> str:
        return f"({gap(True)}{write(inner, rng, bytes_only, True)}{gap(True)})"

    def item(inner: Node) -> str:
        compound = isinstance(inner, Seq | Alt) or (isinstance(inner, Repeat) and rng.random() < 0.5)
        return group(inner) if compound or rng.random() < 0.2 else write(inner, rng, bytes_only, inside)

    if isinstance(node, Ref):
        return node.name
    if isinstance(node, Literal):
        text = node.text.decode(codec)
        if len(text) == 2 and rng.random() < 0.3:
            return group(Seq((Literal(text[0].encode(codec)), Literal(text[1].encode(codec)))))
        return '"' + "".join(map(symbol, text)) + '"'
    if isinstance(node, ByteClass | Character):
        allowed = node.allowed if isinstance(node, ByteClass) else {low for low, _ in node.ranges}
        members, others = [c for c in SYMBOLS if ord(c) in allowed], [c for c in SYMBOLS if ord(c) not in allowed]
        if others and rng.random() < 0.3:  # the same over the three characters
            return "[^" + "".join(map(symbol, others)) + "]"
        rng.shuffle(members)
        return "[" + "".join(symbol(c) + rng.choice(["", "-" + symbol(c)]) for c in members) + "]"
    if isinstance(node, Repeat):
        spellings = [f"{{{node.low},{'' if node.high is None else node.high}}}"]
        spellings += [spelling for spelling, bounds in COUNTS.items() if bounds == (node.low, node.high)]
        return item(node.node) + rng.choice(["", " "]) + rng.choice(spellings)
    if isinstance(node, Seq):
        parts = [item(part) for part in node.parts] or [rng.choice(['""', "()"])]
        return gap(inside).join(parts)
    choices = [write(c, rng, bytes_only, inside) if isinstance(c, Seq) else item(c) for c in node.choices]
    return "".join(choices[:1] + [rng.choice([" ", "\n  "]) + "|" + gap(True) + c for c in choices[1:]])


@pytest.mark.parametrize("bytes_only", [False, True])
@settings(max_examples=50, deadline=None)
@given(st.data(), st.integers(0, 2**32).map(random.Random))
def test_what_is_written_is_read(bytes_only, data, rng):
    grammar = data.draw(random_grammars(bytes_only))
    names = list(RULES)
    rng.shuffle(names)
    written = [f"{n} ::= {write(grammar.rules[n], rng, bytes_only, False)}" for n in names]
    text = rng.choice(["", "\n", "# start\r\n"]) + rng.choice(["\n", "\r\n", " # end\n\n"]).join(written)
    again = from_gbnf(text + rng.choice(["", "\n", " # the end"]), bytes_only=bytes_only)
    for size in range(4):
        for symbols in itertools.product(SYMBOLS, repeat=size):
            sample = spelled("".join(symbols), bytes_only)
            assert matches(again, sample) == matches(grammar, sample), (text, sample)
