"""Drafts of what the grammar forces: one path, the tokens that the tokenizer would write for the forced bytes.

The method is colibri's grammar drafts (JustVugg/colibri, issue #48), with the text before the span taken into account
where it is cut into tokens, the undecided end of it held back, and no stop at the end of a record where only one byte
leads on.
"""

from __future__ import annotations

from collections.abc import Sequence

from gdlib.drafts.walker import OUTSIDE, Walker
from gdlib.grammar.nodes import Grammar
from gdlib.tokens.vocabulary import Vocabulary


class GrammarSource:
    """Proposes the forced tokens. armed: the text is one of the grammar from its first byte on (constrained)."""

    name = "grammar"

    def __init__(self, grammar: Grammar, vocab: Vocabulary, armed: bool = False):
        self.walker, self.armed = Walker(grammar, vocab), armed

    def begin(self, prompt_ids: Sequence[int]) -> None:
        self.walker.begin(prompt_ids)
        if self.armed:
            self.walker.arm()

    def commit(self, ids: Sequence[int]) -> None:
        self.walker.commit(ids)

    def propose(self, ahead: Sequence[int], room: int) -> list[Sequence[int]]:
        """One path or none. None also where a text was written otherwise than the tokenizer would up to here."""
        walker = self.walker
        state, tail = walker.after(ahead)
        if state == OUTSIDE or room <= 0:
            return []
        return walker.tried(lambda: self._paths(state, tail, room), [])

    def _paths(self, state: int, tail: list[int], room: int) -> list[Sequence[int]]:
        span = self.walker.span(state, tail)
        if not (span.natural or self.armed):
            return []
        path = self.walker.likely(state, span)[:room]
        return [path] if path else []
