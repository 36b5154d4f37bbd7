"""From tidy tables to the numbers that the book states. Every ratio is paired before it is averaged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from gdlib.bench.stats import Estimate, bootstrap, paired_ratio, share
from gdlib.decoding import PARTS

ORACLE_KEYS = ["schema", "string_length", "confidence", "trial"]
MODEL_KEYS = ["shots", "prompt"]


def paired(table: pd.DataFrame, arm: str, column: str, keys: list[str], base: str = "free") -> pd.DataFrame:
    """One row a trial: `value` of the arm and `base` of the base arm, for trials that have both."""
    index = table.set_index(keys)
    values, bases = index.loc[index["arm"] == arm, column], index.loc[index["arm"] == base, column]
    if not values.index.is_unique or not bases.index.is_unique:
        raise ValueError(f"{keys} do not name one trial: {arm!r} or {base!r} has several rows for the same")
    return pd.DataFrame({"value": values, "base": bases}).dropna().reset_index()


def slowdown(table: pd.DataFrame, arm: str, keys: list[str], statistic: Callable = np.median) -> Estimate:
    """Time of a step over the free step of the same trial."""
    pairs = paired(table, arm, "step_us", keys)
    return paired_ratio(pairs["value"], pairs["base"], statistic)


def typical(table: pd.DataFrame, arm: str, column: str, statistic: Callable = np.median) -> Estimate:
    return bootstrap(table.loc[table["arm"] == arm, column], statistic)


def valid(table: pd.DataFrame, arm: str, column: str = "schema_valid") -> Estimate:
    return share(table.loc[table["arm"] == arm, column])


def parts(table: pd.DataFrame, arm: str) -> pd.Series:
    """Mean us a step of every part, by the passes that read the clock after each."""
    means = table.loc[table["arm"] == arm, [f"{part}_us" for part in PARTS]].mean()
    return means.set_axis(PARTS)


def overhead_share(table: pd.DataFrame, arm: str) -> Estimate:
    """The share of a step that a free step of the same prompt or trial does not have.

    All parts of the arm's step but the model, less the choosing of the free step; below zero where guided decoding has
    less to choose. Of the model itself nothing is counted, in either.
    """
    keys = MODEL_KEYS if "prompt" in table else ORACLE_KEYS
    others = [f"{part}_us" for part in PARTS if part != "model"]
    rows = table.assign(extra_us=table[others].sum(axis=1))
    extra = paired(rows, arm, "extra_us", keys)
    whole = paired(rows, arm, "instrumented_us", keys)
    return bootstrap((extra["value"] - extra["base"]) / whole["value"])
