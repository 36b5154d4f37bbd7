"""Draw the README's picture from the last runs: `python -m gdlib.report.picture [results]`, or `make picture`."""

from __future__ import annotations

import sys

from gdlib.bench import provenance, record, sweep
from gdlib.report import figures, page


def main(results: str | None = None) -> None:
    oracle = record.load("oracle", results)
    model = record.together(record.load("model", results), record.load("example", results))
    drawing = figures.headline(oracle.table, model.table)
    line = provenance.line(oracle.infos + model.infos, page.observations(oracle, model))
    drawing.supxlabel(line, fontsize="x-small", color="0.4")
    drawing.savefig(sweep.root() / "book" / "headline.png", dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
