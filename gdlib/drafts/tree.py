"""A token tree: the drafts of one forward, merged.

Every node is one row of the forward. It stands at the position of its depth, not of its index, and looks at its
ancestors alone, so each path from the root is read as if it were the only one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

ROOT = -1  # the last committed token: the node that all drafts hang behind


@dataclass
class Tree:
    """Nodes 0, 1, ... in the order they came, so a parent stands before its children.

    tokens: ids; parents: node or ROOT; depths: 1 for children of the root; sources: whose guess a node is; steps: its
    place in that guess, from 1; ranks: how many siblings came before it.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    _below: list[dict[int, int]] = field(default_factory=lambda: [{}], repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.tokens)

    def child(self, node: int, token: int) -> int:
        """The child of `node` (or of ROOT) with this token, or -1."""
        return self._below[node + 1].get(token, -1)

    def children(self, node: int) -> list[int]:
        """The children of `node` (or of ROOT), in the order of their ranks."""
        return list(self._below[node + 1].values())

    def add(self, at: int, path: Sequence[int], source: str, room: int) -> int:
        """Lay `path` behind node `at`: follow the children that are there, append at most `room` new ones.

        Returns the last node reached. A node that two sources propose belongs to the first.
        """
        for step, token in enumerate(path, 1):
            child = self.child(at, token)
            if child < 0:
                if room <= 0:
                    break
                room -= 1
                child = self.append(at, token, source, step)
            at = child
        return at

    def append(self, at: int, token: int, source: str, step: int, rank: int = -1) -> int:
        """A new node behind `at`, which has no child with this token yet; returns the node."""
        node, siblings = len(self.tokens), self._below[at + 1]
        self.tokens.append(token)
        self.parents.append(at)
        self.depths.append(self.depth(at) + 1)
        self.sources.append(source)
        self.steps.append(step)
        self.ranks.append(len(siblings) if rank < 0 else rank)
        siblings[token] = node
        self._below.append({})
        return node

    def depth(self, node: int) -> int:
        """How many tokens the path to `node` has; 0 for ROOT."""
        return self.depths[node] if node >= 0 else 0

    def nodes(self, node: int) -> list[int]:
        """The nodes on the way from the root to `node`, both ends but the root itself."""
        way = []
        while node >= 0:
            way.append(node)
            node = self.parents[node]
        return way[::-1]

    def path(self, node: int) -> list[int]:
        """The tokens on the way from the root to `node`."""
        return [self.tokens[i] for i in self.nodes(node)]

    def is_chain(self) -> bool:
        """True where every node is the only child of the one before it."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    def keep(self, nodes: Iterable[int]) -> Tree:
        """The tree of these nodes alone, with the ranks they had. ValueError where one's parent is not among them."""
        out, place = Tree(), {ROOT: ROOT}
        for node in sorted(nodes):
            at = place.get(self.parents[node])
            if at is None:
                raise ValueError(f"node {node} cannot stay in the tree without its parent {self.parents[node]}")
            place[node] = out.append(at, self.tokens[node], self.sources[node], self.steps[node], self.ranks[node])
        return out

    def visible(self) -> np.ndarray:
        """bool[n + 1, n + 1]: row i may look at row j. Row 0 is the root's token, row i + 1 is node i."""
        seen = np.eye(len(self) + 1, dtype=bool)
        seen[:, 0] = True
        for row, parent in enumerate(self.parents, 1):
            seen[row] |= seen[parent + 1]
        return seen
