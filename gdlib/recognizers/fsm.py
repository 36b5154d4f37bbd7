"""A deterministic finite-state machine over bytes, built from a regular grammar.

Thompson's construction gives a nondeterministic machine, the subset construction a deterministic one. Bytes that no
class tells apart are treated as one, so the work is by byte class and not by byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdlib.grammar.nodes import Alt, ByteClass, Grammar, GrammarError, Node, Repeat, Seq

DEAD = -1


@dataclass(frozen=True)
class Fsm:
    """delta: int32[states, 256], the next state or DEAD; accepting: bool[states]. State 0 is the start.

    Every state can still reach an accepting one, so a text that is alive can always be completed.
    """

    delta: np.ndarray
    accepting: np.ndarray


class _Nfa:
    """Edges on byte classes and on nothing, filled by `add`."""

    def __init__(self, max_states: int):
        self.max_states = max_states
        self.silent: list[list[int]] = []
        self.edges: list[list[tuple[frozenset[int], int]]] = []

    def state(self) -> int:
        if len(self.silent) >= self.max_states:
            raise GrammarError(f"the grammar needs more than {self.max_states} states; raise max_states")
        self.silent.append([])
        self.edges.append([])
        return len(self.silent) - 1

    def add(self, node: Node, start: int) -> int:
        """Add `node` behind `start`; returns the state in which it ends."""
        if isinstance(node, ByteClass):
            end = self.state()
            self.edges[start].append((node.allowed, end))
            return end
        if isinstance(node, Seq):
            for part in node.parts:
                start = self.add(part, start)
            return start
        if isinstance(node, Alt):
            end = self.state()
            for choice in node.choices:
                entry = self.state()
                self.silent[start].append(entry)
                self.silent[self.add(choice, entry)].append(end)
            return end
        if not isinstance(node, Repeat):
            raise GrammarError(f"not a regular node: {node!r}")
        for _ in range(node.low):
            start = self.add(node.node, start)
        end = self.state()
        if node.high is None:
            loop = self.state()
            self.silent[start].append(loop)
            self.silent[self.add(node.node, loop)].append(loop)
            self.silent[loop].append(end)
            return end
        self.silent[start].append(end)
        for _ in range(node.high - node.low):
            start = self.add(node.node, start)
            self.silent[start].append(end)
        return end

    def closure(self, states: set[int]) -> frozenset[int]:
        """All states reachable from `states` without reading a byte."""
        found, todo = set(states), list(states)
        while todo:
            for target in self.silent[todo.pop()]:
                if target not in found:
                    found.add(target)
                    todo.append(target)
        return frozenset(found)


def _byte_groups(classes: set[frozenset[int]]) -> list[list[int]]:
    """Partition 0..255 into groups of bytes that every class holds either all or none of."""
    signature: dict[tuple[bool, ...], list[int]] = {}
    ordered = list(classes)
    for byte in range(256):
        signature.setdefault(tuple(byte in c for c in ordered), []).append(byte)
    return [group for key, group in signature.items() if any(key)]


def build_fsm(grammar: Grammar, max_states: int = 100_000) -> Fsm:
    """The deterministic machine of a regular grammar (Thompson 1968; Rabin and Scott 1959).

    Raises GrammarError where it would need more than `max_states` states.
    """
    nfa = _Nfa(20 * max_states)
    start = nfa.state()
    final = nfa.add(grammar.root, start)
    groups = _byte_groups({allowed for edges in nfa.edges for allowed, _ in edges})

    first = nfa.closure({start})
    number = {first: 0}
    order = [first]
    rows: list[list[int]] = []
    for subset in order:  # grows while it is walked
        row = []
        edges = [edge for state in subset for edge in nfa.edges[state]]
        for group in groups:
            targets = {target for allowed, target in edges if group[0] in allowed}
            if not targets:
                row.append(DEAD)
                continue
            closed = nfa.closure(targets)
            if closed not in number:
                if len(order) >= max_states:
                    raise GrammarError(f"the grammar needs more than {max_states} states; raise max_states")
                number[closed] = len(order)
                order.append(closed)
            row.append(number[closed])
        rows.append(row)

    delta = np.full((len(order), 256), DEAD, dtype=np.int32)
    table = np.array(rows, dtype=np.int32).reshape(len(order), len(groups))
    for index, group in enumerate(groups):
        delta[:, group] = table[:, index : index + 1]
    accepting = np.array([final in subset for subset in order], dtype=bool)
    return Fsm(delta, accepting)
