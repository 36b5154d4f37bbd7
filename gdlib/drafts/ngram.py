"""Prompt lookup: what stood behind the same last few tokens before, in the prompt or in the output.

The longest match comes first and of equally long ones the latest (Saxena 2023, "prompt lookup decoding"). Every n-gram
is put into an index once, when the token behind it is known, so a look-up reads nothing again.
"""

from __future__ import annotations

from collections.abc import Sequence


class NGramSource:
    """Proposes up to `ways` continuations with different first tokens; matches are `shortest` to `longest` tokens."""

    name = "ngram"

    def __init__(self, longest: int = 8, shortest: int = 2, ways: int = 3):
        if not 1 <= shortest <= longest:
            raise ValueError(f"shortest={shortest}, longest={longest}: want 1 <= shortest <= longest")
        self.longest, self.shortest, self.ways = longest, shortest, ways
        self.begin(())

    def begin(self, prompt_ids: Sequence[int]) -> None:
        self._ids: list[int] = []
        self._behind: dict[tuple[int, ...], int] = {}  # n-gram -> where the token behind its latest occurrence stands
        self.commit(prompt_ids)

    def commit(self, ids: Sequence[int]) -> None:
        known, behind = self._ids, self._behind
        for token in ids:
            at = len(known)
            for size in range(self.shortest, min(self.longest, at) + 1):
                behind[tuple(known[at - size :])] = at
            known.append(int(token))

    def propose(self, ahead: Sequence[int], room: int) -> list[Sequence[int]]:
        """Paths of exactly `room` tokens: a copy that reaches the end of the text goes on with what it wrote."""
        if room <= 0:
            return []
        tail = self._ids[-self.longest :] + list(ahead)
        paths: dict[int, list[int]] = {}
        for size in range(min(self.longest, len(tail)), self.shortest - 1, -1):
            at = self._behind.get(tuple(tail[-size:]))
            if at is not None and self._ids[at] not in paths:
                paths[self._ids[at]] = self._copied(at, ahead, room)
                if len(paths) == self.ways:
                    break
        return list(paths.values())

    def _copied(self, at: int, ahead: Sequence[int], room: int) -> list[int]:
        path = self._ids[at : at + room]
        start = len(self._ids) - at  # of the text from `at` on, `ahead` and the path itself come next
        while len(path) < room:
            index = len(path) - start
            path.append(int(ahead[index]) if index < len(ahead) else path[index - len(ahead)])
        return path
