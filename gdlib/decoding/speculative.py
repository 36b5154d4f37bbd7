"""Speculative decoding: many drafted tokens in one forward, and the text that plain decoding would write.

The walk down the tree of drafts is plain decoding itself: at each node the next token is chosen from the model's own
logits as if nothing had been drafted. Where a child of the node has that very token, its row is there already and the
walk goes on without another forward; where none has, the token is still right, and the next forward begins behind it.

This is the usual scheme for point-mass drafts. A child x of a node is taken with probability p(x). A later sibling y is
taken with p(y) = (1 - p(x)) * p(y) / (1 - p(x)): rejection of x, then y from p with x removed and renormalised; and so
on over all siblings, without replacement, down to the token that is none of them (Leviathan et al. 2023 for one draft,
Miao et al. 2024 for trees). One draw from p does all of it, with the random numbers that plain decoding would use.

So in exact arithmetic the output is plain decoding's, seed for seed. A forward over k rows may round otherwise than
one over a single row, which can turn a near tie: expect identical ids in float32, and up to near ties in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import perf_counter

import torch

from gdlib.decoding import Generation, room
from gdlib.decoding.expert_use import PROMPT, TEXT, ExpertUse
from gdlib.decoding.guided import choose_legal
from gdlib.decoding.sampling import check_sampling, pick
from gdlib.drafts import MAX_DRAFT, DraftError, Source
from gdlib.drafts.gate import CostGate, Gate
from gdlib.drafts.grow import grow
from gdlib.drafts.tree import ROOT, Tree
from gdlib.tokens.matcher import Matcher


def speculative(
    model,
    prompt_ids: Sequence[int],
    sources: Sequence[Source],
    eos_ids: Collection[int],
    max_tokens: int,
    *,
    matcher: Matcher | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    gate: Gate | None = None,
    draft_cap: int = 24,
    linear: bool = False,
    on_tokens: Callable[[list[int]], None] | None = None,
    on_forward: Callable[[object, list[str], list[bool]], None] | None = None,
    trace: bool = False,
) -> Generation:
    """Generate until an eos, `max_tokens`, or the end of the model's context.

    model: a gdlib.models.hf.CausalModel, or one with its `verify` and `keep`; without sources any model will do.
    matcher: the text is made to conform, as by `guided` (reset first; afterwards it stands behind the text).
    gate: decides which drafts are worth their rows (default: a CostGate). draft_cap: rows of drafts a forward, 1 to 48.
    linear: one source a forward, without branches. on_tokens: called with the new ids of every forward. on_forward:
    where the model's experts are on disk, called behind every forward with the store's log of it and, for each of its
    rows, whose it is ("prompt", "text" for the row that plain decoding reads too, or a source) and whether it was kept.

    The report: tokens; forwards (the prompt's among them); tokens_per_forward; seconds, and draft_seconds of them for
    growing trees; tokens_per_s; rows (draft rows that were verified); accepted and bonus (tokens = accepted + bonus, a
    forward gives at most one bonus token, which nobody drafted); sources: name -> {proposed, accepted}, of rows that
    were verified and are not behind another source's refused row; stop; with a matcher also masked and forced, as
    `guided` counts them; where experts are on disk also experts, as `ExpertUse.report` tells. Measuring a CostGate's
    costs, once a model, and counting experts are not in seconds.

    Raises ValueError for a prompt that leaves no room or a parameter out of range, DraftError for a model that cannot
    verify drafts, and what `guided` and the model raise.
    """
    check_sampling(temperature, top_k, top_p)
    if not 1 <= draft_cap <= MAX_DRAFT:
        raise ValueError(f"draft_cap={draft_cap}: want 1 to {MAX_DRAFT} rows of drafts a forward")
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise DraftError(f"draft sources {names}: each name once, since counts and chances go by it")
    if sources and not hasattr(model, "verify"):
        raise DraftError(f"{type(model).__name__} cannot verify drafts (it has no `verify`); decode without sources")
    limit = room(model, prompt_ids, max_tokens)
    gate = CostGate() if gate is None else gate
    legal = {"masked": 0, "forced": 0} if matcher is not None else {}
    chooser = _chooser(matcher, legal, temperature, top_k, top_p, generator)
    out = Generation([], "length")
    ids, tree, forwards, bonus, drafted = out.ids, Tree(), 0, 0, 0
    counts = {source.name: {"proposed": 0, "accepted": 0} for source in sources}
    draft_seconds = 0.0
    store = getattr(model, "store", None)
    use, log = (None, None) if store is None else (ExpertUse(store), store.last)

    began = perf_counter()
    model.reset()
    if matcher is not None:
        matcher.reset()
    while len(ids) < limit:
        if not forwards:
            rows = model(prompt_ids)[None]
            if sources:
                start = perf_counter()
                gate.begin(model)
                began += perf_counter() - start
                for source in sources:
                    source.begin(prompt_ids)
        elif sources:
            start = perf_counter()
            left = limit - len(ids) - 1  # a draft of the last token would save nothing
            tree = gate.trim(grow(sources, gate, draft_cap, linear, left, getattr(model, "width", None)))
            ready = perf_counter()
            rows = model.verify(ids[-1], tree)
            gate.spent(1 + len(tree), perf_counter() - ready)
            if len(rows) == 1:  # the drafts broke the model, and it read the root alone
                tree = Tree()
            draft_seconds += ready - start
        else:
            rows = model((ids[-1],))[None]
        forwards += 1

        new, path = _walk(tree, chooser(rows), eos_ids, limit - len(ids))
        bonus += len(new) - len(path)
        if sources and forwards > 1:
            model.keep(path[: len(new) - 1])  # the text's last token is read by the next forward
            gate.learn(tree, frozenset(path))
            gate.saw(new)
            _count(counts, tree, path)
            drafted += len(tree)
        for source in sources:
            source.commit(new)
        if use is not None and store.last is not log:  # a kept prompt takes no forward
            start, log = perf_counter(), store.last
            rows_of = [PROMPT] * len(prompt_ids) if forwards == 1 else [TEXT, *tree.sources]
            kept = [True] * len(rows_of) if forwards == 1 else [True, *_is_kept(tree, path)]
            use.add(log, rows_of, kept)
            if on_forward:
                on_forward(log, rows_of, kept)
            began += perf_counter() - start
        if trace:
            _trace(out, tree, new, path, forwards)
        ids += new
        if on_tokens:
            on_tokens(list(new))
        if new[-1] in eos_ids:
            out.stop = "eos"
            break
    seconds = perf_counter() - began
    out.report = {
        "tokens": len(ids),
        "forwards": forwards,
        "tokens_per_forward": len(ids) / max(forwards, 1),
        "seconds": seconds,
        "draft_seconds": draft_seconds,
        "tokens_per_s": len(ids) / seconds,
        "rows": drafted,
        "accepted": len(ids) - bonus,
        "bonus": bonus,
        "sources": counts,
        "stop": out.stop,
        **legal,
        **({} if use is None else {"experts": use.report()}),
    }
    return out


def _is_kept(tree: Tree, path: list[int]) -> list[bool]:
    accepted = set(path)
    return [node in accepted for node in range(len(tree))]


def _walk(
    tree: Tree, choose: Callable[[int], int], eos_ids: Collection[int], limit: int
) -> tuple[list[int], list[int]]:
    """(the tokens that a forward gives, at most `limit`; the nodes among them): plain decoding, down the tree.

    choose: index of a row of logits -> the token behind it.
    """
    new, path, node = [], [], ROOT
    while True:
        token = choose(node + 1)
        new.append(token)
        node = tree.child(node, token)
        if node < 0:
            return new, path
        path.append(node)
        if token in eos_ids or len(new) == limit:
            return new, path


def _chooser(
    matcher: Matcher | None,
    counts: dict[str, int],
    temperature: float,
    top_k: int,
    top_p: float,
    generator: torch.Generator | None,
) -> Callable[[torch.Tensor], Callable[[int], int]]:
    """From the logits of a forward, float[rows, V], to the choice of a token by its row; each row at most once."""
    if matcher is None and temperature == 0:
        return lambda rows: rows.argmax(-1).tolist().__getitem__

    def draw(logits: torch.Tensor) -> int:
        return pick(logits, temperature, generator, top_k, top_p)

    if matcher is None:
        return lambda rows: lambda index: draw(rows[index])
    mask_first = temperature > 0 and (top_k > 0 or top_p < 1)
    return lambda rows: lambda index: choose_legal(rows[index], matcher, draw, counts, mask_first=mask_first)


def _count(counts: dict[str, dict[str, int]], tree: Tree, path: list[int]) -> None:
    accepted, refused = set(path), {}  # node -> the source of the row that was refused on the way to it
    for node, (parent, source) in enumerate(zip(tree.parents, tree.sources, strict=True)):
        if node not in accepted:
            refused[node] = refused.get(parent, source)
        # a span behind another source's wrong guess had no chance, and says nothing of its own source
        if node in accepted or refused[node] == source:
            counts[source]["proposed"] += 1
            counts[source]["accepted"] += node in accepted


def _trace(out: Generation, tree: Tree, new: list[int], path: list[int], forward: int) -> None:
    """Note who each new token is from, and the rows that were refused. `out.ids` is what was there before."""
    sources = [tree.sources[node] for node in path] + ["model"] * (len(new) - len(path))
    out.trace += [(token, source, forward) for token, source in zip(new, sources, strict=True)]
    refused = set(range(len(tree))) - set(path)
    begin = len(out.ids) - 1
    out.rejected += [(tree.tokens[n], tree.sources[n], forward, begin + tree.depths[n]) for n in sorted(refused)]
