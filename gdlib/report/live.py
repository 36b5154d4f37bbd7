"""The figures that answer to the hand: hover, zoom, series on and off, by plotly, beside the static figure.

A figure leaves here as JSON in the page. book/_static/plotly-figures.js draws it with plotly's own script, served with
the book, in the colours of the page; until then, in print and without scripts, the static figure stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from gdlib.bench.stats import Estimate
from gdlib.report import drafts, masks


def _layout(height: int, **options) -> dict:
    base = {
        "height": height,
        "margin": {"l": 60, "r": 20, "t": 30, "b": 50},
        "template": "none",
        "hovermode": "closest",
    }
    return {**base, "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}, **options}


def _interval(found: Sequence[Estimate]) -> dict:
    up, down = [e.high - e.value for e in found], [e.value - e.low for e in found]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": np.clip(down, 0, None).tolist()}


def by_workload(table: pd.DataFrame) -> str:
    """Tokens a forward, and tokens a second over plain, by workload: `drafts.by_workload` as plotly JSON."""
    import plotly.graph_objects as go

    names = list(dict.fromkeys(table["workload"]))
    figure = go.Figure(layout=_layout(200 + 46 * len(names), margin={"l": 190, "r": 20, "t": 20, "b": 110}))
    for arm in [arm for arm in drafts.SHOWN if arm in set(table["arm"])]:
        for axis, measure in (("x", _forward(arm)), ("x2", _speed(arm))):
            found = [(name, measure(table[table["workload"] == name])) for name in names]
            found = [(name, e) for name, e in found if e is not None]
            figure.add_scatter(
                x=[e.value for _, e in found],
                y=[name for name, _ in found],
                error_x=_interval([e for _, e in found]),
                customdata=[[drafts.text_of(e), e.n] for _, e in found],
                hovertemplate=f"{arm}<br>%{{y}}<br>%{{customdata[0]}}, n = %{{customdata[1]}}<extra></extra>",
                mode="markers",
                marker={"color": drafts.ARM_COLOURS[arm], "size": 8},
                name=arm,
                legendgroup=arm,
                showlegend=axis == "x",
                xaxis=axis,
            )
    figure.update_layout(
        scattermode="group",
        xaxis={"title": {"text": "tokens a forward"}, "domain": [0, 0.46], "rangemode": "tozero"},
        xaxis2={
            "title": {"text": "tokens a second, plain = 1"},
            "domain": [0.54, 1],
            "anchor": "y",
            "rangemode": "tozero",
        },
        yaxis={"autorange": "reversed"},
    )
    return figure.to_json()


def _ticks(values: pd.Series) -> list[float]:
    """Marks of a logarithmic axis over these values (> 0): 1, 2, 5 in every power of ten, over more than two only 1."""
    known = values[values > 0]
    if known.empty:
        return [1.0]
    low, high = np.floor(np.log10(known.min())), np.ceil(np.log10(known.max()))
    steps = (1, 2, 5) if high - low <= 2 else (1,)
    return [float(step * 10.0**power) for power in np.arange(low, high + 1) for step in steps]


def _forward(arm: str) -> Callable[[pd.DataFrame], Estimate | None]:
    return lambda group: drafts.per_forward(group[group["arm"] == arm])


def _speed(arm: str) -> Callable[[pd.DataFrame], Estimate | None]:
    return lambda group: drafts.speedup(group, arm)


def by_level(table: pd.DataFrame, column: str, label: str) -> str:
    """A time against the level of each family: `masks.by_level` as plotly JSON, panel by panel."""
    from plotly.subplots import make_subplots

    families = [family for family in masks.FAMILIES if family in set(table["family"])]
    columns = min(3, len(families))
    lines = -(-len(families) // columns)
    figure = make_subplots(
        lines, columns, subplot_titles=families, horizontal_spacing=0.09, vertical_spacing=0.2 / lines
    )
    told = set()
    for place, family in enumerate(families):
        rows = table[(table["family"] == family) & table["timed"]]
        figure.update_yaxes(tickvals=_ticks(rows[column]), row=place // columns + 1, col=place % columns + 1)
        for arm in masks.arms_of(rows):
            by = rows[rows["arm"] == arm].groupby("level_count")
            middle, right = by[column].median(), by["outcome"].agg(lambda o: set(o) == {"ok"})
            figure.add_scatter(
                x=middle.index.tolist(),
                y=middle.tolist(),
                customdata=[
                    [masks.time_of([us]), "right" if ok else "wrong"] for us, ok in zip(middle, right, strict=True)
                ],
                hovertemplate=f"{family} %{{x}}: %{{customdata[0]}}, %{{customdata[1]}}<extra>{arm}</extra>",
                mode="lines+markers",
                line={"color": masks.COLOURS[arm]},
                marker={"symbol": ["circle" if ok else "circle-open" for ok in right], "size": 8},
                name=arm,
                legendgroup=arm,
                showlegend=arm not in told,
                row=place // columns + 1,
                col=place % columns + 1,
            )
            told.add(arm)
    figure.update_layout(_layout(120 + 230 * lines, margin={"l": 70, "r": 20, "t": 40, "b": 80}))
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", tickformat="~s")
    for line in range(lines):
        figure.update_yaxes(title_text=label, row=line + 1, col=1)
    return figure.to_json()
