"""A recogniser with an allowance, for those who look ahead only to guess.

What a byte costs grows with the readings that the text before it has: next to nothing in most grammars, more with every
byte in an ambiguous one, and a guess is not worth it there. So a text has so much work, and what looks ahead is stopped
when that is spent. Work is counted, not timed, and what was done stays in the arena: the next look gets further.
"""

from __future__ import annotations

from collections.abc import Callable

from gdlib.grammar.nodes import Grammar
from gdlib.recognizers import Recognizer
from gdlib.recognizers import machine as m
from gdlib.recognizers.arena import Arena, LimitError

RESERVE = 40_000  # configurations, items and stacks that a text may make beyond what its tokens bring
PER_TOKEN = 400  # what each token of the text brings; for the machine, tens of items are many
CALL = 8  # what being asked costs, in the same coin
STRIDE = 16  # forced bytes that are read at once


class Spent(Exception):
    """The allowance does not reach for this; nothing is wrong, and the next token brings some more."""


class BoundedRecognizer(Recognizer):
    """A Recognizer that raises Spent where `allowance` is used up, or one byte would take more of it than there is.

    `floor`: the allowance counts as used up here; below zero for what has to be read rather than looked at.
    """

    allowance, floor = 1 << 40, 0  # of the class: the grammar's beginning is for free

    def __init__(self, grammar: Grammar, kind: str = "auto", arena: Arena | None = None):
        super().__init__(grammar, kind, arena)
        self.allowance = RESERVE

    def earn(self, tokens: int) -> None:
        self.allowance = min(RESERVE, self.allowance + PER_TOKEN * tokens)

    def run(self, compiled, *arguments) -> int:
        return self._metered(super().run, compiled, *arguments)

    def _forced(self, config: int, limit: int) -> tuple[bytes, int]:
        text = b""
        while len(text) < limit:
            more, config = self._metered(super()._forced, config, min(STRIDE, limit - len(text)))
            text += more
            if len(more) < STRIDE:
                break
        return text, config

    def _metered(self, work: Callable, *arguments):
        size, left = self.arena.size, self.allowance - self.floor
        if left <= 0:
            raise Spent
        with self.arena.lock:
            limit, before = int(size[m.LIMIT]), _made(size)
            size[m.LIMIT] = min(limit, left)
            try:
                return work(*arguments)
            except LimitError:
                self.allowance -= min(limit, left)  # what was thrown away
                if left < limit:
                    raise Spent from None
                raise
            finally:
                size[m.LIMIT] = limit
                self.allowance -= _made(size) - before + CALL


def _made(size) -> int:
    """Configurations looked for, and what they are made of. size: int64[16] of an arena."""
    return int(size[m.STAMP] + size[m.N_ITEMS] + size[m.N_CONTS])
