"""Arithmetic on routing against slow references: unions, their expectation, policies, the larger shape, break-even."""

import itertools

import numpy as np
import pytest

from gdlib.bench import routing
from gdlib.bench.routing import Forward, Shape, Text

EXPERTS, TOP_K, LAYERS = 12, 3, 2


def rows_of(chance, count, layers=LAYERS, weights=None):
    """int[layers, count, TOP_K]: each row's own distinct experts."""
    keys = chance.random((layers, count, EXPERTS)) ** (1 / (np.ones(EXPERTS) if weights is None else weights))
    return np.argsort(-keys, axis=2)[..., :TOP_K]


def forwards_of(chance, widths):
    return [Forward(rows_of(chance, k), ["text"] + ["grammar"] * (k - 1), [True] * k) for k in widths]


def test_unions_against_sets():
    selected = rows_of(np.random.default_rng(1), 20)
    use = routing.used(selected, EXPERTS)
    for k in (1, 2, 7, 20):
        for layer in range(LAYERS):
            slow = [len(set(selected[layer, i : i + k].ravel())) for i in range(20 - k + 1)]
            assert routing.unions(use, k)[layer].tolist() == slow
    with pytest.raises(ValueError, match="experts 0 to"):
        routing.used(selected, 5)


def test_the_expected_union_is_that_of_independent_rows_though_a_row_chooses_without_repeating():
    chance = np.random.default_rng(2)
    use = routing.used(rows_of(chance, 4000, weights=np.linspace(0.2, 3, EXPERTS)), EXPERTS)
    for k in (1, 2, 5, 12):
        drawn = use[:, chance.integers(0, 4000, (4000, k))].any(axis=2).sum(axis=2).mean(axis=1)
        assert np.allclose(drawn, routing.independent(use.mean(axis=1), k), atol=0.06)
    even = np.full((1, EXPERTS), TOP_K / EXPERTS)
    assert routing.independent(even, 4)[0] == pytest.approx(routing.uniform(EXPERTS, TOP_K, 4))
    assert routing.uniform(EXPERTS, TOP_K, 1) == pytest.approx(TOP_K)


def test_the_premise_tells_kinds_of_rows_apart():
    """Structural rows that all go to the same experts, free ones anywhere, and random rows as a check."""
    chance = np.random.default_rng(3)
    texts = []
    for name in "ab":
        structural = np.arange(60) % 10 < 6
        selected = rows_of(chance, 60)
        selected[:, structural] = [0, 1, 2]
        texts.append(Text(name, selected, structural))
    found = {(r["text"], r["kind"], r["k_rows"]): r for r in routing.premise(texts, (1, 4, 8, 48, 99), EXPERTS)}
    here = found["a", routing.STRUCTURAL, 4]
    assert here["distinct_count"] == here["own_count"] == 3 and here["independent_count"] > 3
    assert here["windows_count"] == 6 * 3
    assert ("a", routing.STRUCTURAL, 8) not in found  # no run of eight
    assert found["a", routing.ALONG[routing.STRUCTURAL], 8]["distinct_count"] == 3
    assert found["b", routing.FREE, 4]["windows_count"] == 6
    assert found["b", routing.FREE, 4]["distinct_count"] > 6
    shuffled = found["b", routing.SHUFFLED, 8]
    assert shuffled["distinct_count"] == pytest.approx(shuffled["independent_count"], rel=0.1)
    assert all(k != 99 or kind == routing.SHUFFLED for _, kind, k in found)
    assert all(
        row["distinct_count"] == TOP_K == pytest.approx(row["uniform_count"])
        for (_, _, k), row in found.items()
        if k == 1
    )


def test_rows_of_verified_forwards_go_by_their_source():
    selected = np.array([[[0, 1], [0, 1], [2, 3], [0, 2]]])
    forwards = [
        Forward(selected, ["text", "grammar", "ngram", "grammar"], [True] * 4),
        Forward(selected[:, :1], ["text"], [True]),
    ]
    found = {(r["kind"], r["k_rows"]): r for r in routing.drafted("t", forwards, np.full((1, 4), 0.5), 4)}
    assert found["grammar", 2]["distinct_count"] == 3 and found["ngram", 1]["distinct_count"] == 2
    assert found["whole forward", 4]["distinct_count"] == 4 and set(found) == {
        ("grammar", 2),
        ("ngram", 1),
        ("whole forward", 4),
    }
    assert found["grammar", 2]["independent_count"] == pytest.approx(4 * 0.75)


def slow_best(batches, slots):
    """The fewest reads over every choice of what to keep."""
    best = {frozenset(): 0}
    for batch in batches:
        after = {}
        for kept, reads in best.items():
            reads += len(set(batch) - kept)
            everything = kept | set(batch)
            for count in range(min(slots, len(everything)) + 1):
                for keep in itertools.combinations(sorted(everything), count):
                    after[frozenset(keep)] = min(after.get(frozenset(keep), 10**9), reads)
        best = after
    return min(best.values())


@pytest.mark.parametrize("slots", [0, 1, 2, 3])
def test_belady_is_the_optimum(slots):
    for seed in range(12):
        chance = np.random.default_rng(seed)
        batches = [np.sort(chance.choice(5, chance.integers(1, 4), replace=False)) for _ in range(7)]
        assert routing.belady(batches, slots).sum() == slow_best([b.tolist() for b in batches], slots)


@pytest.mark.parametrize("policy", routing.POLICIES)
def test_policies_at_the_ends(policy):
    run = routing.POLICIES[policy]
    batches = routing.batches(forwards_of(np.random.default_rng(5), [1, 4, 1, 9, 2, 1, 1, 3] * 4), 1)
    asked = [len(batch) for batch in batches]
    assert run(batches, 0).tolist() == asked
    everything = run(batches, EXPERTS)
    assert everything.sum() == len(set(np.concatenate(batches)))
    for slots in range(EXPERTS + 1):
        loads = run(batches, slots)
        assert (loads <= asked).all() and everything.sum() <= loads.sum()
        assert routing.belady(batches, slots).sum() <= loads.sum()
    pinned = frozenset([0, 3, 5])
    rest = [batch[~np.isin(batch, list(pinned))] for batch in batches]
    assert run(batches, 2, pinned).tolist() == run(rest, 2).tolist()


def test_lru_against_one_access_at_a_time():
    chance = np.random.default_rng(6)
    batches = [np.array([e]) for e in chance.integers(0, 6, 200)]
    kept, loads = [], []
    for (e,) in batches:
        loads.append(e not in kept)
        kept = [x for x in kept if x != e] + [e]
        kept = kept[-3:]
    assert routing.lru(batches, 3).tolist() == loads


def test_lfru_keeps_what_is_used_often():
    batches = [np.array([e]) for e in (0, 0, 0, 1, 2, 0, 3, 0, 4, 0)]
    assert routing.lfru(batches, 2).tolist() == [1, 0, 0, 1, 1, 0, 1, 0, 1, 0]
    assert routing.lru(batches, 1).sum() == 8


def test_replay_adds_up_layers_and_pins_what_others_used():
    chance = np.random.default_rng(7)
    forwards, others = forwards_of(chance, [1, 3, 1, 5]), forwards_of(chance, [4, 4])
    asked, read = routing.replay(forwards, 4, "lru", EXPERTS)
    assert asked.tolist() == [sum(len(np.unique(layer)) for layer in f.selected) for f in forwards]
    by_layer = [routing.lru(routing.batches(forwards, layer), 4) for layer in range(LAYERS)]
    assert read.tolist() == sum(by_layer).tolist()
    pins = routing.most_used(others, EXPERTS, 2)
    counts = np.bincount(np.concatenate([f.selected[1] for f in others]).ravel(), minlength=EXPERTS)
    assert len(pins) == LAYERS and counts[pins[1]].tolist() == sorted(counts, reverse=True)[:2]
    _, read = routing.replay(forwards, 4, routing.PINNED, EXPERTS, others)
    by_layer = [routing.lru(routing.batches(forwards, i), 2, pins[i]) for i in range(LAYERS)]
    assert read.tolist() == sum(by_layer).tolist()


def test_a_larger_shape_lies_between_all_shared_and_none():
    forward = forwards_of(np.random.default_rng(8), [6])[0]
    shape = Shape(layers=5, experts=4 * EXPERTS, top_k=2 * TOP_K, expert_bytes=1.0)
    same, apart = (routing.enlarge(forward, EXPERTS, shape, how, 1) for how in (routing.SAME, routing.APART))
    for large in (same, apart):
        assert large.selected.shape == (5, 6, 2 * TOP_K)
        assert all(len(set(row)) == 2 * TOP_K for layer in large.selected for row in layer)
        assert (
            np.sort(large.selected // 4, axis=2)[..., ::2] == np.sort(forward.selected[[0, 1, 0, 1, 0]], axis=2)
        ).all()
    small = [len(np.unique(layer)) for layer in forward.selected]
    assert [len(np.unique(layer)) for layer in same.selected] == [2 * small[i % 2] for i in range(5)]
    assert all(2 * small[i % 2] <= len(np.unique(layer)) <= 4 * small[i % 2] for i, layer in enumerate(apart.selected))
    assert sum(len(np.unique(layer)) for layer in apart.selected) > sum(
        len(np.unique(layer)) for layer in same.selected
    )
    with pytest.raises(ValueError, match="no whole multiple"):
        routing.enlarge(forward, EXPERTS, Shape(5, 25, 6, 1.0), routing.SAME, 0)


def test_break_even_of_even_routing_is_the_share_a_row_leaves_out_and_nothing_where_rows_share_everything():
    even = np.full((LAYERS, EXPERTS), TOP_K / EXPERTS)
    assert routing.expected_tokens(1.0, 5) == 5 and routing.expected_tokens(0.0, 5) == 1
    assert routing.expected_tokens(0.5, 3) == 1.75
    assert routing.expected_misses(even, EXPERTS, 4) == 0 and routing.relative_bytes(even, EXPERTS, 4, 0.1) == 1
    points = [routing.break_even(even, 3, k) for k in (2, 4, 8)]
    assert points == pytest.approx([1 - TOP_K / EXPERTS] * 3)
    for k, point in zip((2, 4, 8), points, strict=True):
        assert routing.relative_bytes(even, 3, k, point) == pytest.approx(1, abs=1e-6)
    alike = np.zeros((1, EXPERTS))
    alike[:, :TOP_K] = 1
    assert routing.break_even(alike, 0, 8) == 0
    assert routing.break_even(even, 3, 4, shared=0.6) < routing.break_even(even, 3, 4)
    use = np.repeat(routing.used(rows_of(np.random.default_rng(9), 4), EXPERTS), 8, axis=1)
    assert routing.sharing(use, 4) < 0.8 and routing.sharing(use, 99) == 1.0
