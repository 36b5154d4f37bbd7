"""Is a draft worth its rows? What was accepted so far, against what a forward of that width costs.

Half accepted is no break-even. A row costs what it adds to the forward, next to nothing on one machine and most of a
forward on another, so the cost is measured and the rows are those that buy the most tokens a second.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import Protocol

import numpy as np

from gdlib.drafts import MAX_DRAFT, DraftError
from gdlib.drafts.tree import ROOT, Tree

PRIORS = {"grammar": 0.9, "mtp": 0.6, "ngram": 0.5, "branches": 0.3}
LEAST = 0.02
WIDTHS = (1, 2, 4, 8, 16, 24, 32, 48)


class Gate(Protocol):
    least: float  # no path below this probability can be worth a row

    def begin(self, model) -> None:
        """A text begins, its prompt read by `model`."""

    def chance(self, source: str, step: int, rank: int) -> float:
        """The probability that a node is accepted once its parent is; 0 where the source is not to be asked."""

    def trim(self, tree: Tree) -> Tree:
        """The part of the tree that is verified."""

    def learn(self, tree: Tree, accepted: Collection[int]) -> None:
        """These nodes of a verified tree, a path from the root, were accepted."""

    def saw(self, ids: Sequence[int]) -> None:
        """These tokens were emitted, whoever proposed them."""

    def spent(self, rows: int, seconds: float) -> None:
        """A forward over this many rows, the root's among them, took so long."""


class Acceptance:
    """Running acceptance of nodes whose parent was accepted, by source, step in its guess and rank among siblings.

    Steps and ranks share estimates in octaves. What was seen long ago counts less (`memory` trials), and few trials
    count less than what the source shows elsewhere. Nothing falls below `LEAST`, so that it is looked at again.
    """

    def __init__(self, memory: float = 32.0, doubt: float = 3.0):
        self.fade, self.doubt = 1 - 1 / memory, doubt
        self._seen: dict[tuple, list[float]] = {}  # key -> [trials, accepted], both faded
        self._chances: dict[tuple[str, int, int], float] = {}

    def chance(self, source: str, step: int, rank: int) -> float:
        known = self._chances.get((source, step, rank))
        if known is None:
            prior = PRIORS.get(source, 0.5) / (1 + rank.bit_length())
            for key in _keys(source, step, rank):
                trials, accepted = self._seen.get(key, (0.0, 0.0))
                prior = (accepted + self.doubt * prior) / (trials + self.doubt)
            known = self._chances[source, step, rank] = max(prior, LEAST)
        return known

    def learn(self, tree: Tree, accepted: Collection[int]) -> None:
        for node, parent in enumerate(tree.parents):
            if parent == ROOT or parent in accepted:
                for key in _keys(tree.sources[node], tree.steps[node], tree.ranks[node]):
                    seen = self._seen.setdefault(key, [0.0, 0.0])
                    seen[0] = seen[0] * self.fade + 1
                    seen[1] = seen[1] * self.fade + (node in accepted)
        self._chances.clear()


def _keys(source: str, step: int, rank: int) -> tuple[tuple, tuple]:
    rank = rank.bit_length()
    return (source, rank), (source, rank, min((step - 1).bit_length(), 4))


class AllRows:
    """Draft everything there is room for. The other gates build on it."""

    least = 0.0

    def __init__(self):
        self.acceptance = Acceptance()

    def begin(self, model) -> None:
        pass

    def chance(self, source: str, step: int, rank: int) -> float:
        return self.acceptance.chance(source, step, rank)

    def trim(self, tree: Tree) -> Tree:
        return tree

    def learn(self, tree: Tree, accepted: Collection[int]) -> None:
        self.acceptance.learn(tree, accepted)

    def saw(self, ids: Sequence[int]) -> None:
        pass

    def spent(self, rows: int, seconds: float) -> None:
        pass


class ColibriGuard(AllRows):
    """colibri's rule (issue #48): a source is off for good once less than half of 32 or more proposals was accepted."""

    def __init__(self, proposals: int = 32, share: float = 0.5):
        super().__init__()
        self.proposals, self.share = proposals, share
        self.counts: dict[str, list[int]] = {}  # source -> [proposed, accepted]

    def is_off(self, source: str) -> bool:
        proposed, accepted = self.counts.get(source, (0, 0))
        return proposed >= self.proposals and accepted < self.share * proposed

    def chance(self, source: str, step: int, rank: int) -> float:
        return 0.0 if self.is_off(source) else super().chance(source, step, rank)

    def learn(self, tree: Tree, accepted: Collection[int]) -> None:
        super().learn(tree, accepted)
        for node, source in enumerate(tree.sources):
            count = self.counts.setdefault(source, [0, 0])
            count[0] += 1
            count[1] += node in accepted


class ReArming(ColibriGuard):
    """The same, but a source that is off gets 32 new proposals after `pause` forwards."""

    def __init__(self, proposals: int = 32, share: float = 0.5, pause: int = 64):
        super().__init__(proposals, share)
        self.pause, self._rested = pause, {}

    def spent(self, rows: int, seconds: float) -> None:
        for source in self.counts:
            if self.is_off(source):
                self._rested[source] = self._rested.get(source, 0) + 1
                if self._rested[source] >= self.pause:
                    self.counts[source], self._rested[source] = [0, 0], 0


class Costs:
    """Seconds of a forward over k rows: measured at some widths, interpolated between them, never falling with k."""

    def __init__(self, widths: Sequence[int], seconds: Sequence[float]):
        """ValueError where widths do not rise from 1, or a time is not positive."""
        if len(widths) != len(seconds) or not len(widths) or widths[0] != 1 or list(widths) != sorted(set(widths)):
            raise ValueError(f"widths {list(widths)} for {len(seconds)} times: want one a time, rising from 1")
        if not all(s > 0 for s in seconds):
            raise ValueError(f"seconds {list(seconds)}: every forward takes some time")
        self.widths = np.array(widths, float)
        self.seconds = np.array(seconds, float)
        self._draw()

    def _draw(self) -> None:
        rising, rows = np.maximum.accumulate(self.seconds), np.arange(1, MAX_DRAFT + 2)
        self.table = np.interp(rows, self.widths, rising)  # float[MAX_DRAFT + 1]: of 1, 2, ... rows
        if len(rising) > 1:  # past the widest measured, the last slope goes on
            slope = (rising[-1] - rising[-2]) / (self.widths[-1] - self.widths[-2])
            self.table += np.maximum(rows - self.widths[-1], 0) * slope
        self._list = self.table.tolist()

    def __call__(self, rows: int) -> float:
        return self._list[rows - 1]

    def spent(self, rows: int, seconds: float, weight: float = 0.1) -> None:
        """Move towards a forward that was seen: its width most, the others by half as much in proportion.

        seconds: or whatever unit this counts in. The machine that slows down slows all widths. One odd time counts as
        at most twice or half of what was expected.
        """
        ratio = float(np.clip(seconds / self(rows), 0.5, 2.0))
        near = np.maximum(1 - np.abs(np.log2(self.widths / rows)), 0)  # 1 at this width, 0 an octave away
        self.seconds *= 1 + weight * (0.5 + 0.5 * near) * (ratio - 1)
        self._draw()

    @classmethod
    def measure(cls, model, widths: Sequence[int] = WIDTHS, times: int = 1) -> Costs:
        """Time forwards of these widths behind what the model has read (the least of `times`), and discard them.

        Widths that do not fit the context are left out; where nothing does, every row is taken to cost a whole forward.
        """
        context, taken, seconds = getattr(model, "context", None), [], []
        few = min(97, getattr(model, "width", None) or 97)
        for width in sorted({1, *widths}):
            if context is not None and model.length + width > context:
                break
            best = np.inf
            for _ in range(times + (width == 1)):  # the first forward of all warms up
                tree = Tree()
                tree.add(ROOT, [(7919 * i) % few for i in range(1, width)], "", width)  # experts differ by token
                began = perf_counter()
                model.verify(0, tree)
                best = min(best, perf_counter() - began)
                model.discard()
            taken.append(width)
            seconds.append(best)
        return cls(taken, seconds) if taken else cls((1, 2), (1.0, 2.0))


class CostGate(AllRows):
    """The rows that make expected tokens a second the most; none where plain decoding is faster.

    Of n rows, the most expected tokens come from the n most probable paths, and a path is never more probable than
    its beginning; so the best tree of each size is a prefix of one order, and the sizes are compared by
    (1 + sum of path probabilities) / seconds(1 + n).

    A guess needs no row to be judged: what is emitted later says whether it was right. So the gate learns from all
    that was proposed, and notices when drafts would pay again. But asking is not free either: a source whose guesses
    were not worth a row is asked again after a pause, which doubles each time up to `longest` forwards.
    """

    least = 0.01
    longest = 8

    def __init__(self, costs: Costs | None = None):
        """costs: None to take those of the model (measured once and kept with it as `model.costs`)."""
        super().__init__()
        self.costs, self._of_model = costs, costs is None
        self._judged: tuple[Tree, int, set[int]] | None = None  # a grown tree, the text's place in it, the way there
        self._pause: dict[str, int] = {}  # source -> forwards from one asking to the next, where none was worth a row
        self._left: dict[str, int] = {}  # source -> how many of them are still to come

    def begin(self, model) -> None:
        self._new_text()
        if self._of_model:
            if getattr(model, "costs", None) is None:
                store = getattr(model, "store", None)
                with nullcontext() if store is None else store.aside():
                    costs = Costs.measure(model)
                self.costs = costs
                if len(costs.widths) < len(WIDTHS):  # cut by the end of the context: no costs for other texts
                    return
                model.costs = costs
            self.costs = model.costs

    def _new_text(self) -> None:
        self._judged, self._pause, self._left = None, {}, {}

    def chance(self, source: str, step: int, rank: int) -> float:
        return 0.0 if source in self._left else super().chance(source, step, rank)

    def trim(self, tree: Tree) -> Tree:
        self._left = {source: left - 1 for source, left in self._left.items() if left > 1}
        if not len(tree):
            return tree
        if self._judged is None:
            self._judged = tree, ROOT, set()
        kept = self._worth(tree)
        for source in set(tree.sources):
            if source in kept.sources:
                self._pause.pop(source, None)
            else:
                self._pause[source] = min(2 * self._pause.get(source, 1), self.longest)
                self._left[source] = self._pause[source] - 1
        return kept

    def _worth(self, tree: Tree) -> Tree:
        chances = path_chances(tree, self)
        order = sorted(range(len(tree)), key=lambda node: (-chances[node], node))
        expected, best, size = 1.0, 1 / self.costs(1), 0
        for rows, node in enumerate(order, 1):
            expected += chances[node]
            speed = expected / self.costs(1 + rows)
            if speed > best:
                best, size = speed, rows
        return tree if size >= len(tree) else tree.keep(order[:size])

    def learn(self, tree: Tree, accepted: Collection[int]) -> None:
        """Nothing: `saw` judges the whole of what was proposed, these rows among it."""

    def saw(self, ids: Sequence[int]) -> None:
        if self._judged is None:
            return
        tree, node, way = self._judged
        for token in ids:
            node = tree.child(node, token)
            if node < 0:
                break
            way.add(node)
        if node < 0 or not tree.children(node):
            self.acceptance.learn(tree, way)
            self._judged = None
        else:
            self._judged = tree, node, way

    def spent(self, rows: int, seconds: float) -> None:
        self.costs.spent(rows, seconds)


class BytesGate(CostGate):
    """The same choice by bytes of experts that a forward reads from disk, and one expert's for the forward itself.

    It begins with the union of independent, even routing, and what does not fit into memory of it; then it goes by the
    bytes that were read. Nothing is timed, so it decides alike on a busy machine and on a quiet one.
    """

    def begin(self, model) -> None:
        """Raises DraftError for a model whose experts are all in memory."""
        self._new_text()
        self._store = getattr(model, "store", None)
        if self._store is None:
            raise DraftError("gate 'bytes' counts experts read from disk: stream the model's, or take gate 'cost'")
        if getattr(model, "byte_costs", None) is None:
            model.byte_costs = expected_bytes(self._store)
        self.costs = model.byte_costs

    def spent(self, rows: int, seconds: float) -> None:
        self.costs.spent(rows, self._store.expert_bytes + self._store.last.miss_bytes)


def expected_bytes(store, widths: Sequence[int] = WIDTHS) -> Costs:
    """Costs in bytes by width, if rows pick experts evenly and independently and the store serves its share of them."""
    absent = max(0.0, 1 - (store.slots * store.layers + store.pins) / (store.layers * store.experts))
    union = [store.experts * (1 - (1 - store.top_k / store.experts) ** rows) for rows in widths]
    return Costs(widths, [store.expert_bytes * (1 + store.layers * absent * distinct) for distinct in union])


def path_chances(tree: Tree, gate: Gate) -> list[float]:
    """float[n]: the gate's estimate of the probability that the whole path to each node is accepted."""
    chances = [1.0]
    for node, parent in enumerate(tree.parents):
        chances.append(chances[parent + 1] * gate.chance(tree.sources[node], tree.steps[node], tree.ranks[node]))
    return chances[1:]


GATES = {"cost": CostGate, "bytes": BytesGate, "all": AllRows, "colibri": ColibriGuard, "rearming": ReArming}
CLOCKED = ("cost",)  # those that go by measured time: which drafts they take, a second run need not repeat


def named_gate(name: str) -> Gate:
    """A fresh gate. ValueError where there is none of that name."""
    if name not in GATES:
        raise ValueError(f"gate {name!r}: there is {', '.join(GATES)}")
    return GATES[name]()
