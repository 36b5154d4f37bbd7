"""Given the bytes so far, what may follow: three machines under one protocol.

`fsm` for regular grammars, `pda` for context-free ones without left recursion, `earley` for all. Each gives
configurations (integers) that stand for "everything known of the text so far".
"""

from __future__ import annotations

import numpy as np

from gdlib.grammar.analysis import left_recursive
from gdlib.grammar.nodes import Grammar, GrammarError
from gdlib.recognizers import machine as m
from gdlib.recognizers.arena import Arena, ArenaFull, LimitError
from gdlib.recognizers.fsm import lower_positions

RECOGNIZERS = ("fsm", "pda", "earley")
MAX_SCALE = 16
_ARENAS: dict[bool, Arena] = {}


def choose(grammar: Grammar) -> str:
    """The cheapest recogniser that is exact for this grammar.

    The pda's machine is the fsm's where nothing recurs, and keeps counted repetition short, so only left recursion,
    which it cannot follow, asks for another: Earley's.
    """
    return "earley" if grammar.rules and left_recursive(grammar) else "pda"


def current_arena(earley: bool = False) -> Arena:
    """The arena in which new grammars grow; a fresh one where the last is more than half full."""
    arena = _ARENAS.get(earley)
    if arena is None or arena.full() > 0.5:
        arena = _ARENAS[earley] = Arena(earley)
    return arena


def next_arena(full: Arena, larger: bool) -> Arena:
    """An arena to go on in when one is full: the current one, or one four times as large. LimitError past MAX_SCALE."""
    earley = full.size[m.EARLEY] == 1
    if not larger:
        if _ARENAS.get(earley) is full:
            del _ARENAS[earley]
        return current_arena(earley)
    if full.scale * 4 > MAX_SCALE:
        raise LimitError(f"one text or grammar needs more than an arena of scale {full.scale:g} holds")
    return Arena(earley, full.scale * 4)


class Recognizer:
    """One grammar in one arena. Configurations are positive; 0 is "no text goes on this way"."""

    def __init__(self, grammar: Grammar, kind: str = "auto", arena: Arena | None = None):
        self.grammar = grammar
        self.kind = choose(grammar) if kind == "auto" else kind
        if self.kind not in RECOGNIZERS:
            raise ValueError(f"recognizer {kind!r}: want 'auto' or one of {', '.join(RECOGNIZERS)}")
        if self.kind == "pda" and grammar.rules and (cycles := left_recursive(grammar)):
            rule, cycle = next(iter(cycles.items()))
            raise GrammarError(
                f"rule {rule!r} is left-recursive ({' -> '.join(cycle)}); use recognizer='earley' or 'auto'"
            )
        self.arena, tried = arena or current_arena(self.kind == "earley"), False
        while True:
            try:
                lower = lower_positions if self.kind == "fsm" else Arena.root
                self.root = lower(self.arena, grammar)
                self.start = self.run(m.start, self.root)
                return
            except ArenaFull:
                if arena is not None:
                    raise LimitError("the grammar does not fit into this arena; give it a larger scale") from None
                self.arena = next_arena(self.arena, larger=tried)
                tried = True

    def run(self, compiled, *arguments) -> int:
        """Call compiled code until it needs nothing more; returns a configuration.

        Raises ArenaFull where there is no room left, and LimitError where one byte asks for too much work.
        """
        arena = self.arena
        with arena.lock:
            while (out := compiled(arena.tables, *arguments)) < 0:
                self.settle(out)
        return out

    def settle(self, code: int) -> None:
        """Do what a negative code asks for, or raise."""
        arena = self.arena
        if code == m.NEED:
            arena.expand()
        elif code == m.FULL:
            raise ArenaFull
        else:
            rule = arena.name_of(int(arena.size[m.AT]))
            way_out = "" if self.kind == "earley" else "recognizer='earley', or "
            raise LimitError(
                f"more than {int(arena.size[m.LIMIT])} open readings at one byte, near rule {rule!r}: the grammar is "
                f"too ambiguous or repeats the empty text; use {way_out}an Arena with more max_items"
            )

    def step(self, config: int, byte: int) -> int:
        """The configuration behind one more byte, 0 where it may not come."""
        return self.run(m.step, config, byte)

    def advance(self, config: int, data: bytes) -> int:
        """The configuration behind all of `data`, 0 where it may not come."""
        return self.run(m.advance, config, np.frombuffer(data, np.uint8))

    def accepting(self, config: int) -> bool:
        """True where the text so far is a whole sentence."""
        return config > 0 and bool(self.arena.conf[config, m.ACCEPTING])

    def first_bytes(self, config: int) -> np.ndarray:
        """bool[256]: the bytes that may come next."""
        if config <= 0:
            return np.zeros(256, bool)
        return np.unpackbits(self.arena.first[config].view(np.uint8), bitorder="little").astype(bool)

    def forced(self, config: int, limit: int, through_end: bool = False) -> tuple[bytes, int]:
        """The bytes that alone are legal from here, at most `limit`, and the configuration behind them.

        The run stops where the text may end; with `through_end` it goes on there if it can go on by one byte alone.
        """
        text = b""
        while True:
            more, config = self._forced(config, limit - len(text))
            text += more
            if not through_end or len(text) == limit or not self.accepting(config):
                return text, config
            follows = np.flatnonzero(self.first_bytes(config))
            if len(follows) != 1:
                return text, config
            text += bytes(follows.tolist())
            config = self.step(config, int(follows[0]))

    def _forced(self, config: int, limit: int) -> tuple[bytes, int]:
        out = np.empty(limit, np.uint8)
        text = b""
        with self.arena.lock:
            while True:
                count, code = m.forced(self.arena.tables, config, out[: limit - len(text)])
                text += out[:count].tobytes()
                if code >= 0:
                    return text, code
                # what was read so far is kept in the machine, so reading it again costs nothing
                text = b""
                self.settle(code)

    def reachable(self, limit: int) -> np.ndarray:
        """int32[n]: every configuration that some text leads to; LimitError where there are more than `limit`."""
        order = np.zeros(limit, np.int32)
        with self.arena.lock:
            while True:
                count = m.explore(self.arena.tables, self.start, order, np.zeros(len(self.arena.conf), np.uint8))
                if count > 0:
                    return order[:count]
                if count == m.OVERFLOW:
                    raise LimitError(f"more than {limit} configurations; the grammar may have no end of them")
                self.settle(count)
