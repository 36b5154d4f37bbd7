"""JSON numbers between bounds, as deterministic machines.

A bound that is only checked at the end leaves dead ends: for 10..19 a "2" looks like a good start. And floats compare
the wrong numbers: 0.1 is not what a schema's author wrote. So bounds are exact fractions, compared digit by digit, and
each state knows only what the digits so far leave open; states from which no number can be completed are removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, gcd, lcm

import numpy as np

from gdlib.grammar.nodes import Dfa, GrammarError

MAX_DIGITS = 1000  # of a bound or multiple, before and behind the point together; any float has fewer
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_DIGITS = "0123456789"
_SYMBOLS = "-." + _DIGITS


def exact(value: int | float | str | Decimal) -> Fraction:
    """The number as a schema's author wrote it: a float stands for its shortest decimal spelling, 0.1 for 1/10.

    A `str` is a JSON number. Raises GrammarError for what is no finite number and for more than MAX_DIGITS digits.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        _check_size(value)
        return Fraction(value)
    text = str(value)
    match = _JSON_NUMBER.fullmatch(text.strip() if isinstance(value, str) else text)
    if match is None or isinstance(value, bool):
        raise GrammarError(f"number {_short(text)}: not a finite number; write it as JSON does, such as 2.5 or -1e3")
    whole, fraction, exponent = match[1], match[2] or "", match[3] or "0"
    if max(len(whole), len(fraction)) > MAX_DIGITS or len(exponent) > 6 or abs(int(exponent)) > MAX_DIGITS:
        raise GrammarError(f"number {_short(text)}: more than {MAX_DIGITS} digits when written out; use a smaller one")
    result = Fraction(int(whole + fraction)) * Fraction(10) ** (int(exponent) - len(fraction))
    return -result if text.lstrip().startswith("-") else result


@lru_cache(maxsize=4096)
def number(
    low: Fraction | None,
    high: Fraction | None,
    low_open: bool,
    high_open: bool,
    integer: bool,
    multiples: tuple[Fraction, ...] = (),
    excluded: frozenset[Fraction] = frozenset(),
    max_states: int = 20_000,
) -> Dfa:
    """The JSON spellings of the numbers from `low` to `high` (None: no bound; `*_open`: the bound itself is left out).

    With `integer`, only whole numbers (5.0 is one); with `multiples`, only multiples of each of them; never one of
    `excluded`. Where nothing is asked, every spelling of RFC 8259 stands, exponents too. Otherwise numbers are plain
    decimals: no exponent, any number of zeros at the end of the fraction. No value is lost by that, as each number of
    JSON can be written so. -0 is zero. A language without any number is a machine without states.

    Raises GrammarError for bounds that no decimal can write, a multiple that is not positive, and where more than
    `max_states` states would be needed.
    """
    if low is None and high is None and not integer and not multiples and not excluded:
        return _any_number()
    step = _common_multiple(multiples + ((Fraction(1),) if integer else ()))
    values = _few_values(low, high, low_open, high_open, step)
    if values is not None:
        asked = _Asked(keep=True)
        listed = frozenset(values) - excluded
        plus, minus = _signed(None, None, False, False, listed), _signed(None, None, False, False, _negated(listed))
    else:
        asked = _multiples_of(step, max_states) if step is not None else _Asked()
        plus = _signed(low, high, low_open, high_open, excluded)
        below, above = (None if b is None else -b for b in (high, low))
        minus = _signed(below, above, high_open, low_open, _negated(excluded))

    def successors(state: _Prefix | None) -> list[_Prefix | None]:
        if state is not None:
            return _successors(state, asked)
        following = _successors(plus, asked) if plus else [None] * len(_SYMBOLS)
        return [minus] + following[1:]

    def accepts(state: _Prefix | None) -> bool:
        return state is not None and _accepts(state, asked)

    machine = _explore(None, successors, accepts, max_states)
    if machine is None:
        place = f"number {_interval(low, high, low_open, high_open)}"
        place += "" if step in (None, 1) else f", multiple of {_short(_decimal(step))}"
        place += f", {len(excluded)} values left out" if excluded else ""
        raise GrammarError(f"{place}: more than {max_states} states; use rounder or fewer numbers")
    return machine


# What the digits so far leave open; equal prefixes have equal futures. A plain tuple, as thousands are made:
#   phase      _SIGN (no digit yet), _ZERO (the integer part is 0), _INTEGER, _DOT, _FRACTION
#   low, high  the bounds of the absolute value as the digits so far see them, None where there is none (any more):
#              "25.5;"  equal so far, and this is unread; "!" for ";" where the bound itself is left out
#              "<<<"    less so far, and the bound's integer part has two more digits; behind the point just "<"
#              ">>>"    greater so far, likewise; ">" is greater whatever follows, "<" less if the integer part ends
#   remainder  in the integer part its remainder by p; then (digits left to q, what they must be modulo p)
#   listed     for each listed value that begins like this text, the unread rest of its spelling
_Prefix = tuple[int, str | None, str | None, int | tuple[int, int] | None, frozenset[str]]
_SIGN, _ZERO, _INTEGER, _DOT, _FRACTION = range(5)


@dataclass(frozen=True)
class _Asked:
    """What is the same for all states: multiples of p / 10**q, and whether listed values are left out or all there is.

    `merge` gives a remainder with the same future as a number, the same one for all such numbers.
    """

    p: int = 0
    q: int = 0
    merge: Callable[[int], int] = int
    keep: bool = False


def _multiples_of(step: Fraction, max_states: int) -> _Asked:
    q = _places(step)
    p = int(step * 10**q)
    length, coprime = _split(p)
    if coprime > max_states or length > 60:  # 2**61 would need far more, too, and long to find out
        raise GrammarError(
            f"multiple of {_short(_decimal(step))}: more than {max_states} states; use a rounder number, or bounds "
            "with few multiples between them"
        )
    if length == 0:
        return _Asked(p, q, lambda value: value % p)
    ends = [10**j for j in range(q, max(q, length) + 1)]
    known: dict[int, int] = {}
    first: dict[tuple[int, ...], int] = {}

    def merge(value: int) -> int:
        # j digits may follow, which must be -value * 10**j modulo p, or cannot where that is too long. From j = length
        # on, all depends on the remainder by `coprime`. So multiples of 1000 need 4 remainders, not 1000.
        value %= p
        if value not in known:
            needs = [-value * end % p for end in ends]
            key = (value % coprime, *[n if n < end else -1 for n, end in zip(needs, ends, strict=True)])
            known[value] = first.setdefault(key, value)
        return known[value]

    return _Asked(p, q, merge)


def _explore(start, successors: Callable, accepts: Callable, max_states: int) -> Dfa | None:
    """The machine of all states reached from `start`, less those that reach no accepting one; None: too many."""
    index, order, rows = {start: 0}, [start], []
    for state in order:  # grows while it is read
        row = []
        for target in successors(state):
            if target is None:
                row.append(-1)
                continue
            if target not in index:
                if len(order) == max_states:
                    return None
                index[target] = len(order)
                order.append(target)
            row.append(index[target])
        rows.append(row)
    return _trimmed(rows, [accepts(s) for s in order], _SYMBOLS)


def _trimmed(rows: list[list[int]], accepting: list[bool], symbols: str) -> Dfa:
    before: list[list[int]] = [[] for _ in rows]
    for source, row in enumerate(rows):
        for target in set(row):
            if target >= 0:
                before[target].append(source)
    alive = set(todo := [s for s, yes in enumerate(accepting) if yes])
    while todo:
        for source in before[todo.pop()]:
            if source not in alive:
                alive.add(source)
                todo.append(source)
    columns = np.zeros(256, np.uint8)
    if 0 not in alive:
        return Dfa(columns, np.full((0, 1), -1, np.int32), np.zeros(0, bool))
    kept = sorted(alive)
    new = {old: i for i, old in enumerate(kept)}
    table = [[new.get(t, -1) for t in rows[old]] for old in kept]
    distinct = {(-1,) * len(kept): 0}  # column 0: the bytes that no number has
    for symbol, column in zip(symbols, zip(*table, strict=True), strict=True):
        columns[ord(symbol)] = distinct.setdefault(column, len(distinct))
    delta = np.ascontiguousarray(np.array(list(distinct), np.int32).T)
    return Dfa(columns, delta, np.array([accepting[old] for old in kept]))


@lru_cache(maxsize=1)
def _any_number() -> Dfa:
    start, minus, zero, integer, dot, fraction, e, sign, exponent = range(9)
    moves = {
        start: {"-": minus, "0": zero, "1": integer},
        minus: {"0": zero, "1": integer},
        zero: {".": dot, "e": e},
        integer: {"0": integer, "1": integer, ".": dot, "e": e},
        dot: {"0": fraction, "1": fraction},
        fraction: {"0": fraction, "1": fraction, "e": e},
        e: {"-": sign, "+": sign, "0": exponent, "1": exponent},
        sign: {"0": exponent, "1": exponent},
        exponent: {"0": exponent, "1": exponent},
    }
    symbols = "-.0123456789eE+"
    alike = {"E": "e"} | dict.fromkeys("23456789", "1")
    rows = [[moves[s].get(alike.get(c, c), -1) for c in symbols] for s in range(9)]
    return _trimmed(rows, [s in (zero, integer, fraction, exponent) for s in range(9)], symbols)


def _signed(low, high, low_open, high_open, listed) -> _Prefix | None:
    """The state before the first digit of a number of one sign, from the bounds of its absolute value."""
    if high is not None and (high < 0 or (high == 0 and high_open)):
        return None
    below = None if low is None or low < 0 or (low == 0 and not low_open) else _spelling(low) + ";!"[low_open]
    above = None if high is None else _spelling(high) + ";!"[high_open]
    return _SIGN, below, above, None, frozenset(_spelling(v) for v in listed if v >= 0)


def _negated(values: frozenset[Fraction]) -> frozenset[Fraction]:
    return frozenset(-v for v in values)


def _successors(state: _Prefix, asked: _Asked) -> list[_Prefix | None]:
    """The state behind each of _SYMBOLS, None where no number goes on so."""
    phase, low, high, _, listed = state
    if phase == _ZERO:
        return [None, (_DOT, *state[1:])] + [None] * 10
    point = None
    if phase == _INTEGER:
        closed = _closed(state, asked)
        point = None if closed is None else (_DOT, *closed[1:])
    turns = {0, 1}  # the digits that may lead elsewhere than the one before them
    for rest in (low, high, *listed) if listed else (low, high):
        if rest and rest[0].isdigit():
            digit = int(rest[0])
            turns.update((digit, digit + 1))
    behind = _behind_integer if phase < _DOT else _behind_fraction
    targets, target, every = [None, point], None, asked.p > 1
    for digit in range(10):
        if every or digit in turns:
            target = behind(state, digit, asked)
        targets.append(target)
    return targets


def _behind_integer(state: _Prefix, digit: int, asked: _Asked) -> _Prefix | None:
    phase, low, high, remainder, listed = state
    d = _DIGITS[digit]
    if high is not None:
        high = _compare_integer(high, d)
        if high == ">":
            return None
    if low is not None:
        low = _compare_integer(low, d)
        if low == ">":
            low = None
    if listed:
        listed = frozenset([rest[1:] for rest in listed if rest[0] == d])
    if asked.keep and not listed:
        return None
    if asked.p:
        remainder = asked.merge((remainder or 0) * 10 + digit)
    after = (_INTEGER, low, high, remainder, listed)
    if phase == _INTEGER or digit:
        return after
    closed = _closed(after, asked)
    return None if closed is None else (_ZERO, *closed[1:])


def _compare_integer(bound: str, d: str) -> str:
    first = bound[0]
    if first == ".":  # more digits than the bound has
        return ">"
    if first in "<>":
        return bound[1:] or ">"
    if first == d:
        return bound[1:]
    return (">" if d > first else "<") * bound.index(".")


def _closed(state: _Prefix, asked: _Asked) -> _Prefix | None:
    """The state if the integer part ends here, None where it must not."""
    _, low, high, remainder, listed = state
    if asked.p:
        remainder = (asked.q, -remainder * 10**asked.q % asked.p)
    if listed:
        listed = frozenset([rest[1:] for rest in listed if rest[0] == "."])
    return _settled(_INTEGER, low and _close(low), high and _close(high), remainder, listed, asked)


def _close(bound: str) -> str:
    if bound[0] == ".":
        return bound[1:]
    return ">" if bound == ">" else "<"  # fewer digits than the bound has, or as many and less


def _behind_fraction(state: _Prefix, digit: int, asked: _Asked) -> _Prefix | None:
    _, low, high, remainder, listed = state
    d = _DIGITS[digit]
    if remainder is not None:
        left, need = remainder
        if left == 0 and digit:
            return None
        if left:
            remainder = (left - 1, (need - digit * 10 ** (left - 1)) % asked.p)
    if listed:
        listed = frozenset([rest[1:] for rest in listed if (rest or "0")[0] == d])
    low, high = low and _compare_fraction(low, d), high and _compare_fraction(high, d)
    return _settled(_FRACTION, low, high, remainder, listed, asked)


def _compare_fraction(bound: str, d: str) -> str:
    first = bound[0]
    if first in ";!":
        return bound if d == "0" else ">"
    if first == d:
        return bound[1:]
    return ">" if d > first else "<"


def _settled(phase, low, high, remainder, listed, asked: _Asked) -> _Prefix | None:
    """The state behind the integer part, without the bounds that are met for good; None where one never will be."""
    if low == "<" or high == ">" or (asked.keep and not listed):
        return None
    if remainder is not None and remainder[1] >= 10 ** remainder[0]:
        return None
    return phase, None if low == ">" else low, None if high == "<" else high, remainder, listed


def _accepts(state: _Prefix, asked: _Asked) -> bool:
    """Whether the text may end in this state."""
    if state[0] in (_SIGN, _DOT):
        return False
    closed = _closed(state, asked) if state[0] == _INTEGER else state
    if closed is None:
        return False
    _, low, high, remainder, listed = closed
    # Where digits of `low` are unread the number is less; of `high`, too.
    return low in (None, ";") and high != "!" and (not remainder or remainder[1] == 0) and ("" in listed) == asked.keep


def _few_values(low, high, low_open, high_open, step: Fraction | None) -> list[Fraction] | None:
    """All values, where they are fewer than the remainders: multiples of 65536 up to 200000 are four texts."""
    if low is None or high is None:
        return None
    if low > high:
        return []
    if step is None:
        return ([low] if not (low_open or high_open) else []) if low == high else None
    first, last = ceil(low / step), floor(high / step)
    first += low_open and first * step == low
    last -= high_open and last * step == high
    if last - first >= min(int(step * 10 ** _places(step)), 1000):
        return None
    return [n * step for n in range(first, last + 1)]


def _common_multiple(multiples: tuple[Fraction, ...]) -> Fraction | None:
    if not multiples:
        return None
    for m in multiples:
        if m <= 0:
            raise GrammarError(f"multiple of {_short(str(m))}: want a number above 0")
    places = max(_places(m) for m in multiples)
    step = Fraction(lcm(*(int(m * 10**places) for m in multiples)), 10**places)
    _check_size(step.numerator)
    return step


def _places(value: Fraction) -> int:
    """The number of digits behind the point."""
    twos_and_fives, coprime = _split(value.denominator)
    if coprime != 1 or twos_and_fives > MAX_DIGITS:
        raise GrammarError(
            f"number {_short(str(value))}: no decimal with at most {MAX_DIGITS} digits writes it; round it to one"
        )
    return twos_and_fives


def _split(value: int) -> tuple[int, int]:
    """(the least t where 10**t has all factors 2 and 5 of `value`, what is left of `value` without these factors)."""
    t = 0
    while (shared := gcd(value, 10)) > 1 and t <= MAX_DIGITS:
        value //= shared
        t += 1
    return t, value


def _spelling(value: Fraction) -> str:
    """Digits, a point, and the fraction without zeros at its end ("12.", "0.5")."""
    places = _places(value)
    scaled = int(value * 10**places)
    _check_size(scaled)
    digits = str(scaled).rjust(places + 1, "0")
    return f"{digits[: len(digits) - places]}.{digits[len(digits) - places :]}"


def _decimal(value: Fraction) -> str:
    return ("-" if value < 0 else "") + _spelling(abs(value)).rstrip(".")


def _check_size(value: int) -> None:
    if abs(value) >= 10**MAX_DIGITS:  # also keeps Python's own limit for writing integers out of the way
        raise GrammarError(f"number of {value.bit_length()} bits: more than {MAX_DIGITS} digits; use a smaller one")


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:30] + "..."


def _interval(low: Fraction | None, high: Fraction | None, low_open: bool, high_open: bool) -> str:
    left = "(-inf" if low is None else ("(" if low_open else "[") + _short(_decimal(low))
    right = "inf)" if high is None else _short(_decimal(high)) + (")" if high_open else "]")
    return f"{left}, {right}"
