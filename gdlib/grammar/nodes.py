"""Regular grammars as small immutable trees over byte classes.

Everything above this file (segments today, other front ends later) says what may be written with these four nodes,
and everything below it (the recognisers) reads nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class GrammarError(ValueError):
    """A grammar that cannot be built; the message names the part that is wrong."""


@dataclass(frozen=True)
class ByteClass:
    """Exactly one byte out of `allowed`."""

    allowed: frozenset[int]

    def __post_init__(self):
        if not self.allowed:
            raise GrammarError("empty byte class: no byte could ever match it")
        if not all(0 <= b <= 255 for b in self.allowed):
            raise GrammarError(f"byte class outside 0..255: {sorted(self.allowed)[:3]}...")


@dataclass(frozen=True)
class Seq:
    """All parts, one after another; no parts is the empty string."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alt:
    """One of the choices."""

    choices: tuple[Node, ...]

    def __post_init__(self):
        if not self.choices:
            raise GrammarError("alternation without choices")


@dataclass(frozen=True)
class Repeat:
    """`node` at least `low` and at most `high` times; `high=None` is without bound."""

    node: Node
    low: int
    high: int | None

    def __post_init__(self):
        if self.low < 0 or (self.high is not None and self.high < self.low):
            raise GrammarError(f"repetition {{{self.low},{self.high}}}: want 0 <= low <= high")


Node = ByteClass | Seq | Alt | Repeat


@dataclass(frozen=True)
class Grammar:
    """A whole language: the texts (as bytes) that `root` describes."""

    root: Node


def byte_class(allowed: bytes | Iterable[int]) -> ByteClass:
    return ByteClass(frozenset(allowed))


def byte_range(low: int, high: int) -> ByteClass:
    """One byte in `low..high`, both ends included."""
    return ByteClass(frozenset(range(low, high + 1)))


def literal(text: str | bytes) -> Seq:
    """Exactly these bytes; `str` is taken as UTF-8."""
    raw = text.encode() if isinstance(text, str) else text
    return Seq(tuple(byte_class([b]) for b in raw))


def optional(node: Node) -> Repeat:
    return Repeat(node, 0, 1)


def longest(node: Node) -> int | None:
    """The number of bytes of the longest text of `node`, or None where there is no longest."""
    if isinstance(node, ByteClass):
        return 1
    if isinstance(node, Repeat):
        inner = longest(node.node)
        if node.high is None:
            return 0 if inner == 0 else None
        return None if inner is None else inner * node.high
    inner = [longest(n) for n in (node.parts if isinstance(node, Seq) else node.choices)]
    if None in inner:
        return None
    return sum(inner) if isinstance(node, Seq) else max(inner)
