"""What drafts are worth where the experts are on a disk: one table row a prompt, state of the store and arm.

All arms run in one process on one store, with the same slots and pins, in an order drawn for each prompt. Before each
run the store is put into the same state: empty (cold), or with what plain decoding of another prompt of the workload
left in it (warm). The page cache is out of it where the file is read by O_DIRECT; `how` says whether it was.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import torch

from gdlib.bench.clock import quiet_gc
from gdlib.bench.draft_trials import CONFORMING, FORCES
from gdlib.bench.drafting import Workload, bound, clocked
from gdlib.bench.told import note_experts, tell
from gdlib.decoding import Generation
from gdlib.decoding.generate import generate
from gdlib.drafts import SOURCES
from gdlib.drafts.gate import Costs
from gdlib.tokens.vocabulary import Vocabulary

PLAIN, AGAIN, ALL = "plain", "plain again", "all sources"
EVERY_ROW = "all sources, every row"
FRAME = "grammar + branches"
COLD, WARM, IN_MEMORY = "cold", "warm", "in memory"
_ALL = ("grammar", "ngram", "mtp", "branches")
# arm -> options of `generate`; the gate counts bytes where none is named
ARMS: dict[str, dict] = {
    PLAIN: {"drafts": ()},
    AGAIN: {"drafts": ()},  # the A/A control: the same code under another name
    "grammar": {"drafts": ("grammar",)},
    "mtp": {"drafts": ("mtp",)},
    "ngram": {"drafts": ("ngram",)},
    "grammar + mtp": {"drafts": ("grammar", "mtp")},
    "grammar + ngram": {"drafts": ("grammar", "ngram")},
    "mtp + ngram": {"drafts": ("ngram", "mtp")},
    "grammar + mtp + ngram": {"drafts": ("grammar", "ngram", "mtp")},
    FRAME: {"drafts": ("grammar", "branches")},
    ALL: {"drafts": _ALL},
    "all sources, cost gate": {"drafts": _ALL, "gate": "cost"},
    "all sources, colibri's guard": {"drafts": _ALL, "gate": "colibri"},
    EVERY_ROW: {"drafts": _ALL, "gate": "all"},
    "colibri": {"drafts": ("grammar", "mtp", "ngram"), "linear": True, "gate": "colibri"},
}
RESIDENT, ROOMY = "resident", "every expert in a slot"
# arm -> (which model, options): what the store itself costs once nothing is read any more
MEMORY_ARMS: dict[str, tuple[str, dict]] = {
    RESIDENT: (RESIDENT, {"drafts": ()}),
    "resident again": (RESIDENT, {"drafts": ()}),
    ROOMY: (ROOMY, {"drafts": ()}),
    f"{RESIDENT}, all sources": (RESIDENT, {"drafts": _ALL, "gate": "cost"}),
    f"{ROOMY}, all sources": (ROOMY, {"drafts": _ALL, "gate": "cost"}),
}
EVERY_ARM = (*ARMS, *MEMORY_ARMS)
TRACED = ((COLD, ALL), (WARM, ALL), (COLD, EVERY_ROW))  # what is told token by token, of those that ran


@dataclass(frozen=True)
class Models:
    """The same model three times: experts on disk; all in memory as transformers has them; a slot for every expert."""

    streamed: object
    resident: object
    roomy: object
    tokenizer: object
    vocab: Vocabulary


def load(name: str, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32, **store) -> Models:
    """The models of this name. store: what `streamed_model` takes of the store and its disk.

    What `gdlib.models.moe.stream` and `gdlib.models.hf.load` raise.
    """
    from gdlib.models import hf, moe

    resident, tokenizer = hf.load(name, device, dtype)
    streamed, _ = streamed_model(name, device=device, dtype=dtype, **store)
    roomy, _ = moe.stream(name, device=device, dtype=dtype)
    full = roomy.expert_store
    full.restore(replace(full.snapshot(), residents=[list(range(full.experts))] * full.layers))
    return Models(streamed, wrapped(resident), wrapped(roomy), tokenizer, Vocabulary.from_hf(tokenizer))


def streamed_model(
    name: str,
    slots: int,
    pin_bytes: int = 0,
    policy: str = "lru",
    disk_gb_per_s: float = 0.0,
    disk_latency_ms: float = 0.0,
    queue_depth: int = 4,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
):
    """(CausalModel, tokenizer) of a model whose experts are on disk.

    slots: of a layer. disk_gb_per_s: of the emulated disk (10^9 bytes), 0 for the real one.
    """
    from gdlib.models import moe
    from gdlib.models.slow_disk import Disk

    disk = Disk(disk_gb_per_s * 1e9, disk_latency_ms / 1000, queue_depth) if disk_gb_per_s else None
    model, tokenizer = moe.stream(
        name, slots=slots, pin_bytes=pin_bytes, policy=policy, disk=disk, device=device, dtype=dtype
    )
    return wrapped(model), tokenizer


def wrapped(model):
    """A CausalModel, with its multi-token head where the model has one."""
    from gdlib.models.mtp import causal

    return causal(model)


def device_bytes() -> int:
    """Bytes that this process has had read from a block device; 0 where the kernel does not say."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


@quiet_gc()
def compare(
    models: Models,
    workloads: Sequence[Workload],
    arms: Sequence[str] = EVERY_ARM,
    states: Sequence[str] = (COLD, WARM),
    *,
    more_on: Sequence[str] = (),
    more_arms: Sequence[str] = (),
    prompts: int = 0,
    rounds: int = 1,
    max_tokens: int = 0,
    gate: str = "bytes",
    draft_cap: int = 24,
    seed: int = 0,
    traced: bool = False,
) -> pd.DataFrame:
    """One row a workload, prompt, round, state and arm; plain is always among the arms. Raises ValueError for an arm
    or a state that there is not.

    more_on: workloads that run `more_arms` as well. prompts: the first so many of each workload, 0 for all;
    max_tokens: instead of the workload's own, 0 for those; gate: of arms that name none. traced: the first text of each
    `more_on` workload is decoded once more, from the same state, with those of TRACED that ran, and told token by token
    in `trace` (see `told.tell`; "" elsewhere), with the experts of each forward.
    Units: counts of experts are those of decoding, without the prompt's forward:
    selections (asked for by rows), distinct (once a layer and forward), hits by tier, loads, miss_bytes; rejected_bytes
    (read for refused rows alone); read_s (forwards waited for the disk) of elapsed_s; device_bytes (what the kernel
    says was read from the device). identical: to plain's text in the same state; resident_identical: to that of the
    model with all experts in memory. A first short run of every arm, in no row, loads what is compiled.
    """
    _check([*arms, *more_arms], states)
    rows, costs, warmed = [], {}, set()
    for workload in workloads:
        names = list(dict.fromkeys([PLAIN, *arms, *(more_arms if workload.name in more_on else ())]))
        limit = max_tokens or workload.max_tokens
        count = min(prompts, len(workload.prompts)) if prompts else len(workload.prompts)
        for index in range(count):
            ids = workload.prompt_ids(models.tokenizer, index)
            before = workload.prompt_ids(models.tokenizer, (index + 1) % len(workload.prompts))
            left = {COLD: None, WARM: _left_by(models, before, limit)}
            costs = costs or {which: _costs(model, ids) for which, model in _by_name(models).items()}
            for arm in [name for name in names if name not in warmed]:
                _run(models, costs, workload, ids, arm, None, min(limit, 4), gate, draft_cap)
                warmed.add(arm)
            resident = _plain(models.resident, models.vocab, ids, limit)
            for turn in range(rounds):
                plan = [(state, arm) for state in states for arm in names if arm in ARMS]
                plan += [(IN_MEMORY, arm) for arm in names if arm in MEMORY_ARMS]
                order = plan.copy()
                random.Random(f"{seed}/{workload.name}/{index}/{turn}").shuffle(order)
                done = {}
                for state, arm in order:
                    done[state, arm] = _run(models, costs, workload, ids, arm, left.get(state), limit, gate, draft_cap)
                plain = done[states[0], PLAIN][0].ids
                highest = bound(plain, workload.grammar, models.vocab, ids)
                told = {}
                if traced and not index and not turn and workload.name in more_on:
                    for state, arm in [one for one in TRACED if one in plan]:
                        run = (arm, left[state], limit, gate, draft_cap)
                        told[state, arm] = _told(models, costs, workload, ids, *run)
                for state, arm in plan:
                    run, device = done[state, arm]
                    base = done[state if state != IN_MEMORY else states[0], PLAIN][0]
                    rows.append(
                        {
                            "workload": workload.name,
                            "prompt": workload.ids[index],
                            "trial": turn,
                            "state": state,
                            "arm": arm,
                            "clocked": clocked(_own(arm)[1], gate),
                            "order_index": order.index((state, arm)),
                            **counted(run),
                            "device_bytes": device,
                            "experts_count": models.streamed.store.experts,
                            "top_k_count": models.streamed.store.top_k,
                            "how": models.streamed.store.file.how,
                            "identical": run.ids == base.ids,
                            "resident_identical": run.ids == resident.ids,
                            "bound_ratio": highest,
                            "trace": told.get((state, arm), ""),
                        }
                    )
    table = pd.DataFrame(rows)
    check_drafted(table)
    return table


def _check(arms: Sequence[str], states: Sequence[str]) -> None:
    for kind, given, there in (("arm", arms, EVERY_ARM), ("state", states, (COLD, WARM))):
        unknown = [name for name in given if name not in there]
        if unknown or not given:
            raise ValueError(
                f"{kind} {unknown[0]!r}: there is {', '.join(there)}" if unknown else f"no {kind} is named"
            )


def _by_name(models: Models) -> Mapping[str, object]:
    return {"": models.streamed, RESIDENT: models.resident, ROOMY: models.roomy}


def _plain(model, vocab: Vocabulary, ids: Sequence[int], limit: int) -> Generation:
    return generate(model, ids, vocab, drafts=(), max_tokens=limit)


def _left_by(models: Models, ids: Sequence[int], limit: int):
    """What the store holds once a text behind this prompt was decoded plainly."""
    _plain(models.streamed, models.vocab, ids, limit)
    return models.streamed.store.snapshot()


def _costs(model, ids: Sequence[int]) -> tuple[list[float], list[float]]:
    """(widths, seconds) of a forward behind this prompt: where every run's cost gate begins."""
    model.reset()
    model(ids)
    found = Costs.measure(model)
    return found.widths.tolist(), found.seconds.tolist()


def _own(arm: str) -> tuple[str, dict]:
    """(which model, options) of an arm."""
    return MEMORY_ARMS.get(arm) or ("", ARMS[arm])


def _run(models: Models, costs, workload: Workload, ids, arm: str, left, limit: int, gate: str, draft_cap: int, **more):
    """(Generation, bytes read from the device). left: a snapshot of the store, None for an empty one; more: options."""
    which, own = _own(arm)
    model = _by_name(models)[which]
    model.reset()
    model(ids)  # read once, before the clock
    model.costs, model.byte_costs = Costs(*costs[which]), None  # no run learns from another
    if model is models.streamed and left is None:
        model.store.clear()
    elif model is models.streamed:
        model.store.restore(left)
    options = {"gate": gate, "draft_cap": draft_cap, **own, "grammar": workload.grammar, "max_tokens": limit, **more}
    before = device_bytes()
    run = generate(model, ids, models.vocab, **options)
    return run, device_bytes() - before


def _told(models: Models, costs, workload: Workload, ids, *run) -> str:
    """The same run once more, untimed, as JSON for the trace explorer, with the experts of each forward."""
    experts: list[dict] = []
    generation, _ = _run(models, costs, workload, ids, *run, trace=True, on_forward=note_experts(experts))
    return tell(generation, models.vocab, ids, workload.grammar, experts)


def counted(run: Generation) -> dict:
    report = run.report
    use = report.get("experts") or _NONE
    counts = report["sources"]
    return {
        "generated_tokens": report["tokens"],
        "forward_count": report["forwards"],
        "draft_rows": report["rows"],
        "selections_count": use["selections"],
        "distinct_count": use["distinct"],
        "pinned_hits_count": use["hits"]["pinned"],
        "slot_hits_count": use["hits"]["slots"],
        "loads_count": use["loads"],
        "miss_bytes": use["miss_bytes"],
        "rejected_bytes": use["rejected_bytes"],
        "read_s": float(use["read_seconds"]),
        "elapsed_s": report["seconds"],
        "drafting_s": report["draft_seconds"],
        **{
            f"{source}_{what}_count": counts.get(source, {}).get(what, 0)
            for source in SOURCES
            for what in ("proposed", "accepted")
        },
    }


_NONE = {
    "selections": 0,
    "distinct": 0,
    "hits": {"pinned": 0, "slots": 0},
    "loads": 0,
    "miss_bytes": 0,
    "rejected_bytes": 0,
    "read_seconds": 0.0,
}


def check_drafted(table: pd.DataFrame) -> None:
    """AssertionError where an arm measures something else than its name says.

    Plain arms draft nothing; an arm with the grammar source drafts on a text that conforms to its grammar, where it
    forces anything, and takes fewer forwards than tokens; what has every expert in a slot reads nothing.
    """
    for row in table.itertuples():
        _, own = _own(row.arm)
        said = f"{row.workload} {row.prompt}, {row.state}, {row.arm}: {row.draft_rows} drafted rows"
        if not own["drafts"] and row.draft_rows:
            raise AssertionError(f"{said} in a plain arm")
        conforms = row.workload in CONFORMING and row.bound_ratio > FORCES
        on = row.draft_rows and row.forward_count < row.generated_tokens
        if conforms and "grammar" in own["drafts"] and row.state != IN_MEMORY and not on:
            raise AssertionError(f"{said} on a text that conforms, {row.forward_count} forwards; is drafting on?")
        if row.state == IN_MEMORY and row.loads_count:
            raise AssertionError(f"{said}, and {row.loads_count} experts read where all are in memory")
