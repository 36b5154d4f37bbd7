"""The finite-state recogniser: a regular grammar as the positions of a Glushkov automaton.

Every place in the grammar that reads a byte is one position, and knows which positions may follow it (Glushkov 1961).
There are no silent moves and no stacks; the machine determinises the sets of positions as texts reach them. Counted
repetition is written out, so this is for grammars without large counts; the pda keeps counts on its stacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdlib.grammar.nodes import Alt, ByteClass, Character, Dfa, Grammar, GrammarError, Literal, Node, Ref, Repeat, Seq
from gdlib.grammar.regular import character_dfa
from gdlib.recognizers import machine as m
from gdlib.recognizers.arena import Arena, LimitError, byte_set


@dataclass
class _Part:
    """What a part of the grammar begins and ends with, and whether it may be empty."""

    first: list[int]
    last: list[int]
    empty: bool


class _Positions:
    def __init__(self, grammar: Grammar, limit: int):
        self.rules, self.limit = grammar.rules, limit
        self.work = 0
        self.sets: list[np.ndarray] = []
        self.follow: list[set[int]] = []

    def position(self, words: np.ndarray) -> int:
        if len(self.sets) >= self.limit:
            raise LimitError(f"the grammar has more than {self.limit} positions; use recognizer='pda'")
        self.sets.append(words)
        self.follow.append(set())
        return len(self.sets) - 1

    def worked(self, much: int) -> None:
        self.work += much
        if self.work > 50 * self.limit:
            raise LimitError(f"the grammar repeats too much for {self.limit} positions; use recognizer='pda'")

    def join(self, parts: list[_Part]) -> _Part:
        whole = _Part([], [], True)
        for part in parts:
            self.worked(1 + len(whole.last) * len(part.first) + len(whole.first) + len(whole.last))
            for position in whole.last:
                self.follow[position].update(part.first)
            if whole.empty:
                whole.first = whole.first + part.first
            whole.last = whole.last + part.last if part.empty else part.last
            whole.empty = whole.empty and part.empty
        return whole

    def part(self, node: Node, inside: tuple[str, ...] = ()) -> _Part:
        kind = type(node)
        if kind is ByteClass:
            position = self.position(byte_set(node.allowed))
            return _Part([position], [position], False)
        if kind is Literal:
            return self.join([self.part(ByteClass(frozenset([b]))) for b in node.text])
        if kind is Character:
            return self.machine(character_dfa(node.ranges, node.style))
        if kind is Dfa:
            return self.machine(node)
        if kind is Seq:
            return self.join([self.part(p, inside) for p in node.parts])
        if kind is Alt:
            parts = [self.part(c, inside) for c in node.choices]
            return _Part(
                [f for p in parts for f in p.first], [x for p in parts for x in p.last], any(p.empty for p in parts)
            )
        if kind is Repeat:
            if node.high is None:
                self.worked(node.low)
                parts = [self.part(node.node, inside) for _ in range(max(node.low, 1))]
                self.worked(len(parts[-1].last) * len(parts[-1].first))
                for position in parts[-1].last:
                    self.follow[position].update(parts[-1].first)
                if node.low == 0:
                    parts[0].empty = True
                return self.join(parts)
            parts = []
            for count in range(node.high):
                self.worked(1)
                parts.append(self.part(node.node, inside))
                if not parts[-1].first:  # it reads nothing, however often
                    return parts[-1]
                parts[-1].empty = parts[-1].empty or count >= node.low
            return self.join(parts)
        if kind is Ref:
            if node.name in inside:
                raise GrammarError(f"rule {node.name!r} calls itself: the grammar is not regular as written; use pda")
            return self.part(self.rules[node.name], (*inside, node.name))
        raise GrammarError(f"{kind.__name__} has no fixed set of positions; use recognizer='pda'")

    def machine(self, dfa: Dfa) -> _Part:
        """One position an edge of the machine."""
        edges: dict[int, list[int]] = {}
        ends: list[tuple[int, int]] = []
        for state in range(len(dfa.delta)):
            for target in sorted(set(dfa.delta[state].tolist()) - {-1}):
                alive = np.flatnonzero((dfa.delta[state] == target)[dfa.columns])
                position = self.position(byte_set(alive))
                edges.setdefault(state, []).append(position)
                ends.append((position, target))
        for position, target in ends:
            self.follow[position].update(edges.get(target, []))
        accepting = dfa.accepting
        return _Part(
            edges.get(0, []),
            [p for p, target in ends if accepting[target]],
            bool(len(accepting) and accepting[0]),
        )


def lower_positions(arena: Arena, grammar: Grammar, max_positions: int = 20_000) -> int:
    """The arena's node from which the grammar's positions are read. GrammarError where it is not regular as written."""
    with arena.lock:
        positions = _Positions(grammar, max_positions)
        try:
            whole = positions.part(grammar.root)
        except RecursionError:
            raise LimitError("the grammar nests too deeply for the fsm; use recognizer='pda'") from None
        at = arena._row(len(positions.sets), m.POSITION)
        last = set(whole.last)
        for index, (words, follow) in enumerate(zip(positions.sets, positions.follow, strict=True)):
            start = arena._add_ints([at + f for f in sorted(follow)])
            arena.node[at + index, 1:] = arena.add_set(words), start, start + len(follow), index in last
        return arena._choice([*(at + f for f in dict.fromkeys(whole.first)), *([0] if whole.empty else [])])
