"""Is a draft worth its rows: running acceptance, colibri's guard, and cost."""

import itertools
import math
import random

import numpy as np
import pytest
from drafters import Markov, tiny_model

from gdlib.drafts.gate import (
    GATES,
    Acceptance,
    AllRows,
    BytesGate,
    ColibriGuard,
    CostGate,
    Costs,
    ReArming,
    named_gate,
    path_chances,
)
from gdlib.drafts.tree import ROOT, Tree


def chain(length, source="ngram"):
    tree = Tree()
    tree.add(ROOT, range(length), source, length)
    return tree


def teach(gate, source, accepted, times, length=1):
    """`times` chains of `length`, of which the first `accepted` tokens were right."""
    for _ in range(times):
        judge = gate.acceptance if isinstance(gate, CostGate) else gate
        judge.learn(chain(length, source), frozenset(range(accepted)))


def test_acceptance_is_that_of_nodes_whose_parent_was_accepted():
    seen = Acceptance()
    for _ in range(200):
        seen.learn(chain(8, "a"), frozenset(range(3)))  # right, right, right, wrong, never looked at
    assert seen.chance("a", 1, 0) > 0.9 and seen.chance("a", 2, 0) > 0.9
    assert 0.4 < seen.chance("a", 3, 0) < 0.6  # steps 3 and 4 share an estimate
    assert seen.chance("a", 5, 0) > 0.6  # never seen: what the source shows elsewhere
    assert seen.chance("b", 1, 0) == 0.5
    for _ in range(200):  # it changes its mind
        seen.learn(chain(8, "a"), frozenset())
    assert seen.chance("a", 1, 0) < 0.1


def test_siblings_have_estimates_of_their_own():
    seen, tree = Acceptance(), Tree()
    for token in (1, 2):
        tree.append(ROOT, token, "a", 1)
    assert seen.chance("a", 1, 1) < seen.chance("a", 1, 0)
    for _ in range(100):
        seen.learn(tree, frozenset([1]))
    assert seen.chance("a", 1, 0) < 0.1 and seen.chance("a", 1, 1) > 0.9


def test_all_rows_are_all_rows():
    gate, tree = AllRows(), chain(30)
    teach(gate, "ngram", 0, 100)
    assert gate.trim(tree) is tree and gate.chance("ngram", 1, 0) > 0


def test_colibri_turns_a_source_off_for_good_below_half_of_32():
    gate = ColibriGuard()
    teach(gate, "a", 0, 31)
    assert gate.chance("a", 1, 0) > 0
    teach(gate, "a", 0, 1)
    assert gate.chance("a", 1, 0) == 0 and gate.chance("b", 1, 0) > 0
    teach(gate, "a", 1, 31)  # 31 of 63
    assert gate.chance("a", 1, 0) == 0
    for _ in range(1000):
        gate.spent(1, 1.0)
    assert gate.chance("a", 1, 0) == 0
    half = ColibriGuard()
    teach(half, "a", 1, 16)
    teach(half, "a", 0, 16)
    assert half.chance("a", 1, 0) > 0  # half is not below half


def test_colibri_counts_every_row_that_was_verified():
    gate = ColibriGuard()
    teach(gate, "a", 3, 4, length=8)  # 12 of 32
    assert gate.counts == {"a": [32, 12]} and gate.is_off("a")


def test_rearming_gives_another_chance_after_a_pause():
    gate = ReArming(pause=10)
    teach(gate, "a", 0, 32)
    for _ in range(9):
        gate.spent(1, 1.0)
        assert gate.chance("a", 1, 0) == 0
    gate.spent(1, 1.0)
    assert gate.chance("a", 1, 0) > 0
    teach(gate, "a", 0, 32)
    assert gate.chance("a", 1, 0) == 0
    for _ in range(10):
        gate.spent(1, 1.0)
    teach(gate, "a", 1, 100)
    assert gate.chance("a", 1, 0) > 0.8


def test_costs_are_interpolated_rise_with_the_rows_and_go_on_past_the_last():
    costs = Costs((1, 2, 4, 8), (1.0, 2.0, 1.5, 4.0))
    assert [costs(n) for n in (1, 2, 3, 4, 6, 8)] == [1.0, 2.0, 2.0, 2.0, 3.0, 4.0]
    assert costs(10) == pytest.approx(5.0) and costs(49) == pytest.approx(24.5)
    assert Costs((1,), (0.5,))(49) == 0.5
    for widths, seconds in [((), ()), ((2, 4), (1, 2)), ((1, 1), (1, 2)), ((1, 2), (1,)), ((1, 2), (1.0, 0.0))]:
        with pytest.raises(ValueError, match=r"want one a time|some time"):
            Costs(widths, seconds)


def test_costs_follow_what_is_seen():
    costs = Costs((1, 2, 4, 8, 16), (1.0, 1.0, 1.0, 1.0, 1.0))
    for _ in range(200):
        costs.spent(8, 3.0)
        costs.spent(1, 1.0)
    assert costs(8) == pytest.approx(3.0, rel=0.2) and costs(1) == pytest.approx(1.0, rel=0.2)
    assert costs(16) >= costs(8)
    before = costs(1)
    costs.spent(1, 1e6)  # one odd time
    assert costs(1) < 1.2 * before
    slower = Costs((1, 8), (1.0, 2.0))
    for _ in range(200):  # a machine that slows down slows all widths
        slower.spent(1, 4.0)
    assert slower(8) / slower(1) > 1.0 and slower(8) > 4.0


def test_costs_are_measured_on_the_model_and_leave_no_rows_behind():
    model = tiny_model(context=40)
    model(list(range(20)))
    costs = Costs.measure(model)
    assert model.length == model._cache.get_seq_length() == 20
    assert costs.widths.tolist() == [1, 2, 4, 8, 16] and (np.diff(costs.table) >= 0).all() and costs(1) > 0
    full = tiny_model(context=20)
    full(list(range(20)))
    assert Costs.measure(full)(2) > Costs.measure(full)(1)  # nothing fits, so no row is called cheap


def test_a_model_is_measured_once():
    class Counting(Markov):
        verified = 0

        def verify(self, root, tree):
            self.verified += 1
            return super().verify(root, tree)

    model = Counting(np.zeros((97, 97)))
    model([1])
    CostGate().begin(model)
    once = model.verified
    CostGate().begin(model)
    assert 0 < once == model.verified
    given = Costs((1, 2), (1.0, 1.5))
    gate = CostGate(given)
    gate.begin(model)
    assert gate.costs is given


def random_tree(chance, size):
    tree = Tree()
    while len(tree) < size:
        at = chance.randrange(-1, len(tree))
        tree.append(at, len(tree), chance.choice(["grammar", "ngram", "branches"]), chance.randrange(1, 10))
    return tree


@pytest.mark.parametrize("seed", range(40))
def test_the_gate_keeps_the_best_of_all_prefix_closed_sets(seed):
    chance = random.Random(seed)
    gate = CostGate(Costs((1, 2, 4, 8, 16), sorted(chance.uniform(1, 3) for _ in range(5))))
    for source in ("grammar", "ngram", "branches"):
        teach(gate, source, chance.randrange(3), 8, length=4)
    tree = random_tree(chance, 8)
    chances = path_chances(tree, gate)

    def speed(nodes):
        return (1 + sum(chances[n] for n in nodes)) / gate.costs(1 + len(nodes))

    closed = (
        nodes
        for size in range(9)
        for nodes in itertools.combinations(range(8), size)
        if all(tree.parents[n] in (ROOT, *nodes) for n in nodes)
    )
    best = max(map(speed, closed))
    kept = gate.trim(tree)
    assert speed([tree.tokens.index(t) for t in kept.tokens]) == pytest.approx(best)


def asked(gate, tree):
    """What `grow` gives the gate: the tree, or nothing where its source is not to be asked."""
    return tree if gate.chance(tree.sources[0], 1, 0) > 0 else Tree()


def test_where_nothing_pays_it_drafts_nothing_and_notices_when_drafts_would_pay():
    gate = CostGate(Costs((1, 2, 8), (1.0, 1.3, 1.5)))
    teach(gate, "ngram", 0, 100)
    for _ in range(100):  # the text is never what is proposed: plain decoding, without a probe
        assert len(gate.trim(asked(gate, chain(8)))) == 0
        gate.saw([99])
    sizes = []
    for _ in range(200):  # now it always is, eight tokens a forward
        sizes.append(len(gate.trim(asked(gate, chain(8)))))
        gate.saw(list(range(8)))
    assert sizes[0] == 0 and sizes[-20:] == [8] * 20


def test_a_source_that_is_worth_no_row_is_asked_less_and_less_and_at_once_again_when_it_is():
    gate, asks = CostGate(Costs((1, 2, 48), (1.0, 1.3, 15.0))), []
    teach(gate, "ngram", 0, 100)
    for forward in range(60):
        tree = asked(gate, chain(8))
        asks += [forward] if len(tree) else []
        gate.trim(tree)
        gate.saw([99])
    gaps = np.diff(asks).tolist()
    assert gaps[:3] == [2, 4, 8] and set(gaps[2:]) == {gate.longest}
    assert gate.chance("grammar", 1, 0) > 0  # the others are none the worse for it
    gate.begin(Markov(np.zeros((97, 97))))  # another text
    assert gate.chance("ngram", 1, 0) > 0
    teach(gate, "ngram", 1, 100)
    for _ in range(9):
        assert len(gate.trim(asked(gate, chain(1)))) == 1
        gate.saw([0])


def test_a_guess_is_judged_by_the_text_over_several_forwards():
    gate = CostGate(Costs((1, 48), (1.0, 48.0)))
    tree = Tree()
    tree.add(ROOT, [1, 2, 3], "ngram", 9)
    tree.add(0, [7, 8], "branches", 9)
    assert len(gate.trim(tree)) == 0
    seen = []
    gate.acceptance.learn = lambda tree, accepted: seen.append((tree, set(accepted)))
    gate.saw([1])
    assert seen == [] and len(gate.trim(chain(5))) == 0
    gate.saw([7, 9])
    assert seen == [(tree, {0, 3})]
    gate.trim(tree)
    gate.saw([1, 2, 3])  # to the end of it
    gate.saw([4])
    assert seen[1:] == [(tree, {0, 1, 2})]
    gate.trim(tree)
    gate.begin(Markov(np.zeros((97, 97))))  # another text
    gate.saw([1, 2, 9])
    assert len(seen) == 2


def test_free_rows_are_all_taken_and_dear_ones_only_when_certain():
    free, dear = CostGate(Costs((1, 48), (1.0, 1.0))), CostGate(Costs((1, 48), (1.0, 48.0)))
    assert len(free.trim(chain(24))) == 24 and len(dear.trim(chain(24))) == 0
    assert len(free.trim(Tree())) == 0


def test_gates_by_name():
    assert [type(named_gate(name)) for name in GATES] == [CostGate, BytesGate, AllRows, ColibriGuard, ReArming]
    assert named_gate("cost") is not named_gate("cost")
    with pytest.raises(ValueError, match="gate 'half': there is cost, bytes, all, colibri, rearming"):
        named_gate("half")


def test_chances_are_probabilities():
    chance = random.Random(0)
    seen = Acceptance()
    for _ in range(300):
        tree = random_tree(chance, 6)
        seen.learn(tree, frozenset(tree.nodes(chance.randrange(-1, 6))))
        for source in ("grammar", "ngram", "branches", "unheard of"):
            for step, rank in itertools.product((1, 2, 3, 48), (0, 1, 2, 40)):
                assert 0 < seen.chance(source, step, rank) < 1 and math.isfinite(seen.chance(source, step, rank))


def test_costs_cut_by_the_end_of_the_context_are_no_costs_of_other_texts():
    model, gate = tiny_model(context=64), CostGate()
    model.reset()
    model(list(range(60)))
    gate.begin(model)
    assert gate.costs.widths.tolist() == [1, 2, 4] and model.costs is None
    model.reset()
    model([1, 2])
    gate.begin(model)
    assert gate.costs is model.costs and gate.costs.widths[-1] == 48
