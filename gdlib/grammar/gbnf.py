"""GBNF, the grammar notation of llama.cpp, read into nodes.

The reader is one loop over tokens with a stack of its own, so that neither a large grammar nor a deeply nested one is a
special case. What llama.cpp takes silently but cannot mean (a rule defined twice, an empty class, a reversed range) is
refused with its place, since a grammar that quietly means something else is found much later, in the output.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from itertools import groupby
from typing import NoReturn

from gdlib.grammar.nodes import (
    ANY_CHARACTER,
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
)

# What reads the trees may recurse: a group or repetition deeper than this becomes a rule of its own.
MAX_DEPTH = 48
MAX_COUNT = 10**9

TOKEN = re.compile(
    r"""(?:[ \t]|\#[^\r\n]*+)*+(?:
        (?P<newline>[\r\n](?:[ \t\r\n]|\#[^\r\n]*+)*+)
      | (?P<head>[A-Za-z0-9_-]++[ \t]*+::=)
      | (?P<name>[A-Za-z0-9_-]++)
      | (?P<literal>"[^"\\]*+(?:\\.[^"\\]*+)*+")
      | (?P<klass>\[[^\]\\]*+(?:\\.[^\]\\]*+)*+\])
      | (?P<mark>[|().?*+])
      | (?P<count>\{[^{}]*+\})
      | (?P<end>\Z)
      | (?P<other>::=|.)
    )""",
    re.VERBOSE | re.DOTALL,
)
COUNT = re.compile(r"\{\s*([0-9]+)\s*(?:(,)\s*([0-9]*)\s*)?\}")
ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
PLAIN = {"n": 10, "r": 13, "t": 9, "\\": 92, '"': 34, "[": 91, "]": 93, "-": 45}
DIGITS = {"x": 2, "u": 4, "U": 8}
REPEATS = {"?": (0, 1), "*": (0, None), "+": (1, None)}
AFTER_ITEM = {
    "::=": "the name of a rule before '::=', at the start of a line",
    '"': "a closing '\"' for this literal",
    "[": "a closing ']' for this class",
    "{": "a closing '}' for this count",
    "<": "text, classes or rule names: a token of one vocabulary has no place here, write its text",
    "!": "text, classes or rule names: a token of one vocabulary has no place here, write its text",
}


@dataclass(slots=True)
class _Group:
    """What stands between two parentheses, or the body of a rule, as far as it is read."""

    at: int  # where it opens
    choices: list[Node] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)  # of the choice being read
    last: int = 0  # depth of the last part
    inner: int = 0  # depth of the deepest part
    deepest: int = 0  # depth of the deepest choice


def from_gbnf(text: str, bytes_only: bool = False) -> Grammar:
    """The grammar that `text` describes; its root is the rule `root`.

    All of llama.cpp's dialect except tokens (`<think>`): characters are Unicode code points, written as UTF-8.
    `bytes_only` reads the smaller dialect of byte-level engines: `\\xHH` is that byte, a class is a set of bytes, a
    rule runs until the next `name ::=` whatever the line breaks, and there is neither `.` nor `\\u`.

    Raises GrammarError with line and column (from 1) where the text is no grammar.
    """
    _check_is_text(text)
    bodies: dict[str, Node] = {}
    defined: dict[str, int] = {}
    used: dict[str, int] = {}
    name = ""
    open_groups: list[_Group] = []  # the rule's body, then the parentheses open in it
    at_line_start = True
    may_go_on = False  # after "::=" or "|" a line break changes nothing
    rule_over = True  # after any other line break, only a new rule or "|" may follow

    for match in TOKEN.finditer(text):
        kind = match.lastgroup
        token, at = match[kind], match.start(kind)
        if kind == "newline":
            at_line_start = True
            if len(open_groups) < 2 and not may_go_on and not bytes_only:
                rule_over = True
            continue
        if kind in ("head", "end"):
            if len(open_groups) > 1:
                where = _place(text, open_groups[-1].at)
                _fail(text, at, token, f"a closing ')' for the group opened at {where}")
            if open_groups:
                bodies[name] = _close(open_groups.pop())[0]
            if kind == "end":
                break
            if not (at_line_start or bytes_only):
                _fail(text, at, token, "a line break before the next rule")
            name = token[:-3].rstrip(" \t")
            if name in defined:
                first = _place(text, defined[name])
                _fail(text, at, f"a second rule {name!r}", f"one definition for each name (the first is at {first})")
            defined[name] = at
            open_groups.append(_Group(at))
            at_line_start, may_go_on, rule_over = False, True, False
            continue
        if not open_groups or (rule_over and token != "|"):
            _fail(text, at, token, "a rule, 'name ::= ...' (a rule goes on over a line break only at '|' or in '( )')")
        at_line_start, may_go_on, rule_over = False, token == "|", False

        group = open_groups[-1]
        if token == "|":
            _close_choice(group)
        elif token == "(":
            open_groups.append(_Group(at))
        elif token == ")":
            if len(open_groups) == 1:
                _fail(text, at, token, "a '(' that it closes: no group is open here")
            node, depth = _close(open_groups.pop())
            _add(open_groups[-1], *_shallow(node, depth, name, bodies))
        elif token in REPEATS or kind == "count":
            if not group.parts:
                _fail(text, at, token, "something to repeat before it")
            low, high = REPEATS[token] if token in REPEATS else _count(text, at, token)
            node, depth = _repeat(group.parts.pop(), group.last, low, high)
            _add(group, *_shallow(node, depth, name, bodies))
        elif kind == "name":
            used.setdefault(token, at)
            _add(group, Ref(token))
        elif kind == "literal":
            _add(group, _literal(text, at + 1, match.end() - 1, bytes_only))
        elif kind == "klass":
            _add(group, _class(text, at + 1, match.end() - 1, bytes_only))
        elif token == "." and not bytes_only:
            _add(group, Character(ANY_CHARACTER))
        elif token == ".":
            _fail(text, at, token, "[\\x00-\\xff]: there is no '.' in the bytes-only dialect")
        else:
            _fail(text, at, token, AFTER_ITEM.get(token, "a literal, a class, a rule name, '(', '|' or a line break"))

    for missing, at in used.items():
        if missing not in defined:
            known = ", ".join(sorted(defined)[:8])
            _fail(text, at, f"{missing!r}, which no rule defines", f"a literal in quotes or one of the rules: {known}")
    if "root" not in defined:
        known = ", ".join(sorted(defined)[:8]) or "none"
        _fail(text, len(text), "end of text", f"a rule 'root ::= ...' to start from (rules so far: {known})")
    return Grammar(Ref("root"), bodies)


def _check_is_text(text: str) -> None:
    if isinstance(text, os.PathLike):
        raise GrammarError(f"{os.fspath(text)!r} is a path, not grammar text: read the file and pass what it holds")
    if not isinstance(text, str):
        raise GrammarError(f"a grammar is text (str), not {type(text).__name__}: decode or read it first")
    line = text.strip()
    if not line:
        raise GrammarError("line 1, column 1: found no text at all, expected a rule 'root ::= ...'")
    if "::=" not in line and re.fullmatch(r"[^#\r\n][^\r\n]*(?:[/\\]|\.\w+$)[^\r\n]*", line):
        raise GrammarError(
            f"line 1, column 1: found {_short(line)}, which looks like a path, expected grammar text: "
            "read the file and pass what it holds"
        )


def _place(text: str, at: int) -> str:
    lines = re.split(r"\r\n|\r|\n", text[:at])
    return f"line {len(lines)}, column {len(lines[-1]) + 1}"


def _short(found: str) -> str:
    return repr(found if len(found) <= 40 else found[:37] + "...")


def _fail(text: str, at: int, found: str, expected: str) -> NoReturn:
    """`found` is either a piece of the text at `at`, or a few words about it."""
    if found == "":
        found = "end of text"
    elif text.startswith(found, at):
        found = _short(found)
    raise GrammarError(f"{_place(text, at)}: found {found}, expected {expected}")


def _add(group: _Group, node: Node, depth: int = 1) -> None:
    group.parts.append(node)
    group.last = depth
    group.inner = max(group.inner, depth)


def _close_choice(group: _Group) -> None:
    """End the choice being read: neighbouring literals become one, and a choice of one part is that part."""
    parts = [part for part in group.parts if part is not EMPTY]
    if len(parts) > 1:
        runs = groupby(parts, key=lambda part: isinstance(part, Literal))
        merged = [[Literal(b"".join(p.text for p in run))] if texts else list(run) for texts, run in runs]
        parts = [part for run in merged for part in run]
    group.choices.append(parts[0] if len(parts) == 1 else Seq(tuple(parts)) if parts else EMPTY)
    group.deepest = max(group.deepest, group.inner + (len(parts) > 1))
    group.parts, group.inner = [], 0


def _close(group: _Group) -> tuple[Node, int]:
    """The node of a finished group, and its depth."""
    _close_choice(group)
    if len(group.choices) == 1:
        return group.choices[0], group.deepest
    return Alt(tuple(group.choices)), group.deepest + 1


def _shallow(node: Node, depth: int, name: str, bodies: dict[str, Node]) -> tuple[Node, int]:
    """The same node, or where it is too deep a reference to it as a rule of its own, with a name no text can spell."""
    if depth <= MAX_DEPTH:
        return node, depth
    name = f"{name} (nested {len(bodies)})"
    bodies[name] = node
    return Ref(name), 1


def _repeat(node: Node, depth: int, low: int, high: int | None) -> tuple[Node, int]:
    if node is EMPTY or high == 0:
        return EMPTY, 1
    if (low, high) == (1, 1):
        return node, depth
    outer, inner = (low, high), (node.low, node.high) if isinstance(node, Repeat) else None
    if outer in REPEATS.values() and inner in REPEATS.values():  # ("a"+)? is "a"*
        return Repeat(node.node, low * node.low, 1 if outer == inner == (0, 1) else None), depth
    return Repeat(node, low, high), depth + 1


def _count(text: str, at: int, token: str) -> tuple[int, int | None]:
    match = COUNT.fullmatch(token)
    if match is None:
        _fail(text, at, token, "{m}, {m,} or {m,n} with whole numbers (for at most n write {0,n})")
    numbers = [n.lstrip("0") or "0" for n in (match[1], match[3]) if n]
    if max(map(len, numbers)) > len(str(MAX_COUNT)) or max(map(int, numbers)) > MAX_COUNT:
        _fail(text, at, token, f"counts up to {MAX_COUNT}; for more write {{m,}}")
    low = int(numbers[0])
    high = low if match[2] is None else int(numbers[1]) if match[3] else None
    if high is not None and high < low:
        _fail(text, at, token, "a first count that is at most the second")
    return low, high


def _escape(text: str, at: int, bytes_only: bool) -> tuple[int, int]:
    """The code of the escape at `at` and where the text goes on."""
    match = ESCAPE.match(text, at)
    letter = text[at + 1]
    if match[4] is None and not (bytes_only and letter in "uU"):
        code = int(match[1] or match[2] or match[3], 16)
        if code > 0x10FFFF:
            _fail(text, at, match[0], "a code point up to \\U0010FFFF")
        return code, match.end()
    if letter in PLAIN:
        return PLAIN[letter], at + 2
    if bytes_only and letter == "^":
        return ord("^"), at + 2
    if letter in DIGITS and not (bytes_only and letter in "uU"):
        _fail(text, at, text[at : at + 2], f"{DIGITS[letter]} hex digits after it")
    allowed = '\\" \\\\ \\n \\r \\t \\[ \\] \\- ' + ("\\^ \\xHH" if bytes_only else "\\xHH \\uHHHH \\UHHHHHHHH")
    _fail(text, at, text[at : at + 2], f"one of the escapes {allowed} (a backslash itself is \\\\)")


def _literal(text: str, at: int, end: int, bytes_only: bool) -> Node:
    pieces = []
    while at < end:
        slash = text.find("\\", at, end)
        stop = end if slash < 0 else slash
        try:
            pieces.append(text[at:stop].encode())
        except UnicodeEncodeError as e:
            _fail(text, at + e.start, f"half of a surrogate pair, U+{ord(e.object[e.start]):04X}", "a whole character")
        if slash < 0:
            break
        code, at = _escape(text, slash, bytes_only)
        if 0xD800 <= code <= 0xDFFF:
            hint = "a whole character (above U+FFFF it is \\UHHHHHHHH)"
            _fail(text, slash, f"half of a surrogate pair, U+{code:04X}", hint)
        pieces.append(bytes([code]) if bytes_only else chr(code).encode())
    data = b"".join(pieces)
    return Literal(data) if data else EMPTY


def _class(text: str, at: int, end: int, bytes_only: bool) -> Node:
    start = at
    negated = text.startswith("^", at, end)
    at += negated
    ranges = []
    while at < end:
        first = at
        low, at = _class_member(text, at, bytes_only)
        high = low
        if text[at] == "-" and at + 1 < end:  # a hyphen at the end is itself
            high, at = _class_member(text, at + 1, bytes_only)
            if high < low:
                _fail(text, first, text[first:at], "a range that goes upwards (for a hyphen itself write \\-)")
        ranges.append((low, high))
    whole = text[start - 1 : end + 1]
    if not ranges:
        _fail(text, start - 1, whole, "at least one character in the class (for ']' itself write \\])")
    ranges = _merge(ranges)
    if negated:
        ranges = _others(ranges, 0xFF if bytes_only else 0x10FFFF)
    if not bytes_only:
        ranges = [(max(a, c), min(b, d)) for a, b in ranges for c, d in ANY_CHARACTER if max(a, c) <= min(b, d)]
    if not ranges:
        _fail(text, start - 1, whole, "a class that some character belongs to")
    if bytes_only or (not negated and ranges[-1][1] < 0x80):
        return ByteClass(frozenset(b for low, high in ranges for b in range(low, high + 1)))
    return Character(tuple(ranges))


def _class_member(text: str, at: int, bytes_only: bool) -> tuple[int, int]:
    if text[at] == "\\":
        return _escape(text, at, bytes_only)
    if bytes_only and text[at] > "\x7f":
        _fail(text, at, text[at], "bytes in a bytes-only class: write \\xHH, or the character as a literal in quotes")
    return ord(text[at]), at + 1


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted, and what overlaps or touches joined."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _others(ranges: list[tuple[int, int]], top: int) -> list[tuple[int, int]]:
    """Everything from 0 to `top` that merged `ranges` leave out."""
    edges = [-1, *(edge for pair in ranges for edge in pair), top + 1]
    return [(a + 1, b - 1) for a, b in zip(edges[::2], edges[1::2], strict=True) if a + 1 < b]
