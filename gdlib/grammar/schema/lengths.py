"""A language of JSON string bodies cut to a number of characters.

Written out, the machine with a count beside each state is long (an e-mail address of at most 255 characters: 100,000
states). So it stays a machine and a table of which counts and states can still lead to an end, found layer
by layer; a recogniser counts while it reads. Only languages of member names are written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gdlib.grammar.nodes import Counted, Dfa
from gdlib.grammar.schema.errors import Refusal
from gdlib.grammar.tables import side_by_side, trimmed, useful_counts

MAX_STATES = 4_000_000  # counts times states, where they are only marked as useful or not
MAX_WRITTEN = 600_000  # the same, where each becomes a state of a machine

# places inside a character: between two; behind a backslash; 4, 3, 2, 1 hex digits to come; 3, 2, 1 UTF-8 bytes to come
BETWEEN, ESCAPE, HEX, TAIL = 0, 1, 5, 8


@dataclass(frozen=True, eq=False)
class Layer:
    """One copy of the machine: states tell apart where inside a character they are; `starts` are those between two."""

    columns: np.ndarray
    delta: np.ndarray
    accepting: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True, eq=False)
class Layers:
    layer: Layer
    useful: np.ndarray  # bool[counts, states]: reached from the start, and leads to an accepted text
    saturated: bool  # the last count stands for every greater one


def place_behind(place: int, byte: int) -> int:
    if place == BETWEEN:
        if byte == 0x5C:
            return ESCAPE
        return BETWEEN if byte < 0xC0 else TAIL - 2 if byte < 0xE0 else TAIL - 1 if byte < 0xF0 else TAIL
    if place == ESCAPE:
        return HEX if byte == 0x75 else BETWEEN
    return BETWEEN if place in (2, 6) else place - 1


@lru_cache(maxsize=1)
def characters() -> Dfa:
    """The places inside a character, as the states of a machine that takes any bytes."""
    delta = [[place_behind(place, byte) for byte in range(256)] for place in range(TAIL + 1)]
    return Dfa(*trimmed(np.arange(256, dtype=np.uint8), np.array(delta, np.int32), np.ones(TAIL + 1, bool)))


@lru_cache(maxsize=64)
def layer_of(machine: Dfa) -> Layer:
    """The machine over canonical JSON string bodies, its states split by the place inside a character."""
    split = characters()
    most = len(machine.delta) * len(split.delta)
    columns, pairs, delta = side_by_side(machine.columns, machine.delta, split.columns, split.delta, True, True, most)
    between = pairs[:, 1] == BETWEEN
    return Layer(columns, delta, machine.accepting[pairs[:, 0]] & between, between)


@lru_cache(maxsize=64)
def count_characters(machine: Dfa, low: int, high: int | None) -> Layers:
    """The layers of `machine` for texts of low to high characters. Refused: more than MAX_STATES states."""
    layer = layer_of(machine)
    top = low if high is None else high
    if (top + 1) * len(layer.accepting) > MAX_STATES:
        raise Refusal(
            "minLength" if high is None else "maxLength",
            f"{top} characters of this pattern or format take over {MAX_STATES} states; lower the bound or drop one",
        )
    useful = useful_counts(layer.delta, layer.accepting, layer.starts, low, top, high is None)
    return Layers(layer, useful, high is None)


def counted_node(machine: Dfa, low: int, high: int | None) -> Counted:
    """The texts of `machine` with low to high characters, counted while they are read."""
    counted = count_characters(machine, low, high)
    layer = counted.layer
    states = Dfa(layer.columns, layer.delta, layer.accepting)
    return Counted(states, layer.starts, counted.useful, low, counted.saturated)


def counted_dfa(machine: Dfa, low: int, high: int | None) -> Dfa:
    """The texts of `machine` with low to high characters."""
    counted = count_characters(machine, low, high)
    layer, useful = counted.layer, counted.useful
    if useful.size > MAX_WRITTEN:
        raise Refusal("maxLength", f"this bound on names with a pattern takes over {MAX_WRITTEN} states; lower it")
    if not useful[0, 0]:
        return Dfa(layer.columns, layer.delta[:0], layer.accepting[:0])
    number = np.full(useful.shape, -1, np.int32)
    number[useful] = np.arange(useful.sum(), dtype=np.int32)
    rows, accepting = [], []
    top = len(useful) - 1
    for count in range(top + 1):
        following = number[count + 1] if count < top else number[top] if counted.saturated else None
        kept = useful[count]
        delta = layer.delta[kept]
        begun = np.full_like(delta, -1) if following is None else following[delta]
        rows.append(np.where(delta < 0, -1, np.where(layer.starts[kept][:, None], begun, number[count][delta])))
        accepting.append(layer.accepting[kept] & (count >= low))
    return Dfa(layer.columns, np.concatenate(rows).astype(np.int32), np.concatenate(accepting))
