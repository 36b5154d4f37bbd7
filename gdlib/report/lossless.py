"""Figures and tables of the chapter on losslessness.

What was proposed and accepted stands beside every share of identical texts: a source that is silently off changes
nothing either.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gdlib.bench import lossless
from gdlib.bench.stats import share
from gdlib.report.drafts import accepted_of
from gdlib.report.figures import _new
from gdlib.report.page import NOT_RUN, percent

VERIFIER_COLOURS = dict(zip(lossless.VERIFIERS, ["#0072B2", "#009E73", "#D55E00"], strict=True))
LEAST_P = 1e-40  # where a p-value is drawn that is smaller still


def identity(table: pd.DataFrame) -> pd.DataFrame:
    """Case by mixture: texts, how many were identical, and the rows proposed and accepted by source."""
    rows = []
    chosen = table[table["question"] == "identity"]
    for dtype, of_dtype in chosen.groupby("dtype", sort=False):
        for case in lossless.CASES:
            for arm, group in of_dtype[of_dtype["case"] == case].groupby("arm", sort=False):
                row = {"computed in": dtype} if chosen["dtype"].nunique() > 1 else {}
                rows.append(
                    row
                    | {
                        "grammar": case,
                        "sources": arm,
                        "texts": len(group),
                        "identical": f"{group['passed'].sum()} of {len(group)}",
                        "proposed": int(group["proposed_count"].sum()),
                        "accepted": accepted_of(group["accepted_count"].sum(), group["proposed_count"].sum()),
                        "by source": by_source(group),
                    }
                )
    return pd.DataFrame(rows)


def cases_of(table: pd.DataFrame) -> list[str]:
    """What the sources were given, in its own order: the cases that were run."""
    return [case for case in lossless.CASES if case in set(table["case"])]


def label(case: str) -> str:
    return f"{case} grammar" if case in lossless.GRAMMARS else case


def absent(table: pd.DataFrame) -> str:
    """Ends a caption: the cases that were not run; nothing where all were."""
    missing = [label(case) for case in lossless.CASES if case not in cases_of(table)]
    return f" {NOT_RUN.capitalize()}: {'; '.join(missing)}." if missing else ""


def by_source(rows: pd.DataFrame) -> str:
    """`grammar 118/120, ngram 2/5`: accepted of proposed."""
    said = []
    for name in lossless.NAMES:
        proposed, accepted = (int(rows[f"{name}_{what}_count"].sum()) for what in ("proposed", "accepted"))
        said += [f"{name} {accepted}/{proposed}"] if proposed else []
    return ", ".join(said) or "none proposed"


def proposals(table: pd.DataFrame) -> Figure:
    """Rows verified and accepted, by what the sources were given; the share of identical texts written behind."""
    chosen = table[table["question"] == "identity"]
    cases = cases_of(chosen)
    figure, axis = _new(height=1.2 + 0.3 * len(cases))
    places = np.arange(len(cases))[::-1]
    sums = chosen.groupby("case")[["proposed_count", "accepted_count"]].sum().reindex(cases)
    axis.barh(places, sums["proposed_count"], color="#C8C8C8", label="rejected")
    axis.barh(places, sums["accepted_count"], color="#009E73", label="accepted")
    room = max(sums["proposed_count"].max(), 1)
    for place, case in zip(places, cases, strict=True):
        group = chosen[chosen["case"] == case]
        text = f"{group['passed'].sum()} of {len(group)} texts identical"
        axis.text(sums.loc[case, "proposed_count"] + 0.01 * room, place, text, va="center")
    axis.set_yticks(places, [label(case) for case in cases])
    axis.grid(axis="y", visible=False)
    axis.set_xlim(0, room * 1.45)
    axis.set_xlabel("drafted rows that were verified")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def p_values(table: pd.DataFrame) -> Figure:
    """p of every chi-square test, by sampler setting, shape of the drafts and verifier; the threshold is drawn."""
    chosen = table[table["question"] == "distribution"]
    tests = list(dict.fromkeys(zip(chosen["subject"], chosen["case"], strict=True)))
    figure, axis = _new(height=1.2 + 0.3 * len(tests))
    for lane, (verifier, mark) in enumerate(zip(lossless.VERIFIERS, "osX", strict=True)):
        found = chosen[chosen["arm"] == verifier].set_index(["subject", "case"])["p_share"]
        at = [max(found[test], LEAST_P) for test in tests]
        style = {"color": VERIFIER_COLOURS[verifier], "linestyle": "none", "markersize": 6}
        axis.plot(at, np.arange(len(tests)) + 0.22 * (lane - 1), mark, label=verifier, **style)
    axis.axvline(lossless.THRESHOLD, color="black", linewidth=1)
    axis.set_xscale("log")
    axis.set_xlim(LEAST_P / 10, 10)
    axis.set_yticks(range(len(tests)), [f"{subject}: {case}" for subject, case in tests])
    axis.set_ylim(len(tests) - 0.5, -0.5)
    axis.set_xlabel("p (log scale; the line is the threshold)")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def distribution(table: pd.DataFrame) -> pd.DataFrame:
    """The chi-square tests, one a row."""
    rows = table[table["question"] == "distribution"]
    return pd.DataFrame(
        {
            "sampler": rows["subject"],
            "drafts": rows["case"],
            "verifier": rows["arm"],
            "tokens": [f"{n:,}" for n in rows["generated_tokens"]],
            "of them drafted": [f"{n:,}" for n in rows["accepted_count"]],
            "chi-square / degrees of freedom": [f"{x:.2f}" for x in rows["chi2_ratio"]],
            "degrees of freedom": rows["freedom_count"],
            "p": [f"{p:.2g}" for p in rows["p_share"]],
            "passes": np.where(rows["passed"], "yes", "no"),
        }
    )


def divergences(table: pd.DataFrame) -> pd.DataFrame:
    """By number format: identical texts, and how near a tie plain decoding was where a text first differed."""
    rows = []
    for dtype, group in table[table["question"] == "identity"].groupby("dtype", sort=False):
        other = group[~group["passed"]]
        spacing = spacings(other["top_logit"], dtype)
        steps = other["gap_logit"] / spacing
        rows.append(
            {
                "computed in": dtype,
                "texts": len(group),
                "identical": percent(share(group["passed"]).value, 1),
                "first difference at token": f"{other['same_tokens'].median():.0f}" if len(other) else "none",
                "gap there, largest (logits)": f"{other['gap_logit'].max():.2g}" if len(other) else "none",
                "in steps of the format, median": f"{steps.median():.1f}" if len(other) else "none",
                "in steps of the format, largest": f"{steps.max():.1f}" if len(other) else "none",
            }
        )
    return pd.DataFrame(rows)


def spacings(values: pd.Series, dtype: str) -> pd.Series:
    """How far apart neighbouring numbers of the format are at this size."""
    bits = {"float32": 23, "bfloat16": 7, "float16": 10}[dtype]
    return 2.0 ** (np.floor(np.log2(values.where(values > 0, 1.0))) - bits)
