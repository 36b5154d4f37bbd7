"""Drafts of what the grammar forces: one path, the tokens that the tokenizer would write for the forced bytes.

The method is colibri's grammar drafts (JustVugg/colibri, issue #48), with the text before the span taken into account
where it is cut into tokens, the undecided end of it held back, and no stop at the end of a record where only one byte
leads on.
"""

from __future__ import annotations

from collections.abc import Sequence

from gdlib.drafts.walker import WalkSource


class GrammarSource(WalkSource):
    """Proposes the forced tokens: one path or none.

    None also where a text was written otherwise than the tokenizer would up to here.
    """

    name = "grammar"

    def _paths(self, state: int, tail: list[int], room: int) -> list[Sequence[int]]:
        span = self.walker.span(state, tail, enough=room)
        if not (span.natural or self.armed):
            return []
        path = self.walker.likely(state, span)[:room]
        return [path] if path else []
