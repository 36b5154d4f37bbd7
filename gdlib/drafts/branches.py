"""Drafts of every way on where the grammar leaves few: enum values, booleans, a comma or a close, a further record or
the end, and out of a string or a number what must follow it.

Ways are told apart by bytes and proposed in tokens: a way is followed byte by byte until its first token is settled,
so `a` of `"active"` and `"archived"` is no draft, and both tokenisations of a boundary (`"}` or `"},`) are.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from contextlib import suppress

from gdlib.drafts.bounded import Spent
from gdlib.drafts.walker import WalkSource
from gdlib.grammar.nodes import Grammar
from gdlib.tokens.vocabulary import Vocabulary

TRIES = 32  # texts that are followed to find the ways
LEAST = 0.06  # share of the ways on below which no more are looked for


class BranchSource(WalkSource):
    """Proposes up to `ways` paths, likeliest first by what the text did at the same place before.

    Each begins with what is forced here, so that it also stands without another source.
    """

    name = "branches"

    def __init__(self, grammar: Grammar, vocab: Vocabulary, ways: int = 8, armed: bool = False):
        super().__init__(grammar, vocab, armed)
        self.most = ways

    def _paths(self, state: int, tail: list[int], room: int) -> list[Sequence[int]]:
        walker = self.walker
        span = walker.span(state, tail, enough=room)
        if not (span.natural or self.armed):
            return []
        start = walker.likely(state, span)
        ways = []
        if walker.recognizer.accepting(state) and walker.vocab.eos_ids:
            ways.append((walker.share(state, walker.vocab.eos_ids[0], 0.5), walker.vocab.eos_ids[:1]))
        if start and (ways or len(start) >= room):
            ways.append((walker.share(state, start[0], 0.5), start))
        if len(start) < room and not ways:
            here = walker.along(state, start)
            found = self._ways(here, [*tail, *start], room - len(start))
            ways += [(walker.share(here, way[0], share), (*start, *way)) for share, way in found]
        elif not start:
            ways += [(walker.share(state, way[0], share), way) for share, way in self._ways(state, tail, room)]
        ways.sort(key=lambda way: -way[0])
        return [path[:room] for _, path in ways[: self.most]]

    def _ways(self, state: int, tail: list[int], room: int) -> list[tuple[float, tuple[int, ...]]]:
        """(share, tokens) of the ways on at a configuration where nothing settled is forced."""
        found: list[tuple[float, tuple[int, ...]]] = []
        with suppress(Spent):  # what was found by then stands
            self._follow(found, state, tail, room)
        return found

    def _follow(self, found: list[tuple[float, tuple[int, ...]]], state: int, tail: list[int], room: int) -> None:
        walker, serial, tries = self.walker, 0, 0
        heap = [(-1.0, serial, b"", state)]
        while heap and len(found) < self.most and tries < TRIES:
            share, _, text, config = heapq.heappop(heap)
            tries += 1
            if found and -share < LEAST:
                break
            span = walker.span(config, tail, text, room)
            if not (span.natural or self.armed):
                continue
            if text and span.tokens:
                found.append((-share, walker.likely(state, span)))
                continue
            inside, choices = walker.ways(span.end, self.most)
            whole = span.tokens + span.tail
            if whole and (inside or not choices or walker.recognizer.accepting(span.end)):
                found.append((-share, whole))
            for byte, behind, part in choices:
                serial += 1
                heapq.heappush(heap, (share * part, serial, span.text + bytes([byte]), behind))
