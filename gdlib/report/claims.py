"""The claims of the report, each with its number, the runs behind it, what redoes it, and where it held.

A claim is a sentence with a place for a number, a function that finds the number in the runs of one machine, and a rule
that says whether the number bears the sentence out. The first page takes its numbers from here, and so does the page of
claims: a number cannot say one thing in the one and another in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from gdlib.bench import record
from gdlib.bench.record import Runs
from gdlib.bench.stats import Estimate, bootstrap, share
from gdlib.report import drafts, experts, masks, summary
from gdlib.report.page import NOT_RUN, percent

Numbers = Mapping[str, Runs]
GAIN = "drafts_gain"  # few arms on enough texts


@dataclass(frozen=True)
class Claim:
    """sentence: with {} for the number. of: the runs of one machine -> the number, None where an arm was not run.

    text: how the number is written in prose. holds: whether it bears the sentence out, None where that is no question
    (a price, for example, is what it is). least: cases below which a rule on the interval is not to be trusted.
    """

    name: str
    sentence: str
    sweeps: tuple[str, ...]
    of: Callable[[Numbers], Estimate | None]
    text: Callable[[Estimate], str]
    holds: Callable[[Estimate], bool] | None = None
    least: int = 1


# A median of five pairs has no 95% interval: that all five lie on one side of it has a chance of one in sixteen.
PAIRS = 6


def _ratio(digits: int) -> Callable[[Estimate], str]:
    return lambda found: drafts.text_of(found, digits)


def _share(digits: int) -> Callable[[Estimate], str]:
    return lambda found: percent(found.value, digits)


def _oracle(arm: str) -> Callable[[Numbers], Estimate]:
    return lambda runs: summary.slowdown(runs["oracle"].table, arm, summary.ORACLE_KEYS)


def _model(runs: Numbers) -> pd.DataFrame:
    return record.together(runs["model"], runs["example"]).table


def _added(arm: str) -> Callable[[Numbers], Estimate]:
    return lambda runs: summary.overhead_share(_model(runs), arm)


def _valid(arm: str) -> Callable[[Numbers], Estimate]:
    def of(runs: Numbers) -> Estimate:
        table = runs["model"].table
        return summary.valid(table[table["shots"] == 0], arm)

    return of


def _free_ms(runs: Numbers) -> Estimate:
    table = _model(runs)
    return summary.typical(table.assign(step_ms=table["step_us"] / 1000), "free", "step_ms")


def _build(runs: Numbers) -> Estimate:
    """The least and the most of the families stand where an interval has its ends."""
    table = _model(runs)
    ready = table[table["arm"] == "ours"].groupby("family")["build_ms"].median()
    return Estimate(float(ready.median()), float(ready.min()), float(ready.max()), len(ready))


def _drafted(workload: str) -> Callable[[Numbers], Estimate | None]:
    def of(runs: Numbers) -> Estimate | None:
        table = drafts.main_format(runs[GAIN].table)
        return drafts.speedup(table[table["workload"] == workload], drafts.ALL)

    return of


def _forward(runs: Numbers) -> Estimate | None:
    table = drafts.main_format(runs[GAIN].table)
    return drafts.per_forward(table[(table["workload"] == drafts.COMPACT) & (table["arm"] == drafts.ALL)])


def _accepted(runs: Numbers) -> Estimate | None:
    table = drafts.main_format(runs["drafts"].table)
    rows = table[(table["workload"] == drafts.COMPACT) & (table["arm"] == drafts.GRAMMAR)]
    proposed, accepted = (int(rows[f"grammar_{what}_count"].sum()) for what in ("proposed", "accepted"))
    return share([True] * accepted + [False] * (proposed - accepted)) if proposed else None


def _identical(runs: Numbers) -> Estimate | None:
    table = runs["drafts"].table
    rows = table[table["lossless"] & (table["arm"] != drafts.PLAIN) & (table["dtype"] == "float32")]
    return share(rows["identical"]) if len(rows) else None


def _faithful(runs: Numbers) -> Estimate | None:
    table = runs["lossless"].table
    rows = table[(table["arm"] != "sabotaged") & (table["dtype"] == "float32")]
    return share(rows["passed"]) if len(rows) else None


def _over_llguidance(runs: Numbers) -> Estimate | None:
    table = runs["masks"].table
    largest = table.loc[table["vocabulary_tokens"].idxmax(), "vocabulary"]
    return masks.over(table[table["vocabulary"] == largest], "llguidance", "tbm_mean_us")


def _mask_us(runs: Numbers) -> Estimate | None:
    table = runs["masks"].table
    largest = table.loc[table["vocabulary_tokens"].idxmax(), "vocabulary"]
    rows = masks.right(table[table["vocabulary"] == largest], "gdlib")
    return bootstrap(rows["tbm_mean_us"]) if len(rows) else None


def _loose(runs: Numbers) -> Estimate | None:
    table = runs["coverage"].table
    rows = table[table["arm"] == "gdlib"]
    return share(rows["verdict"].isin(["too loose", "both"])) if len(rows) else None


def _by_text(rows: pd.DataFrame) -> pd.DataFrame:
    """All rounds of a text as one: a text read again is no second case, and its bytes are the same ones."""
    keys = ["workload", "prompt", "state", "disk_gb_per_s", "pin_mb", "arm"]
    counted = ["elapsed_s", "generated_tokens", "miss_bytes", "loads_count"]
    return rows.groupby([key for key in keys if key in rows], as_index=False)[counted].sum().assign(trial=0)


def _on_disk(measure: Callable[[pd.DataFrame, str], Estimate | None]) -> Callable[[Numbers], Estimate | None]:
    def of(runs: Numbers) -> Estimate | None:
        table = experts.main_disk(experts.named(runs["experts"].table))
        rows = table[(table["workload"] == experts.COMPACT) & (table["state"] == experts.WARM)]
        return measure(_by_text(rows), experts.ALL)

    return of


ON_DISK = (
    Claim(
        "disk_bytes",
        "With experts on disk, part of them in memory, drafts from all sources read {} of the bytes a token on "
        "compact NDJSON: less than plain decoding.",
        ("experts",), _on_disk(experts.bytes_ratio), _ratio(2), lambda found: found.high < 1, PAIRS,
    ),
    Claim(
        "disk_faster",
        "There they run at {} times the speed of plain decoding: faster.",
        ("experts",), _on_disk(experts.speedup), _ratio(2), lambda found: found.low > 1, PAIRS,
    ),
)  # fmt: skip

CLAIMS = (
    Claim(
        "dense",
        "Where the model costs nothing, a cached mask added at every step makes a step {} times as long as free "
        "decoding: longer.",
        ("oracle",), _oracle("dense"), _ratio(2), lambda found: found.low > 1, PAIRS,
    ),
    Claim(
        "ours",
        "The same text can be had there at {} times a free step: no more than free decoding (1.05 or less).",
        ("oracle",), _oracle("ours"), _ratio(2), lambda found: found.high <= 1.05, PAIRS,
    ),
    Claim(
        "free_ms",
        "On the real model a free step takes {} ms.",
        ("model", "example"), _free_ms, lambda e: f"{e.value:.0f}",
    ),
    Claim(
        "dense_share",
        "On the real model a dense mask adds {} to a step: less than a twentieth.",
        ("model", "example"), _added("dense"), _share(3), lambda found: found.high < 0.05, PAIRS,
    ),
    Claim(
        "share",
        "On the real model guided decoding adds {} to a step: less than a hundredth.",
        ("model", "example"), _added("ours"), _share(3), lambda found: found.high < 0.01, PAIRS,
    ),
    Claim(
        "build",
        "Grammar and masks of a schema are ready after {} ms (median over families, the least and the most).",
        ("model", "example"), _build, lambda e: f"{e.low:,.0f} to {e.high:,.0f}",
    ),
    Claim(
        "free_valid",
        "Asked plainly for JSON, the model's free answers are valid in {} of the prompts.",
        ("model",), _valid("free"), _share(0),
    ),
    Claim(
        "ours_valid",
        "Guided, they are valid in {}: all of them.",
        ("model",), _valid("ours"), _share(0), lambda found: found.value == 1,
    ),
    Claim(
        "mask_us",
        "Over the largest vocabulary a mask and the taking of a token take gdlib {} (median over cases of their mean).",
        ("masks",), _mask_us, lambda e: f"{e.value:.1f} µs",
    ),
    Claim(
        "llguidance",
        "llguidance takes {} times as long for them, case by case: gdlib is the faster one.",
        ("masks",), _over_llguidance, _ratio(2), lambda found: found.low > 1, PAIRS,
    ),
    Claim(
        "loose",
        "Of the probes of what a schema may say, gdlib takes a text that it should not in {}: in none.",
        ("coverage",), _loose, _share(1), lambda found: found.value == 0,
    ),
    Claim(
        "faster",
        "With drafts from all sources the model writes compact NDJSON at {} times the speed of plain decoding: faster.",
        (GAIN,), _drafted(drafts.COMPACT), _ratio(2), lambda found: found.low > 1, PAIRS,
    ),
    Claim("forward", "There a forward gives {} tokens.", (GAIN,), _forward, lambda e: f"{e.value:.2f}"),
    Claim(
        "accepted",
        "Of the tokens that the grammar forces there and drafts, {} are accepted: at least 95%.",
        ("drafts",), _accepted, _share(1), lambda found: found.value >= 0.95,
    ),
    Claim(
        "prose",
        "On prose, where the grammar has nothing to say, drafts run at {} times the speed of plain decoding: at most "
        "5% lost.",
        (GAIN,), _drafted(drafts.PROSE), _ratio(2), lambda found: found.value > 0.95, PAIRS,
    ),
    Claim(
        "identical",
        "In float32 {} of the drafted texts are those of plain decoding, token for token: all of them.",
        ("drafts",), _identical, _share(1), lambda found: found.value == 1,
    ),
    Claim(
        "faithful",
        "Of all tests of losslessness, greedy and of distributions, {} pass: all of them.",
        ("lossless",), _faithful, _share(1), lambda found: found.value == 1,
    ),
    *ON_DISK,
)  # fmt: skip


def sweeps() -> list[str]:
    """The sweeps that the claims rest on."""
    return list(dict.fromkeys(name for claim in CLAIMS for name in claim.sweeps))


def mine() -> dict[str, Runs]:
    """This machine's runs of them; raises MissingRun or BrokenRun."""
    return {name: record.load(name) for name in sweeps()}


def found(claim: Claim, runs: Numbers) -> Estimate | None:
    """The number of a claim; None where a sweep, an arm or a workload of it was not run."""
    try:
        return claim.of(runs)
    except (KeyError, ValueError, TypeError):  # a table of an older machine may lack a column, or have it as text
        return None


def numbers(runs: Numbers) -> dict[str, str]:
    """name -> the number as the prose has it, `not run in this profile` where there is none."""
    told = {claim.name: found(claim, runs) for claim in CLAIMS}
    return {claim.name: NOT_RUN if told[claim.name] is None else claim.text(told[claim.name]) for claim in CLAIMS}


def verdict(claim: Claim, number: Estimate | None) -> str:
    """`held`, `did not hold`, `measured` where holding is no question, or that it was not run, or on too few."""
    if number is None:
        return NOT_RUN
    if claim.holds is None:
        return "measured"
    if number.n < claim.least:
        return f"not settled: {number.n} of {claim.least} cases"
    return "held" if claim.holds(number) else "did not hold"


def table(runs: Numbers, others: Sequence, profile: str = "quick") -> pd.DataFrame:
    """One row a claim. others: published machines (gdlib.report.published.Machine), a column each."""
    rows = []
    for claim in CLAIMS:
        number = found(claim, runs)
        folders = " ".join(f"results/{profile}/{name}" for name in claim.sweeps)
        behind = [info for name in claim.sweeps if name in runs for info in runs[name].infos]
        row = {
            "claim": claim.sentence.format("…" if number is None else claim.text(number)),
            "number [95% interval], n": _interval(number),
            "runs": ", ".join(f"{name} ({len(runs[name].infos)})" for name in claim.sweeps if name in runs)
            + "; commit "
            + " / ".join(dict.fromkeys(info["provenance"]["commit"][:7] for info in behind)),
            "redo": f"rm -r {folders}; make book PROFILE={profile}",
            "this machine": verdict(claim, number),
        }
        for machine in others:
            theirs = found(claim, machine.runs)
            row[machine.name] = verdict(claim, theirs) + ("" if theirs is None else f": {claim.text(theirs)}")
        rows.append(row)
    return pd.DataFrame(rows)


def _interval(number: Estimate | None) -> str:
    if number is None:
        return NOT_RUN
    if number.n == 1:
        return f"{number.value:.4g}, n = 1: no interval"
    return f"{number.value:.4g} [{number.low:.4g},\u00a0{number.high:.4g}], n = {number.n}"
