"""A language of JSON string bodies cut to a number of characters.

Written out, the machine with a count beside each state is long (an e-mail address of at most 255 characters: 100,000
states). So it stays a machine and a table of which counts and states can still lead to an end, found layer by layer
with numpy; a recogniser counts while it reads. Only languages of member names are written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gdlib.grammar.nodes import Counted, Dfa
from gdlib.grammar.schema.errors import Refusal

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


def layer_of(machine: Dfa) -> Layer:
    """The machine over canonical JSON string bodies, its states split by the place inside a character."""
    kind = np.zeros(256, np.int64)
    kind[0x5C], kind[0x75], kind[0xC0:0xE0], kind[0xE0:0xF0], kind[0xF0:] = 1, 2, 3, 4, 5
    _, samples, columns = np.unique(machine.columns.astype(np.int64) * 6 + kind, return_index=True, return_inverse=True)
    old = [(int(machine.columns[b]), int(b)) for b in samples]
    table = machine.delta.tolist()
    number = {(0, BETWEEN): 0}
    work = [(0, BETWEEN)]
    rows = []
    for state, place in work:
        row = []
        for column, byte in old:
            to = table[state][column]
            if to >= 0:
                pair = (to, place_behind(place, byte))
                if pair not in number:
                    number[pair] = len(work)
                    work.append(pair)
                to = number[pair]
            row.append(to)
        rows.append(row)
    places = np.array([p for _, p in work])
    accepting = machine.accepting[[s for s, _ in work]] & (places == BETWEEN)
    return Layer(columns.astype(np.uint8).reshape(256), np.array(rows, np.int32), accepting, places == BETWEEN)


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
    follows = layer.delta >= 0
    inside = follows & ~layer.starts[:, None]  # the byte goes on with a character: same count
    across = follows & layer.starts[:, None]  # the byte begins a character: next count
    size = len(layer.accepting)
    useful = np.zeros((top + 1, size), bool)
    count, begun = top, np.zeros(size, bool)
    while count >= 0:
        same = follows if high is None and count == top else inside
        row = layer.accepting & (count >= low) | (across & begun[layer.delta]).any(1)
        row = spread(row, lambda row, same=same: (same & row[layer.delta]).any(1))
        # from the second equal row on, nothing changes until the lower bound comes in
        steady = count < top and (row == begun).all() and (count + 1 >= low) == (count >= low)
        last = (low if count >= low else 0) if steady else count
        useful[last : count + 1] = begun = row
        count = last - 1
    return Layers(layer, useful, high is None)


def targets(layer: Layer, edges: np.ndarray, row: np.ndarray) -> np.ndarray:
    """The states that `edges` lead to from the states in `row`."""
    found = np.zeros_like(row)
    found[layer.delta[edges & row[:, None]]] = True
    return found


def spread(row: np.ndarray, step) -> np.ndarray:
    """`row` and all that `step` adds to it, again and again."""
    while True:
        grown = row | step(row)
        if (grown == row).all():
            return row
        row = grown


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
