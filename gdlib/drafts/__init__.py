"""What might come next: guesses that the model verifies, several rows in one forward.

A draft never constrains. A wrong one costs time and never changes the output, so a source may guess as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

SOURCES = ("grammar", "ngram", "mtp", "branches")
MAX_DRAFT = 48  # rows of drafts in one forward at most

Path = Sequence[int]


class DraftError(ValueError):
    """A draft source that cannot be had here; the message names it and the way out."""


class Source(Protocol):
    """Where guesses come from. It follows one text: `begin`, then `commit` of what was emitted, in order."""

    name: str

    def begin(self, prompt_ids: Sequence[int]) -> None:
        """Start a text behind this prompt; whatever was known of another one is forgotten."""

    def commit(self, ids: Sequence[int]) -> None:
        """These tokens were emitted."""

    def propose(self, ahead: Sequence[int], room: int) -> list[Path]:
        """Ways on behind prompt + committed + `ahead`, best first, each of at most `room` tokens.

        Never raises, and changes nothing that a later call could see.
        """
