"""A project of one sweep and one notebook in a temporary folder, for the tests of the machinery."""

import nbformat
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

PARAMETERS = (
    'out = ""\nthreads = 1\nschema = "flat"\ntrials = 1\nnoise = 0.5\nquiet = False\nlabel = None\nsizes = [1, "2"]'
)
BEGIN = """import os, signal, sys, time
import pandas as pd
from gdlib.bench import record
used = {"schema": schema, "trials": trials, "noise": noise, "quiet": quiet, "label": label, "sizes": sizes}
run = record.begin(out, used, seed=7)
began = time.monotonic_ns()"""
FINISH = """ended = time.monotonic_ns()
table = pd.DataFrame({"trial": range(trials), "began_ns": began, "ended_ns": ended, "valid": True})
record.finish(run, table)"""
SWEEP = {
    "sweep": "mini",
    "notebook": "notebooks/mini.ipynb",
    "title": "a sweep for the tests",
    "base": {"trials": 2},
    "axes": {"schema": ["flat", "nested"]},
    "profiles": {"quick": {}, "smoke": {"base": {"trials": 1}, "axes": {"schema": ["flat"]}}, "gpu": {"gpu": True}},
}


def write_notebook(path, *middle, parameters=PARAMETERS, begin=BEGIN, finish=FINISH, tags=1):
    """A notebook: parameters (tagged so often), begin, the given cells, finish."""
    cells = [new_code_cell(parameters, metadata={"tags": ["parameters"]}) for _ in range(tags)]
    cells += [new_markdown_cell("prose"), *(new_code_cell(source) for source in (begin, *middle, finish))]
    path.parent.mkdir(exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)


def write_sweep(root, **changes):
    """params/mini.yml with the given keys changed (None removes one); returns its path."""
    path = root / "params" / "mini.yml"
    path.parent.mkdir(exist_ok=True)
    content = {key: value for key, value in (SWEEP | changes).items() if value is not None}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def make_project(root, *middle, **changes):
    """The whole project; returns the params file."""
    write_notebook(root / "notebooks" / "mini.ipynb", *middle)
    return write_sweep(root, **changes)
