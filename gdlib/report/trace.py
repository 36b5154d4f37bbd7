"""The trace explorer: recorded generations, token by token, on a page that answers to hand and keyboard.

Everything that is known of a token stands in the page when it leaves here: the tokens in order, what a hover shows, and
the record itself as JSON. The script (book/_static/trace.js) only steps, filters and links; without it, and on paper,
every recording stands there in full, each drafted token with the name of who proposed it.
`python -m gdlib.report.trace record.json page.html` makes a page of its own of the JSON that `gdlib.bench.told.tell`
writes.
"""

from __future__ import annotations

import argparse
import html
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from IPython.display import HTML

from gdlib.bench.record import Runs
from gdlib.bench.told import OUTSIDE
from gdlib.report.drafts import SOURCE_COLOURS
from gdlib.report.page import _provenance, note

STATIC = Path(__file__).parents[2] / "book" / "_static"
CHOSEN = "sampled"  # what the page calls a token that the model chose and nobody proposed
NAMES = {
    "model": CHOSEN,
    "grammar": "forced",
    "ngram": "n-gram",
    "mtp": "MTP",
    "branches": "branch",
    "random": "random",
}


@dataclass(frozen=True)
class Recording:
    """One generation. name: for links, letters, digits and dashes; title: for readers; told: JSON as `told.tell`'s."""

    name: str
    title: str
    told: str


def recordings(table: pd.DataFrame) -> list[Recording]:
    """The recordings of a drafts table, in its order; `table` has columns workload, arm, prompt and trace."""
    found = []
    for row in table[table["trace"] != ""].itertuples():
        name = "-".join("".join(c if c.isalnum() else " " for c in f"{row.workload} {row.arm}").split())
        found.append(Recording(name, f"{row.workload}, {row.arm} (prompt {row.prompt})", row.trace))
    return found


def explorer(chosen: Sequence[Recording], name: str, caption: str, *runs: Runs) -> HTML:
    """The recordings with a key, filters and the details of one token; a note where there are none.

    Raises ValueError where a recording is not what `told.tell` writes, with its name and what is wrong.
    """
    if not chosen:
        return note(name, f"{caption} No generation was recorded in this profile.", *runs)
    return HTML(
        f'<figure class="gd-table gd-trace" id="{html.escape(name)}"><figcaption>{caption}</figcaption>'
        f"{_body(chosen)}{_provenance(runs)}</figure>"
    )


def standalone(chosen: Sequence[Recording], title: str) -> str:
    """A whole page of the recordings, script and style inside, that can be opened from a file."""
    style = "".join((STATIC / file).read_text(encoding="utf-8") for file in ("gd.css", "trace.css"))
    script = (STATIC / "trace.js").read_text(encoding="utf-8")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{style}</style></head>"
        f'<body class="gd-alone"><main class="bd-article"><h1>{html.escape(title)}</h1>'
        f'<div class="gd-trace">{_body(chosen)}</div></main><script>{script}</script></body></html>'
    )


def _body(chosen: Sequence[Recording]) -> str:
    read = [_read(one) for one in chosen]
    options = "".join(f'<option value="{html.escape(o.name)}">{html.escape(o.title)}</option>' for o in chosen)
    texts = "".join(_text(one, told) for one, told in zip(chosen, read, strict=True))
    return (
        f'<p class="gd-trace-which" hidden><label>Recording <select>{options}</select></label></p>{texts}'
        '<noscript><p class="gd-provenance">Stepping, filtering and links to a token need JavaScript; hover shows the '
        "same notes.</p></noscript>"
    )


def _read(one: Recording) -> dict:
    try:
        told = json.loads(one.told)
        tokens, rejected = told["tokens"], told["rejected"]
        for text, source, forward in tokens:
            _check(source in NAMES and isinstance(text, str) and isinstance(forward, int), f"token {text!r}")
        for text, source, _, index in rejected:
            _check(source in NAMES and isinstance(text, str) and index >= 0, f"refused row {text!r}")
        for key in ("bytes", "forced", "legal"):
            _check(key not in told or len(told[key]) == len(tokens), f"{key!r} has not one entry a token")
        _check(bool(tokens), "it has no tokens")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"recording {one.name!r} is not what gdlib.bench.told writes: {error}") from error
    return told


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _text(one: Recording, told: dict) -> str:
    """One recording: filters with counts, the tokens, the panel of details, and the record."""
    tokens, rejected = told["tokens"], told["rejected"]
    filters = "".join(
        f'<label><input type="checkbox" value="{source}" checked hidden><span class="gd-tok" style="{_style(source)}">'
        f"{NAMES[source]}</span> {sum(t[1] == source for t in tokens)}</label>"
        for source in SOURCE_COLOURS
        if any(token[1] == source for token in tokens)
    )
    chips = []
    for index, (text, source, forward) in enumerate(tokens):
        said = "" if source == "model" else f' data-said="{NAMES[source]}"'
        begins = index == 0 or forward != tokens[index - 1][2]
        more = (" gd-begin" if begins else "") + (" gd-away" if any(row[3] == index for row in rejected) else "")
        title = html.escape(describe(told, index))
        chips.append(
            f'<span class="gd-tok{more}" role="option" aria-selected="false" '
            f'id="{html.escape(one.name)}-t{index}" data-source="{source}" data-forward="{forward}"{said} '
            f'aria-label="{title}" title="{title}" style="{_style(source)}">{_shown(text)}</span>'
        )
    record = json.dumps(told | {"notes": [notes(told, i) for i in range(len(tokens))]}).replace("<", "\\u003c")
    return (
        f'<section class="gd-recording" data-name="{html.escape(one.name)}" aria-label="{html.escape(one.title)}">'
        f'<p class="gd-recording-title">{html.escape(one.title)}</p>'
        f'<fieldset class="gd-filter"><legend>Tokens that were</legend>{filters}</fieldset>'
        f'<div class="gd-stream" role="listbox" tabindex="0" aria-label="Tokens of {html.escape(one.title)}: arrow '
        f'keys step, up and down go by forward">{"".join(chips)}</div>'
        '<div class="gd-detail" aria-live="polite"></div>'
        f'<script type="application/json">{record}</script></section>'
    )


def notes(told: dict, index: int) -> dict[str, str]:
    """What is known of one token, name -> text; what the record lacks is not in it."""
    text, source, forward = told["tokens"][index]
    of_forward = [token for token in told["tokens"] if token[2] == forward]
    refused = [row for row in told["rejected"] if row[2] == forward]
    here = [row for row in refused if row[3] == index]
    known = {
        "token": f"{index + 1} of {len(told['tokens'])}: {text!r}",
        "proposed by": "nobody: the model's own choice, the one that comes free"
        if source == "model"
        else f"{NAMES[source]} ({source}), and the model agreed",
        "forward": f"{forward}, which gave {len(of_forward)} and refused {len(refused)}",
        "refused in its place": ", ".join(f"{row[0]!r} ({NAMES[row[1]]})" for row in here) or "nothing",
    }
    if "forced" in told:
        known["bytes forced"] = f"{told['forced'][index]} of {told['bytes'][index]}"
    if "legal" in told:
        legal, size = told["legal"][index], told["vocabulary"]
        known["mask"] = "the grammar had no say here" if legal == OUTSIDE else f"{legal:,} of {size:,} tokens are legal"
    for one in told.get("experts", ()):
        if one["forward"] == forward:
            known["experts of the forward"] = (
                f"{one['distinct']} asked for, {one['loads']} read from disk ({one['miss_bytes'] / 1e6:.2f} MB)"
            )
    return known


def describe(told: dict, index: int) -> str:
    """`notes` in one line, for a hover and for a reader who does not see."""
    return "; ".join(f"{name} {value}" for name, value in notes(told, index).items())


def _style(source: str) -> str:
    if source == "model":
        return "border-color:var(--pst-color-text-muted,#767676)"
    return f"background:{SOURCE_COLOURS[source]}2e;border-color:{SOURCE_COLOURS[source]}"


def _shown(text: str) -> str:
    return html.escape(text.replace("\n", "⏎").replace("\t", "⇥")) or "∅"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gdlib.report.trace", description="A page of its own of recorded generations."
    )
    parser.add_argument(
        "records", type=Path, nargs="+", help="files with the JSON of gdlib.bench.told.tell, then the page"
    )
    parser.add_argument("page", type=Path, help="the page to write")
    options = parser.parse_args(arguments)
    try:
        chosen = [Recording(f"r{i}", path.stem, path.read_text("utf-8")) for i, path in enumerate(options.records)]
        options.page.write_text(standalone(chosen, "Recorded generations"), encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
