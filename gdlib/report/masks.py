"""Figures and tables of the chapters on what a mask costs and what it covers.

Engines differ in what they can do, so times are compared on the cases that both sides answered rightly, and a figure
marks an answer that was wrong. What was refused or left out is counted, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gdlib.bench.inside import BATCHES, PARTS, REGULAR, SITUATIONS
from gdlib.bench.masks import OUTCOMES
from gdlib.bench.peers import ENGINES
from gdlib.bench.probes import VERDICTS
from gdlib.bench.schemas import FAMILIES
from gdlib.bench.stats import Estimate, paired_ratio
from gdlib.recognizers import RECOGNIZERS
from gdlib.report.figures import _new

CASE = ["vocabulary", "family", "level_count", "trial"]
COLOURS = dict(zip(ENGINES, ["#CC79A7", "#0072B2", "#E69F00", "#D55E00", "#009E73"], strict=True))
MARKS = dict(zip(ENGINES, "osD^v", strict=True))
PART_COLOURS = dict(
    zip(PARTS, ["#0072B2", "#56B4E9", "#E69F00", "#F0E442", "#CC79A7", "#999999", "#009E73"], strict=True)
)
BATCH_COLOURS = dict(zip(BATCHES, ["#0072B2", "#D55E00"], strict=True))


def arms_of(table: pd.DataFrame) -> list[str]:
    """The engines of a table in the order in which everything shows them."""
    return [arm for arm in ENGINES if arm in set(table["arm"])]


def right(table: pd.DataFrame, arm: str) -> pd.DataFrame:
    """The cases that the engine answered rightly, by case."""
    return table[(table["arm"] == arm) & (table["outcome"] == "ok")].set_index(CASE)


def over(table: pd.DataFrame, arm: str, column: str, base: str = "gdlib") -> Estimate | None:
    """Median of the engine's time over the base's, case by case, where both were right; None where there is none."""
    pairs = right(table, arm)[[column]].join(right(table, base)[column].rename("base"), how="inner")
    return paired_ratio(pairs[column], pairs["base"]) if len(pairs) else None


def _of(value: float) -> str:
    """Microseconds with three digits or so, in the unit that fits."""
    unit, value = ("s", value / 1e6) if value >= 1e6 else ("ms", value / 1e3) if value >= 1e3 else ("µs", value)
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def time_of(values: Sequence[float]) -> str:
    """The median of microseconds as text, "none" where there are none."""
    return _of(float(np.median(values))) if len(values) else "none"


def _ratio(table: pd.DataFrame, arm: str, column: str) -> str:
    if arm == "gdlib":
        return "1"
    estimate = over(table, arm, column)
    return "none" if estimate is None else f"{estimate.text(2)}, n = {estimate.n}"


def outcomes(table: pd.DataFrame) -> pd.DataFrame:
    """Engines by vocabulary: what became of the cases. An outcome that no engine had is no column."""
    rows = []
    for vocabulary, group in table.groupby("vocabulary", sort=False):
        for arm in arms_of(group):
            chosen = group[group["arm"] == arm]
            counts = chosen["outcome"].value_counts()
            row = {"vocabulary": vocabulary, "engine": f"{arm} {chosen['version'].iloc[0]}", "cases": len(chosen)}
            rows.append(row | {o: int(counts.get(o, 0)) for o in OUTCOMES if o in set(table["outcome"])})
    return pd.DataFrame(rows)


def times(table: pd.DataFrame) -> pd.DataFrame:
    """Engines by vocabulary: the times of the cases each got right, and these over gdlib's."""
    rows = []
    for vocabulary, group in table.groupby("vocabulary", sort=False):
        for arm in arms_of(group):
            good = right(group, arm)
            rows.append(
                {
                    "vocabulary": vocabulary,
                    "engine": arm,
                    "first mask": time_of(good["ttfm_us"]),
                    "mean": time_of(good["tbm_mean_us"]),
                    "median": time_of(good["tbm_median_us"]),
                    "p99": time_of(good["tbm_p99_us"]),
                    "first mask / gdlib": _ratio(group, arm, "ttfm_us"),
                    "mean / gdlib": _ratio(group, arm, "tbm_mean_us"),
                }
            )
    return pd.DataFrame(rows)


def by_level(table: pd.DataFrame, column: str, label: str) -> Figure:
    """One panel a family: a time against the level, both in powers of ten; hollow where an answer was wrong.

    A point is the median of the trials, its bar their range.
    """
    families = [family for family in FAMILIES if family in set(table["family"])]
    columns = min(4, len(families))
    lines = -(-len(families) // columns)
    figure, axes = _new(width=2.4 * columns + 0.6, height=2.3 * lines + 0.6)
    axes.remove()
    panels = figure.subplots(lines, columns, squeeze=False).flat
    for axis, family in zip(panels, families, strict=False):
        rows = table[(table["family"] == family) & table["timed"]]
        for arm in arms_of(rows):
            by = rows[rows["arm"] == arm].groupby("level_count")
            middle, low, high = by[column].median(), by[column].min(), by[column].max()
            style = {"color": COLOURS[arm], "linewidth": 1}
            axis.plot(middle.index, middle, **style)
            for wrong, fill in ((False, COLOURS[arm]), (True, "white")):
                at = middle.index[(by["outcome"].agg(lambda o: set(o) != {"ok"})[middle.index] == wrong).to_numpy()]
                bars = [middle[at] - low[at], high[at] - middle[at]]
                axis.errorbar(
                    at, middle[at], yerr=bars, fmt=MARKS[arm], markersize=5, markerfacecolor=fill, capsize=2, **style
                )
        axis.set_xscale("log")
        axis.set_yscale("log")
        levels = sorted(rows["level_count"].unique())
        axis.minorticks_off()  # they take longer to draw than all the rest
        axis.set_xticks(levels, [f"{n // 1000}k" if n >= 1000 else f"{n}" for n in levels])
        axis.set_title(family)
        axis.set_xlabel(FAMILIES[family][1], fontsize="small")
    for axis in list(figure.axes)[len(families) :]:
        axis.remove()
    figure.supylabel(label, fontsize="small")
    handles = [
        figure.axes[0].plot([], [], MARKS[arm], color=COLOURS[arm], label=arm, linestyle="-")[0]
        for arm in arms_of(table[table["timed"]])
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def by_vocabulary(table: pd.DataFrame, column: str, label: str) -> Figure:
    """A time by size of the vocabulary, over the cases the engine got right in all the vocabularies it has any of."""
    figure, axis = _new(height=3.2)
    for arm in arms_of(table):
        good = right(table, arm).reset_index()
        case = CASE[1:]
        vocabularies = good["vocabulary"].nunique()
        common = good.groupby(case).filter(lambda rows, n=vocabularies: rows["vocabulary"].nunique() == n)
        middle = common.groupby("vocabulary_tokens")[column].median().sort_index()
        axis.plot(middle.index, middle, MARKS[arm], color=COLOURS[arm], label=arm, linestyle="-")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.minorticks_off()
    axis.set_xlabel("tokens of the vocabulary")
    axis.set_ylabel(label)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def batch(table: pd.DataFrame) -> Figure:
    """Masks of a step by the size of the batch: one grammar or many, masks made on the way or kept."""
    rows = table[table["question"] == "batch"]
    figure, axis = _new(height=3.2)
    for arm in BATCHES:
        for quantity, line in (("masks, first use", "-"), ("masks, kept", "--")):
            chosen = rows[(rows["arm"] == arm) & (rows["quantity"] == quantity)]
            middle = chosen.groupby("level_count")["value_us"].median()
            axis.plot(middle.index, middle, "o", color=BATCH_COLOURS[arm], linestyle=line, label=f"{arm}; {quantity}")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel("texts of the batch")
    axis.set_ylabel("all masks of a step (µs)")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def part_times(table: pd.DataFrame) -> pd.DataFrame:
    """Family by part: median us over the trials."""
    rows = table[(table["question"] == "parts") & (table["arm"] == "parts")]
    means = rows.pivot_table(index="subject", columns="quantity", values="value_us", aggfunc="median", sort=False)
    return means.reindex(columns=list(PARTS), fill_value=0.0)


def parts(table: pd.DataFrame) -> Figure:
    """Where the time of a grammar and its texts goes, by family; the diamond is the whole without laps."""
    times = part_times(table)
    rows = table[(table["question"] == "parts") & (table["arm"] == "whole")]
    whole = rows.groupby("subject")["value_us"].median()
    figure, axis = _new(height=3.4)
    places, left = np.arange(len(times))[::-1], np.zeros(len(times))
    for part in PARTS:
        axis.barh(places, times[part] / 1000, left=left, color=PART_COLOURS[part], label=part)
        left += times[part].to_numpy() / 1000
    axis.plot(whole[times.index] / 1000, places, "D", color="black", markersize=4, linestyle="none", label="whole")
    axis.set_yticks(places, list(times.index))
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("a grammar and its texts (ms, median)")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure


def _quantities(table: pd.DataFrame, question: str, subjects: Sequence[str], arms: Sequence[str]) -> pd.DataFrame:
    rows = []
    table = table[table["question"] == question]
    for vocabulary, subject, arm in [(v, s, a) for v in table["vocabulary"].unique() for s in subjects for a in arms]:
        chosen = table[(table["vocabulary"] == vocabulary) & (table["subject"] == subject) & (table["arm"] == arm)]
        row = {"vocabulary": vocabulary, "grammar": subject, "arm": arm}
        for quantity, values in chosen.groupby("quantity", sort=False)["value_us"]:
            row[quantity] = f"{_of(values.median())} [{_of(values.min())},\u00a0{_of(values.max())}]"
        rows.append(row | {"n": chosen["trial"].nunique()})
    return pd.DataFrame(rows)


def cache(table: pd.DataFrame) -> pd.DataFrame:
    """What a process knows already: times by situation, median and range over the processes."""
    return _quantities(table, "cache", ["properties"], SITUATIONS).drop(columns="grammar")


def recognisers(table: pd.DataFrame) -> pd.DataFrame:
    """The same grammar by each recogniser, median and range over the trials."""
    return _quantities(table, "recogniser", list(REGULAR), RECOGNIZERS)


def coverage(table: pd.DataFrame, front: str = "json_schema") -> pd.DataFrame:
    """Feature by engine: the worst verdict over the feature's probes, and the first text that was judged wrongly."""
    rows = []
    chosen = table[table["front"] == front]
    for (group, feature), probes in chosen.groupby(["group", "feature"], sort=False):
        row = {"group": group, "feature": feature}
        for arm in arms_of(table):
            verdicts = set(probes.loc[probes["arm"] == arm, "verdict"])
            row[arm] = _worst(verdicts)
        rows.append(row)
    return pd.DataFrame(rows)


def _worst(verdicts: set[str]) -> str:
    if "both" in verdicts or {"too loose", "too strict"} <= verdicts:
        return "too strict and too loose"
    for verdict in ("too loose", "refuses", "too strict", "not installed", "no front end", "left out"):
        if verdict in verdicts:
            return verdict
    return "ok"


def coverage_counts(table: pd.DataFrame) -> pd.DataFrame:
    """Probes by kind of grammar, engine and verdict."""
    rows = []
    for front, group in table.groupby("front", sort=False):
        for arm in arms_of(group):
            chosen = group[group["arm"] == arm]
            counts = chosen["verdict"].value_counts()
            row = {"grammar": front, "engine": f"{arm} {chosen['version'].iloc[0]}", "probes": len(chosen)}
            rows.append(row | {name: int(counts.get(name, 0)) for name in VERDICTS})
    return pd.DataFrame(rows)


def wrong(table: pd.DataFrame) -> pd.DataFrame:
    """Every probe that an engine got wrong: the text, and which way."""
    rows = table[table["verdict"].isin(["too strict", "too loose", "both"])]
    shown = rows[["arm", "feature", "verdict", "example"]].copy()
    shown["example"] = shown["example"].str.slice(1, -1).str.replace('\\"', '"').str.replace("\\\\", "\\")
    return shown.rename(columns={"arm": "engine", "example": "first text judged wrongly"})


def refused(table: pd.DataFrame, arm: str = "gdlib") -> pd.DataFrame:
    """What the engine refuses to compile, and the reason it gives."""
    rows = table[(table["arm"] == arm) & (table["verdict"] == "refuses")]
    return rows[["front", "feature", "reason"]].rename(columns={"front": "grammar"})
