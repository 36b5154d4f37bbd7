"""What routing alone says: the experts that rows share, what a cache of them would hit, and what a draft must be worth.

A forward over several rows reads the union of their experts. How large that union is, against rows that choose
independently, decides what a drafted row costs where experts come from a disk. All of it is arithmetic on recorded
routing, so it needs neither the model nor its disk, and can be done at the size of a larger model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from gdlib.models.expert_store import HALF_LIFE

STRUCTURAL, FREE, MIXED = "structural", "free", "mixed"
ALONG = {STRUCTURAL: "structural, others skipped", FREE: "free, others skipped"}
SHUFFLED = "rows drawn at random"


@dataclass(frozen=True)
class Forward:
    """The routing of one forward. selected: int[layers, rows, top_k]; sources and kept: of each row."""

    selected: np.ndarray
    sources: Sequence[str]
    kept: Sequence[bool]


@dataclass(frozen=True)
class Text:
    """The routing of a text. selected: int[layers, tokens, top_k]; structural: bool[tokens], forced by its grammar."""

    name: str
    selected: np.ndarray
    structural: np.ndarray


def used(selected: np.ndarray, experts: int) -> np.ndarray:
    """bool[layers, rows, experts] from int[layers, rows, top_k]; ValueError for an expert not below `experts`."""
    if selected.size and not 0 <= selected.min() <= selected.max() < experts:
        raise ValueError(f"experts {selected.min()} to {selected.max()} in a trace of {experts} experts")
    out = np.zeros((*selected.shape[:2], experts), bool)
    np.put_along_axis(out, selected.astype(np.int64), True, axis=2)
    return out


def unions(use: np.ndarray, k: int) -> np.ndarray:
    """int[layers, rows - k + 1]: the distinct experts of each k rows that follow one another. use: as by `used`."""
    layers, _, experts = use.shape
    sums = np.concatenate([np.zeros((layers, 1, experts), int), use.cumsum(axis=1)], axis=1)
    return (sums[:, k:] - sums[:, :-k] > 0).sum(axis=2)


def independent(shares: np.ndarray, k: int) -> np.ndarray:
    """float[layers]: the distinct experts to expect of k rows that choose independently, sum of 1 - (1 - p)^k.

    shares: float[layers, experts], the share of rows that choose each expert. Exact whatever a row's own choices have
    to do with one another, since an expert is left out by k independent rows with probability (1 - p)^k.
    """
    return (1 - (1 - shares) ** k).sum(axis=-1)


def uniform(experts: int, top_k: int, k: int) -> float:
    """The same where every expert is as likely: E (1 - (1 - top_k / E)^k)."""
    return experts * (1 - (1 - top_k / experts) ** k)


def premise(texts: Sequence[Text], widths: Sequence[int], experts: int, seed: int = 0) -> list[dict]:
    """Distinct experts of k rows by the kind of row, one dict a text, kind and k that has such rows.

    Kinds: windows of k tokens in a row that are all structural, all free, or any (mixed); k structural or free tokens
    that follow one another once the others are skipped, which reaches larger k; and rows drawn at random from all
    texts, which are independent and so check the expectation. Keys: text, kind, k_rows, windows_count; distinct_count
    (mean over windows and layers); independent_count (of the shares of experts in all rows of all texts), own_count
    (of those in rows of this kind), uniform_count.
    """
    uses = [used(text.selected, experts) for text in texts]
    flags = [np.asarray(text.structural, bool) for text in texts]
    everything, structural = np.concatenate(uses, axis=1), np.concatenate(flags)
    shares = {MIXED: everything.mean(axis=1)}
    for kind, mine in ((STRUCTURAL, structural), (FREE, ~structural)):
        shares[kind] = everything[:, mine].mean(axis=1) if mine.any() else shares[MIXED]
    top_k = everything.sum(axis=2).mean()
    chance = np.random.default_rng(seed)
    rows = []
    for text, use, flag in zip(texts, uses, flags, strict=True):
        for k in widths:
            found = {MIXED: (MIXED, _windows(use, k)), SHUFFLED: (MIXED, _drawn(everything, k, use.shape[1], chance))}
            for kind, mine in ((STRUCTURAL, flag), (FREE, ~flag)):
                whole = unions(mine[None, :, None], k)[0] if k <= mine.size else np.zeros(0)
                all_of = np.array([mine[i : i + k].all() for i in range(whole.size)], bool)
                found[kind] = (kind, _windows(use, k)[:, all_of])
                found[ALONG[kind]] = (kind, _windows(use[:, mine], k))
            rows += [
                {
                    "text": text.name,
                    "kind": kind,
                    "k_rows": k,
                    "windows_count": sizes.shape[1],
                    "distinct_count": float(sizes.mean()),
                    "independent_count": float(independent(shares[MIXED], k).mean()),
                    "own_count": float(independent(shares[base], k).mean()),
                    "uniform_count": float(uniform(experts, top_k, k)),
                }
                for kind, (base, sizes) in found.items()
                if sizes.shape[1]
            ]
    return rows


def _windows(use: np.ndarray, k: int) -> np.ndarray:
    return unions(use, k) if k <= use.shape[1] else np.zeros((use.shape[0], 0), int)


def _drawn(use: np.ndarray, k: int, times: int, chance: np.random.Generator) -> np.ndarray:
    rows = chance.integers(0, use.shape[1], (times, k))
    return use[:, rows].any(axis=2).sum(axis=2)


def drafted(name: str, forwards: Sequence[Forward], shares: np.ndarray, experts: int) -> list[dict]:
    """Distinct experts of the rows of one source in one verified forward, and of all rows of it, as `premise` has them.

    shares: float[layers, experts], of the rows of plain text, which is what the expectations go by. One dict a source
    and number of rows; the source of a whole forward is "whole forward". `own_count` is by the shares of that source.
    """
    by: dict[str, list[np.ndarray]] = {}
    for forward in forwards:
        use, sources = used(forward.selected, experts), np.asarray(forward.sources)
        for source in dict.fromkeys(sources[1:].tolist()):
            by.setdefault(source, []).append(use[:, sources == source])
        if len(sources) > 1:
            by.setdefault("whole forward", []).append(use)
    rows = []
    for source, found in by.items():
        own = np.concatenate(found, axis=1).mean(axis=1)
        for k in sorted({use.shape[1] for use in found}):
            sizes = [use.any(axis=1).sum(axis=1).mean() for use in found if use.shape[1] == k]
            rows.append(
                {
                    "text": name,
                    "kind": source,
                    "k_rows": k,
                    "windows_count": len(sizes),
                    "distinct_count": float(np.mean(sizes)),
                    "independent_count": float(independent(shares, k).mean()),
                    "own_count": float(independent(own, k).mean()),
                    "uniform_count": float(uniform(experts, found[0].sum(axis=2).mean(), k)),
                }
            )
    return rows


def batches(forwards: Sequence[Forward], layer: int) -> list[np.ndarray]:
    """What a layer asks its store for: the distinct experts of each forward, those of the latest rows last.

    Experts whose latest row is the same come in ascending order. So a forward over k rows leaves the store as k
    forwards over one row would.
    """
    asked = []
    for forward in forwards:
        rows = forward.selected[layer]
        experts, first = np.unique(rows[::-1], return_index=True)
        asked.append(experts[np.argsort(-(first // rows.shape[1]), kind="stable")])
    return asked


def lru(asked: Sequence[np.ndarray], slots: int, pinned: Collection[int] = ()) -> np.ndarray:
    """int[forwards]: the experts that a layer reads with so many slots that keep what was used last.

    A forward uses all its experts and then the slots keep the latest, so they may be fewer than one forward needs.
    Pinned experts are never read and take no slot.
    """
    kept: list[int] = []
    loads = []
    for batch in asked:
        batch = [e for e in batch.tolist() if e not in pinned]
        loads.append(len(set(batch).difference(kept)))
        kept = [e for e in kept if e not in batch] + batch
        kept = kept[-slots:] if slots else []
    return np.array(loads, int)


def lfru(asked: Sequence[np.ndarray], slots: int, pinned: Collection[int] = ()) -> np.ndarray:
    """The same where the least often lately used goes, and of several the least recently used.

    A use counts half after HALF_LIFE forwards, and it counts whether the expert has a slot or not.
    """
    kept: set[int] = set()
    often, last = Counter(), {}
    loads = []
    for at, batch in enumerate(asked):
        for e in often:
            often[e] *= 0.5 ** (1 / HALF_LIFE)
        batch = [e for e in batch.tolist() if e not in pinned]
        loads.append(len(set(batch).difference(kept)))
        for place, e in enumerate(batch):
            often[e] += 1
            last[e] = (at, place)
        rivals = sorted(kept.union(batch), key=lambda e: (often[e], last[e]))
        kept = set(rivals[-slots:]) if slots else set()
    return np.array(loads, int)


def belady(asked: Sequence[np.ndarray], slots: int, pinned: Collection[int] = ()) -> np.ndarray:
    """The fewest reads that any policy can do with: what is used again soonest stays (Belady 1966).

    What was read need not be kept, so this holds for fewer slots than a forward's experts, too.
    """
    after: list[dict[int, int]] = []  # for each forward, when each of its experts is asked for next
    seen: dict[int, int] = {}
    for at in range(len(asked) - 1, -1, -1):
        after.append({e: seen.get(e, len(asked)) for e in asked[at].tolist()})
        seen.update(dict.fromkeys(asked[at].tolist(), at))
    kept: dict[int, int] = {}  # expert -> its next use
    loads = []
    for now in reversed(after):
        now = {e: when for e, when in now.items() if e not in pinned}
        loads.append(len(now.keys() - kept.keys()))
        kept |= now
        soonest = sorted((e for e in kept if kept[e] < len(asked)), key=lambda e: kept[e])
        kept = {e: kept[e] for e in soonest[:slots]}
    return np.array(loads, int)


POLICIES: dict[str, Callable[..., np.ndarray]] = {"lru": lru, "lfru": lfru, "belady": belady}
PINNED = "half pinned, lru"  # half of the slots hold what other texts used most, the rest is lru


def most_used(forwards: Sequence[Forward], experts: int, count: int) -> list[list[int]]:
    """For each layer the `count` experts that most rows chose, the most used first."""
    rows = np.concatenate([forward.selected for forward in forwards], axis=1)
    uses = [np.bincount(layer.ravel(), minlength=experts) for layer in rows]
    return [np.argsort(-use, kind="stable")[:count].tolist() for use in uses]


def replay(
    forwards: Sequence[Forward], slots: int, policy: str, experts: int, others: Sequence[Forward] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """(asked, read): int[forwards] of distinct experts over all layers under a policy of POLICIES or PINNED.

    others: the forwards of other texts, whose most used experts PINNED pins (of none, nothing is pinned).
    """
    pins: list[list[int]] = [[]] * len(forwards[0].selected)
    if policy == PINNED and others:
        pins = most_used(others, experts, slots // 2)
    run = POLICIES["lru" if policy == PINNED else policy]
    asked, read = np.zeros(len(forwards), int), np.zeros(len(forwards), int)
    for layer, pinned in enumerate(pins):
        wanted = batches(forwards, layer)
        asked += [len(batch) for batch in wanted]
        read += run(wanted, slots - len(pinned), frozenset(pinned))
    return asked, read


@dataclass(frozen=True)
class Shape:
    """A mixture of experts by its numbers; expert_bytes: of one expert."""

    layers: int
    experts: int
    top_k: int
    expert_bytes: float


SAME, APART = "same members", "members at random"


def enlarge(forward: Forward, experts: int, shape: Shape, members: str, seed: int) -> Forward:
    """A recorded forward as one of a larger model.

    Each recorded expert stands for a group of experts, of which a row that chose it chooses several. `members`: SAME
    takes the same ones of a group always, so rows share as much as they did; APART draws them for each row, so rows
    that share a group share few of its experts. What a larger model does lies between the two as far as its groups
    behave as recorded. Recorded layers take turns to stand for those of the shape.

    ValueError where groups or their choices do not come out even.
    """
    layers, rows, top_k = forward.selected.shape
    group, chosen = divmod(shape.experts, experts)[0], shape.top_k // top_k
    if group * experts != shape.experts or chosen * top_k != shape.top_k or chosen > group:
        raise ValueError(
            f"{shape.experts} experts, top-{shape.top_k}: no whole multiple of the recorded {experts}, top-{top_k}"
        )
    base = np.resize(np.arange(layers), shape.layers)
    if members == SAME:
        picked = np.broadcast_to(np.arange(chosen), (shape.layers, rows, top_k, chosen))
    else:
        draws = np.random.default_rng(seed).random((shape.layers, rows, top_k, group))
        picked = draws.argsort(axis=-1)[..., :chosen]
    large = forward.selected[base].astype(np.int32)[..., None] * group + picked
    return Forward(large.reshape(shape.layers, rows, shape.top_k), forward.sources, forward.kept)


def sharing(use: np.ndarray, k: int) -> float:
    """Distinct experts of k rows in a row over those of k independent ones of the same text (1 where it is shorter)."""
    if k > use.shape[1]:
        return 1.0
    return float(unions(use, k).mean() / independent(use.mean(axis=1), k).mean())


def expected_tokens(acceptance: float, rows: int) -> float:
    """Tokens a forward of a line of rows - 1 drafts, each right with this probability: 1 + a + ... + a^(rows - 1)."""
    return float(sum(acceptance**i for i in range(rows)))


def expected_misses(shares: np.ndarray, slots: int, rows: int, shared: float = 1.0) -> float:
    """Reads of a forward of so many rows, over all layers, where the most used experts of each layer have the slots.

    shares: float[layers, experts]. Rows choose independently; `shared` is what k rows really need over that.
    """
    outside = np.sort(shares, axis=-1)[:, : shares.shape[-1] - slots]
    return shared * float(independent(outside, rows).sum())


def relative_bytes(shares: np.ndarray, slots: int, rows: int, acceptance: float, shared: float = 1.0) -> float:
    """Bytes read for a token with drafts over those without; 1 is break-even, and where nothing is read both ways."""
    plain = expected_misses(shares, slots, 1)
    if plain == 0:
        return 1.0
    return expected_misses(shares, slots, rows, shared) / expected_tokens(acceptance, rows) / plain


def break_even(shares: np.ndarray, slots: int, rows: int, shared: float = 1.0) -> float:
    """The acceptance from which on drafts of rows - 1 tokens save bytes; 1.0 where none below does.

    Of rows that choose independently and evenly it is 1 - top_k / experts, whatever the number of rows: both the union
    and the expected tokens are then geometric sums, of that share and of the acceptance.
    """
    low, high = 0.0, 1.0
    if relative_bytes(shares, slots, rows, low, shared) <= 1:
        return low
    for _ in range(30):
        middle = (low + high) / 2
        if relative_bytes(shares, slots, rows, middle, shared) > 1:
            low = middle
        else:
            high = middle
    return high
