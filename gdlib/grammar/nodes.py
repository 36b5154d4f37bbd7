"""What every front end builds and every recogniser reads: a grammar as a small tree over bytes.

GBNF, JSON Schema, regexes and segments all end as these nodes. A node is immutable; a tree may be infinite, since
`Lazy` is built only where a text reaches it. That is how a large schema costs nothing until it is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

Ranges = tuple[tuple[int, int], ...]  # code points, both ends included, sorted, not touching
ANY_CHARACTER: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))


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
class Literal:
    """Exactly these bytes; none is the empty string."""

    text: bytes


@dataclass(frozen=True)
class Character:
    """One character out of `ranges`, as `style` writes it.

    "utf8": its UTF-8 bytes. "json": as it stands in a JSON string that escapes only what must be escaped, so that each
    character has one spelling. "json_any": in any spelling that RFC 8259 allows in a string (`\\u00e9`, `\\/`, ...).
    """

    ranges: Ranges
    style: str = "utf8"


@dataclass(frozen=True, eq=False)
class Dfa:
    """A regular language over bytes as a deterministic machine, used as a leaf.

    columns: uint8[256], the column of each byte; delta: int32[states, columns], the next state or -1;
    accepting: bool[states]. State 0 is the start. Trimmed: every state can reach an accepting one, so a language with
    no text at all has no states.
    """

    columns: np.ndarray
    delta: np.ndarray
    accepting: np.ndarray


@dataclass(frozen=True, eq=False)
class Counted:
    """The texts of `machine` with `low` characters or more, cut to a number of characters, and never written out.

    starts: bool[states], between two characters: the byte read there begins one. useful: bool[counts, states], an
    accepted text can follow; `saturated` where the last count stands for every greater one, else it is the most
    allowed.
    """

    machine: Dfa
    starts: np.ndarray
    useful: np.ndarray
    low: int
    saturated: bool


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


@dataclass(frozen=True)
class Ref:
    """The rule `name` of the grammar."""

    name: str


@dataclass(frozen=True)
class Lazy:
    """`make()`, built when a text first reaches it. Two Lazy nodes with equal keys are the same node."""

    key: Hashable
    make: Callable[[], Node] = field(compare=False)


@dataclass(frozen=True, eq=False)
class WordTable:
    """A set of texts, sorted, none empty and none a prefix of another; shared by many `Words`."""

    texts: tuple[bytes, ...]


@dataclass(frozen=True, eq=False)
class Words:
    """One text of `table`, then what `then(index)` makes for it: keys of an object, values of a large enum.

    Bit i of `skip` leaves text i out. Where `other` is given, every text of that machine that is not in the table (left
    out or not) may stand here too, with `then(-1)` behind it; a Character stands for all strings of it in quotes.
    `then` is called when a text is first completed.
    """

    table: WordTable
    then: Callable[[int], Node]
    skip: int = 0
    other: Dfa | Character | None = None


Node = ByteClass | Literal | Character | Dfa | Counted | Seq | Alt | Repeat | Ref | Lazy | Words
EMPTY = Seq(())


@dataclass(frozen=True)
class Grammar:
    """A whole language: the texts (as bytes) that `root` describes; `rules` are what its Refs name."""

    root: Node
    rules: Mapping[str, Node] = field(default_factory=dict)
    rows: Callable[[], list] | None = field(default=None, compare=False)

    @staticmethod
    def from_gbnf(text: str, bytes_only: bool = False) -> Grammar:
        """The language of a GBNF text; see grammar/gbnf.py. GrammarError names line, column and what was expected."""
        from gdlib.grammar.gbnf import from_gbnf

        kept = isinstance(text, str) and len(text) <= SMALL
        return _kept_gbnf(text, bytes_only) if kept else from_gbnf(text, bytes_only)

    @staticmethod
    def from_regex(pattern: str) -> Grammar:
        """The texts that an ECMA-262 pattern matches as a whole; see grammar/regex.py."""
        from gdlib.grammar.regex import whole

        return Grammar(whole(pattern))

    @staticmethod
    def from_json_schema(schema: dict | bool, **options) -> Grammar:
        """The JSON texts that a schema allows, exactly; see grammar/schema for the options.

        The same schema gives the same grammar again, with all that was learnt of it; changing the dict later changes
        nothing. SchemaError names the path of the node and the keyword that cannot be enforced.
        """
        from gdlib.grammar.schema import from_json_schema

        if not _is_small(schema):
            return from_json_schema(schema, **options)
        try:
            text = json.dumps(schema)
        except TypeError as error:
            raise GrammarError(f"the schema is not JSON: {error}; keys are strings, values what JSON has") from None
        except (ValueError, RecursionError):  # in a circle, or nested too deeply for json: there is an error for it
            return from_json_schema(schema, **options)
        return _kept_schema(
            text, tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in options.items()))
        )

    def explain(self) -> list:
        """For a grammar made from a JSON Schema: node by node, what is enforced and how."""
        if self.rows is None:
            raise GrammarError("only a grammar made by from_json_schema can be explained")
        return self.rows()


SMALL = 20_000  # containers of a schema, characters of a grammar, that are kept for the next time


def _is_small(schema) -> bool:
    """True where writing the schema out is no great work; one dict in many places counts in each."""
    count, todo = 0, [schema]
    while todo:
        inner = todo.pop()
        if isinstance(inner, dict):
            inner = inner.values()
        elif not isinstance(inner, list | tuple):
            continue
        count += 1
        if count > SMALL:
            return False
        todo.extend(i for i in inner if isinstance(i, dict | list | tuple))
    return True


@lru_cache(maxsize=32)
def _kept_schema(text: str, options: tuple) -> Grammar:
    from gdlib.grammar.schema import from_json_schema

    return from_json_schema(json.loads(text), **dict(options))


@lru_cache(maxsize=32)
def _kept_gbnf(text: str, bytes_only: bool) -> Grammar:
    from gdlib.grammar.gbnf import from_gbnf

    return from_gbnf(text, bytes_only)


def byte_class(allowed: bytes | Iterable[int]) -> ByteClass:
    return ByteClass(frozenset(allowed))


def byte_range(low: int, high: int) -> ByteClass:
    """One byte in `low..high`, both ends included."""
    return ByteClass(frozenset(range(low, high + 1)))


def literal(text: str | bytes) -> Literal:
    """Exactly these bytes; `str` is taken as UTF-8."""
    return Literal(text.encode() if isinstance(text, str) else text)


def optional(node: Node) -> Repeat:
    return Repeat(node, 0, 1)


def longest(node: Node) -> int | None:
    """The number of bytes of the longest text of a segment's node, or None where there is no longest."""
    if isinstance(node, ByteClass):
        return 1
    if isinstance(node, Literal):
        return len(node.text)
    if isinstance(node, Repeat):
        inner = longest(node.node)
        if node.high is None:
            return 0 if inner == 0 else None
        return None if inner is None else inner * node.high
    inner = [longest(n) for n in (node.parts if isinstance(node, Seq) else node.choices)]
    if None in inner:
        return None
    return sum(inner) if isinstance(node, Seq) else max(inner)
