"""Sampled output has the target's distribution, drafted or not, and the test would notice if it had not.

GDLIB_FULL=1 takes 10^5 samples a setting; without it 3 * 10^3. The threshold of every chi-square is four standard
deviations (one false alarm in 30,000 runs; seeds are fixed, so there is none).
"""

import os
import random

import numpy as np
import pytest
import torch
from drafters import Markov

from gdlib.decoding import speculative as loop
from gdlib.decoding.sampling import distribution, pick
from gdlib.decoding.speculative import speculative
from gdlib.drafts.gate import AllRows

V = 6
SAMPLES = 100_000 if os.environ.get("GDLIB_FULL") == "1" else 3_000
SETTINGS = [(1.0, 0, 1.0), (0.6, 0, 1.0), (1.0, 3, 1.0), (1.2, 0, 0.8), (0.9, 4, 0.7)]
SHAPES = {
    "point": lambda last: [[(last + 1) % V, (last + 2) % V, (last + 3) % V]],
    "tree": lambda last: [
        [(last + 1) % V, last, (last + 1) % V],
        [(last + 1) % V, (last + 4) % V],
        [(last + 3) % V, (last + 1) % V],
        [(last + 3) % V, (last + 2) % V, 0],
        [(last + 5) % V],
    ],
    "every token": lambda last: [[t, u] for t in range(V) for u in range(V)],
}
TABLE = torch.randn(V, V, generator=torch.Generator().manual_seed(7)) * 1.3


class Drafter:
    """Drafts the shape that belongs to the last token."""

    name = "drafter"

    def __init__(self, shape):
        self.shape = SHAPES[shape]

    def begin(self, prompt_ids):
        self.last = prompt_ids[-1]

    def commit(self, ids):
        self.last = ids[-1]

    def propose(self, ahead, room):
        return [] if ahead else [path[:room] for path in self.shape(self.last)]


def exact(temperature, top_k, top_p):
    """float64[V, V]: p(next | last), worked out the long way."""
    rows = []
    for logits in TABLE.double().numpy():
        p = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
        order = sorted(range(V), key=lambda t: (-p[t], t))
        if top_k:
            p[order[top_k:]] = 0
            p /= p.sum()
        mass, kept = 0.0, []
        for token in order:
            if mass < top_p:
                kept.append(token)
                mass += p[token]
        p[[t for t in range(V) if t not in kept]] = 0
        rows.append(p / p.sum())
    return np.array(rows)


def deviation(ids, p):
    """How many standard deviations the chi-square of (last, next, next but one) lies above its mean.

    Wilson and Hilferty's normal approximation. Triples do not overlap, so they are independent given their first.
    Cells of fewer than 5 expected are thrown together. inf where something came that cannot.
    """
    seen = np.zeros((V, V, V))
    np.add.at(seen, tuple(np.array(ids[: len(ids) // 3 * 3]).reshape(-1, 3).T), 1)
    want = seen.sum((1, 2))[:, None, None] * p[:, :, None] * p[None, :, :]
    if seen[want == 0].any():
        return np.inf
    square, cells = 0.0, 0
    for first in range(V):
        large = want[first] >= 5
        observed = np.append(seen[first][large], seen[first][~large].sum())
        expected = np.append(want[first][large], want[first][~large].sum())
        observed, expected = observed[expected > 0], expected[expected > 0]
        square += ((observed - expected) ** 2 / expected).sum()
        cells += max(len(expected) - 1, 0)
    spread = 2 / (9 * cells)
    return ((square / cells) ** (1 / 3) - (1 - spread)) / spread**0.5


def sampled(shape, setting, seed=0):
    temperature, top_k, top_p = setting
    out = speculative(
        Markov(TABLE),
        [0],
        [Drafter(shape)] if shape else [],
        [],
        SAMPLES,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        generator=torch.Generator().manual_seed(seed),
        gate=AllRows(),
        draft_cap=48,
    )
    assert not shape or out.report["accepted"] > SAMPLES / 4
    return out.ids


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("shape", [None, *SHAPES])
def test_what_comes_out_has_the_distribution_of_the_target(shape, setting):
    assert deviation(sampled(shape, setting), exact(*setting)) < 4


def literal(shape, p, seed, remove=True, renormalise=True):
    """The scheme as it is written down: accept a sibling with p(draft), else strike it out of p and renormalise.

    remove=False or renormalise=False leave one of the two out, which is wrong.
    """
    chance, ids, paths = random.Random(seed), [], SHAPES[shape]
    last = 0
    while len(ids) < SAMPLES:
        left = [path for path in paths(last) if path]
        while True:  # one node: its children are the first tokens of the paths that are left
            q, total, token = p[last].copy(), 1.0, None
            for draft in dict.fromkeys(path[0] for path in left):
                if chance.random() * (total if renormalise else 1.0) < q[draft]:
                    token = draft
                    break
                if remove:
                    total -= q[draft]
                    q[draft] = 0
            accepted = token is not None
            if not accepted:
                token = chance.choices(range(V), q)[0]
            ids.append(token)
            last = token
            if not accepted:
                break
            left = [path[1:] for path in left if path[0] == token and len(path) > 1]
            if not left:
                break
    return ids[:SAMPLES]


@pytest.mark.parametrize("setting", SETTINGS[::2])
@pytest.mark.parametrize("shape", ["point", "tree"])
def test_the_scheme_written_out_has_it_too_and_agrees(shape, setting):
    assert deviation(literal(shape, exact(*setting), 1), exact(*setting)) < 4


@pytest.mark.parametrize("setting", SETTINGS[:2])
@pytest.mark.parametrize("broken", [dict(remove=False), dict(renormalise=False)])
def test_the_test_notices_a_scheme_with_a_step_left_out(setting, broken):
    assert deviation(literal("tree", exact(*setting), 2, **broken), exact(*setting)) > 4


@pytest.mark.parametrize("shape", ["point", "tree"])
def test_the_test_notices_a_sabotaged_loop(shape, monkeypatch):
    drafts = {tuple(row): (last + 1) % V for last, row in enumerate(TABLE.tolist())}

    def eager(logits, *how):  # where the draft is refused all of p is drawn from, and the draft may come after all
        token = pick(logits, *how)
        return token if token == drafts[tuple(logits.tolist())] else pick(logits, *how)

    monkeypatch.setattr(loop, "pick", eager)
    assert deviation(sampled(shape, SETTINGS[0]), exact(*SETTINGS[0])) > 4


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_distribution_itself_is_the_exact_one(setting):
    for last in range(V):
        ours = distribution(TABLE[last], *setting)
        assert ours.dtype == torch.float32 and np.allclose(ours.numpy(), exact(*setting)[last], atol=1e-6)


def test_of_equal_tokens_the_lowest_ids_stay():
    logits = torch.tensor([1.0, 3.0, 3.0, 3.0, 0.0])
    assert distribution(logits, 1.0, top_k=2).tolist() == pytest.approx([0, 0.5, 0.5, 0, 0])
    assert distribution(logits, 1.0, top_k=1).tolist() == [0, 1, 0, 0, 0]
    assert distribution(logits, 1.0, top_p=0.4).nonzero().flatten().tolist() == [1, 2]
    assert distribution(logits, 1.0, top_p=1e-9).tolist() == [0, 1, 0, 0, 0]
    assert distribution(logits, 0.0).tolist() == [0, 1, 0, 0, 0]
    assert torch.equal(distribution(logits, 1.0, top_k=5), distribution(logits, 1.0))
    assert torch.equal(distribution(logits, 1.0, top_k=99), torch.softmax(logits, -1))
    masked = torch.tensor([-torch.inf, 1.0, -torch.inf, 1.0])
    for how in (dict(), dict(top_k=3), dict(top_p=0.9), dict(top_k=2, top_p=0.99)):
        assert distribution(masked, 1.0, **how).tolist() == pytest.approx([0, 0.5, 0, 0.5])
    assert distribution(logits.bfloat16(), 1.0, top_k=2).dtype == torch.float32
