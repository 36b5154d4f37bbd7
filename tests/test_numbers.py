"""Number machines against exact arithmetic: which texts they take, and that no prefix they take is a dead end."""

import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gdlib.grammar.nodes import GrammarError
from gdlib.grammar.numbers import exact, number

PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
JSON = re.compile(PLAIN.pattern + r"([eE][+-]?[0-9]+)?")


def takes(machine, text):
    state = 0 if len(machine.delta) else -1
    for byte in text.encode():
        state = machine.delta[state, machine.columns[byte]] if state >= 0 else -1
    return state >= 0 and bool(machine.accepting[state])


def build(low=None, high=None, low_open=False, high_open=False, integer=False, multiples=(), excluded=()):
    bounds = [None if b is None else exact(b) for b in (low, high)]
    return number(
        *bounds, low_open, high_open, integer, tuple(exact(m) for m in multiples), frozenset(exact(v) for v in excluded)
    )


def texts(machine, length):
    """All texts of at most so many bytes, and all their prefixes that the machine lets pass."""
    found, prefixes, layer = set(), set(), {"": 0} if len(machine.delta) else {}
    for _ in range(length + 1):
        found |= {t for t, s in layer.items() if machine.accepting[s]}
        prefixes |= set(layer)
        moves = ((t, c, machine.delta[s, machine.columns[ord(c)]]) for t, s in layer.items() for c in "-.0123456789eE+")
        layer = {t + c: s for t, c, s in moves if s >= 0}
    return found, prefixes


def check_trimmed(machine):
    n = len(machine.delta)
    assert machine.columns.shape == (256,) and machine.columns.dtype == np.uint8
    assert machine.delta.dtype == np.int32 and machine.delta.min(initial=-1) >= -1 and machine.delta.max(initial=-1) < n
    assert machine.accepting.shape == (n,) and machine.accepting.dtype == bool
    assert machine.columns.max() < machine.delta.shape[1]
    reach, alive = {0} if n else set(), set(np.flatnonzero(machine.accepting))
    for _ in range(n):
        grown = reach | {int(t) for s in reach for t in machine.delta[s] if t >= 0}
        if grown == reach:
            break
        reach = grown
    for _ in range(n):
        grown = alive | {s for s in range(n) if any(int(t) in alive for t in machine.delta[s])}
        if grown == alive:
            break
        alive = grown
    assert reach == alive == set(range(n))


ACCEPTED = [
    ({}, "0 -0 0.0 -0.5 10 1e5 1E+2 2.5e-3 0e1 -12.750", "-.5 1. 01 +1 0x1 1e - NaN 1.2.3 .5 3.e4 3.5e4.5 1e+ --1 -01"),
    ({"integer": True}, "0 -0 7 -12 5.0 -5.000 100 -0.00", "5.5 1e2 01 5. 5.01 -"),
    ({"low": -9, "high": 4}, "-0.5 0.25 4 -9 3.999 -8.75 0 -0.001 4.0 -9.00", "4.1 -9.01 5 -10 4.000001 40 -90.5 1e0"),
    ({"low": 2, "high": 9}, "2 9 2.0 8.75 9.00 3.5", "9.6 1.99 9.01 0 10 -2 29 02"),
    ({"low": -8, "integer": True}, "-8 -1 -0 0 77 123456 -8.0", "-9 -10 -80 - --1 -08 -8.5"),
    ({"low": -3, "high": 103, "low_open": True, "high_open": True, "integer": True}, "-2 0 9 99 100 102", "-3 103 110"),
    ({"low": 10, "high": 19, "integer": True}, "10 15 19", "1 2 9 20 100 -15"),
    ({"high": 0, "high_open": True}, "-1 -0.001 -10.5", "0 -0 -0.0 1 0.5"),
    ({"low": 0, "low_open": True}, "1 0.001 10.5", "0 -0 -0.0 0.00 -1"),
    ({"low": 0.1, "high": 0.3}, "0.1 0.2 0.30 0.299 0.1000", "0.09 0.31 0 1 0.3001 -0.2"),
    ({"low": 1e-8}, "1 0.00000001 0.5", "0.000000001 0 -1 1e-8"),
    ({"low": 5, "high": 5}, "5 5.0", "4 6 5.1 50"),
    ({"low": 5, "high": 5, "low_open": True}, "", "5 5.0"),
    ({"low": 3, "high": 4, "low_open": True, "high_open": True, "integer": True}, "", "3 4 3.5"),
    ({"low": 4, "high": 3}, "", "3 4 3.5"),
    ({"integer": True, "multiples": [6], "low": -20, "high": 20}, "-18 -6 0 -0 6 18 12.0", "-20 -3 4 24 9 -24 1"),
    ({"integer": True, "multiples": [5]}, "0 5 -15 100 1234567890 5.0", "7 101 -12 52 05"),
    ({"multiples": [0.25]}, "0.25 1.5 3 -0.75 2.50 2.500", "0.1 1.3 0.255 -0.2 2.26"),
    ({"multiples": [0.01], "low": 0}, "19.99 0 0.5 7.000", "19.999 -0.01 0.001"),
    ({"multiples": [0.3]}, "0.3 0.6 3 1.20 -0.9 0", "0.1 1 0.33 10"),
    ({"multiples": [4, 6]}, "0 12 -24.0", "4 6 18 2.4"),
    ({"multiples": [1000]}, "1000 0 25000 -1000.0", "1 100 1500 10"),
    ({"multiples": [2.5], "integer": True}, "5 10.0 -15", "2.5 7.5 1"),
    ({"multiples": [65536], "low": 0, "high": 200000}, "0 65536 131072.0 196608", "1 262144 -65536 6553"),
    ({"excluded": [13]}, "1 130 -13 13.5 12.999 1.3", "13 13.0 13.00 1e1"),
    ({"excluded": [0, -2.5], "integer": False}, "1 0.1 -2.51 2.5 -2", "0 -0 0.0 -0.00 -2.5 -2.500"),
    ({"excluded": [3, 5], "low": 2, "high": 6, "integer": True}, "2 4 6", "3 5 5.0 1 7"),
    ({"low": -(10**399), "high": 10**400 - 1, "integer": True}, "0 " + "9" * 400 + " -1" + "0" * 399, "1" + "0" * 400),
    (
        {"low": "-123456789012345678901234567890.5"},
        "-123456789012345678901234567890.5",
        "-123456789012345678901234567890.51",
    ),
]


@pytest.mark.parametrize(("asked", "good", "bad"), ACCEPTED)
def test_which_spellings(asked, good, bad):
    machine = build(**asked)
    check_trimmed(machine)
    assert [t for t in good.split() if not takes(machine, t)] == []
    assert [t for t in bad.split() if takes(machine, t)] == []
    assert not takes(machine, "")


def test_no_number_at_all_is_no_state():
    for asked in ({"low": 3, "high": 4, "low_open": True, "high_open": True, "integer": True}, {"low": 1, "high": 0}):
        assert build(**asked).delta.shape[0] == 0
    assert build(low=0.1, high=0.4, integer=True).delta.shape[0] == 0
    assert build(low=7, high=7, excluded=[7]).delta.shape[0] == 0
    assert build(low=1, high=3, integer=True, multiples=[5]).delta.shape[0] == 0


def test_no_dead_ends_in_a_range_of_integers():
    found, prefixes = texts(build(low=10, high=19, integer=True), 2)
    assert found == {str(n) for n in range(10, 20)}
    assert {p for p in prefixes if len(p) == 1} == {"1"}


decimals = st.builds(lambda n, places: Fraction(n, 10**places), st.integers(-1200, 1200), st.integers(0, 3))
steps = st.sampled_from(["1", "2", "3", "7", "10", "0.5", "0.25", "0.3", "1.5", "12", "100", "0.08"]).map(exact)


def written(value, zeros, sign):
    places = 0
    while value * 10**places % 1:
        places += 1
    digits = str(abs(int(value * 10**places))).rjust(places + 1, "0")
    whole, fraction = digits[: len(digits) - places], digits[len(digits) - places :] + "0" * zeros
    return ("-" if value < 0 or (value == 0 and sign) else "") + whole + ("." + fraction if fraction else "")


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.none(), decimals),
    st.one_of(st.none(), decimals),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(steps, max_size=2),
    st.frozensets(decimals, max_size=3),
    st.lists(st.tuples(decimals, st.integers(0, 2), st.booleans()), max_size=40),
    st.lists(st.text("-.0123456789eE+", max_size=6), max_size=20),
)
@example(Fraction(0), Fraction(0), False, False, False, [], frozenset(), [(Fraction(0), 1, True)], ["-0.0"])
def test_as_arithmetic_says(low, high, low_open, high_open, integer, multiples, excluded, values, junk):
    machine = number(low, high, low_open, high_open, integer, tuple(multiples), excluded)
    check_trimmed(machine)
    free = low is None and high is None and not integer and not multiples and not excluded
    near = [v + d for v in (low, high, *excluded) if v is not None for d in (0, 1, -1, Fraction(1, 1000))]
    multiplied = [m * n for m in multiples for n in (0, 1, -1, 2, 7, 12, -30)]
    samples = junk + [written(*v) for v in values] + [written(v, z, True) for v in near + multiplied for z in (0, 1)]
    for text in samples:
        expected = bool((JSON if free else PLAIN).fullmatch(text))
        if expected and not free:
            x = Fraction(text)
            expected = (
                (low is None or x > low or (x == low and not low_open))
                and (high is None or x < high or (x == high and not high_open))
                and (not integer or x % 1 == 0)
                and all(x % m == 0 for m in multiples)
                and x not in excluded
            )
        assert takes(machine, text) == expected, text


@settings(max_examples=25, deadline=None)
@given(st.integers(-120, 120), st.integers(0, 150), st.sampled_from([None, 1, 4, 30]))
def test_every_text_of_an_integer_range(low, width, step):
    machine = build(low=low, high=low + width, integer=True, multiples=[step] if step else [])
    found, _ = texts(machine, 4)
    values = {n for n in range(low, low + width + 1) if n % (step or 1) == 0}
    whole = {t for t in found if "." not in t}
    assert whole == {str(n) for n in values} | ({"-0"} if 0 in values else set())


def test_sizes_stay_small():
    assert len(build(low=0, high=100, integer=True).delta) <= 15
    assert len(build(low=1, high=65535, integer=True).delta) <= 25
    assert len(build(multiples=["1000000000"], integer=True).delta) <= 20
    assert len(build(low=-(2**63), high=2**63 - 1, integer=True).delta) <= 100
    assert len(build(low=1e-300, high=1e300).delta) <= 2000


def test_refusals_name_the_value():
    for asked, message in [
        ({"multiples": [40003.5]}, "multiple of 40003.5: more than 20000 states"),
        ({"multiples": [2**40]}, "multiple of 1099511627776.*more than 20000 states"),
        ({"multiples": [7**300]}, "more than 20000 states"),
        ({"multiples": [2**300]}, "more than 20000 states"),
        ({"multiples": [0]}, "multiple of 0: want a number above 0"),
        ({"multiples": [-2]}, "multiple of -2: want"),
    ]:
        with pytest.raises(GrammarError, match=message):
            build(**asked)
    with pytest.raises(GrammarError, match="1/3: no decimal"):
        number(Fraction(1, 3), None, False, False, False)
    with pytest.raises(GrammarError, match="more than 5 states"):
        number(Fraction(10), Fraction(999), False, False, True, max_states=5)
    # few multiples between the bounds are listed instead of counted
    assert takes(build(multiples=[7**30], low=0, high=7**30 * 3), str(7**30 * 2))


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (0.1, Fraction(1, 10)),
        (1e-8, Fraction(1, 10**8)),
        (1e300, Fraction(10**300)),
        (5e-324, Fraction(5, 10**324)),
        (-0.0, Fraction(0)),
        (12, Fraction(12)),
        (-(10**400), Fraction(-(10**400))),
        ("-1.50e-2", Fraction(-15, 1000)),
        ("1E+2", Fraction(100)),
        (Decimal("2.50"), Fraction(5, 2)),
        (Decimal("1E+5"), Fraction(10**5)),
    ],
)
def test_exact(value, result):
    assert exact(value) == result


@pytest.mark.parametrize(
    "value",
    ["1e400000", "1e-400000", "1e" + "9" * 99, "9" * 5000, pytest.param(10**5000, id="long"), "0." + "1" * 1001],
)
def test_exact_refuses_what_would_fill_memory(value):
    with pytest.raises(GrammarError, match="more than 1000 digits"):
        exact(value)


@pytest.mark.parametrize(
    "value", ["", "01", "+1", "1.", ".5", "1_0", "٣", "ten", float("nan"), float("inf"), True, None]
)
def test_exact_refuses_what_is_no_number(value):
    with pytest.raises(GrammarError, match="not a finite number"):
        exact(value)
