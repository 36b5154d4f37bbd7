"""Strings, numbers and fixed values as text.

A free string keeps the shape quote, repeated character, quote, which recognisers know well. Only where constraints
meet (two patterns, a pattern and a length, exclusions) is a machine built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from json.encoder import encode_basestring

from gdlib.grammar import numbers, regular
from gdlib.grammar.nodes import (
    ANY_CHARACTER,
    EMPTY,
    Alt,
    Character,
    Dfa,
    GrammarError,
    Lazy,
    Literal,
    Node,
    Repeat,
    Seq,
    Words,
    WordTable,
    byte_class,
    literal,
    optional,
)
from gdlib.grammar.schema import names
from gdlib.grammar.schema.atoms import FREE_NUMBER, FREE_STRING, INTEGER, Numbers, Strings, admits_number
from gdlib.grammar.schema.errors import Refusal
from gdlib.grammar.schema.lengths import count_characters, counted_dfa, counted_node
from gdlib.grammar.schema.names import QUOTE

MAX_STATES = 20_000  # of one string or number machine

JSON_CHARACTER = Character(ANY_CHARACTER, "json_any")
ANY_NAME = Character(ANY_CHARACTER, "json")  # any number of these, in quotes: a name that no keyword speaks of
STRING = Seq((QUOTE, Repeat(JSON_CHARACTER, 0, None), QUOTE))
NULL, FALSE_TEXT, TRUE_TEXT = literal("null"), literal("false"), literal("true")
ZEROS = Repeat(literal("0"), 0, None)
ZERO_FRACTION = optional(Seq((literal("."), literal("0"), ZEROS)))


@dataclass(frozen=True, eq=False)
class Spacing:
    """The text between tokens: `pad` inside brackets and before a comma, `comma` and `colon` with what follows them."""

    pad: Node
    comma: Node
    colon: Node


WHITE = Repeat(byte_class(b" \t\n\r"), 0, None)
SPACINGS = {
    "any": Spacing(WHITE, Seq((literal(","), WHITE)), Seq((WHITE, literal(":"), WHITE))),
    "compact": Spacing(EMPTY, literal(","), literal(":")),
}


def spacing_of(whitespace) -> Spacing:
    """The spacing an option asks for: "any", "compact", or a pair (item separator, key separator)."""
    if isinstance(whitespace, str) and whitespace in SPACINGS:
        return SPACINGS[whitespace]
    pair = tuple(whitespace) if isinstance(whitespace, list | tuple) else ()
    if len(pair) != 2 or [p.strip(" \t\n\r") if isinstance(p, str) else p for p in pair] != [",", ":"]:
        raise GrammarError(f'whitespace: want "any", "compact" or a pair such as (", ", ": "), got {whitespace!r}')
    return exact_spacing(*pair)


@lru_cache(maxsize=64)
def exact_spacing(comma: str, colon: str) -> Spacing:
    return Spacing(EMPTY, literal(comma), literal(colon))


def spell(text: str) -> bytes:
    """A string in the one spelling json.dumps(ensure_ascii=False) gives it, quotes included."""
    return encode_basestring(text).encode()


def words(texts: frozenset[str]) -> Node:
    """One of the strings."""
    spelled = sorted(map(spell, texts))
    return Literal(spelled[0]) if len(spelled) == 1 else Words(WordTable(tuple(spelled)), nothing_more)


def nothing_more(_index: int) -> Node:
    return EMPTY


def string_node(atom: Strings) -> Node | None:
    """The texts of the atom's strings, or None where it has none. Refused: machines that grow too large."""
    if atom is FREE_STRING:
        return STRING
    if atom.only is not None:
        return words(atom.only)
    if not (atom.patterns or atom.avoided or atom.excluded):
        return Seq((QUOTE, Repeat(JSON_CHARACTER, atom.low, atom.high), QUOTE))
    if not has_string(atom):
        return None
    found, low, high = constrained(atom.low, atom.high, atom.patterns, atom.avoided, atom.excluded)
    if low or high is not None:
        return Seq((QUOTE, Lazy(("string", low, high, id(found)), lambda: counted_node(found, low, high)), QUOTE))
    return Seq((QUOTE, found, QUOTE))


def has_string(atom: Strings) -> bool:
    """Whether the atom has a string. Refused: machines that grow too large."""
    if atom.only is not None or not (atom.patterns or atom.avoided or atom.excluded):
        return True
    found, low, high = constrained(atom.low, atom.high, atom.patterns, atom.avoided, atom.excluded)
    if names.is_empty(found):
        return False
    return (not low and high is None) or bool(count_characters(found, low, high).useful[0, 0])


def string_bodies(atom: Strings) -> Dfa:
    """The bodies of the atom's strings in canonical spelling, as a machine."""
    if atom.only is not None:
        return bodies_of(atom.only)
    found, low, high = constrained(atom.low, atom.high, atom.patterns, atom.avoided, atom.excluded)
    machine = built("propertyNames", regular.dfa, found)
    return counted_dfa(machine, low, high) if low or high is not None else machine


def bodies_of(texts: frozenset[str]) -> Dfa:
    return regular.dfa(Alt(tuple(Literal(spell(t)[1:-1]) for t in sorted(texts))))


def built(keyword: str, function: Callable, *arguments):
    """`function(*arguments)`; a machine that is refused (mostly for its size) is a refusal of `keyword`."""
    try:
        return function(*arguments)
    except GrammarError as error:
        raise Refusal(keyword, str(error)) from None


@lru_cache(maxsize=4096)
def constrained(
    low: int, high: int | None, patterns: frozenset, avoided: frozenset, excluded: frozenset
) -> tuple[Node, int, int | None]:
    """String bodies in canonical spelling under all constraints: a tree where one is enough, else a machine; and the
    bounds on its characters that are left to be counted, for a machine only."""
    ordered = sorted(patterns)
    if not ordered:
        found: Node = Repeat(Character(ANY_CHARACTER, "json"), low, high)
        low, high = 0, None
    else:
        found = names.body(ordered[0])
        found, low, high = names.bounded(found, low, high)
    if len(ordered) < 2 and not low and high is None and not avoided and not excluded:
        return found, 0, None
    machine = built("pattern", regular.dfa, found)
    for pattern in ordered[1:]:
        machine = built("pattern", regular.intersect, machine, built("pattern", names.body_dfa, pattern))
    for pattern in sorted(avoided):
        machine = built("pattern", regular.difference, machine, built("pattern", names.body_dfa, pattern))
    if excluded:
        machine = built("pattern", regular.difference, machine, bodies_of(excluded))
    return machine, low, high


# Numbers


@lru_cache(maxsize=1)
def free_number() -> Dfa:
    return numbers.number(None, None, False, False, False)


NUMBER = Lazy(("json number",), free_number)


def number_node(atom: Numbers) -> Node | None:
    """The texts of the atom's numbers, or None where it has none."""
    if atom is FREE_NUMBER:
        return NUMBER
    if atom.only is not None:
        whole = [value for value in sorted(atom.only) if value.denominator == 1 and 0 < abs(value) < 10**15]
        others = sorted(atom.only - set(whole))
        choices = [spelled for value in others for spelled in number_spellings(value)]
        if whole:  # as one list of words, however many they are
            texts = tuple(literal(str(value.numerator)) for value in whole)
            choices.append(Seq((texts[0] if len(texts) == 1 else Alt(texts), ZERO_FRACTION)))
        return choices[0] if len(choices) == 1 else Alt(tuple(choices))
    machine = number_dfa(atom)
    with_exponent = scientific(atom)
    if any(with_exponent):
        machine = regular.union(machine, exponents(*with_exponent))
    return machine if len(machine.accepting) else None


def number_dfa(atom: Numbers) -> Dfa:
    machine = built(
        "multipleOf" if atom.multiples else "minimum",
        numbers.number,
        atom.low,
        atom.high,
        atom.low_open,
        atom.high_open,
        atom.integer,
        tuple(sorted(atom.multiples)),
        atom.excluded,
    )
    return without_multiples(machine, atom.no_multiples) if atom.no_multiples else machine


@lru_cache(maxsize=256)
def without_multiples(machine: Dfa, steps: frozenset[Fraction]) -> Dfa:
    for step in sorted(steps):
        # free numbers may be written with exponents; multiples are not, and neither is what is left without them
        machine = built("multipleOf", regular.intersect, machine, plain_decimals())
        fitting = built("multipleOf", numbers.number, None, None, False, False, False, (step,))
        machine = built("multipleOf", regular.difference, machine, fitting)
    return machine


def scientific(atom: Numbers) -> tuple[bool, bool, bool, bool]:
    """Which numbers with an exponent, as json.dumps writes them, all lie within the bounds: small positive ones (below
    1e-4), small negative ones, great positive ones (1e16 and more), great negative ones."""
    if atom.integer or atom.multiples or atom.no_multiples or atom.excluded:
        return False, False, False, False
    low, high, least = atom.low, atom.high, Fraction(1, 10_000)
    return (
        (low is None or low <= 0) and (high is None or high >= least),
        (high is None or high >= 0) and (low is None or low <= -least),
        high is None and (low is None or low <= 10**16),
        low is None and (high is None or high >= -(10**16)),
    )


@lru_cache(maxsize=16)
def exponents(small: bool, small_negative: bool, great: bool, great_negative: bool) -> Node:
    digit, nonzero = byte_class(b"0123456789"), byte_class(b"123456789")
    mantissa = Seq((nonzero, optional(Seq((literal("."), Repeat(digit, 1, None))))))
    longer = Seq((nonzero, Repeat(digit, 1, 2)))
    below = Seq((mantissa, literal("e-"), Alt((Seq((literal("0"), byte_class(b"56789"))), longer))))
    teens = Seq((literal("1"), byte_class(b"6789")))
    more = Seq((byte_class(b"23456789"), digit))
    above = Seq((mantissa, literal("e+"), Alt((teens, more, Seq((nonzero, digit, digit))))))
    signs = ((small, below, ""), (small_negative, below, "-"), (great, above, ""), (great_negative, above, "-"))
    return regular.dfa(Alt(tuple(Seq((literal(sign), node)) for on, node, sign in signs if on)))


@lru_cache(maxsize=1)
def plain_decimals() -> Dfa:
    digit = byte_class(b"0123456789")
    whole = Alt((literal("0"), Seq((byte_class(b"123456789"), Repeat(digit, 0, None)))))
    return regular.dfa(Seq((optional(literal("-")), whole, optional(Seq((literal("."), Repeat(digit, 1, None)))))))


def has_number(atom: Numbers) -> bool:
    if atom.only is not None or atom is FREE_NUMBER or atom is INTEGER:
        return True
    if atom.multiples or atom.no_multiples or atom.excluded:
        return len(number_dfa(atom).accepting) > 0
    if atom.low is None or atom.high is None:
        return True
    if not atom.integer:
        return atom.low < atom.high or (atom.low == atom.high and not (atom.low_open or atom.high_open))
    first = -((-atom.low) // 1)
    if atom.low_open and first == atom.low:
        first += 1
    return admits_number(atom, Fraction(first))


def number_spellings(value: Fraction) -> list[Node]:
    """One number as a plain decimal with any zeros at its end, and as Python prints it where that has an exponent."""
    if value == 0:
        return [Seq((optional(literal("-")), literal("0"), ZERO_FRACTION))]
    if value.denominator == 1:
        text = str(value.numerator)
        found: list[Node] = [Seq((literal(text), ZERO_FRACTION))]
    else:
        places = max(twos(value.denominator, 2), twos(value.denominator, 5))
        digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
        text = ("-" if value < 0 else "") + digits[:-places] + "." + digits[-places:]
        found = [Seq((literal(text), ZEROS))]
    try:
        short = repr(float(value))
    except OverflowError:
        return found
    if "e" in short and numbers.exact(float(short)) == value:
        found.append(literal(short))
    return found


def twos(number: int, factor: int) -> int:
    """How often `factor` divides the number."""
    count = 0
    while number % factor == 0:
        number //= factor
        count += 1
    return count
