"""Random small regular grammars, with two independent readings of each: Python's `re`, and all its sentences."""

from __future__ import annotations

import itertools
import re

from hypothesis import assume
from hypothesis import strategies as st

from gdlib.grammar.nodes import Alt, ByteClass, Grammar, Literal, Node, Ref, Repeat, Seq, byte_class, literal

ALPHABET = b"abc"


def nodes(unbounded: bool):
    """Trees of a few nodes over a, b and c; with `unbounded` their repetitions may have no upper end."""
    leaves = st.one_of(
        st.sets(st.sampled_from(list(ALPHABET)), min_size=1).map(byte_class),
        st.text("abc", max_size=2).map(literal),
    )

    def grow(children):
        bounds = st.tuples(st.integers(0, 2), st.integers(0, 2)).map(lambda b: (b[0], b[0] + b[1]))
        if unbounded:
            bounds = st.one_of(bounds, st.integers(0, 2).map(lambda low: (low, None)))
        return st.one_of(
            st.lists(children, max_size=3).map(lambda c: Seq(tuple(c))),
            st.lists(children, min_size=1, max_size=3).map(lambda c: Alt(tuple(c))),
            st.tuples(children, bounds).map(lambda c: Repeat(c[0], *c[1])),
        )

    return st.recursive(leaves, grow, max_leaves=5)


def grammars(unbounded: bool = True):
    return nodes(unbounded).map(Grammar)


def recursive_grammars():
    """Context-free grammars of three rules that call each other in any way, left recursion and empty rules included."""
    names = ("root", "x", "y")
    leaves = st.one_of(
        st.sampled_from(names).map(Ref), st.text("abc", min_size=1, max_size=2).map(literal), st.just(Seq(()))
    )
    sequence = st.lists(leaves, max_size=3).map(lambda c: Seq(tuple(c)))
    body = st.lists(sequence, min_size=1, max_size=3).map(lambda c: Alt(tuple(c)))
    rules = st.tuples(body, body, body).map(lambda bodies: dict(zip(names, bodies, strict=True)))
    return rules.map(lambda found: Grammar(Ref("root"), found))


def pattern(node: Node) -> bytes:
    """The same language for Python's `re`, which knows nothing of the machines tested here."""
    if isinstance(node, ByteClass):
        return b"[" + b"".join(re.escape(bytes([b])) for b in sorted(node.allowed)) + b"]"
    if isinstance(node, Literal):
        return re.escape(node.text)
    if isinstance(node, Seq):
        return b"(?:" + b"".join(map(pattern, node.parts)) + b")"
    if isinstance(node, Alt):
        return b"(?:" + b"|".join(map(pattern, node.choices)) + b")"
    high = b"" if node.high is None else str(node.high).encode()
    return b"(?:" + pattern(node.node) + b"){" + str(node.low).encode() + b"," + high + b"}"


def texts(length: int):
    """Every text over the alphabet up to a length."""
    for size in range(length + 1):
        for letters in itertools.product(ALPHABET, repeat=size):
            yield bytes(letters)


def sentences(node: Node) -> set[bytes]:
    """All sentences of a bounded node, by enumeration; an example with more than a thousand is passed over."""
    if isinstance(node, ByteClass):
        return {bytes([b]) for b in node.allowed}
    if isinstance(node, Literal):
        return {node.text}
    if isinstance(node, Alt):
        return _few(set().union(*map(sentences, node.choices)))
    if isinstance(node, Seq):
        found = {b""}
        for part in node.parts:
            found = _product(found, sentences(part))
        return found
    inner, found, power = sentences(node.node), set(), {b""}
    for count in range(node.high + 1):
        if count >= node.low:
            found |= power
        power = _product(power, inner) if count < node.high else power
    return _few(found)


def _product(first: set[bytes], second: set[bytes]) -> set[bytes]:
    assume(len(first) * len(second) <= 1000)
    return {a + b for a in first for b in second}


def _few(found: set[bytes]) -> set[bytes]:
    assume(len(found) <= 1000)
    return found
