"""How figures, tables and numbers get onto a page of the book.

A figure goes out as one HTML element with its alternative text, its caption and the line that says where it comes from;
captions and alternative texts are computed like everything else, so they cannot say what the data no longer says.
"""

from __future__ import annotations

import base64
import html
import io
import re

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import HTML
from matplotlib.figure import Figure

from gdlib.bench import provenance
from gdlib.bench.record import Runs

NOT_RUN = "not run in this profile"
HINT = "Drag to zoom, double-click to zoom out, click a name in the legend to leave it out."


def figure(drawing: Figure, name: str, caption: str, alt: str, *runs: Runs, live: str = "") -> HTML:
    """The drawing with caption, alternative text and provenance; `name` is its anchor on the page.

    live: the same as plotly's JSON (see live.py), which takes the drawing's place where scripts run.
    """
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=170, metadata={"Software": None})
    plt.close(drawing)
    width = round(drawing.get_figwidth() * 100)
    image = base64.b64encode(buffer.getvalue()).decode()
    return HTML(
        f'<figure class="gd-figure" id="{html.escape(name)}">'
        f'<div class="gd-scroll" tabindex="0">'
        f'<img alt="{html.escape(alt)}" width="{width}" src="data:image/png;base64,{image}"></div>'
        f"{_plotly(live, alt) if live else ''}<figcaption>{caption}\n{_provenance(runs)}</figcaption></figure>"
    )


def _plotly(figure: str, alt: str) -> str:
    """Where book/_static/plotly-figures.js draws, with what."""
    data = figure.replace("<", "\\u003c")
    return (
        f'<div class="gd-plotly"><div class="gd-drawn" tabindex="0">'
        f'<div class="plotly-graph-div" role="img" aria-label="{html.escape(alt)}"></div></div>'
        f'<p class="gd-provenance">{HINT}</p><script type="application/json">{data}</script></div>'
    )


def table(frame: pd.DataFrame, name: str, caption: str, *runs: Runs, empty: str = "") -> HTML:
    """The frame with caption, provenance and a link that downloads it as CSV; of no rows a `note`, `empty`."""
    if frame.empty:
        return note(name, empty or f"{caption} {NOT_RUN.capitalize()}.", *runs)
    data = base64.b64encode(frame.to_csv(index=False).replace("\u00a0", " ").encode()).decode()
    body = _tied(frame.to_html(index=False, border=0, escape=True, classes="gd-data"))
    link = f'<a download="{html.escape(name)}.csv" href="data:text/csv;base64,{data}">Download as CSV</a>'
    return HTML(
        f'<figure class="gd-table" id="{html.escape(name)}"><figcaption>{caption}</figcaption>'
        f'<div class="gd-scroll" tabindex="0">{body}</div>'
        f'<p class="gd-provenance">{link}</p>{_provenance(runs)}</figure>'
    )


def _tied(text: str) -> str:
    """A number stays on one line with its unit, and a moment with itself; a run's name may break between its axes."""
    text = re.sub(r"(?<=\w)\+(?=\w+=)", "+<wbr>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", r"<time>\g<0></time>", text)
    return re.sub(r"(?<=\d) (?=(?:ns|µs|ms|s|kB|MB|GB)\b)|(?<=\bn) (?== )|(?<=\bn =) (?=\d)", "\u00a0", text)


def of_smoke(runs: Runs) -> HTML | None:
    """What a reader of the profile `smoke` must know first; nothing of another."""
    if not any(info.get("profile") == "smoke" for info in runs.infos):
        return None
    return HTML(
        "<p><strong>This is the book of the profile <code>smoke</code>.</strong> It shows that everything runs, and "
        "its numbers mean little: <code>make book</code> gives those to read.</p>"
    )


def note(name: str, sentence: str, *runs: Runs) -> HTML:
    """A sentence where a table or a figure would have had nothing to show."""
    return HTML(f'<div class="gd-table" id="{html.escape(name)}"><p>{sentence}</p>{_provenance(runs)}</div>')


def say(**values: object) -> None:
    """Give the page's prose its numbers: {glue:text}`name` writes the value."""
    from myst_nb import glue

    for name, value in values.items():
        glue(name, str(value), display=False)


def percent(value: float, digits: int = 0) -> str:
    """`12%`, with more digits where a share that is not quite nothing or everything would be rounded to it."""
    if value != value:
        return "none"
    for more in range(digits, digits + 6):
        text = f"{100 * value:.{more}f}"
        if (float(text) != 100 or value == 1) and (float(text) != 0 or value == 0):
            break
    return f"{text}%"


def observations(*runs: Runs) -> str:
    """`n = 270 (per arm)`: rows of an arm, which are trials, prompts or cases; `6 to 42` where some arms have fewer."""
    texts = []
    for one in runs:
        by = [name for name in ("arm", "temperature", "vocabulary") if name in one.table]
        counts = one.table.groupby(by).size() if by else pd.Series([len(one.table)])
        low, high = counts.min(), counts.max()
        texts.append(f"{high}" if low == high else f"{low} to {high}")
    return f"n = {' and '.join(texts)}" + (" (per arm)" if any("arm" in one.table for one in runs) else "")


def _provenance(runs: tuple[Runs, ...]) -> str:
    if not runs:
        return ""
    infos = [info for one in runs for info in one.infos]
    return f'<p class="gd-provenance">{html.escape(provenance.line(infos, observations(*runs)))}</p>'
