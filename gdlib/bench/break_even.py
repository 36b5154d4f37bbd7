"""From which acceptance on drafts pay where experts come from a disk: measured with drafts of a known acceptance.

A scripted source proposes what plain decoding wrote, each token spoilt with a set probability. So acceptance is a
setting and not an outcome, and rows, slots and gates can be tried at each.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import pandas as pd

from gdlib.bench import experts, routing, traces
from gdlib.bench.clock import quiet_gc
from gdlib.bench.drafting import Workload
from gdlib.decoding.generate import generate
from gdlib.drafts.gate import CLOCKED, Costs

FIXED, PLAIN = "every row", "plain"
PLAIN_RUNS = 3  # among the others of a prompt; their median time is plain's
GATES = {FIXED: "all", "colibri's guard": "colibri", "cost gate": "cost", "bytes gate": "bytes"}


class Spoilt:
    """A draft source that knows the text: `rows` tokens of it, each another one with probability 1 - acceptance.

    gold: what plain decoding writes. others: ids that stand in for the spoilt ones, two or more. What is spoilt hangs
    on the place in the text and the seed alone.
    """

    name = "scripted"

    def __init__(self, gold: Sequence[int], acceptance: float, rows: int, others: Sequence[int], seed: int = 0):
        chance = random.Random(seed)
        others = sorted(set(others))
        self.path = [
            token if chance.random() < acceptance else chance.choice([t for t in others if t != token])
            for token in gold
        ]
        self.rows, self.place = rows, 0

    def begin(self, prompt_ids: Sequence[int]) -> None:
        self.place = 0

    def commit(self, ids: Sequence[int]) -> None:
        self.place += len(ids)

    def propose(self, ahead: Sequence[int], room: int) -> list[Sequence[int]]:
        place = self.place + len(ahead)
        path = self.path[place : place + min(room, self.rows - len(ahead))]
        return [path] if path else []


@quiet_gc()
def surface(
    model,
    tokenizer,
    vocab,
    workloads: Sequence[Workload],
    slots: int,
    acceptance: Sequence[float],
    rows: Sequence[int],
    gates: Sequence[str] = tuple(GATES),
    *,
    prompts: int = 0,
    max_tokens: int = 0,
    seed: int = 0,
) -> pd.DataFrame:
    """One row a workload, prompt, acceptance, gate and number of rows a forward (the root's among them).

    model: a CausalModel with a store of so many slots a layer, warm: each run finds what plain decoding of another
    prompt left. Under FIXED every forward has the rows; the other gates choose, up to the most of `rows`. Columns:
    acceptance_share as it was set, and what `experts.counted` counts, of the plain run as plain_*; expert_bytes;
    identical to plain; model_ratio and model_share: what `routing` expects of bytes for a token over plain, and of the
    acceptance at which it is 1, from the text's own routing.

    Raises ValueError for a gate there is not, an acceptance outside 0 to 1, or fewer than two rows.
    """
    unknown = [gate for gate in gates if gate not in GATES]
    if unknown or not all(0 <= a <= 1 for a in acceptance) or min(rows, default=0) < 2:
        raise ValueError(
            f"gates {list(gates)}, acceptance {list(acceptance)}, rows {list(rows)}: want gates of {', '.join(GATES)}, "
            "acceptances from 0 to 1 and two or more rows"
        )
    out = []
    for workload in workloads:
        limit = max_tokens or workload.max_tokens
        for index in range(min(prompts, len(workload.prompts)) if prompts else len(workload.prompts)):
            ids = workload.prompt_ids(tokenizer, index)
            start = _start(
                model, vocab, workload.prompt_ids(tokenizer, (index + 1) % len(workload.prompts)), ids, limit
            )
            plain = _run(model, vocab, start, ids, (), limit)
            text = traces.read_text(model, vocab, workload.ids[index], ids, plain.ids, workload)
            use = routing.used(text.selected, model.store.experts)
            model.reset()
            model(ids)  # kept from here on
            plan = [(a, FIXED, k) for a in acceptance for k in rows if FIXED in gates]
            plan += [(a, gate, max(rows)) for a in acceptance for gate in gates if gate != FIXED]
            plan += [(1.0, PLAIN, 1)] * PLAIN_RUNS
            random.Random(f"{seed}/{workload.name}/{index}").shuffle(plan)
            times = []
            here = len(out)
            for a, gate, k in plan:
                if gate == PLAIN:
                    times.append(_run(model, vocab, start, ids, (), limit).report["seconds"])
                    continue
                source = Spoilt(plain.ids, a, k - 1, ids, seed=seed + index)
                drafted = _run(model, vocab, start, ids, (source,), limit, gate=GATES[gate], draft_cap=k - 1)
                given, shared = drafted.report["sources"]["scripted"], routing.sharing(use, k)
                shares = use.mean(axis=1)
                out.append(
                    {
                        "workload": workload.name,
                        "prompt": workload.ids[index],
                        "acceptance_share": float(a),
                        "gate": gate,
                        "clocked": GATES[gate] in CLOCKED,
                        "rows_count": int(k),
                        "slots_count": int(slots),
                        "expert_bytes": int(model.store.expert_bytes),
                        "accepted_count": given["accepted"],
                        **_counted(drafted, ""),
                        **_counted(plain, "plain_"),
                        "identical": drafted.ids == plain.ids,
                        "model_ratio": routing.relative_bytes(shares, slots, k, a, shared),
                        "model_share": routing.break_even(shares, slots, k, shared),
                    }
                )
            for row in out[here:]:
                row["plain_elapsed_s"] = statistics.median(times)
    return pd.DataFrame(out)


def _start(model, vocab, before: Sequence[int], ids: Sequence[int], limit: int) -> tuple:
    """(what the store holds after another text, costs of a forward behind this prompt): where each run begins."""
    generate(model, before, vocab, drafts=(), max_tokens=limit)
    left = model.store.snapshot()
    model.reset()
    model(ids)
    return left, Costs.measure(model)


def _run(model, vocab, start: tuple, ids: Sequence[int], drafts: tuple, limit: int, **options):
    left, costs = start
    model.store.restore(left)
    model.costs, model.byte_costs = Costs(costs.widths.tolist(), costs.seconds.tolist()), None
    return generate(model, ids, vocab, drafts=drafts, max_tokens=limit, linear=True, **options)


def _counted(run, prefix: str) -> dict:
    counted = experts.counted(run)
    names = (
        "generated_tokens",
        "forward_count",
        "draft_rows",
        "distinct_count",
        "loads_count",
        "miss_bytes",
        "elapsed_s",
    )
    return {prefix + name: counted[name] for name in names}
