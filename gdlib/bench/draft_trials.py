"""The sweeps of the chapter on drafts: what `drafting.compare` measures, as tables that record and book understand.

Beside the arms of `drafting` there are the same sources under each cap on rows, and the grammar source as it was first
published, which cuts a forced span into tokens without looking at the text before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pandas as pd

from gdlib.bench import drafting
from gdlib.bench.drafting import ARMS, Workload, clocked, compare
from gdlib.bench.told import note_experts, tell
from gdlib.decoding.generate import generate
from gdlib.drafts import SOURCES
from gdlib.drafts.gate import Costs
from gdlib.drafts.grammar import GrammarSource
from gdlib.drafts.walker import OUTSIDE, SPAN_TOKENS
from gdlib.tokens.vocabulary import Vocabulary

ALL = "all sources"
ALONE = "grammar, spans cut alone"
CONFORMING = ("ndjson", "ndjson-spaced-tolerant", "calls", "nested", "long-text")  # texts that their grammar knows
FORCES = 1.2  # the bound of a text from which on its grammar must have proposed something


class AloneSource(GrammarSource):
    """The forced bytes up to where the text may end, encoded by themselves and sent whole (colibri, issue #48)."""

    def propose(self, ahead: Sequence[int], room: int) -> list[Sequence[int]]:
        walker = self.walker
        state, _ = walker.after(ahead)
        if state == OUTSIDE or room <= 0:
            return []
        text, _ = walker.tried(lambda: walker.recognizer.forced(state, 4 * SPAN_TOKENS), (b"", 0))
        path = walker.vocab.encode(text.decode(errors="ignore"))[:room] if walker.vocab.encode else []
        return [path] if path else []


TRACED = (ALL, ALONE)
EXTRA: dict[str, dict] = {ALONE: {"drafts": (AloneSource,), "linear": True, "gate": "all"}}


def at_cap(rows: int) -> str:
    """The name of the arm that has all sources under this cap."""
    return f"{ALL}, at most {rows}"


def trials(
    model,
    tokenizer,
    vocab: Vocabulary,
    workloads: Sequence[str],
    arms: Sequence[str],
    more_on: Sequence[str],
    more_arms: Sequence[str],
    draft_cap: Sequence[int],
    temperature: Sequence[float],
    prompts: int,
    rounds: int,
    max_tokens: int,
    seed: int,
    dtype: str,
    traced: bool = False,
) -> pd.DataFrame:
    """One row a workload, prompt, round, arm, cap and temperature.

    more_on: workloads that run `more_arms` as well. draft_cap: caps on drafted rows; with several, `all sources` runs
    under each of them beside one plain run, and all other arms under the first. traced: the first text of each
    `more_on` workload is decoded once more, untimed, with those of TRACED that ran, and told token by token in `trace`.

    Units: draft_rows (verified), elapsed_s and of it drafting_s (growing trees), bound_ratio and structural_share (of
    plain's text), same_tokens (before the first difference), gap_logit (plain's two best logits there; 0 where nothing
    differs), proposed and accepted by source. costs: JSON, {rows: ms} of a forward as measured for the gate, on the
    first row.
    Raises AssertionError where a drafted arm drafted nothing on a text that conforms: drafting was off.
    """
    caps = {at_cap(rows): rows for rows in draft_cap} if len(draft_cap) > 1 else {}
    extra = EXTRA | {name: {**ARMS[ALL], "draft_cap": rows} for name, rows in caps.items()}
    costs = _measure(model, tokenizer, workloads[0])
    tables = []
    groups: dict[tuple, list[Workload]] = {}  # workloads of the same arms share a warm-up
    for workload in drafting.workloads(workloads):
        names = [*arms, *(more_arms if workload.name in more_on else ()), *caps]
        names = [name for name in names if not (caps and name == ALL)]
        groups.setdefault(tuple(names), []).append(workload)
    for names, chosen in groups.items():
        for heat in temperature:
            found = compare(
                model,
                tokenizer,
                vocab,
                chosen,
                names,
                prompts=prompts,
                rounds=rounds,
                max_tokens=max_tokens,
                seed=seed,
                draft_cap=draft_cap[0],
                temperature=heat,
                extra=extra,
            )
            tables.append(_tidy(found, heat, draft_cap[0], caps, dtype, extra))
    table = pd.concat(tables, ignore_index=True)
    order = {name: place for place, name in enumerate(drafting.FILES)}
    table = table.sort_values("workload", key=lambda names: names.map(order), kind="stable", ignore_index=True)
    _trace(table, model, tokenizer, vocab, more_on if traced else (), max_tokens)
    table["costs"] = ""
    table.loc[0, "costs"] = costs
    check_drafted(table, extra)
    return table


def _measure(model, tokenizer, name: str) -> str:
    """Costs by width behind the first prompt of a workload, as JSON; the gates begin with them."""
    model.reset()
    model(drafting.workloads([name])[0].prompt_ids(tokenizer, 0))
    model.costs = Costs.measure(model)
    widths, seconds = model.costs.widths.tolist(), model.costs.seconds.tolist()
    return json.dumps({int(rows): 1000 * s for rows, s in zip(widths, seconds, strict=True)})


def _tidy(
    found: pd.DataFrame, heat: float, cap: int, caps: Mapping[str, int], dtype: str, extra: Mapping[str, dict]
) -> pd.DataFrame:
    options = {**ARMS, **extra}
    counts = {}
    for source in SOURCES:
        for what in ("proposed", "accepted"):
            counts[f"{source}_{what}_count"] = found[f"{what}_{source}"]
    return pd.DataFrame(
        {
            "workload": found["workload"],
            "prompt": found["prompt"],
            "trial": found["round"],
            "arm": found["arm"].where(~found["arm"].isin(caps), ALL),
            "draft_cap": found["arm"].map(caps).fillna(cap).astype(int),
            "temperature": float(heat),
            "dtype": dtype,
            "order_index": found["order"],
            "generated_tokens": found["tokens"],
            "forward_count": found["forwards"],
            "draft_rows": found["rows"],
            "elapsed_s": found["seconds"],
            "drafting_s": found["draft_seconds"],
            "stop": found["stop"],
            "clocked": [clocked(options.get(arm, {})) for arm in found["arm"]],
            "lossless": [drafting.base_of(arm) == "plain" for arm in found["arm"]],
            "identical": found["identical"],
            "same_tokens": found["first_difference"].where(found["first_difference"] >= 0, found["tokens"]),
            "gap_logit": found["gap"].fillna(0.0),
            "bound_ratio": found["bound"],
            "structural_share": found["structural"],
            **counts,
        }
    )


def _trace(table, model, tokenizer, vocab, more_on, max_tokens) -> None:
    """Fill the column `trace` of the texts that are told, as `told.tell` writes it; "" elsewhere."""
    table["trace"] = ""
    for workload in drafting.workloads(more_on):
        ids = workload.prompt_ids(tokenizer, 0)
        for arm in TRACED:
            here = (table["workload"] == workload.name) & (table["arm"] == arm) & (table["prompt"] == workload.ids[0])
            if not here.any():
                continue
            own = {**ARMS, **EXTRA}[arm]
            made = [d if isinstance(d, str) else d(workload.grammar, vocab) for d in own["drafts"]]
            experts: list[dict] = []
            options = {**own, "drafts": made, "grammar": workload.grammar, "on_forward": note_experts(experts)}
            limit = max_tokens or workload.max_tokens
            generation = generate(model, ids, vocab, max_tokens=limit, trace=True, **options)
            table.loc[here.idxmax(), "trace"] = tell(generation, vocab, ids, workload.grammar, experts)


def check_drafted(table: pd.DataFrame, extra: Mapping[str, dict] = EXTRA) -> None:
    """AssertionError where drafts were asked for and silently off, or a plain arm drafted.

    A text that conforms to its grammar has forced spans (its bound says how many), so an arm with the grammar source
    must have verified rows of them, text by text. The other sources may find nothing worth a row.
    """
    options = {**ARMS, **extra}
    for row in table.itertuples():
        drafts = options.get(row.arm, {}).get("drafts", ())
        if not drafts and row.arm in ARMS and row.draft_rows:
            raise AssertionError(
                f"{row.workload} {row.prompt}, {row.arm}: a plain arm verified {row.draft_rows} drafts"
            )
        conforms = row.workload in CONFORMING and row.bound_ratio > FORCES
        if (
            conforms
            and {"grammar", AloneSource} & set(drafts)
            and not (row.draft_rows and row.forward_count < row.generated_tokens)
        ):
            raise AssertionError(
                f"{row.workload} {row.prompt}, {row.arm}: {row.draft_rows} drafts in {row.forward_count} forwards for "
                f"{row.generated_tokens} tokens of a text that conforms; is drafting on?"
            )
