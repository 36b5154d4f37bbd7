"""Figures and tables of the chapter on experts on disk.

Bytes stand beside tokens a second everywhere, and hit rates beside bytes: a draft may raise the one and lower the
other. Ratios are paired by prompt and state of the store before they are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gdlib.bench import experts, routing, traces
from gdlib.bench.break_even import FIXED
from gdlib.bench.experts import AGAIN, ALL, COLD, EVERY_ARM, FRAME, IN_MEMORY, PLAIN, RESIDENT, ROOMY, WARM
from gdlib.bench.stats import Estimate, bootstrap, paired_ratio
from gdlib.report.drafts import COMPACT, LABELS, PALETTE, PROSE, WRONG, accepted_shares, named, text_of, value_of
from gdlib.report.figures import _new
from gdlib.report.page import NOT_RUN, percent

__all__ = ["COMPACT", "EVERY_ARM", "LABELS", "PROSE", "WRONG", "named", "text_of", "value_of"]
CASE = ("workload", "prompt", "trial", "state", "disk_gb_per_s", "pin_mb")
STATE_COLOURS = {COLD: "#0072B2", WARM: "#D55E00"}
GATES = (ALL, "all sources, cost gate", "all sources, colibri's guard", "all sources, every row", "colibri")
KINDS = (
    *(routing.STRUCTURAL, routing.FREE, routing.MIXED, *routing.ALONG.values(), routing.SHUFFLED),
    *("grammar", "branches", "ngram", "mtp", "text", "whole forward"),
)
# Lucebox #501: 256 experts, top-8; rows of a forward -> distinct experts of a layer
LUCEBOX = {8: 39.4, 15: 58.9}
# colibri #640: expert loads a token, share found in memory, tokens a second; without and with its multi-token head
COLIBRI = {"loads": ("600", "1,062"), "found": ("53–55%", "40–42%"), "speed": ("0.34–0.36", "0.31–0.33")}
FEWEST = 5  # forwards with so many rows of a source, for a point in the figure
DISKS = (1, 3.5, 7, 14)  # GB/s


def main_disk(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the first disk and the first size of pinned store: what runs every arm."""
    first = table["disk_gb_per_s"] == table["disk_gb_per_s"].iloc[0]
    return table[first & (table["pin_mb"] == table["pin_mb"].iloc[0])] if "pin_mb" in table else table[first]


def pairs(table: pd.DataFrame, arm: str, base: str = PLAIN) -> pd.DataFrame:
    """Runs of an arm with those of its base in the same case, whose columns end in _base."""
    keys = [name for name in CASE if name in table or name != "pin_mb"]
    index = table.set_index(keys)
    wanted = ["elapsed_s", "generated_tokens", "miss_bytes", "loads_count"]
    bases = index.loc[index["arm"] == base, wanted].add_suffix("_base")
    return index[index["arm"] == arm].join(bases, how="inner").reset_index()


def bytes_ratio(table: pd.DataFrame, arm: str, base: str = PLAIN) -> Estimate | None:
    """Bytes read for a token over the base's, median and interval; None where there are no pairs or it read none."""
    both = pairs(table, arm, base)
    both = both[both["miss_bytes_base"] > 0]
    if not len(both):
        return None
    return paired_ratio(
        both["miss_bytes"] / both["generated_tokens"], both["miss_bytes_base"] / both["generated_tokens_base"]
    )


def speedup(table: pd.DataFrame, arm: str, base: str = PLAIN) -> Estimate | None:
    """Tokens a second over the base's, median and interval; None for no pairs."""
    both = pairs(table, arm, base)
    if not len(both):
        return None
    return paired_ratio(
        both["elapsed_s_base"] / both["generated_tokens_base"], both["elapsed_s"] / both["generated_tokens"]
    )


def per_forward(rows: pd.DataFrame) -> Estimate | None:
    """Tokens a forward that decoding took (the prompt's counts as one), median over texts; None for no rows."""
    return bootstrap(rows["generated_tokens"] / rows["forward_count"]) if len(rows) else None


def hits(rows: pd.DataFrame) -> str:
    """`54%`, or `20% pinned, 34% slots`: of the distinct experts that forwards asked for, those found in memory."""
    asked = rows["distinct_count"].sum()
    if not asked:
        return "–"
    slots, pinned = (rows[f"{tier}_hits_count"].sum() / asked for tier in ("slot", "pinned"))
    return percent(slots) if not pinned else f"{percent(pinned)} pinned, {percent(slots)} slots"


def kilobytes(rows: pd.DataFrame) -> str:
    return f"{rows['miss_bytes'].sum() / rows['generated_tokens'].sum() / 1e3:,.0f}"


def arms(table: pd.DataFrame, chosen: Sequence[str]) -> pd.DataFrame:
    """Workload, state and arm: what was read, what memory served, and tokens a second over plain."""
    rows = []
    for (workload, state), group in table.groupby(["workload", "state"], sort=False):
        base = RESIDENT if state == IN_MEMORY else PLAIN
        for arm in [name for name in chosen if name in set(group["arm"])]:
            mine = group[group["arm"] == arm]
            rows.append(
                {
                    "workload": workload,
                    "store": state,
                    "arm": arm,
                    "texts": len(mine),
                    "tokens a forward": text_of(per_forward(mine)),
                    "found in memory": hits(mine),
                    "experts read a token": f"{mine['loads_count'].sum() / mine['generated_tokens'].sum():.1f}",
                    "kB read a token": kilobytes(mine),
                    "kB, plain = 1": text_of(bytes_ratio(group, arm, base)) if state != IN_MEMORY else "–",
                    "of them for refused rows": shares(mine, "rejected_bytes", "miss_bytes"),
                    "waiting for the disk": shares(mine, "read_s", "elapsed_s"),
                    "tokens a second": f"{(mine['generated_tokens'] / mine['elapsed_s']).median():.1f}",
                    "tokens a second, plain = 1": text_of(speedup(group, arm, base)),
                    "accepted by source": accepted_shares(mine),
                    "same text as plain": f"{mine['identical'].sum()} of {len(mine)}",
                    "as in memory": f"{mine['resident_identical'].sum()} of {len(mine)}",
                }
            )
    return pd.DataFrame(rows)


def shares(rows: pd.DataFrame, part: str, whole: str) -> str:
    """`12%` of the sums of two columns; a dash where the whole is nothing."""
    total = rows[whole].sum()
    return percent(rows[part].sum() / total) if total else "–"


def bytes_by_arm(table: pd.DataFrame, workload: str = COMPACT) -> Figure:
    """Bytes read for a token and tokens a second over plain, by arm, cold and warm, on one workload."""
    group = table[(table["workload"] == workload) & (table["state"] != IN_MEMORY)]
    shown = [arm for arm in experts.ARMS if arm in set(group["arm"]) and arm != PLAIN]
    return _dots(shown, {arm: group for arm in shown}, {arm: arm for arm in shown})


def by_workload(table: pd.DataFrame, arm: str = ALL) -> Figure:
    """The same for one arm by workload."""
    streamed = table[table["state"] != IN_MEMORY]
    shown = list(dict.fromkeys(streamed.loc[streamed["arm"] == arm, "workload"]))
    return _dots(shown, {w: streamed[streamed["workload"] == w] for w in shown}, dict.fromkeys(shown, arm))


def _dots(shown: Sequence[str], groups: dict, arm_of: dict) -> Figure:
    figure, (left, right) = _new(width=8.2, height=1.4 + 0.36 * len(shown), columns=2, sharey=True)
    for axis, measure in ((left, bytes_ratio), (right, speedup)):
        for offset, (state, colour) in zip((-0.13, 0.13), STATE_COLOURS.items(), strict=True):
            found = [(i, measure(groups[x][groups[x]["state"] == state], arm_of[x])) for i, x in enumerate(shown)]
            found = [(i + offset, e) for i, e in found if e is not None]
            errors = [[e.value - e.low for _, e in found], [e.high - e.value for _, e in found]]
            style = {"fmt": "o", "color": colour, "capsize": 2, "markersize": 4, "label": state}
            if found:
                xerr = np.clip(errors, 0, None)
                axis.errorbar([e.value for _, e in found], [i for i, _ in found], xerr=xerr, **style)
        axis.axvline(1, color="black", linewidth=1)
        axis.grid(axis="y", visible=False)
    left.set_yticks(range(len(shown)), shown)
    left.set_ylim(len(shown) - 0.5, -0.5)
    left.set_xlabel("bytes read for a token, plain = 1")
    right.set_xlabel("tokens a second, plain = 1")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def memory(table: pd.DataFrame) -> pd.DataFrame:
    """What the store costs where nothing is read any more: every expert in a slot against transformers' own forward."""
    rows = []
    for arm, base in (
        ("resident again", RESIDENT),
        (ROOMY, RESIDENT),
        (f"{ROOMY}, all sources", f"{RESIDENT}, all sources"),
    ):
        both = table[table["state"] == IN_MEMORY]
        speed = speedup(both, arm, base)
        if speed is not None:
            mine = both[both["arm"] == arm]
            rows.append(
                {
                    "arm": arm,
                    "against": base,
                    "texts": len(mine),
                    "tokens a second": f"{(mine['generated_tokens'] / mine['elapsed_s']).median():.1f}",
                    "tokens a second, the other = 1": text_of(speed, 3),
                    "same text": f"{mine['resident_identical'].sum()} of {len(mine)}",
                }
            )
    return pd.DataFrame(rows)


def goals(table: pd.DataFrame) -> pd.DataFrame:
    """What was set as a goal, beside what was found: the median counts, and `met` says on which side it lies."""
    rows = []

    def row(goal: str, where: str, bound: str, found: Estimate | None, most: float = np.inf, least: float = 0) -> None:
        met = NOT_RUN if found is None else "yes" if least <= found.value <= most else "no"
        rows.append({"goal": goal, "where": where, "wanted": bound, "found": text_of(found), "met": met})

    for state in (COLD, WARM):
        here = table[table["state"] == state]
        compact = here[here["workload"] == COMPACT]
        row(
            "bytes a token, grammar and branches",
            f"{COMPACT}, {state}",
            "at most 0.6",
            bytes_ratio(compact, FRAME),
            0.6,
        )
        less = pairs(compact, ALL, FRAME)
        less = bytes_ratio(compact, ALL, FRAME) if len(less) else None
        row("with MTP and n-grams, against the same", f"{COMPACT}, {state}", "below 1", less, np.nextafter(1, 0))
        row("tokens a second, all sources", f"{COMPACT}, {state}", "at least 1.6", speedup(compact, ALL), least=1.6)
        for workload in (PROSE, WRONG):
            speed = speedup(here[here["workload"] == workload], ALL)
            row("tokens a second, all sources", f"{workload}, {state}", "at least 0.98", speed, least=0.98)
    held = speedup(table[table["state"] == IN_MEMORY], ROOMY, RESIDENT)
    row("tokens a second, every expert in a slot", "against transformers", "at least 0.95", held, least=0.95)
    same = table["identical"] & table["resident_identical"]
    found = f"{same.sum()} of {len(same)}"
    rows.append(
        {
            "goal": "the same text",
            "where": "every run",
            "wanted": "all",
            "found": found,
            "met": "yes" if same.all() else "no",
        }
    )
    return pd.DataFrame(rows)


def losses(table: pd.DataFrame) -> pd.DataFrame:
    """Workload, state and arm that read more for a token than plain or were slower (median), the worst first."""
    rows = []
    for (workload, state), group in table[table["state"] != IN_MEMORY].groupby(["workload", "state"], sort=False):
        for arm in drafted_arms(group):
            read, speed = bytes_ratio(group, arm), speedup(group, arm)
            if (read is not None and read.value > 1) or speed.value < 1:
                mine = group[group["arm"] == arm]
                rows.append(
                    {
                        "workload": workload,
                        "store": state,
                        "arm": arm,
                        "kB, plain = 1": text_of(read),
                        "tokens a second, plain = 1": text_of(speed),
                        "found in memory": hits(mine),
                        "of the bytes for refused rows": shares(mine, "rejected_bytes", "miss_bytes"),
                        "worst": min(speed.value, 1 / read.value if read else 1),
                    }
                )
    columns = ["workload", "store", "arm", "kB, plain = 1", "tokens a second, plain = 1", "found in memory"]
    columns += ["of the bytes for refused rows"]
    return pd.DataFrame(sorted(rows, key=lambda row: row["worst"]), columns=[*columns, "worst"])[columns]


# the premise


def sharing(table: pd.DataFrame, kind: str, k: int, against: str = "independent") -> Estimate | None:
    """Distinct experts of k rows of a kind over what is expected of independent ones (mean over texts, interval).

    against: independent (shares of all rows), own (of rows of this kind), or uniform. None where there are none.
    """
    rows = table[(table["kind"] == kind) & (table["k_rows"] == k)]
    return bootstrap(rows["distinct_count"] / rows[f"{against}_count"], np.mean) if len(rows) else None


def premise(table: pd.DataFrame, widths: Sequence[int] = (2, 4, 8, 16, 24, 48)) -> pd.DataFrame:
    """Workload, kind of row and k: distinct experts a layer, and against what independent rows would need."""
    rows = []
    for workload, group in table.groupby("workload", sort=False):
        for kind in [kind for kind in KINDS if kind in set(group["kind"])]:
            for k in [k for k in widths if ((group["kind"] == kind) & (group["k_rows"] == k)).any()]:
                mine = group[(group["kind"] == kind) & (group["k_rows"] == k)]
                rows.append(
                    {
                        "workload": workload,
                        "rows": kind,
                        "k": k,
                        "texts": len(mine),
                        "distinct experts of a layer": f"{mine['distinct_count'].mean():.1f}",
                        "independent": f"{mine['independent_count'].mean():.1f}",
                        "even": f"{mine['uniform_count'].mean():.1f}",
                        "over independent": text_of(sharing(group, kind, k)),
                        "over independent of the same kind": text_of(sharing(group, kind, k, "own")),
                    }
                )
    return pd.DataFrame(rows)


def unions(table: pd.DataFrame, workload: str = COMPACT) -> Figure:
    """Distinct experts by k with the expectation, and their ratio, for texts and for verified forwards."""
    group = table[table["workload"] == workload]
    figure, (left, right) = _new(width=8.2, height=3.6, columns=2)
    shown = [kind for kind in KINDS if (group.loc[group["kind"] == kind, "k_rows"] > 1).any()]
    for kind, colour in zip(shown, [*PALETTE, "#5D3A9B", "#E66100", "#1A85FF"], strict=False):
        mine = group[group["kind"] == kind]
        style = {"color": colour, "markersize": 3, "linewidth": 1.2, "label": kind}
        style["marker"] = "o" if mine["where"].iloc[0] == "text" else "s"
        windows = mine.groupby("k_rows")["windows_count"].sum()
        mine = mine[mine["k_rows"].isin(windows.index[windows >= min(FEWEST, windows.max())])]
        found = [(k, sharing(group, kind, k)) for k in sorted(set(mine["k_rows"]))]
        means = mine.groupby("k_rows")["distinct_count"].mean()
        left.plot(means.index, means, **style)
        right.plot([k for k, _ in found], [e.value for _, e in found], **style)
        right.fill_between(
            [k for k, _ in found], [e.low for _, e in found], [e.high for _, e in found], color=colour, alpha=0.12, lw=0
        )
    expected = group.groupby("k_rows")[["independent_count", "uniform_count"]].mean()
    for column, line in (("independent_count", "--"), ("uniform_count", ":")):
        label = {"independent_count": "independent rows", "uniform_count": "even and independent rows"}[column]
        left.plot(expected.index, expected[column], line, color="black", linewidth=1.2, label=label)
    right.axhline(1, color="black", linewidth=1, linestyle="--")
    left.set_ylabel("distinct experts of a layer")
    right.set_ylabel("over independent rows")
    for axis in (left, right):
        axis.set_xlabel("rows")
        axis.set_ylim(bottom=0)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def lucebox(table: pd.DataFrame) -> pd.DataFrame:
    """A large model's published unions beside ours, both over what even and independent routing would need."""
    rows = []
    for k, distinct in LUCEBOX.items():
        even = routing.uniform(256, 8, k)
        rows.append(
            {
                "rows": k,
                "Lucebox #501 (256 experts, top-8): distinct": f"{distinct}",
                "even and independent": f"{even:.1f}",
                "ratio": f"{distinct / even:.2f}",
                **{
                    f"ratio here, {workload}": f"{_factor(group, k):.2f}"
                    for workload, group in table.groupby("workload", sort=False)
                },
            }
        )
    return pd.DataFrame(rows)


def _factor(group: pd.DataFrame, k: float) -> float:
    """Distinct experts over even, independent rows, of k rows in a row of a text; between and past widths by line."""
    mixed = group[group["kind"] == routing.MIXED]
    ratios = (mixed["distinct_count"] / mixed["uniform_count"]).groupby(mixed["k_rows"]).mean().sort_index()
    return float(np.interp(k, ratios.index, ratios))


# capacity


def capacity(table: pd.DataFrame, shape: str = traces.RECORDED) -> pd.DataFrame:
    """Arm, policy and slots: the share found in memory and experts read for a token, by workload."""
    rows = []
    group = table[table["shape"] == shape]
    for key, mine in group.groupby(["workload", "arm", "policy", "slots_count"], sort=False):
        best = _same(group, mine, "belady")
        rows.append(
            {
                **dict(zip(("workload", "arm", "policy", "slots"), key, strict=True)),
                "texts": len(mine),
                "found in memory": percent(1 - mine["loads_count"].sum() / mine["asked_count"].sum()),
                "experts read a token": f"{mine['loads_count'].sum() / mine['generated_tokens'].sum():.1f}",
                "reads over the least possible": f"{mine['loads_count'].sum() / best:.2f}" if best else "–",
            }
        )
    return pd.DataFrame(rows)


def _same(group: pd.DataFrame, mine: pd.DataFrame, policy: str) -> int:
    keys = ["workload", "arm", "slots_count"]
    here = (group[keys] == mine[keys].iloc[0]).all(axis=1) & (group["policy"] == policy)
    return int(group.loc[here, "loads_count"].sum())


def found_share(table: pd.DataFrame, arm: str, policy: str, slots: int, workload: str = COMPACT) -> float | None:
    """The share of asked experts found in memory; None where that was not replayed."""
    mine = table[
        (table["workload"] == workload)
        & (table["arm"] == arm)
        & (table["policy"] == policy)
        & (table["slots_count"] == slots)
        & (table["shape"] == traces.RECORDED)
    ]
    return float(1 - mine["loads_count"].sum() / mine["asked_count"].sum()) if len(mine) else None


def policies(table: pd.DataFrame, workload: str = COMPACT) -> Figure:
    """Experts read for a token by slots, one line a policy, plain and drafted side by side."""
    group = table[(table["workload"] == workload) & (table["shape"] == traces.RECORDED)]
    shown = list(dict.fromkeys(group["arm"]))
    figure, axes = _new(width=8.2, height=3.4, columns=len(shown), sharey=True, squeeze=False)
    for axis, arm in zip(axes[0], shown, strict=True):
        mine = group[group["arm"] == arm]
        for policy, colour in zip(dict.fromkeys(mine["policy"]), ["black", *PALETTE], strict=False):
            sums = mine[mine["policy"] == policy].groupby("slots_count")[["loads_count", "generated_tokens"]].sum()
            read = sums["loads_count"] / sums["generated_tokens"]
            style = {"marker": "x", "markersize": 9, "linestyle": "none"} if policy == "store" else {"marker": "."}
            label = "the store itself, lru" if policy == "store" else policy
            axis.plot(read.index, read, color=colour, label=label, zorder=3 if policy == "store" else 2, **style)
        axis.set_title(arm)
        axis.set_xlabel("slots of a layer")
    axes[0][0].set_ylabel("experts read a token")
    axes[0][0].set_ylim(bottom=0)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def replayed(table: pd.DataFrame) -> str:
    """Whether the replay reads what the store read: `6 of 6` texts to the expert, under lru with the store's slots."""
    keys = ["workload", "prompt", "arm", "slots_count"]
    recorded = table[table["shape"] == traces.RECORDED]
    real = recorded[recorded["policy"] == "store"].set_index(keys)["loads_count"]
    replay = recorded[recorded["policy"] == "lru"].set_index(keys)["loads_count"]
    both = pd.concat([real, replay], axis=1, join="inner", keys=["real", "replay"])
    return f"{(both['real'] == both['replay']).sum()} of {len(both)}" if len(both) else NOT_RUN


# break-even


def surface_table(table: pd.DataFrame) -> pd.DataFrame:
    """Slots, gate, rows and acceptance: bytes read for a token over plain, measured and modelled."""
    rows = []
    for key, mine in table.groupby(["workload", "slots_count", "gate", "rows_count", "acceptance_share"], sort=True):
        rows.append(
            {
                **dict(zip(("workload", "slots", "gate", "rows", "acceptance"), key, strict=True)),
                "texts": len(mine),
                "found in memory, plain": percent(_found(mine, "plain_")),
                "found in memory": percent(_found(mine, "")),
                "rows a forward": f"{_rows(mine):.1f}",
                "tokens a forward": f"{mine['generated_tokens'].sum() / mine['forward_count'].sum():.2f}",
                "bytes, plain = 1": value_of(measured(mine)),
                "by routing alone": f"{mine['model_ratio'].mean():.2f}" if key[2] == FIXED else "–",
                "tokens a second, plain = 1": value_of(_surface_speed(mine)),
            }
        )
    return pd.DataFrame(rows)


def _found(rows: pd.DataFrame, prefix: str) -> float:
    asked = rows[f"{prefix}distinct_count"].sum()
    return 1 - rows[f"{prefix}loads_count"].sum() / asked if asked else float("nan")


def _rows(rows: pd.DataFrame) -> float:
    """Rows of a forward behind the prompt's, the root's among them."""
    return 1 + rows["draft_rows"].sum() / max(rows["forward_count"].sum() - len(rows), 1)


def measured(rows: pd.DataFrame) -> Estimate | None:
    """Bytes read for a token over plain decoding, mean over texts; None where plain read nothing."""
    some = rows[rows["plain_miss_bytes"] > 0]
    if not len(some):
        return None
    return paired_ratio(
        some["miss_bytes"] / some["generated_tokens"],
        some["plain_miss_bytes"] / some["plain_generated_tokens"],
        np.mean,
    )


def _surface_speed(rows: pd.DataFrame) -> Estimate:
    return paired_ratio(
        rows["plain_elapsed_s"] / rows["plain_generated_tokens"], rows["elapsed_s"] / rows["generated_tokens"], np.mean
    )


def crossing(table: pd.DataFrame, slots: int, rows: int) -> float | None:
    """The least acceptance, between those tried, at which forwards of so many rows read no more than plain.

    None where they read more at every acceptance that was tried.
    """
    mine = table[(table["gate"] == FIXED) & (table["slots_count"] == slots) & (table["rows_count"] == rows)]
    points = [(a, measured(group)) for a, group in mine.groupby("acceptance_share")]
    points = [(a, e.value) for a, e in points if e is not None]
    for index, (a, ratio) in enumerate(points):
        if ratio <= 1:
            if not index:
                return a
            before, above = points[index - 1]
            return before + (a - before) * (above - 1) / (above - ratio)
    return None


def always_right(table: pd.DataFrame, slots: int, rows: int) -> Estimate | None:
    """Bytes for a token over plain where every draft is right: no source of drafts can do better with these rows."""
    mine = table[(table["gate"] == FIXED) & (table["slots_count"] == slots) & (table["rows_count"] == rows)]
    return measured(mine[mine["acceptance_share"] == 1.0])


def surface(table: pd.DataFrame, workload: str = COMPACT) -> Figure:
    """Bytes read for a token over plain by acceptance and rows, one panel a number of slots, with the gates on it.

    Colours: measured, every forward with that many rows. Solid line: measured break-even; dashed: by routing alone;
    dotted: colibri's fixed rule, half accepted. Marks: how many rows each gate took at that acceptance.
    """
    mine = table[table["workload"] == workload]
    counts = sorted(set(mine["slots_count"]))
    figure, axes = _new(width=1.8 + 3.2 * len(counts), height=3.6, columns=len(counts), sharey=True, squeeze=False)
    for axis, slots in zip(axes[0], counts, strict=True):
        here = mine[mine["slots_count"] == slots]
        fixed = here[here["gate"] == FIXED]
        widths, degrees = sorted(set(fixed["rows_count"])), sorted(set(fixed["acceptance_share"]))
        found = [
            [value_or_nan(measured(g)) for _, g in fixed[fixed["rows_count"] == k].groupby("acceptance_share")]
            for k in widths
        ]
        grid = axis.pcolormesh(
            degrees, range(len(widths)), np.array(found), cmap="RdBu_r", vmin=0, vmax=2, shading="nearest"
        )
        lines = [("-", [crossing(mine, slots, k) for k in widths], "break-even, measured")]
        expected = fixed.groupby("rows_count")["model_share"].mean()
        lines.append(("--", [expected[k] for k in widths], "break-even, by routing alone"))
        for line, points, label in lines:
            there = [(a, i) for i, a in enumerate(points) if a is not None]
            axis.plot([a for a, _ in there], [i for _, i in there], line, marker=".", color="black", label=label)
        axis.axvline(0.5, color="black", linestyle=":", label="half accepted")
        for gate, mark in (("bytes gate", "s"), ("cost gate", "o"), ("colibri's guard", "^")):
            of_gate = here[here["gate"] == gate]
            points = [(a, _rows(group)) for a, group in of_gate.groupby("acceptance_share")]
            places = [np.interp(k, widths, range(len(widths))) for _, k in points]
            style = {"linestyle": "none", "markersize": 6, "markerfacecolor": "none", "color": "black"}
            axis.plot([a for a, _ in points], places, mark, label=f"rows taken by {gate}", **style)
        axis.set_yticks(range(len(widths)), widths)
        axis.set_title(f"{slots} slots: {percent(_found(here, 'plain_'))} found, plain")
        axis.set_xlabel("acceptance of a drafted token")
        axis.grid(visible=False)
    axes[0][0].set_ylabel("rows of a forward")
    figure.colorbar(grid, ax=list(axes[0]), label="bytes read for a token, plain = 1")
    columns = min(3, 1 + len(counts))
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)
    return figure


def value_or_nan(estimate: Estimate | None) -> float:
    return float("nan") if estimate is None else estimate.value


# a large model, on paper


def on_paper(table: pd.DataFrame, premises: pd.DataFrame, workload: str = COMPACT) -> pd.DataFrame:
    """Tokens a second of the large shape by disk, from what was measured here, as the columns tell one after another.

    Rows a forward, tokens a forward and the share found in memory are those of the warm runs here. Distinct experts are
    those of even and independent routing at 256 experts, top-8, times the ratio of that to what k rows needed here, or
    in LUCEBOX (by line between its points and one row). Only reads take time.
    """
    shape, rows = traces.LARGE, []
    here = table[(table["workload"] == workload) & (table["state"] == WARM)]
    group = premises[premises["workload"] == workload]
    for arm in [arm for arm in (PLAIN, FRAME, ALL) if arm in set(here["arm"])]:
        mine = here[here["arm"] == arm]
        forwards = mine["forward_count"].sum() - len(mine)
        k = 1 + mine["draft_rows"].sum() / max(forwards, 1)
        tokens = (mine["generated_tokens"].sum() - len(mine)) / max(forwards, 1)
        found = 1 - mine["loads_count"].sum() / mine["distinct_count"].sum()
        for whose, factor in (("here", _factor(group, k)), ("Lucebox #501", _published_factor(k))):
            distinct = routing.uniform(shape.experts, shape.top_k, k) * (factor if k > 1 else 1)
            size = distinct * shape.layers * (1 - found) * shape.expert_bytes / tokens
            rows.append(
                {
                    "arm": arm,
                    "rows share as": whose,
                    "rows a forward": f"{k:.1f}",
                    "tokens a forward": f"{tokens:.2f}",
                    "found in memory": percent(found),
                    "distinct experts of a layer": f"{distinct:.1f}",
                    "GB read a token": f"{size / 1e9:.2f}",
                    **{f"tokens/s at {disk:g} GB/s": _rate(disk, size) for disk in DISKS},
                }
            )
    return pd.DataFrame(rows)


def _published_factor(k: float) -> float:
    """Distinct experts over even, independent rows in LUCEBOX."""
    points = [(1, 1.0), *((rows, distinct / routing.uniform(256, 8, rows)) for rows, distinct in LUCEBOX.items())]
    return float(np.interp(k, *zip(*points, strict=True)))


def _rate(disk: float, size: float) -> str:
    """Tokens a second of a disk of so many GB/s where a token reads `size` bytes."""
    return f"{disk * 1e9 / size:.2f}" if size else "nothing is read"


def at_scale(table: pd.DataFrame) -> pd.DataFrame:
    """The recorded forwards replayed at the large shape: reads and tokens a second by disk, both ways to enlarge."""
    rows = []
    large = table[table["shape"] != traces.RECORDED]
    for key, mine in large.groupby(["workload", "arm", "shape", "policy", "slots_count"], sort=False):
        workload, arm, shape, policy, slots = key
        size = mine["loads_count"].sum() / mine["generated_tokens"].sum() * traces.LARGE.expert_bytes
        rows.append(
            {
                "workload": workload,
                "arm": arm,
                "experts of a group": shape.removeprefix("large, "),
                "policy": policy,
                "slots": slots,
                "found in memory": percent(1 - mine["loads_count"].sum() / mine["asked_count"].sum()),
                "GB read a token": f"{size / 1e9:.2f}",
                **{f"tokens/s at {disk:g} GB/s": _rate(disk, size) for disk in DISKS},
            }
        )
    return pd.DataFrame(rows)


def drafted_arms(table: pd.DataFrame) -> list[str]:
    """The arms with experts on disk that draft, in the order in which everything shows them."""
    return [arm for arm in experts.ARMS if arm in set(table["arm"]) and arm not in (PLAIN, AGAIN)]


def cases(table: pd.DataFrame) -> int:
    """How many pairs of workload, state and drafted arm there are."""
    streamed = table[table["arm"].isin(drafted_arms(table))]
    return len(streamed[["workload", "state", "arm"]].drop_duplicates())


def routed_share(table: pd.DataFrame) -> float:
    """top_k over the number of experts, of the model that ran."""
    return float((table["top_k_count"] / table["experts_count"]).iloc[0])


def disk(speed: float, latency_ms: float) -> str:
    """A disk in words."""
    return f"{speed:g} GB/s, {latency_ms:g} ms a read, emulated" if speed else "this machine's own"


def disks(table: pd.DataFrame, latency_ms: float) -> pd.DataFrame:
    """Workload, disk, pinned store and state: what the same drafts are worth in time."""
    rows = []
    keys = ["workload", "disk_gb_per_s", *(["pin_mb"] if "pin_mb" in table else []), "state"]
    for key, group in table[table["state"] != IN_MEMORY].groupby(keys, sort=False):
        case = dict(zip(keys, key, strict=True))
        plain = group[group["arm"] == PLAIN]
        rows.append(
            {
                "workload": case["workload"],
                "disk": disk(case["disk_gb_per_s"], latency_ms),
                "pinned MB": f"{case.get('pin_mb', 0):g}",
                "store": case["state"],
                "read as": " and ".join(sorted(set(group["how"]))),
                "plain waits for it": shares(plain, "read_s", "elapsed_s"),
                "plain, tokens a second": f"{(plain['generated_tokens'] / plain['elapsed_s']).median():.1f}",
                **{f"{arm}, plain = 1": text_of(speedup(group, arm)) for arm in (FRAME, ALL)},
                "bytes, plain = 1": text_of(bytes_ratio(group, ALL)),
                "read from the device, all arms (MB)": f"{group['device_bytes'].sum() / 1e6:.1f}",
            }
        )
    return pd.DataFrame(rows)
