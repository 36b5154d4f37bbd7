"""Medians, means and their intervals. Ratios are paired: of the same trial, in the same process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """A value with its 95% interval and the number of observations it rests on."""

    value: float
    low: float
    high: float
    n: int

    def text(self, digits: int = 3, unit: str = "") -> str:
        value, low, high = (f"{x:.{digits}f}" for x in (self.value, self.low, self.high))
        return f"{value}{unit} [{low},\u00a0{high}]"


def bootstrap(
    values: Sequence[float], statistic: Callable = np.median, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """`statistic` (with an `axis`) of the values and its percentile bootstrap interval (Efron 1979).

    ValueError for no values, or where one is not finite: an average must not swallow a broken measurement.
    """
    data = np.asarray(values, dtype=float)
    if data.size == 0:
        raise ValueError("no values to summarise")
    if not np.isfinite(data).all():
        raise ValueError(f"{(~np.isfinite(data)).sum()} of {data.size} values are not finite")
    draws = np.random.default_rng(seed).integers(0, data.size, (resamples, data.size))
    low, high = np.quantile(statistic(data[draws], axis=1), [0.025, 0.975])
    return Estimate(float(statistic(data, axis=0)), float(low), float(high), int(data.size))


def paired_ratio(values: Sequence[float], base: Sequence[float], statistic: Callable = np.median) -> Estimate:
    """`statistic` of values / base, trial by trial, with its interval. Both in the same order, base above zero."""
    top, bottom = np.asarray(values, dtype=float), np.asarray(base, dtype=float)
    if top.shape != bottom.shape:
        raise ValueError(f"pairs do not match: {top.size} values, {bottom.size} of the base")
    if (bottom <= 0).any():
        raise ValueError("the base of a ratio must be above zero")
    return bootstrap(top / bottom, statistic)


def share(hits: Sequence[bool]) -> Estimate:
    """A share with its Wilson interval (Wilson 1927), which stays inside 0..1 and is honest at both ends."""
    data = np.asarray(hits, dtype=bool)
    n = data.size
    if n == 0:
        raise ValueError("no observations to take a share of")
    p, z = data.mean(), 1.959964
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # exactly 0 and 1 at the ends, which rounding would just miss
    low, high = (0.0 if p == 0 else middle - half), (1.0 if p == 1 else middle + half)
    return Estimate(float(p), float(low), float(high), n)
