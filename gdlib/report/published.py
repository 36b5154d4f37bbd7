"""Tables of other machines that were published with the book, checked, and their headline ratios beside this machine's.

Nothing here is averaged over machines: each keeps its own column, its commit and its date.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from gdlib.bench import publish, record, sweep
from gdlib.bench.record import BrokenRun, Runs
from gdlib.bench.stats import Estimate
from gdlib.report import drafts, summary

THIS = "this machine"
MARKERS = "os^Dv<>P"


@dataclass(frozen=True)
class Machine:
    """A machine whose runs are at hand: `about` is its machine.json, `runs` its tables by sweep."""

    name: str
    about: dict
    runs: dict[str, Runs]

    @property
    def processor(self) -> str:
        """What it computes with, such as `AMD EPYC 7B13, 8 cores` or, with a GPU, that first."""
        gpu = self.about["gpu"]
        cores = f"{self.about['cores']} core{'s' if self.about['cores'] > 1 else ''}"
        return ", ".join(filter(None, [gpu and gpu["name"], self.about["cpu"], cores]))


def machines(folder: Path | None = None) -> list[Machine]:
    """Every published machine, in order of name, every digest checked.

    folder: book/published where None. Raises BrokenRun, naming the file, where one is missing, edited or left over.
    """
    folder = folder or publish.published()
    there = sorted(folder.glob("[!.]*"))
    if odd := [one for one in there if one.is_symlink() or not one.is_dir()]:
        raise BrokenRun(f"{odd[0]} is no folder of a published machine: remove it")
    return [machine(one) for one in there]


def machine(folder: Path) -> Machine:
    """One published folder; raises BrokenRun."""
    mend = "restore it from git, or publish the machine again"
    try:
        about = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
        listed = {(one["sweep"], one["run"]): one["sha256"] for one in about["runs"]}
        axes = {run: sweep.parse_run(run) for _, run in listed}
        if len(listed) < len(about["runs"]):
            raise ValueError("a run is listed twice")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenRun(f"{folder / 'machine.json'} cannot be read ({error!r}): {mend}") from error
    files = {folder.joinpath(*one, file) for one in listed for file in ("table.csv", "run.json")}
    found_there = {path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}
    if extra := sorted(found_there - files - {folder / "machine.json"}):
        raise BrokenRun(f"{extra[0]} is not listed in machine.json: remove it, or publish again")
    infos = []
    found: dict[str, list] = {}
    for (name, run), digest in listed.items():
        place = folder / name / run
        try:
            table, info = record.read(place)
        except record.RecordError as error:
            raise BrokenRun(f"{error}: {mend}") from error
        if hashlib.sha256((place / "run.json").read_bytes()).hexdigest() != digest:
            raise BrokenRun(f"{place / 'run.json'} is not the one that machine.json lists, it was changed: {mend}")
        found.setdefault(name, []).append((axes[run], table, info))
        infos.append(info)
    if wrong := [key for key, value in publish.described(infos).items() if about.get(key) != value]:
        raise BrokenRun(f"{folder / 'machine.json'}: {wrong[0]} is not what the runs say, it was changed: {mend}")
    return Machine(folder.name, about, {name: record.joined(runs) for name, runs in found.items()})


def _slowdown(arm: str, *names: str) -> Callable[[Mapping[str, Runs]], Estimate]:
    def of(runs: Mapping[str, Runs]) -> Estimate:
        keys = summary.ORACLE_KEYS if names == ("oracle",) else summary.MODEL_KEYS
        return summary.slowdown(record.together(*(runs[name] for name in names)).table, arm, keys)

    return of


def _speedup(workload: str) -> Callable[[Mapping[str, Runs]], Estimate | None]:
    def of(runs: Mapping[str, Runs]) -> Estimate | None:
        table = drafts.main_format(runs["drafts_gain"].table)
        return drafts.speedup(table[table["workload"] == workload], drafts.ALL)

    return of


# A time of a step is better below 1, a speed above it.
HEADLINES: dict[str, Callable[[Mapping[str, Runs]], Estimate | None]] = {
    "a step on the oracle, dense mask, over free": _slowdown("dense", "oracle"),
    "a step on the oracle, ours, over free": _slowdown("ours", "oracle"),
    "a step on the real model, dense mask, over free": _slowdown("dense", "model", "example"),
    "a step on the real model, ours, over free": _slowdown("ours", "model", "example"),
    "free over free on the real model (unrest)": _slowdown("free again", "model", "example"),
    "speed with drafts, compact NDJSON, over plain": _speedup(drafts.COMPACT),
    "speed with drafts, prose, over plain": _speedup(drafts.PROSE),
}


def headlines(runs: Mapping[str, Runs]) -> dict[str, Estimate | None]:
    """The book's headline ratios from one machine's runs; None where a sweep, an arm or a column of it is not there."""
    found = {}
    for name, of in HEADLINES.items():
        try:
            found[name] = of(runs)
        except (KeyError, ValueError, TypeError):
            found[name] = None
    return found


def comparison(mine: Mapping[str, Runs], others: list[Machine]) -> pd.DataFrame:
    """One row a ratio, one column a machine, `this machine` first: median and 95% interval, as text."""
    columns = {THIS: headlines(mine)} | {one.name: headlines(one.runs) for one in others}
    texts = {name: [drafts.text_of(found[row], 3) for row in HEADLINES] for name, found in columns.items()}
    return pd.DataFrame({"ratio": list(HEADLINES)} | texts)


def compared(mine: Mapping[str, Runs], others: list[Machine]) -> Figure:
    """The same as a figure: a mark and its interval for every machine and ratio."""
    sns.set_theme(style="whitegrid", context="notebook", font_scale=0.85)
    figure, axis = plt.subplots(figsize=(7.2, 1.2 + 0.5 * len(HEADLINES)), layout="constrained")
    columns = [(THIS, headlines(mine)), *((one.name, headlines(one.runs)) for one in others)]
    places = np.arange(len(HEADLINES))[::-1]
    for index, (name, found) in enumerate(columns):
        offset = 0.5 * ((len(columns) - 1) / 2 - index) / len(columns)
        rows = [(place + offset, found[row]) for place, row in zip(places, HEADLINES, strict=True) if found[row]]
        errors = np.array([[e.value - e.low, e.high - e.value] for _, e in rows]).reshape(-1, 2).T.clip(min=0)
        axis.errorbar(
            [e.value for _, e in rows],
            [place for place, _ in rows],
            xerr=errors,
            fmt=MARKERS[index % len(MARKERS)],
            capsize=3,
            label=name,
        )
    axis.axvline(1, color="black", linewidth=1)
    axis.set_yticks(places, list(HEADLINES))
    axis.set_ylim(-0.6, len(HEADLINES) - 0.4)
    axis.set_xlabel("ratio (1 = no difference)")
    axis.legend(loc="best")
    return figure


def listing(others: list[Machine]) -> pd.DataFrame:
    """What is published: machine, profile, commit, date, runs."""
    return pd.DataFrame(
        {
            "machine": one.name,
            "computes with": one.processor,
            "profile": one.about["profile"],
            "commit": " / ".join(commit[:12] for commit in one.about["commits"]),
            "last run": one.about["last"][:10],
            "runs": len(one.about["runs"]),
        }
        for one in others
    )
