"""Does drafting change what is written? The evidence behind the chapter on losslessness.

Greedy texts are compared id for id with plain decoding of the same prompt, under grammars that fit and grammars that do
not, with every source and mixture; what was proposed and accepted stands beside each, since a draft source that is
silently off would pass as well. Sampled tokens are counted against the exact distribution on a vocabulary small enough
to know it, and a verifier with a well-known fault must fail the same test.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from gdlib.bench import drafting
from gdlib.bench.draft_trials import FORCES
from gdlib.decoding.generate import draft_sources
from gdlib.decoding.speculative import speculative
from gdlib.drafts.gate import AllRows
from gdlib.grammar import Grammar
from gdlib.tokens.vocabulary import Vocabulary

GRAMMARS = ("right", "wrong", "stale", "empty")
CASES = (*GRAMMARS, "random tokens")
READS_GRAMMAR = ("grammar", "branches")
NAMES = ("grammar", "ngram", "branches", "random")
MIXTURES = {
    "grammar": ("grammar",),
    "ngram": ("ngram",),
    "branches": ("branches",),
    "grammar + ngram": ("grammar", "ngram"),
    "grammar + branches": ("grammar", "branches"),
    "ngram + branches": ("ngram", "branches"),
    "all three": ("grammar", "ngram", "branches"),
    "all three, linear": ("grammar", "ngram", "branches"),
}
RANDOM_MIXTURES = {"random": ("random",), "random + all three": ("random", "grammar", "ngram", "branches")}

SETTINGS = ((1.0, 0, 1.0), (0.8, 6, 0.9), (0.6, 0, 1.0), (1.5, 0, 1.0), (1.0, 4, 1.0), (1.0, 0, 0.8))  # t, top-k, top-p
ROWS = {"one draft": 2, "tree": 6}  # draft rows a forward
SHAPES = tuple(ROWS)
VERIFIERS = ("gdlib", "accept or renormalise", "sabotaged")
THRESHOLD = 1e-4  # an honest sampler fails one test in ten thousand
STATES = 12  # tokens of the vocabulary that the exact distribution is known for


@dataclass(frozen=True)
class Text:
    """A prompt of a workload and the grammars it is drafted with; grammars: one for each of GRAMMARS."""

    workload: str
    prompt: str
    ids: tuple[int, ...]
    grammars: dict[str, Grammar]
    max_tokens: int


def stale(gbnf: str) -> str:
    """The grammar as it was before every second key got its present name: right at first, and then wrong."""
    place = itertools.count()
    return re.sub(r'(\\"\w+)(\\":)', lambda key: key[1] + ("Old" if next(place) % 2 else "") + key[2], gbnf)


def texts(tokenizer, names: Sequence[str], prompts: int, max_tokens: int) -> list[Text]:
    """The first `prompts` texts (0: all) of each workload of these names.

    The wrong grammar is that of another task, the stale one see `stale`. max_tokens: instead of the workload's own, 0
    for those. ValueError for a workload there is not.
    """
    chosen, rules = drafting.workloads(names), {}
    for workload in chosen:
        gbnf = drafting.grammar_file(workload.name).read_text(encoding="utf-8")
        other = "calls" if workload.name != "calls" else "nested"
        rules[workload.name] = {
            "right": workload.grammar,
            "wrong": Grammar.from_gbnf(drafting.grammar_file(other).read_text(encoding="utf-8")),
            "stale": Grammar.from_gbnf(stale(gbnf)),
            "empty": Grammar.from_gbnf('root ::= ""'),
        }
    out = []
    for workload in chosen:
        for index in range(len(workload.prompts))[: prompts or None]:
            ids = tuple(workload.prompt_ids(tokenizer, index))
            limit = max_tokens or workload.max_tokens
            out.append(Text(workload.name, workload.ids[index], ids, rules[workload.name], limit))
    return out


class Watched:
    """A model that notes how close each of its choices was: gaps[i] and tops[i] are of the i-th forward."""

    def __init__(self, model):
        self.model, self.context = model, getattr(model, "context", None)
        self.gaps: list[float] = []
        self.tops: list[float] = []

    def reset(self) -> None:
        self.model.reset()

    def __call__(self, ids: Sequence[int]) -> torch.Tensor:
        logits = self.model(ids)
        first, second = logits.float().topk(2).values.tolist()
        self.gaps.append(first - second)
        self.tops.append(abs(first))
        return logits


class RandomSource:
    """Random tokens, which it mixes with the right ones; it knows the text. A way of them alone comes second."""

    name = "random"

    def __init__(self, text: Sequence[int], vocabulary_tokens: int, seed: int):
        self.text, self.size, self.seed = list(text), vocabulary_tokens, seed

    def begin(self, prompt_ids: Sequence[int]) -> None:
        self.at = 0

    def commit(self, ids: Sequence[int]) -> None:
        self.at += len(ids)

    def propose(self, ahead: Sequence[int], room: int) -> list[list[int]]:
        at = self.at + len(ahead)
        rng = np.random.default_rng((self.seed, at))
        junk = rng.integers(0, self.size, (2, room)).tolist()
        right = self.text[at : at + int(rng.integers(0, 4))]
        return [(right + junk[0])[:room], junk[1]]


def identity_trials(
    model,
    vocab: Vocabulary,
    texts: Sequence[Text],
    every: int,
    draft_cap: int,
    seed: int,
    dtype: str,
) -> pd.DataFrame:
    """One row a text, case (CASES) and mixture of sources: is the greedy text that of plain decoding, id for id?

    every: of the grid of case and mixture each text gets one in so many, another part each time; 1 is all of it.
    Every row that fits is verified (no gate). gap_logit: where a text differs, how far apart the two largest logits
    were there in plain decoding, and top_logit the size of the larger; 0 where it does not.
    """
    rows = []
    grid = list(_grid())
    for number, text in enumerate(texts):
        watched = Watched(model)
        plain = speculative(watched, text.ids, (), vocab.eos_ids, text.max_tokens).ids
        bound = drafting.bound(plain, text.grammars["right"], vocab, text.ids)
        for case, mixture, names in grid[number % every :: every]:
            guess = RandomSource(plain, len(vocab), seed)
            grammar = text.grammars.get(case, text.grammars["right"])
            sources = [guess if name == "random" else draft_sources([name], grammar, vocab, model)[0] for name in names]
            drafted = speculative(
                model,
                text.ids,
                sources,
                vocab.eos_ids,
                text.max_tokens,
                gate=AllRows(),
                draft_cap=draft_cap,
                linear=mixture.endswith("linear"),
            )
            same = _common(plain, drafted.ids)
            differs = drafted.ids != plain
            counts = {name: drafted.report["sources"].get(name, {"proposed": 0, "accepted": 0}) for name in NAMES}
            rows.append(
                {
                    "question": "identity",
                    "subject": text.workload,
                    "prompt": text.prompt,
                    "case": case,
                    "arm": mixture,
                    "dtype": dtype,
                    "passed": not differs,
                    "bound_ratio": bound,
                    "generated_tokens": len(drafted.ids),
                    "forward_count": drafted.report["forwards"],
                    "proposed_count": sum(count["proposed"] for count in counts.values()),
                    "accepted_count": sum(count["accepted"] for count in counts.values()),
                    **{f"{name}_proposed_count": counts[name]["proposed"] for name in NAMES},
                    **{f"{name}_accepted_count": counts[name]["accepted"] for name in NAMES},
                    "same_tokens": same,
                    "gap_logit": watched.gaps[same] if differs and same < len(plain) else 0.0,
                    "top_logit": watched.tops[same] if differs and same < len(plain) else 0.0,
                    "chi2_ratio": 0.0,
                    "freedom_count": 0,
                    "p_share": 1.0,
                }
            )
    return pd.DataFrame(rows)


def _grid() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(case, mixture, sources). The n-gram source alone reads no grammar: one case is enough."""
    for case, (mixture, names) in itertools.product(GRAMMARS, MIXTURES.items()):
        if case == "right" or set(names) & set(READS_GRAMMAR):
            yield case, mixture, names
    for mixture, names in RANDOM_MIXTURES.items():
        yield CASES[-1], mixture, names


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts share from their beginning on."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class Chain:
    """A model whose logits, float32[STATES], depend on the last token alone; it verifies trees as CausalModel does."""

    context = None

    def __init__(self, seed: int):
        draws = np.random.default_rng(seed).normal(0, 1.5, (STATES, STATES))
        self.logits = torch.from_numpy(draws.astype(np.float32))

    def reset(self) -> None:
        """Nothing to forget: the last token is all it knows."""

    def __call__(self, ids: Sequence[int]) -> torch.Tensor:
        return self.logits[ids[-1]]

    def verify(self, root: int, tree) -> torch.Tensor:
        return self.logits[[root, *tree.tokens]]

    def keep(self, nodes: Sequence[int]) -> None:
        """Nothing to keep either."""


def drafts_behind(token: int, shape: str) -> list[tuple[int, ...]]:
    """What is drafted behind a token of the chain: always the same, so some drafts are likely and some are not."""
    a, b, c = ((token * 5 + shift) % STATES for shift in (1, 4, 9))
    return [(a, b)] if shape == "one draft" else [(a, b), (a, c), (b, a), (c,)]


class ChainSource:
    """`drafts_behind` as a draft source."""

    name = "scripted"

    def __init__(self, shape: str):
        self.shape = shape

    def begin(self, prompt_ids: Sequence[int]) -> None:
        self.last = prompt_ids[-1]

    def commit(self, ids: Sequence[int]) -> None:
        self.last = ids[-1]

    def propose(self, ahead: Sequence[int], room: int) -> list[tuple[int, ...]]:
        return [path[:room] for path in drafts_behind(ahead[-1] if ahead else self.last, self.shape)]


def target(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """float64[V]: the distribution asked for, written down once more and independently of gdlib.decoding.sampling."""
    weights = np.exp((logits - logits.max()) / temperature)
    order = np.argsort(-weights, kind="stable")
    if top_k:
        weights[order[top_k:]] = 0
    weights /= weights.sum()
    before = np.concatenate([[0], np.cumsum(weights[order])[:-1]])
    weights[order[before >= top_p]] = 0
    return weights / weights.sum()


def literal(targets: np.ndarray, shape: str, samples: int, seed: int, sabotaged: bool = False) -> tuple[list[int], int]:
    """The published scheme to the letter, on its own random numbers: (the tokens, how many of them were drafts).

    At each position the siblings are tried in turn: x is accepted with probability p(x), else x is taken out of p and
    the rest renormalised; where none is accepted, the token is drawn from what is left (Leviathan et al. 2023; for
    siblings Miao et al. 2024). sabotaged: rejected drafts stay in, the fault that a correct verifier must not have.
    """
    rng = np.random.default_rng(seed)
    ids, accepted, ahead = [0], 0, []  # ahead: what is left of the drafted paths behind the last token
    while len(ids) <= samples:
        p = targets[ids[-1]].copy()
        chosen = -1
        for draft in dict.fromkeys(path[0] for path in ahead):
            if rng.random() < p[draft]:
                chosen = draft
                accepted += 1
                break
            if not sabotaged:
                p[draft] = 0
                p /= p.sum()
        if chosen < 0:
            ids.append(int(rng.choice(STATES, p=p)))
            ahead = drafts_behind(ids[-1], shape)
        else:
            ids.append(chosen)
            ahead = [path[1:] for path in ahead if path[0] == chosen and len(path) > 1]
            ahead = ahead or drafts_behind(chosen, shape)
    return ids, accepted


def distribution_trials(settings: int, samples: int, seed: int) -> pd.DataFrame:
    """One row a sampler setting, shape of the drafts and verifier: a chi-square test of `samples` tokens.

    settings: how many of SETTINGS, in an order that begins with all that a sampler can do; 0 for all of them.

    The text is one long walk of a Markov chain. Behind every token it is a fresh draw from that token's row, so the
    counts of all transitions are tested together; p_share is the chance that an honest sampler is at least this far
    off, and a row passes at THRESHOLD or more. A token that the setting forbids fails at once.
    """
    rows = []
    chain = Chain(seed)
    logits = chain.logits.double().numpy()
    for (temperature, top_k, top_p), shape in itertools.product(SETTINGS[: settings or None], SHAPES):
        targets = np.array([target(row.copy(), temperature, top_k, top_p) for row in logits])
        for verifier in VERIFIERS:
            if verifier == "gdlib":
                generation = speculative(
                    chain,
                    [0],
                    [ChainSource(shape)],
                    (),
                    samples,
                    temperature=temperature,
                    top_k=top_k,
                    top_p=top_p,
                    generator=torch.Generator().manual_seed(seed),
                    gate=AllRows(),
                    draft_cap=ROWS[shape],
                )
                ids, report = [0, *generation.ids], generation.report
                forwards, proposed, accepted = report["forwards"], report["rows"], report["accepted"]
            else:
                ids, accepted = literal(targets, shape, samples, seed, sabotaged=verifier == "sabotaged")
                forwards, proposed = 0, accepted
            chi2, freedom, p = chi_square(ids, targets)
            rows.append(
                {
                    "question": "distribution",
                    "subject": _setting(temperature, top_k, top_p),
                    "prompt": "",
                    "case": shape,
                    "arm": verifier,
                    "dtype": "float32",
                    "passed": p >= THRESHOLD,
                    "bound_ratio": 1.0,
                    "generated_tokens": len(ids) - 1,
                    "forward_count": forwards,
                    "proposed_count": proposed,
                    "accepted_count": accepted,
                    **{f"{name}_{what}_count": 0 for what in ("proposed", "accepted") for name in NAMES},
                    "same_tokens": 0,
                    "gap_logit": 0.0,
                    "top_logit": 0.0,
                    "chi2_ratio": chi2 / max(freedom, 1),
                    "freedom_count": freedom,
                    "p_share": p,
                }
            )
    return pd.DataFrame(rows)


def _setting(temperature: float, top_k: int, top_p: float) -> str:
    parts = [f"temperature {temperature:g}"]
    parts += [f"top-k {top_k}"] if top_k else []
    parts += [f"top-p {top_p:g}"] if top_p < 1 else []
    return ", ".join(parts)


def chi_square(ids: Sequence[int], targets: np.ndarray) -> tuple[float, int, float]:
    """(chi-square, degrees of freedom, p) of a walk's transitions against the rows of `targets`.

    Cells that expect fewer than five are put together, row by row. (0, 0, 0.0) where a forbidden transition occurs.
    """
    ids = np.asarray(ids)
    counts = np.zeros(targets.shape)
    np.add.at(counts, (ids[:-1], ids[1:]), 1)
    if counts[targets == 0].any():
        return 0.0, 0, 0.0
    chi2, freedom = 0.0, 0
    for seen, p in zip(counts, targets, strict=True):
        expected = seen.sum() * p
        few = expected < 5
        cells = [(s, e) for s, e in zip(seen[~few], expected[~few], strict=True)]
        cells += [(seen[few].sum(), expected[few].sum())] if expected[few].sum() >= 5 else []
        if len(cells) > 1:
            if expected[few].sum() < 5:  # what is left over goes to the smallest cell
                small = min(range(len(cells)), key=lambda i: cells[i][1])
                cells[small] = (cells[small][0] + seen[few].sum(), cells[small][1] + expected[few].sum())
            chi2 += sum((s - e) ** 2 / e for s, e in cells)
            freedom += len(cells) - 1
    p = float(torch.special.gammaincc(torch.tensor(freedom / 2).double(), torch.tensor(chi2 / 2).double()))
    return float(chi2), freedom, p


def check_drafted(table: pd.DataFrame, conforming: Collection[str]) -> None:
    """Raise AssertionError where drafting was silently off.

    conforming: workloads whose texts should conform to their grammar; a text does where the bound that it sets says so.
    There every mixture must have proposed something under the right grammar, text by text, and something must have
    been accepted in each workload; random tokens must have been proposed everywhere.
    """
    rows = table[table["question"] == "identity"]
    conforms = rows["subject"].isin(conforming) & (rows["bound_ratio"] > FORCES) & (rows["case"] == "right")
    for _, row in rows[conforms].iterrows():
        if not row["proposed_count"]:
            raise AssertionError(
                f"{row['subject']} {row['prompt']}, {row['arm']}: nothing was proposed; is drafting on?"
            )
    for (subject, arm), group in rows[conforms].groupby(["subject", "arm"]):
        if not group["accepted_count"].sum():
            raise AssertionError(f"{subject}, {arm}: nothing was accepted; is drafting on?")
    for _, row in rows[rows["case"] == "random tokens"].iterrows():
        if not row["random_proposed_count"]:
            raise AssertionError(f"{row['subject']} {row['prompt']}, {row['arm']}: no random token was proposed")
    scripted = table[(table["question"] == "distribution") & ~table["accepted_count"].astype(bool)]
    if len(scripted):
        raise AssertionError(f"distribution, {scripted.iloc[0]['arm']}: no draft was accepted")
