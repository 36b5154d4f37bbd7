"""The figures, each a function from a tidy table to a matplotlib figure. Bars carry 95% intervals, axes their units."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from gdlib.bench.stats import Estimate, bootstrap, share
from gdlib.bench.workloads import FAILURES
from gdlib.decoding import PARTS
from gdlib.report import summary

# One colour an arm, the same in every figure (Okabe and Ito's palette, which colour-blind readers can tell apart).
COLOURS = {
    "free": "#0072B2",
    "free again": "#7FB8D8",
    "healing": "#009E73",
    "dense": "#D55E00",
    "ours": "#CC79A7",
    "ours, nothing skipped": "#E5BCD3",
    "fixed widths": "#999999",
}
PART_COLOURS = dict(zip(PARTS, ["#0072B2", "#E69F00", "#D55E00", "#56B4E9", "#009E73", "#CC79A7"], strict=True))
FAILURE_COLOURS = dict(
    zip(("valid", *FAILURES), ["#009E73", "#56B4E9", "#E69F00", "#F0E442", "#999999", "#D55E00"], strict=True)
)


def _new(width: float = 7.2, height: float = 3.4, columns: int = 1, **options):
    sns.set_theme(style="whitegrid", context="notebook", font_scale=0.85)
    return plt.subplots(1, columns, figsize=(width, height), layout="constrained", **options)


def _arms(table: pd.DataFrame, without: Sequence[str] = ()) -> list[str]:
    present = set(table["arm"])
    return [arm for arm in COLOURS if arm in present and arm not in without]


def _bars(axis, labels: Sequence[str], estimates: Sequence[Estimate], colours: Sequence[str], form: str) -> None:
    """Horizontal bars with interval whiskers, the value written behind each."""
    places = np.arange(len(labels))[::-1]
    values = np.array([e.value for e in estimates])
    errors = np.array([[e.value - e.low for e in estimates], [e.high - e.value for e in estimates]])
    axis.barh(places, values, color=colours, xerr=errors.clip(min=0), error_kw={"elinewidth": 1.2, "capsize": 3})
    axis.set_yticks(places, labels)
    axis.grid(axis="y", visible=False)
    room = max(e.high for e in estimates)
    for place, estimate in zip(places, estimates, strict=True):
        axis.text(estimate.high + 0.02 * room, place, form.format(estimate.value), va="center")
    axis.set_xlim(0, room * 1.25)


def step_time(table: pd.DataFrame) -> Figure:
    """Median time of a step by arm."""
    figure, axis = _new()
    arms = _arms(table)
    _bars(axis, arms, [summary.typical(table, a, "step_us") for a in arms], [COLOURS[a] for a in arms], "{:.1f}")
    axis.set_xlabel("time of a step (µs, median)")
    return figure


def slowdown(table: pd.DataFrame, keys: list[str]) -> Figure:
    """Median of the paired ratios to free, by arm."""
    figure, axis = _new()
    arms = _arms(table, without=["free"])
    _bars(axis, arms, [summary.slowdown(table, a, keys) for a in arms], [COLOURS[a] for a in arms], "{:.3f}")
    axis.axvline(1, color="black", linewidth=1)
    axis.set_xlabel("time of a step, free = 1 (median of paired ratios)")
    return figure


def slowdown_grid(table: pd.DataFrame, axis_name: str, label: str) -> Figure:
    """Paired ratios to free along one axis of the grid, by schema."""
    schemas = list(dict.fromkeys(table["schema"]))
    figure, axes = _new(columns=len(schemas), width=2.6 * len(schemas) + 1.2, sharey=True, squeeze=False)
    arms = _arms(table, without=["free", "free again", "fixed widths"])
    for axis, schema in zip(axes[0], schemas, strict=True):
        rows = table[table["schema"] == schema]
        levels = sorted(rows[axis_name].unique())
        for offset, arm in enumerate(arms):
            found = [summary.slowdown(rows[rows[axis_name] == level], arm, summary.ORACLE_KEYS) for level in levels]
            errors = [[e.value - e.low for e in found], [e.high - e.value for e in found]]
            shift = (offset - (len(arms) - 1) / 2) * 0.12
            places = np.arange(len(levels)) + shift
            values = [e.value for e in found]
            axis.errorbar(places, values, yerr=errors, fmt="o", color=COLOURS[arm], label=arm, capsize=2, markersize=4)
        axis.axhline(1, color="black", linewidth=1)
        axis.set_xticks(range(len(levels)), levels)
        axis.set_title(schema)
        axis.set_xlabel(label)
    axes[0][0].set_ylabel("time of a step, free = 1")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def parts(table: pd.DataFrame) -> Figure:
    """Where the time of a step goes, by arm."""
    figure, axis = _new(height=3.6)
    arms = _arms(table)
    places = np.arange(len(arms))[::-1]
    left = np.zeros(len(arms))
    found = {arm: summary.parts(table, arm) for arm in arms}
    for part in PARTS:
        widths = np.array([found[arm][part] for arm in arms])
        if widths.max() > 0:
            axis.barh(places, widths, left=left, color=PART_COLOURS[part], label=part.replace("_", " "))
            left += widths
    axis.set_yticks(places, arms)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("time of a step (µs, mean)")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    return figure


def validity(table: pd.DataFrame, axis_name: str, label: str, column: str = "json_valid") -> Figure:
    """Share of valid texts by arm along one axis."""
    levels = list(dict.fromkeys(table[axis_name]))
    figure, axis = _new(height=3.6)
    arms = _arms(table, without=["free again", "ours, nothing skipped"])
    width = 0.8 / len(arms)
    for offset, arm in enumerate(arms):
        rows = table[table["arm"] == arm]
        found = [share(rows.loc[rows[axis_name] == level, column]) for level in levels]
        errors = [[e.value - e.low for e in found], [e.high - e.value for e in found]]
        places = np.arange(len(levels)) + (offset - (len(arms) - 1) / 2) * width
        heights = [e.value for e in found]
        bars = {"elinewidth": 1, "capsize": 2}
        axis.bar(places, heights, width, yerr=np.clip(errors, 0, None), color=COLOURS[arm], label=arm, error_kw=bars)
    axis.set_xticks(range(len(levels)), levels)
    axis.grid(axis="x", visible=False)
    axis.set_ylim(0, 1.05)
    axis.set_xlabel(label)
    axis.set_ylabel("share of valid texts")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    return figure


def build(table: pd.DataFrame) -> Figure:
    """Cold and warm build of the tables, by vocabulary and decoder, on a logarithmic scale."""
    figure, axis = _new(height=3.4)
    table = table.assign(build_ms=table["machine_ms"] + table["masks_ms"])
    rows = []
    for (vocabulary, arm, temperature), group in table.groupby(["vocabulary", "arm", "temperature"], sort=False):
        rows.append((f"{vocabulary}\n{arm}", temperature, bootstrap(group["build_ms"])))
    labels = list(dict.fromkeys(label for label, _, _ in rows))
    for temperature, marker, colour in (("cold", "s", "#0072B2"), ("warm", "o", "#D55E00")):
        found = {label: e for label, t, e in rows if t == temperature}
        values = [found[label].value for label in labels]
        errors = [[found[n].value - found[n].low for n in labels], [found[n].high - found[n].value for n in labels]]
        axis.errorbar(values, range(len(labels)), xerr=errors, fmt=marker, color=colour, label=temperature, capsize=3)
    axis.set_yticks(range(len(labels)), labels)
    axis.invert_yaxis()
    axis.margins(y=0.15)
    axis.set_xscale("log")
    axis.set_xlabel("machine and masks of all states (ms, log scale)")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def fixed_widths(table: pd.DataFrame) -> Figure:
    """What became of the fixed-width arm's texts, where the gold text has the template's widths and elsewhere."""
    rows = table[table["arm"] == "fixed widths"]
    figure, axis = _new(height=2.6)
    causes = ["valid", "truncated", "leading zero", "not JSON", "wrong field"]
    colours = ["#009E73", "#E69F00", "#D55E00", "#999999", "#56B4E9"]
    groups = [
        ("gold text has the\ntemplate's widths", rows[rows["gold_fits"]]),
        ("it has not", rows[~rows["gold_fits"]]),
    ]
    left = np.zeros(2)
    for cause, colour in zip(causes, colours, strict=True):
        wanted = "" if cause == "valid" else cause
        widths = np.array([(group["cause"] == wanted).mean() if len(group) else 0.0 for _, group in groups])
        if widths.max() > 0:
            axis.barh([1, 0], widths, left=left, color=colour, label=cause)
            left += widths
    axis.set_yticks([1, 0], [f"{name}\n(n = {len(group)})" for name, group in groups])
    axis.grid(axis="y", visible=False)
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of texts")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def failures(table: pd.DataFrame) -> Figure:
    """What became of each arm's answers, by how the model was asked."""
    table = table[table["arm"].isin(["free", "healing", "ours"])]  # dense writes what ours writes
    asked = sorted(table["shots"].unique())
    figure, axes = _new(columns=len(asked), width=7.2, height=2.9, sharey=True, squeeze=False)
    arms = _arms(table)
    for axis, shots in zip(axes[0], asked, strict=True):
        left = np.zeros(len(arms))
        places = np.arange(len(arms))[::-1]
        for kind, colour in FAILURE_COLOURS.items():
            wanted = "" if kind == "valid" else kind
            rows = table[table["shots"] == shots]
            widths = np.array([(rows.loc[rows["arm"] == arm, "failure"] == wanted).mean() for arm in arms])
            axis.barh(places, widths, left=left, color=colour, label=kind)
            left += widths
        axis.set_yticks(places, arms)
        axis.grid(axis="y", visible=False)
        axis.set_xlim(0, 1)
        axis.set_xlabel("share of prompts")
        axis.set_title("asked plainly" if shots == 0 else "after a worked example")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    return figure


def overhead(table: pd.DataFrame) -> Figure:
    """What each arm adds to a step beyond the model and the choice, on a logarithmic scale beside the model itself."""
    figure, axis = _new(height=2.8)
    arms = [arm for arm in _arms(table) if arm != "free again"]
    places = np.arange(len(arms))[::-1]
    for part in PARTS:
        found = [bootstrap(table.loc[table["arm"] == arm, f"{part}_us"]) for arm in arms]
        seen = [(p, e) for p, e in zip(places, found, strict=True) if e.value > 0]
        if seen:
            errors = [[e.value - e.low for _, e in seen], [e.high - e.value for _, e in seen]]
            where = [p for p, _ in seen]
            label = part.replace("_", " ")
            style = {"fmt": "o", "color": PART_COLOURS[part], "capsize": 2}
            axis.errorbar([e.value for _, e in seen], where, xerr=errors, label=label, **style)
    axis.set_xscale("log")
    axis.set_xlim(left=0.1)
    axis.set_yticks(places, arms)
    axis.margins(y=0.2)
    axis.set_xlabel("time of a part of a step (µs, median, log scale)")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    return figure


def headline(oracle: pd.DataFrame, model: pd.DataFrame) -> Figure:
    """The index's figure: the price of a mask where the model is free, and where it is real."""
    figure, (left, right) = _new(columns=2, width=7.6, height=2.7)
    for axis, table, keys, title in (
        (left, oracle, summary.ORACLE_KEYS, "on an oracle"),
        (right, model, summary.MODEL_KEYS, "on a real model"),
    ):
        arms = [arm for arm in _arms(table) if arm in ("healing", "dense", "ours")]
        _bars(axis, arms, [summary.slowdown(table, a, keys) for a in arms], [COLOURS[a] for a in arms], "{:.3f}")
        axis.axvline(1, color="black", linewidth=1)
        axis.set_xlabel("time of a step, free = 1")
        axis.set_title(title)
    return figure
