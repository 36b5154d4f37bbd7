"""The routing of real texts, recorded: what `routing` computes on, and its tables.

Two recordings are made of each text. One reads the whole text once, so every token's routing is known, whoever would
have drafted it. The other keeps the forwards of a run as the store saw them, which is what a policy can be replayed on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gdlib.bench import routing
from gdlib.bench.drafting import Workload, forced_tokens
from gdlib.bench.routing import Forward, Shape, Text
from gdlib.decoding import Generation
from gdlib.decoding.generate import generate
from gdlib.tokens.vocabulary import Vocabulary

# The routing of GLM-5.2 as colibri serves it: 75 layers of 256 experts, 8 a token, 19 MB each.
LARGE = Shape(layers=75, experts=256, top_k=8, expert_bytes=19e6)
RECORDED, LARGE_SAME, LARGE_APART = "as recorded", f"large, {routing.SAME}", f"large, {routing.APART}"
ARMS = {
    "plain": (),
    "grammar + branches": ("grammar", "branches"),
    "all sources": ("grammar", "ngram", "mtp", "branches"),
}


def record_run(
    model, vocab: Vocabulary, ids: Sequence[int], workload: Workload, drafts: Sequence, limit: int, **options
) -> tuple[Generation, list[Forward], np.ndarray]:
    """(what was written, its forwards, int[forwards] of experts read in each) behind an empty store.

    model: a CausalModel with a store. The prompt's forward is the first of them. options: of `generate`.
    """
    forwards, loads = [], []

    def note(log, sources: list[str], kept: list[bool]) -> None:
        forwards.append(Forward(np.stack(log.selected), list(sources), list(kept)))
        loads.append(log.loads)

    forget_prompt(model, ids)
    model.store.clear()
    options = {"gate": "bytes", "grammar": workload.grammar, **options}
    model.byte_costs = None
    run = generate(model, ids, vocab, drafts=drafts, max_tokens=limit, on_forward=note, **options)
    return run, forwards, np.array(loads, int)


def forget_prompt(model, ids: Sequence[int]) -> None:
    """Make the model read this prompt anew: a kept one takes no forward, and its routing would not be seen."""
    model.reset()
    model(ids[:1])
    model.reset()


def read_text(
    model, vocab: Vocabulary, name: str, prompt_ids: Sequence[int], ids: Sequence[int], workload: Workload
) -> Text:
    """The routing of a text that stands behind its prompt, read in one forward."""
    forget_prompt(model, prompt_ids)
    model([*prompt_ids, *ids])
    selected = np.stack(model.store.last.selected)[:, len(prompt_ids) :]
    return Text(name, selected, np.array(forced_tokens(ids, workload.grammar, vocab, prompt_ids), bool))


def premise(
    model,
    tokenizer,
    vocab: Vocabulary,
    workloads: Sequence[Workload],
    widths: Sequence[int],
    prompts: int,
    max_tokens: int,
    draft_cap: int,
    seed: int = 0,
) -> pd.DataFrame:
    """Distinct experts of k rows: of texts by the kind of token, and of verified forwards by source.

    model: a CausalModel with a store. prompts: the first so many of each workload, 0 for all. One row a workload,
    prompt, kind and k, with the columns of `routing.premise` (text is `prompt`), and `where`: "text" or "forward".
    """
    experts, rows = model.store.experts, []
    for workload in workloads:
        texts, runs = [], []
        for index in range(min(prompts, len(workload.prompts)) if prompts else len(workload.prompts)):
            ids, limit = workload.prompt_ids(tokenizer, index), max_tokens or workload.max_tokens
            plain = generate(model, ids, vocab, drafts=(), max_tokens=limit)
            texts.append(read_text(model, vocab, workload.ids[index], ids, plain.ids, workload))
            options = {"gate": "all", "draft_cap": draft_cap}  # every row, for there to be something to count
            runs.append(record_run(model, vocab, ids, workload, ARMS["all sources"], limit, **options)[1][1:])
        found = [{"where": "text", **row} for row in routing.premise(texts, widths, experts, seed)]
        shares = np.concatenate([routing.used(text.selected, experts) for text in texts], axis=1).mean(axis=1)
        for text, forwards in zip(texts, runs, strict=True):
            found += [{"where": "forward", **row} for row in routing.drafted(text.name, forwards, shares, experts)]
        rows += [{"workload": workload.name, "layers_count": len(texts[0].selected), **row} for row in found]
    return pd.DataFrame(rows).rename(columns={"text": "prompt"})


def capacity(
    model,
    tokenizer,
    vocab: Vocabulary,
    workloads: Sequence[Workload],
    arms: Sequence[str],
    slots: Sequence[int],
    policies: Sequence[str],
    large_slots: Sequence[int],
    prompts: int,
    max_tokens: int,
    draft_cap: int,
    seed: int = 0,
) -> pd.DataFrame:
    """Experts read by arm, policy and slots, replayed on the recorded forwards; as recorded, and at the large shape.

    model: a CausalModel with a store. Each text is replayed from an empty store, its prompt first, and what the
    prompt's forward reads is not counted. slots: of a layer, as recorded; large_slots: the same for the large shape
    (under lru and Belady). One row a workload, prompt, arm, shape, policy and slots: asked_count (distinct experts
    of forwards), loads_count, generated_tokens, forward_count; and one with the policy "store", what the store itself
    read with the slots that it has.
    """
    store, rows = model.store, []
    for workload in workloads:
        limit = max_tokens or workload.max_tokens
        recorded: dict[tuple[str, str], tuple[Generation, list[Forward]]] = {}
        for index in range(min(prompts, len(workload.prompts)) if prompts else len(workload.prompts)):
            ids = workload.prompt_ids(tokenizer, index)
            for arm in arms:
                run, forwards, loads = record_run(model, vocab, ids, workload, ARMS[arm], limit, draft_cap=draft_cap)
                recorded[workload.ids[index], arm] = run, forwards
                asked = sum(
                    len(batch) for layer in range(store.layers) for batch in routing.batches(forwards[1:], layer)
                )
                rows.append(
                    _row(workload, workload.ids[index], arm, RECORDED, "store", store_slots(store), asked, loads, run)
                )
        for (prompt, arm), (run, forwards) in recorded.items():
            others = [f for (p, a), (_, fs) in recorded.items() if a == arm and p != prompt for f in fs[1:]]
            for policy in policies:
                for count in slots:
                    asked, loads = routing.replay(forwards, count, policy, store.experts, others)
                    rows.append(_row(workload, prompt, arm, RECORDED, policy, count, asked[1:].sum(), loads, run))
            for shape, members in ((LARGE_SAME, routing.SAME), (LARGE_APART, routing.APART)) if large_slots else ():
                large = [
                    routing.enlarge(forward, store.experts, LARGE, members, seed + at)
                    for at, forward in enumerate(forwards)
                ]
                for policy in ("lru", "belady"):
                    for count in large_slots:
                        asked, loads = routing.replay(large, count, policy, LARGE.experts)
                        rows.append(_row(workload, prompt, arm, shape, policy, count, asked[1:].sum(), loads, run))
    return pd.DataFrame(rows)


def store_slots(store) -> int:
    """Slots of a layer, pinned experts apart."""
    return int(store.slots)


def _row(workload: Workload, prompt: str, arm: str, shape: str, policy: str, slots: int, asked, loads, run) -> dict:
    return {
        "workload": workload.name,
        "prompt": prompt,
        "arm": arm,
        "shape": shape,
        "policy": policy,
        "slots_count": int(slots),
        "asked_count": int(asked),
        "loads_count": int(loads[1:].sum()),
        "generated_tokens": run.report["tokens"],
        "forward_count": len(loads) - 1,
    }
