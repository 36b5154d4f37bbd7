"""Figures and tables of the chapter on drafts.

Every ratio is paired by prompt before it is averaged; what was proposed stands beside what was accepted. Where
nothing was proposed the tables say none, never 0%, and where an arm or a workload was not run they say that.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.figure import Figure

from gdlib.bench import draft_trials, drafting
from gdlib.bench.record import Runs
from gdlib.bench.stats import Estimate, bootstrap, paired_ratio
from gdlib.drafts import SOURCES
from gdlib.report.figures import _bars, _new
from gdlib.report.page import NOT_RUN, _provenance, percent

SOURCE_COLOURS = {
    "grammar": "#009E73",
    "ngram": "#E69F00",
    "branches": "#56B4E9",
    "mtp": "#CC79A7",
    "random": "#999999",
    "model": "#000000",
}
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#000000", "#8C6D31"]


def generation(trace: str, name: str, caption: str, *runs: Runs, shown: int = 12) -> HTML:
    """One line a forward: the tokens it gave, coloured by whose they were, and the drafted rows that were refused.

    trace: JSON {"tokens": [[text, source, forward], ...], "rejected": [[text, source, forward, index], ...]}.
    """
    read = json.loads(trace)
    lines = []
    for forward in sorted({token[2] for token in read["tokens"]}):
        given = "".join(_chip(text, source) for text, source, at in read["tokens"] if at == forward)
        refused = [(text, source) for text, source, at, _ in read["rejected"] if at == forward]
        away = "".join(_chip(text, source, " gd-out") for text, source in refused[:shown])
        more = f" and {len(refused) - shown} more" if len(refused) > shown else ""
        lines.append(f'<tr><td>{forward}</td><td>{given}</td><td class="gd-away">{away}{more}</td></tr>')
    key = "".join(_chip(source if source != "model" else "chosen by the model", source) for source in _present(read))
    return HTML(
        f'<figure class="gd-table" id="{html.escape(name)}"><figcaption>{caption}</figcaption>'
        f"<p>{key}</p>"
        f'<div class="gd-scroll" tabindex="0"><table class="gd-forwards">'
        "<thead><tr><th>forward</th><th>tokens it gave</th>"
        f"<th>rows refused</th></tr></thead><tbody>{''.join(lines)}</tbody></table></div>{_provenance(runs)}</figure>"
    )


def _present(read: dict) -> list[str]:
    seen = {token[1] for token in read["tokens"]} | {token[1] for token in read["rejected"]}
    return [source for source in SOURCE_COLOURS if source in seen]


def _chip(text: str, source: str, more: str = "") -> str:
    colour = SOURCE_COLOURS[source]
    line = colour if source != "model" else "var(--pst-color-text-muted)"
    back = f"background:{colour}2e;" if source != "model" else ""
    text = html.escape(text.replace("\n", "⏎").replace("\t", "⇥"))
    style = f"{back}border-color:{line}"
    return f'<span class="gd-tok{more}" title="{html.escape(source)}" style="{style}">{text or "∅"}</span>'


CASE = ["workload", "prompt", "trial", "dtype", "temperature"]  # what a pair has in common; a cap is the arm's own
PLAIN, AGAIN, COLIBRI, GRAMMAR = "plain", "plain again", "colibri", "grammar, linear"
ALL, ALONE = draft_trials.ALL, draft_trials.ALONE
JUMP, TRANSFORMERS, LOOKUP = drafting.JUMP, drafting.TRANSFORMERS, drafting.LOOKUP
MIXTURES = ("grammar", "ngram", "branches", "grammar + ngram", "grammar + branches", "ngram + branches", ALL)
GATES = ("all sources, all rows", COLIBRI, "all sources, re-arming", ALL)
HEAD = "mtp"
WITH_HEAD = (PLAIN, AGAIN, GRAMMAR, "ngram", "branches", HEAD, COLIBRI, ALL, f"{ALL}, mtp", GATES[0])
OTHERS = (PLAIN, AGAIN, GRAMMAR, COLIBRI, ALL, "constrained", "constrained, all sources", JUMP, TRANSFORMERS, LOOKUP)
OURS = tuple(dict.fromkeys((GRAMMAR, COLIBRI, *MIXTURES, *GATES)))
SHOWN = (GRAMMAR, COLIBRI, ALL, LOOKUP)
ARM_COLOURS = {GRAMMAR: "#009E73", COLIBRI: "#E69F00", ALL: "#CC79A7", LOOKUP: "#0072B2"}
COMPACT, SPACED, TOLERANT = "compact NDJSON", "spaced NDJSON, compact grammar", "spaced NDJSON, tolerant grammar"
PROSE, WRONG = "prose", "wrong grammar"
LABELS = {
    "ndjson": COMPACT,
    "ndjson-spaced": SPACED,
    "ndjson-spaced-tolerant": TOLERANT,
    "calls": "function calls",
    "nested": "nested extraction",
    "long-text": "long free text",
    "prose-tail": "prose with a JSON tail",
    "prose": PROSE,
    "wrong": WRONG,
}
# colibri (JustVugg/colibri, issue #48; GLM-5.2 on an M3 Max): tokens a forward, drafts accepted, end to end
PUBLISHED = {
    COMPACT: ("1.60", "not stated", "withdrawn"),
    TOLERANT: ("1.21 to 1.22", "87%", "about +5%"),
    PROSE: ("about 1.0", "not stated", "about nil"),
}


def named(table: pd.DataFrame) -> pd.DataFrame:
    """The table with names for readers in its column of workloads."""
    return table.assign(workload=table["workload"].map(LABELS))


def main_format(table: pd.DataFrame) -> pd.DataFrame:
    """`named`, and of several number formats the first alone."""
    return named(table[table["dtype"] == table["dtype"].iloc[0]])


def absent(table: pd.DataFrame, column: str, names: Sequence[str]) -> str:
    """Ends a caption: which of these workloads or arms were not run; nothing where all were."""
    missing = [name for name in names if name not in set(table[column])]
    return f" {NOT_RUN.capitalize()}: {'; '.join(missing)}." if missing else ""


def per_forward(rows: pd.DataFrame) -> Estimate | None:
    """Tokens a forward of each text, their median and its interval; None for no rows."""
    return bootstrap(rows["generated_tokens"] / rows["forward_count"]) if len(rows) else None


def pairs(table: pd.DataFrame, arm: str, base: str = "plain") -> pd.DataFrame:
    """Texts that both arms decoded: the arm's rows, with the base's time and tokens in columns that end in _base."""
    index = table.set_index(CASE)
    bases = index.loc[index["arm"] == base, ["elapsed_s", "generated_tokens"]].add_suffix("_base")
    return index[index["arm"] == arm].join(bases, how="inner").reset_index()


def speedup(table: pd.DataFrame, arm: str, base: str = "plain") -> Estimate | None:
    """How many times as many tokens a second as the base, text by text: median and interval; None for no pairs."""
    both = pairs(table, arm, base)
    if not len(both):
        return None
    per_token = both["elapsed_s"] / both["generated_tokens"]
    return paired_ratio(both["elapsed_s_base"] / both["generated_tokens_base"], per_token)


def accepted_of(accepted: int, proposed: int) -> str:
    """`118 (98%)`, and none where nothing was proposed."""
    return f"{int(accepted)} ({percent(accepted / proposed)})" if proposed else "none"


def text_of(estimate: Estimate | None, digits: int = 2) -> str:
    if estimate is None:
        return NOT_RUN
    return estimate.text(digits) if estimate.n > 1 else f"{estimate.value:.{digits}f} (n\u00a0=\u00a01)"


def value_of(estimate: Estimate | None, digits: int = 2) -> str:
    return NOT_RUN if estimate is None else f"{estimate.value:.{digits}f}"


def acceptance(rows: pd.DataFrame, source: str) -> str:
    """`98%`, and none where the source proposed nothing; NOT_RUN for no rows."""
    if not len(rows):
        return NOT_RUN
    proposed = rows[f"{source}_proposed_count"].sum()
    return percent(rows[f"{source}_accepted_count"].sum() / proposed) if proposed else "none"


def expectations(table: pd.DataFrame) -> pd.DataFrame:
    """Workload by workload: the bound, what grammar drafts and all sources give, and what that is worth in time."""
    rows = []
    for workload, group in table.groupby("workload", sort=False):
        by = {arm: group[group["arm"] == arm] for arm in (GRAMMAR, ALL)}
        bound = bootstrap(group.loc[group["arm"] == PLAIN, "bound_ratio"])
        rows.append(
            {
                "workload": workload,
                "texts": group["prompt"].nunique(),
                "bound of forced tokens": f"{bound.value:.2f}",
                "grammar alone, tokens a forward": text_of(per_forward(by[GRAMMAR])),
                "grammar drafts accepted": acceptance(by[GRAMMAR], "grammar"),
                "all sources, tokens a forward": text_of(per_forward(by[ALL])),
                "drafted rows a forward": f"{rows_a_forward(by[ALL]):.1f}" if len(by[ALL]) else NOT_RUN,
                "tokens a second, plain = 1": text_of(speedup(group, ALL)),
            }
        )
    return pd.DataFrame(rows)


def accepted_shares(rows: pd.DataFrame) -> str:
    """`grammar 5 of 8, ngram 1 of 4`, without sources that proposed nothing; a dash where none did."""
    said = []
    for source in SOURCES:
        proposed, accepted = (int(rows[f"{source}_{what}_count"].sum()) for what in ("proposed", "accepted"))
        said += [f"{source} {accepted}\u00a0of\u00a0{proposed}"] if proposed else []
    return ", ".join(said) or "–"


def drafted_rows(rows: pd.DataFrame, arm: str) -> str:
    """Rows verified beyond one a forward, "none" where nothing was drafted. (Jump-forward verifies nothing.)"""
    return f"{rows_a_forward(rows):.1f}" if rows["draft_rows"].any() else "unverified" if arm == JUMP else "none"


def formats(table: pd.DataFrame) -> pd.DataFrame:
    """The arms on compact NDJSON by number format: rows cost something else in each, and rounding differs."""
    rows = []
    compact = named(table)
    compact = compact[compact["workload"] == COMPACT]
    for dtype, group in compact.groupby("dtype", sort=False):
        shown = arms(group, (PLAIN, GRAMMAR, COLIBRI, ALL))
        rows.append(shown.drop(columns="workload").assign(**{"computed in": dtype}))
    whole = pd.concat(rows, ignore_index=True).fillna("–")
    return whole[["computed in", *[name for name in whole if name != "computed in"]]]


def accepted_rows(rows: pd.DataFrame) -> int:
    return int(sum(rows[f"{source}_accepted_count"].sum() for source in SOURCES))


def rows_a_forward(rows: pd.DataFrame) -> float:
    return rows["draft_rows"].sum() / max(rows["forward_count"].sum(), 1)


def arms(table: pd.DataFrame, chosen: Sequence[str]) -> pd.DataFrame:
    """Workload by arm: tokens a forward, acceptance by source, and tokens a second over plain.

    A workload that did not run the first of the arms is left out.
    """
    rows = []
    for workload, group in table.groupby("workload", sort=False):
        there = [arm for arm in chosen if arm in set(group["arm"])]
        for arm in there if chosen[0] in there else ():
            of_arm = group[group["arm"] == arm]
            rows.append(
                {
                    "workload": workload,
                    "arm": arm,
                    "texts": len(of_arm),
                    "tokens a forward": text_of(per_forward(of_arm)),
                    "tokens a second": f"{(of_arm['generated_tokens'] / of_arm['elapsed_s']).median():.1f}",
                    "plain = 1": text_of(speedup(group, arm)),
                    "identical": f"{of_arm['identical'].sum()} of {len(of_arm)}",
                    "drafted rows a forward": drafted_rows(of_arm, arm),
                    "accepted by source": accepted_shares(of_arm),
                }
            )
    return pd.DataFrame(rows)


def by_workload(table: pd.DataFrame) -> Figure:
    """Tokens a forward with the bound, and tokens a second over plain, by workload (median and interval)."""
    names = list(dict.fromkeys(table["workload"]))
    figure, (left, right) = _new(width=8.2, height=1.6 + 0.42 * len(names), columns=2, sharey=True)
    shown = [arm for arm in SHOWN if arm in set(table["arm"])]
    for offset, arm in enumerate(shown):
        for axis, measure in ((left, lambda g, a=arm: per_forward(g[g["arm"] == a])), (right, _speed_of(arm))):
            found = [(i, measure(table[table["workload"] == name])) for i, name in enumerate(names)]
            found = [(i + (offset - (len(shown) - 1) / 2) * 0.14, e) for i, e in found if e is not None]
            errors = [[e.value - e.low for _, e in found], [e.high - e.value for _, e in found]]
            style = {"fmt": "o", "color": ARM_COLOURS[arm], "capsize": 2, "markersize": 4, "label": arm}
            axis.errorbar([e.value for _, e in found], [i for i, _ in found], xerr=np.clip(errors, 0, None), **style)
    plain = table[table["arm"] == PLAIN]
    bounds = [plain.loc[plain["workload"] == name, "bound_ratio"].median() for name in names]
    left.plot(
        bounds, range(len(names)), "|", color="black", markersize=22, linestyle="none", label="bound of forced tokens"
    )
    for axis in (left, right):
        axis.axvline(1, color="black", linewidth=1)
        axis.grid(axis="y", visible=False)
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.5, -0.5)
    left.set_xlabel("tokens a forward")
    right.set_xlabel("tokens a second, plain = 1")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _speed_of(arm: str) -> Callable[[pd.DataFrame], Estimate | None]:
    return lambda group: speedup(group, arm)


def composition(table: pd.DataFrame, workload: str) -> Figure:
    """Each source alone, pairs and all: tokens a forward and tokens a second over plain, on one workload."""
    group = table[table["workload"] == workload]
    shown = [arm for arm in MIXTURES if arm in set(group["arm"])]
    figure, (left, right) = _new(width=8.2, height=1.0 + 0.34 * len(shown), columns=2, sharey=True)
    colours = [ARM_COLOURS.get(arm, "#8FB8DE") for arm in shown]
    _bars(left, shown, [per_forward(group[group["arm"] == arm]) for arm in shown], colours, "{:.2f}")
    _bars(right, shown, [speedup(group, arm) for arm in shown], colours, "{:.2f}")
    bound = group.loc[group["arm"] == PLAIN, "bound_ratio"].median()
    left.axvline(bound, color="black", linewidth=1, linestyle="--")
    right.axvline(1, color="black", linewidth=1)
    left.set_xlabel("tokens a forward (dashed: bound of forced tokens)")
    right.set_xlabel("tokens a second, plain = 1")
    return figure


def costs_of(table: pd.DataFrame) -> pd.DataFrame:
    """Measured ms of a forward by its rows, one row a dtype and width."""
    rows = []
    for dtype, group in table.groupby("dtype", sort=False):
        for text in {text for text in group["costs"] if text}:
            rows += [{"dtype": dtype, "rows": int(k), "ms": ms} for k, ms in json.loads(text).items()]
    return pd.DataFrame(rows)


def costs(table: pd.DataFrame) -> Figure:
    """What a forward over k rows costs, and how probable its last row must be to pay for itself."""
    measured = costs_of(table)
    figure, (left, right) = _new(width=8.2, height=3.0, columns=2)
    for (dtype, group), colour in zip(
        measured.groupby("dtype", sort=False), ("#0072B2", "#D55E00", "#009E73"), strict=False
    ):
        ms = group.groupby("rows")["ms"].median().sort_index()
        left.plot(ms.index, ms, "o-", color=colour, label=dtype)
        more = ms.index[1:]
        needed = np.diff(np.maximum.accumulate(ms)) / np.diff(ms.index) / ms.iloc[0]
        right.step(more, needed, where="pre", color=colour, label=dtype)
    left.set_ylim(bottom=0)
    right.set_ylim(bottom=0)
    right.axhline(1, color="black", linewidth=1)
    left.set_xlabel("rows of a forward")
    right.set_xlabel("rows of a forward")
    left.set_ylabel("ms")
    right.set_ylabel("what one more row costs,\na forward of one = 1")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def along(table: pd.DataFrame, axis_name: str, label: str) -> Figure:
    """Tokens a forward and tokens a second over plain along one axis (`draft_cap` or `temperature`), by workload."""
    drafted = table[table["arm"] == ALL]
    figure, (left, right) = _new(width=8.2, height=3.2, columns=2)
    levels = sorted(drafted[axis_name].unique())
    for (workload, group), colour in zip(table.groupby("workload", sort=False), PALETTE, strict=False):
        for axis, measure in ((left, lambda g: per_forward(g[g["arm"] == ALL])), (right, _speed_of(ALL))):
            others = group["arm"] != ALL  # plain ran under one cap and is the base of all
            found = [(i, measure(group[others | (group[axis_name] == level)])) for i, level in enumerate(levels)]
            found = [(i, e) for i, e in found if e is not None]
            errors = [[e.value - e.low for _, e in found], [e.high - e.value for _, e in found]]
            style = {"fmt": "o-", "color": colour, "capsize": 2, "markersize": 4, "linewidth": 1, "label": workload}
            axis.errorbar([i for i, _ in found], [e.value for _, e in found], yerr=np.clip(errors, 0, None), **style)
    for axis in (left, right):
        axis.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
        axis.set_xlabel(label)
        axis.axhline(1, color="black", linewidth=1)
    left.set_ylabel("tokens a forward")
    right.set_ylabel("tokens a second, plain = 1")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def jumped(table: pd.DataFrame) -> pd.DataFrame:
    """Texts of jump-forward; `identical` compares them with guided decoding's."""
    return table[table["arm"] == JUMP]


def jumps(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for workload, group in jumped(table).groupby("workload", sort=False):
        rows.append(
            {
                "workload": workload,
                "texts": len(group),
                "other text than guided decoding": f"{(~group['identical']).sum()} of {len(group)}",
                "tokens a forward": text_of(per_forward(group)),
                "tokens a second, plain = 1": text_of(speedup(table[table["workload"] == workload], JUMP)),
            }
        )
    return pd.DataFrame(rows)


def losses(table: pd.DataFrame, chosen: Sequence[str]) -> pd.DataFrame:
    """Every workload and arm whose interval of tokens a second over plain does not lie above 1, the worst first."""
    found = []
    for workload, group in table.groupby("workload", sort=False):
        for arm in [arm for arm in chosen if arm in set(group["arm"]) - {PLAIN}]:
            speed = speedup(group, arm)
            if speed is not None and speed.low <= 1:
                rows = group[group["arm"] == arm]
                found.append((speed.value, workload, arm, speed, rows))
    return pd.DataFrame(
        [
            {
                "workload": workload,
                "arm": arm,
                "tokens a second, plain = 1": text_of(speed),
                "n": speed.n,
                "tokens a forward": value_of(per_forward(rows)),
                "accepted of drafted rows": accepted_of(accepted_rows(rows), rows["draft_rows"].sum()),
            }
            for _, workload, arm, speed, rows in sorted(found, key=lambda one: one[0])
        ],
        columns=["workload", "arm", "tokens a second, plain = 1", "n", "tokens a forward", "accepted of drafted rows"],
    )


def losing(table: pd.DataFrame, chosen: Sequence[str]) -> str:
    """How many `losses` there are, and how far one can tell: one text has a ratio and no interval."""
    speeds = [
        speedup(group, arm)
        for _, group in table.groupby("workload", sort=False)
        for arm in chosen
        if arm in set(group["arm"]) - {PLAIN}
    ]
    single = [speed for speed in speeds if speed is not None and speed.n == 1]
    if not speeds:
        return NOT_RUN
    count = f"{len(losses(table, chosen))} of {len(speeds)}"
    if len(single) == len(speeds):
        return f"{count} by the one ratio of each; with n\u00a0=\u00a01 there are no intervals, so nothing is settled"
    return count + (f" ({len(single)} ran on one text and have no interval)" if single else "")


def against_colibri(table: pd.DataFrame) -> pd.DataFrame:
    """colibri's published numbers beside its mode here and beside all sources."""
    rows = []
    for workload, (theirs, accepted, end) in PUBLISHED.items():
        group = table[table["workload"] == workload]
        mode, whole, alone = (group[group["arm"] == arm] for arm in (COLIBRI, ALL, GRAMMAR))
        rows.append(
            {
                "workload": workload,
                "colibri: tokens a forward": theirs,
                "its mode here": text_of(per_forward(mode)),
                "all sources here": text_of(per_forward(whole)),
                "colibri: drafts accepted": accepted,
                "grammar alone here": acceptance(alone, "grammar"),
                "colibri: end to end": end,
                "its mode here, plain = 1": text_of(speedup(group, COLIBRI)),
                "all sources, plain = 1": text_of(speedup(group, ALL)),
            }
        )
    return pd.DataFrame(rows)


def missed(table: pd.DataFrame, shown: int = 8) -> pd.DataFrame:
    """Where spans cut alone were refused, over the texts that were told."""
    columns = ["workload", "behind", "drafted", "the model wrote"]
    found = [misses(row.trace, shown).assign(workload=row.workload) for row in told_alone(table).itertuples()]
    return pd.concat([pd.DataFrame(columns=columns), *found], ignore_index=True)[columns]


def told_alone(table: pd.DataFrame) -> pd.DataFrame:
    """The texts of spans cut alone that were told token by token."""
    return table[(table["arm"] == ALONE) & (table["trace"] != "")]


def misses(trace: str, shown: int = 8) -> pd.DataFrame:
    """The first drafted tokens that were refused, with the text before and what the model wrote in their place."""
    read = json.loads(trace)
    tokens = [token[0] for token in read["tokens"]]
    rows, seen = [], set()
    for text, _, _, index in read["rejected"]:
        if index < len(tokens) and text != tokens[index] and index not in seen:
            seen.add(index)
            before = "".join(tokens[max(index - 4, 0) : index])
            rows.append(
                {"behind": _visible(before), "drafted": _visible(text), "the model wrote": _visible(tokens[index])}
            )
    return pd.DataFrame(rows[:shown], columns=["behind", "drafted", "the model wrote"])


def _visible(text: str) -> str:
    return text.replace("\n", "⏎").replace(" ", "␣")


def levers(table: pd.DataFrame) -> pd.DataFrame:
    """The same orders asked for with and without spaces, under a compact and a tolerant grammar."""
    return expectations(table[table["workload"].isin([COMPACT, SPACED, TOLERANT])])


def boundaries(table: pd.DataFrame) -> pd.DataFrame:
    """Workload by way of cutting: how many drafted rows of the grammar were accepted, and what that gives."""
    rows = []
    for workload, group in table.groupby("workload", sort=False):
        if ALONE in set(group["arm"]):
            for arm, how in ((GRAMMAR, "with its context, tail held back"), (ALONE, "alone, sent whole")):
                of_arm = group[group["arm"] == arm]
                proposed, accepted = (of_arm[f"grammar_{what}_count"].sum() for what in ("proposed", "accepted"))
                rows.append(
                    {
                        "workload": workload,
                        "span cut": how,
                        "proposed": int(proposed),
                        "accepted": accepted_of(accepted, proposed),
                        "tokens a forward": text_of(per_forward(of_arm)),
                        "tokens a second, plain = 1": text_of(speedup(group, arm)),
                    }
                )
    return pd.DataFrame(rows)


def of_bound(table: pd.DataFrame) -> str:
    """How much of the bound of forced tokens the grammar source alone reaches (median over texts, paired)."""
    rows = table[table["arm"] == GRAMMAR]
    if not len(rows):
        return NOT_RUN
    return percent(float(np.median(rows["generated_tokens"] / rows["forward_count"] / rows["bound_ratio"])))
