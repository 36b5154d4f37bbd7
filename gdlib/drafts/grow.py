"""From what the sources propose to one tree: best first, under one budget of rows.

Guesses are taken apart into tokens and compete for rows by the probability that the whole path up to them is accepted.
So a forced prefix gets an n-gram's tail, a branch gets the span it forces, and an unlikely tail makes way for another
source's first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from gdlib.drafts import Source
from gdlib.drafts.gate import Gate
from gdlib.drafts.tree import ROOT, Tree


def grow(
    sources: Sequence[Source],
    gate: Gate,
    room: int,
    linear: bool = False,
    deep: int | None = None,
    width: int | None = None,
) -> Tree:
    """A tree of at most `room` nodes, none deeper than `deep` (default: `room`).

    linear: colibri's mode, the first path of the first source that has one. Else nodes are added in the order of the
    gate's estimate of their path, and sources are asked again behind nodes in that order too: behind the end of a
    guess at its own probability, inside one (all but its source) at the probability that the text leaves it there.
    Growing ends where nothing promises `gate.least`. Sources to which the gate gives no chance are not asked. width: a
    guess is cut before the first id that is not below it (a vocabulary may have more tokens than the model reads).
    """
    deep = room if deep is None else deep
    asked = [source for source in sources if gate.chance(source.name, 1, 0) > 0]
    if room <= 0 or deep <= 0 or not asked:
        return Tree()
    width = 1 << 62 if width is None else width
    return _first(asked, min(room, deep), width) if linear else _best(asked, gate, room, deep, width)


def _readable(path: Sequence[int], width: int) -> Sequence[int]:
    for index, token in enumerate(path):
        if not 0 <= token < width:
            return path[:index]
    return path


def _first(sources: Sequence[Source], room: int, width: int) -> Tree:
    tree = Tree()
    for source in sources:
        for path in source.propose((), room):
            tree.add(ROOT, _readable(path, width), source.name, room)
            if len(tree):
                return tree
    return tree


def _best(sources: Sequence[Source], gate: Gate, room: int, deep: int, width: int) -> Tree:
    tree, chances, done = Tree(), [1.0], set()
    # (-probability, running number, node, guess, its source, its next index), or with None for the guess: ask the
    # sources at this node, but the one whose guess goes on from there already
    heap: list[tuple] = [(-1.0, 0, ROOT, None, "", 0)]
    number = 1

    def push(probability: float, *entry) -> None:
        nonlocal number
        heappush(heap, (-probability, number, *entry))
        number += 1

    def estimate(at: int, source: str, index: int) -> float:
        return chances[at + 1] * gate.chance(source, index + 1, len(tree.children(at)))

    def queue(at: int, path: Sequence[int], source: str, index: int) -> None:
        """Follow the guess where the tree has it already; its next token waits for its turn."""
        while index < len(path) and (child := tree.child(at, path[index])) >= 0:
            at, index = child, index + 1
        if index < len(path) and tree.depth(at) < deep:
            push(estimate(at, source, index), at, path, source, index)

    while heap and len(tree) < room and -heap[0][0] > gate.least:
        negative, _, at, path, source, index = heappop(heap)
        if path is None:
            if at in done:
                continue
            done.add(at)
            ahead, left = tree.path(at), min(room - len(tree), deep - tree.depth(at))
            for asked in sources:
                if asked.name == source:
                    continue
                for guess in asked.propose(ahead, left):
                    queue(at, _readable(guess, width), asked.name, 0)
            continue
        probability = estimate(at, source, index)
        if probability < -negative or tree.child(at, path[index]) >= 0:  # a sibling came first, or the very token
            queue(at, path, source, index)
            continue
        node = tree.append(at, path[index], source, index + 1)
        chances.append(probability)
        index += 1
        queue(node, path, source, index)
        if tree.depth(node) < deep:
            if index < len(path):
                push(probability * (1 - gate.chance(source, index + 1, 0)), node, None, source, 0)
            else:
                push(probability, node, None, "", 0)
    return tree
