"""Patterns of a schema as languages of JSON string bodies, and the cheap question whether one string fits.

Bodies are in the one spelling json.dumps gives each character (Character style "json"), so that languages of texts can
be intersected and subtracted as languages of strings.
"""

from __future__ import annotations

import re
from functools import lru_cache
from json.encoder import encode_basestring

import numpy as np

from gdlib.grammar import regex, regular
from gdlib.grammar.nodes import ANY_CHARACTER, Alt, Character, Dfa, Node, Repeat, Seq, literal

# what Python's re and ECMA-262 agree on, for printable ASCII text; no groups, so that matching cannot explode
PLAIN_PATTERN = re.compile(r"(?:[A-Za-z0-9_ \-/@:,;#%&<>='\".*+?^$]|\\[dwDW.\-/\\]|\[\^?[A-Za-z0-9_.\-/ ]+\])*")
QUOTE = literal('"')
ANY_BODY = Repeat(Character(ANY_CHARACTER, "json"), 0, None)


@lru_cache(maxsize=4096)
def body(pattern: str) -> Node:
    """The strings in which `pattern` is found, as JSON string bodies. GrammarError where it is not regular."""
    return regex.search(pattern, "json")


@lru_cache(maxsize=1024)
def body_dfa(pattern: str) -> Dfa:
    return regular.dfa(body(pattern))


@lru_cache(maxsize=1)
def any_body_dfa() -> Dfa:
    return regular.dfa(ANY_BODY)


def quoted(bodies: Dfa) -> Dfa:
    """A machine over string bodies with both quotes around it."""
    states, width = bodies.delta.shape
    columns = bodies.columns.copy()
    columns[ord('"')] = width  # a column of its own: a quote inside a body stands behind a backslash
    delta = np.full((states + 2, width + 1), -1, np.int32)
    shifted = np.where(bodies.delta < 0, -1, bodies.delta + 1)
    delta[1:-1, :width], delta[1:-1, width] = shifted, shifted[:, bodies.columns[ord('"')]]
    delta[1:-1, width][bodies.accepting] = states + 1
    delta[0, width] = 1
    accepting = np.zeros(states + 2, bool)
    accepting[-1] = True
    return Dfa(columns, delta, accepting)


@lru_cache(maxsize=1024)
def quick_match(pattern: str):
    """Python's search for the pattern where it means the same, else None."""
    if not PLAIN_PATTERN.fullmatch(pattern):
        return None
    try:
        return re.compile(pattern).search
    except re.error:
        return None


@lru_cache(maxsize=65536)
def matches(pattern: str, text: str) -> bool:
    """Whether the ECMA-262 pattern is found in the text."""
    quick = quick_match(pattern)
    if quick is not None and len(text) < 200 and text.isascii() and text.isprintable():
        return quick(text) is not None
    return regular.contains(body_dfa(pattern), encode_basestring(text)[1:-1].encode("utf-8", "surrogatepass"))


def is_empty(node: Node) -> bool:
    """Whether a pattern's tree describes no text at all."""
    if isinstance(node, Dfa):
        return len(node.accepting) == 0
    if isinstance(node, Character):
        return not node.ranges
    if isinstance(node, Seq):
        return any(is_empty(n) for n in node.parts)
    if isinstance(node, Alt):
        return all(is_empty(n) for n in node.choices)
    return isinstance(node, Repeat) and node.low > 0 and is_empty(node.node)


def lengths(node: Node) -> tuple[int, int | None] | None:
    """The shortest and longest text of a pattern's tree in characters, where the tree shows them."""
    if isinstance(node, Character):
        return 1, 1
    if isinstance(node, Repeat):
        inner = lengths(node.node)
        if inner is None:
            return None
        high = 0 if inner[1] == 0 else None if node.high is None or inner[1] is None else inner[1] * node.high
        return inner[0] * node.low, high
    if not isinstance(node, Seq | Alt):
        return None
    inner = [lengths(n) for n in (node.parts if isinstance(node, Seq) else node.choices)]
    if None in inner:
        return None
    highs = [h for _, h in inner]
    if isinstance(node, Seq):
        return sum(low for low, _ in inner), None if None in highs else sum(highs)
    return min(low for low, _ in inner), None if None in highs else max(highs)


def bounded(node: Node, low: int, high: int | None) -> tuple[Node, int, int | None]:
    """The tree narrowed to low..high characters as far as its shape allows, and the bounds that are left to count."""
    found = lengths(node) if low or high is not None else None
    if found is None:
        return node, low, high
    shortest, longest = found
    low = 0 if shortest >= low else low
    high = None if high is not None and longest is not None and longest <= high else high
    parts = node.parts if isinstance(node, Seq) else (node,)
    loops = [i for i, p in enumerate(parts) if lengths(p)[0] != lengths(p)[1]]
    if (not low and high is None) or len(loops) != 1:
        return node, low, high
    loop = parts[loops[0]]
    if not isinstance(loop, Repeat) or not isinstance(loop.node, Character):
        return node, low, high
    fixed = shortest - loop.low
    least = max(loop.low, low - fixed)
    most = loop.high if high is None else high - fixed if loop.high is None else min(loop.high, high - fixed)
    if most is not None and most < least:
        return node, low, high
    return Seq((*parts[: loops[0]], Repeat(loop.node, least, most), *parts[loops[0] + 1 :])), 0, None
