"""What can be taken along: the table of every sweep, and the notebooks. The build puts the files beside the pages."""

from __future__ import annotations

import html
import json
from pathlib import Path

from IPython.display import HTML

from gdlib.bench import record, sweep


def tables() -> HTML:
    """A link a sweep to tables/<sweep>.csv, with its title and size."""
    rows = []
    for path in sorted((sweep.root() / "params").glob("*.yml")):
        loaded, runs = sweep.load(path), record.load(path.stem)
        columns = len(runs.table.columns)
        rows.append((f"../tables/{path.stem}.csv", path.stem, loaded.title, f"{len(runs.table):,} × {columns}"))
    return _listed(("table", "what it holds", "rows × columns"), rows, "tables")


def notebooks() -> HTML:
    """A link a notebook to notebooks/<name>.ipynb, with its question."""
    rows = []
    for path in sorted((sweep.root() / "notebooks").glob("*.ipynb")):
        rows.append((f"../notebooks/{path.name}", path.name, title(path), f"{path.stat().st_size / 1024:.0f} KB"))
    return _listed(("notebook", "its question", "size"), rows, "notebooks")


def title(path: Path) -> str:
    """The first heading of a notebook, its name where there is none."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        lines = "".join(cell["source"]).splitlines()
        if cell["cell_type"] == "markdown" and lines and lines[0].startswith("# "):
            return lines[0].removeprefix("# ")
    return path.stem


def _listed(heads: tuple[str, ...], rows: list[tuple[str, ...]], name: str) -> HTML:
    head = "".join(f"<th>{one}</th>" for one in heads)
    body = "".join(
        f'<tr><td><a download href="{html.escape(href)}">{html.escape(text)}</a></td>'
        + "".join(f"<td>{html.escape(one)}</td>" for one in rest)
        + "</tr>"
        for href, text, *rest in rows
    )
    return HTML(
        f'<figure class="gd-table" id="{name}-to-download"><div class="gd-scroll" tabindex="0"><table class="gd-data">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></figure>"
    )
