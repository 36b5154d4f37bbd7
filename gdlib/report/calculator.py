"""What a mask would cost and what drafts would give somewhere else: small models fitted on this book's own runs.

Three fits, each of one idea. The time of a mask is a constant of the kind of schema times a power of the vocabulary's
size times a power of the batch. Of the tokens of a text, drafts save the share that is structural and accepted. A
forward over k rows costs what it was measured to cost. Errors are what the fit misses cases by that it has not seen
(each left out in turn), and where there are too few cases for that, none is given. `estimate` and
book/_static/calculator.js compute the same.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping

import numpy as np
import pandas as pd
from IPython.display import HTML

from gdlib.bench.record import Runs
from gdlib.report.drafts import GRAMMAR, PLAIN, costs_of, main_format, pairs
from gdlib.report.page import _provenance

KINDS = {
    "properties": "an object of many properties",
    "depth": "objects in objects",
    "enum": "a long enumeration",
    "characters": "long strings",
    "choices": "a choice of objects",
    "tree": "a recursive tree",
    "digits": "numbers with bounds",
}
FEWEST = 4  # cases from which on leaving one out says something
# name -> (label, smallest, largest, step, where it begins)
SETTINGS = {
    "vocabulary": ("tokens of the vocabulary", 50, 1_000_000, 1, 128_000),
    "forward_ms": ("milliseconds a forward", 0.1, 10_000, 0.1, 20),
    "batch": ("texts in a batch", 1, 256, 1, 1),
    "structural": ("share of structural bytes (%)", 0, 100, 1, 50),
    "acceptance": ("drafted tokens accepted (%)", 1, 100, 1, 95),
}
EXAMPLES = (
    {"vocabulary": 32_000, "forward_ms": 10, "batch": 1},
    {"vocabulary": 128_000, "forward_ms": 20, "batch": 1},
    {"vocabulary": 128_000, "forward_ms": 20, "batch": 32},
    {"vocabulary": 128_000, "forward_ms": 500, "batch": 1},
)


def fitted(masks: pd.DataFrame, inside: pd.DataFrame, drafts: pd.DataFrame) -> dict:
    """The three fits, as JSON can hold them, from the tables of these sweeps.

    mask: {kinds: {family: log of us over one token}, slope (of log us by log tokens; 0 where one vocabulary ran),
    spread (95% of what the fit misses unseen cases by, in logs; null), n, vocabularies: [smallest, largest]}.
    batch: {slope, spread, n, largest}. draft: {kappa, spread (of the saved share; null), gain_spread (in logs; null),
    n, workloads}. rows: {widths, cost} (a forward of one row = 1), model, dtype.
    """
    return {"mask": _mask(masks), "batch": _batch(inside), **_draft(drafts)}


def _mask(table: pd.DataFrame) -> dict:
    good = table[(table["arm"] == "gdlib") & (table["outcome"] == "ok") & table["timed"]]
    kinds = [kind for kind in KINDS if kind in set(good["family"])]
    tokens = np.log(good["vocabulary_tokens"].to_numpy(float))
    several = good["vocabulary_tokens"].nunique() > 1
    columns = [(good["family"] == kind).to_numpy(float) for kind in kinds] + ([tokens] if several else [])
    design, target = np.stack(columns, axis=1), np.log(good["tbm_mean_us"].to_numpy(float))
    found = np.linalg.lstsq(design, target, rcond=None)[0]
    return {
        "kinds": dict(zip(kinds, map(float, found), strict=False)),
        "slope": float(found[-1]) if several else 0.0,
        "spread": _spread(design, target),
        "n": len(good),
        "vocabularies": [int(good["vocabulary_tokens"].min()), int(good["vocabulary_tokens"].max())],
    }


def _batch(table: pd.DataFrame) -> dict:
    """Masks of a whole batch against its size: one slope over both arms, first use and kept."""
    rows = table[(table["question"] == "batch") & table["quantity"].str.startswith("masks")]
    rows = rows[rows["vocabulary_tokens"] == rows["vocabulary_tokens"].max()]
    by = rows.groupby(["arm", "quantity", "level_count"])["value_us"].median().reset_index()
    groups = sorted(set(zip(by["arm"], by["quantity"], strict=True)))
    columns = [((by["arm"] == arm) & (by["quantity"] == quantity)).to_numpy(float) for arm, quantity in groups]
    design = np.stack([*columns, np.log(by["level_count"].to_numpy(float))], axis=1)
    target = np.log(by["value_us"].to_numpy(float))
    found = np.linalg.lstsq(design, target, rcond=None)[0]
    return {
        "slope": float(found[-1]),
        "spread": _spread(design, target),
        "n": len(by),
        "largest": int(by["level_count"].max()),
    }


def _draft(table: pd.DataFrame) -> dict:
    """The grammar source by itself: what it saves, and what that was worth beside what the rows cost."""
    measured = costs_of(table)
    measured = measured[measured["dtype"] == table["dtype"].iloc[0]].groupby("rows")["ms"].median().sort_index()
    cost = np.maximum.accumulate(measured.to_numpy()) / measured.iloc[0]
    rows = {
        "widths": [int(k) for k in measured.index],
        "cost": [float(c) for c in cost],
        "dtype": str(table["dtype"].iloc[0]),
    }
    both = pairs(main_format(table), GRAMMAR, PLAIN)
    both = both[(both["grammar_proposed_count"] > 0) & (both["structural_share"] > 0)]
    accepted = (both["grammar_accepted_count"] / both["grammar_proposed_count"]).to_numpy(float)
    design = (both["structural_share"].to_numpy(float) * accepted)[:, None]
    saved = 1 - (both["forward_count"] / both["generated_tokens"]).to_numpy(float)
    kappa = float(np.linalg.lstsq(design, saved, rcond=None)[0][0]) if len(both) and design.any() else 0.0
    draft = {
        "kappa": kappa,
        "spread": _spread(design, saved),
        "gain_spread": None,
        "n": len(both),
        "workloads": list(dict.fromkeys(both["workload"])),
    }
    gains = (both["elapsed_s_base"] / both["generated_tokens_base"]) / (both["elapsed_s"] / both["generated_tokens"])
    if len(both) >= FEWEST:
        told = [
            _gain({"draft": draft, "rows": rows}, s, a, 1)[1]
            for s, a in zip(both["structural_share"], accepted, strict=True)
        ]
        draft["gain_spread"] = float(np.quantile(np.abs(np.log(np.array(told) / gains.to_numpy(float))), 0.95))
    return {"draft": draft, "rows": rows}


def _spread(design: np.ndarray, target: np.ndarray) -> float | None:
    """95% of the distances by which the fit without a case misses it; None where there are too few cases."""
    if len(target) < max(FEWEST, design.shape[1] + 2):
        return None
    hat = np.einsum("ij,ji->i", design, np.linalg.pinv(design))
    residual = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    known = hat < 1 - 1e-9  # a case alone of its kind is met exactly, and says nothing
    return float(np.quantile(np.abs(residual[known] / (1 - hat[known])), 0.95)) if known.sum() >= FEWEST else None


def estimate(fit: Mapping, settings: Mapping) -> dict:
    """What the fits say of these settings (names of SETTINGS, and `kind`); shares of 0 to 1, each [value, low, high].

    mask_us: masks of a step, of the whole batch. mask_share: of a step. tokens: a forward, drafted. gain: tokens a
    second over plain. low and high are None where no error can be given. beyond: what of the settings lies outside
    what the fits have seen, as names of "vocabulary", "batch" and "rows".
    """
    mask, batch, draft = fit["mask"], fit["batch"], fit["draft"]
    us = float(np.exp(mask["kinds"][settings["kind"]] + mask["slope"] * np.log(settings["vocabulary"])))
    us *= settings["batch"] ** batch["slope"]
    # of one text, the spread of the batch's slope has no part
    wide = mask["spread"] if settings["batch"] == 1 else _both(mask["spread"], batch["spread"])
    masks = [us, *_around(us, wide)]
    saved = draft["kappa"] * settings["structural"] * settings["acceptance"]
    tokens, gain, rows = _gain(fit, settings["structural"], settings["acceptance"], settings["batch"])
    ends = (
        [None, None]
        if draft["spread"] is None
        else [_tokens(saved - draft["spread"]), _tokens(saved + draft["spread"])]
    )
    low, high = mask["vocabularies"]
    beyond = [
        name
        for name, is_out in (
            ("vocabulary", not low <= settings["vocabulary"] <= high),
            ("batch", settings["batch"] > batch["largest"]),
            ("rows", rows > fit["rows"]["widths"][-1]),
        )
        if is_out
    ]
    return {
        "mask_us": masks,
        "mask_share": [None if m is None else m / (m + 1000 * settings["forward_ms"]) for m in masks],
        "tokens": [tokens, *ends],
        "gain": [gain, *_around(gain, draft["gain_spread"])],
        "beyond": beyond,
    }


def _both(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else float(np.hypot(one, other))


def _around(value: float, spread: float | None) -> list[float | None]:
    return [None, None] if spread is None else [float(value * np.exp(-spread)), float(value * np.exp(spread))]


def _tokens(saved: float) -> float:
    return 1 / (1 - min(max(saved, 0.0), 0.95))


def _gain(fit: Mapping, structural: float, acceptance: float, batch: int) -> tuple[float, float, float]:
    """(tokens a forward, tokens a second over plain, rows of that forward)."""
    tokens = _tokens(fit["draft"]["kappa"] * structural * acceptance)
    rows = batch * (1 + (tokens - 1) / acceptance)
    return tokens, tokens * _cost(fit["rows"], batch) / _cost(fit["rows"], rows), rows


def _cost(rows: Mapping, width: float) -> float:
    """Of a forward over so many rows, in forwards of one row; past the widest that was measured in a straight line."""
    widths, cost = rows["widths"], rows["cost"]
    if len(widths) > 1 and width > widths[-1]:
        return cost[-1] + (width - widths[-1]) * (cost[-1] - cost[-2]) / (widths[-1] - widths[-2])
    return float(np.interp(width, widths, cost))


def table(fit: Mapping) -> pd.DataFrame:
    """Some settings and what the fits say of them, for print and for pages without scripts."""
    rows = []
    for example in EXAMPLES:
        for kind in list(fit["mask"]["kinds"])[:3]:
            found = estimate(fit, {**beginning(fit), **example, "kind": kind})
            rows.append(
                {
                    "schema": KINDS[kind],
                    "tokens of the vocabulary": f"{example['vocabulary']:,}",
                    "ms a forward": example["forward_ms"],
                    "batch": example["batch"],
                    "masks of a step": text(found["mask_us"], 0, " µs"),
                    "of a step": text([None if v is None else 100 * v for v in found["mask_share"]], 2, "%"),
                    "beyond the runs": ", ".join(found["beyond"]) or "no",
                }
            )
    return pd.DataFrame(rows)


def beginning(fit: Mapping) -> dict:
    """The settings that the page begins with."""
    start = {name: begin for name, (*_, begin) in SETTINGS.items()}
    shares = {name: start[name] / 100 for name in ("structural", "acceptance")}
    return {**start, **shares, "kind": next(iter(fit["mask"]["kinds"]))}


def text(value: list, digits: int, unit: str = "") -> str:
    """`12.3 µs [10.1, 15.0]`, or without an interval where no error can be given."""
    middle, low, high = value
    if low is None:
        return f"{middle:,.{digits}f}{unit} (no error can be given)"
    return f"{middle:,.{digits}f}{unit} [{low:,.{digits}f},\u00a0{high:,.{digits}f}]"


def form(fit: Mapping, name: str, *runs: Runs) -> HTML:
    """The calculator: its settings, what they come to, and the fits as JSON for the script."""
    found = estimate(fit, beginning(fit))
    inputs = "".join(
        f'<label>{html.escape(label)}<input type="number" name="{key}" min="{least}" max="{most}" step="{step}" '
        f'value="{begin}" required></label>'
        for key, (label, least, most, step, begin) in SETTINGS.items()
    )
    kinds = "".join(f'<option value="{kind}">{html.escape(KINDS[kind])}</option>' for kind in fit["mask"]["kinds"])
    outputs = "".join(
        f'<dt>{label}</dt><dd><output name="{key}">{html.escape(value)}</output></dd>'
        for key, label, value in (
            ("mask_us", "masks of a step, all texts", text(found["mask_us"], 0, " µs")),
            ("mask_share", "their share of a step", text([v and 100 * v for v in found["mask_share"]], 2, "%")),
            ("tokens", "tokens a forward, drafted by the grammar", text(found["tokens"], 2)),
            ("gain", "tokens a second, plain = 1", text(found["gain"], 2)),
        )
    )
    record = json.dumps(fit).replace("<", "\\u003c")
    return HTML(
        f'<div class="gd-table" id="{html.escape(name)}"><form class="gd-calculator">'
        f'<div class="gd-settings"><label>kind of schema<select name="kind">{kinds}</select></label>{inputs}</div>'
        f'<dl class="gd-answers" aria-live="polite">{outputs}</dl><p class="gd-beyond" role="status"></p>'
        '<noscript><p class="gd-provenance">Without JavaScript the answers are those of the settings shown.</p>'
        f'</noscript><script type="application/json">{record}</script></form>{_provenance(runs)}</div>'
    )


def said(fit: Mapping) -> dict[str, str]:
    """What the page says of the fits."""
    mask, batch, draft, rows = fit["mask"], fit["batch"], fit["draft"], fit["rows"]
    low, high = mask["vocabularies"]
    return {
        "cases": f"{mask['n']:,}",
        "vocabularies": f"{low:,} to {high:,} tokens" if low < high else f"one vocabulary of {low:,} tokens",
        "slope": f"the {mask['slope']:.2f}th power of its size"
        if low < high
        else "not known from one vocabulary, and the calculator takes it to be none",
        "mask_error": _factor(mask["spread"]),
        "batch_slope": f"{batch['slope']:.2f}",
        "batch_largest": str(batch["largest"]),
        "batch_error": _factor(batch["spread"]),
        "kappa": f"{draft['kappa']:.2f}" if draft["n"] else "not fitted",
        "texts": str(draft["n"]),
        "workloads": ", ".join(draft["workloads"]) or "none",
        "saved_error": "no error can be given" if draft["spread"] is None else f"±{draft['spread']:.2f}",
        "gain_error": _factor(draft["gain_spread"]),
        "widest": str(rows["widths"][-1]),
        "widest_cost": f"{rows['cost'][-1]:.1f}",
        "rows_dtype": rows["dtype"],
    }


def _factor(spread: float | None) -> str:
    return "no error can be given" if spread is None else f"within a factor of {np.exp(spread):.2f}"
