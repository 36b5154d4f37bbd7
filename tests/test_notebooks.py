"""Notebooks as committed: no outputs, one cell of parameters, every one of them read, and swept by a params file.

A notebook without a parameter `out` leaves no record, so it is no sweep: it is there to be played with.
"""

import ast
from itertools import pairwise

import nbformat
import pytest

from gdlib.bench import sweep

NOTEBOOKS = sorted((sweep.root() / "notebooks").glob("*.ipynb"))
SWEPT = [path for path in NOTEBOOKS if "out" in sweep.notebook_parameters(path)]


def test_there_are_notebooks():
    assert SWEPT and {path.stem for path in NOTEBOOKS} - {path.stem for path in SWEPT} == {"tour"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_committed_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_parameter_is_read_for_more_than_the_record(path):
    """A parameter that only lands in the record would be swept without changing anything."""
    declared = set(sweep.notebook_parameters(path))
    read, recorded = set(), None
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code" or "parameters" in cell.metadata.get("tags", []):
            continue
        for statement in ast.parse(cell.source).body:
            if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "used":
                recorded = {key.value for key in statement.value.keys}
                continue
            read |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    assert declared <= read, f"never read: {sorted(declared - read)}"
    assert recorded == (declared - {"out", "threads"} if path in SWEPT else None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_what_is_shown_is_explained(path):
    """A table or a figure stands behind a line that says how to read it."""
    cells = nbformat.read(path, as_version=4).cells
    for before, cell in pairwise(cells):
        if cell.cell_type == "code" and shows(cell.source):
            assert before.cell_type == "markdown", f"nothing explains what `{cell.source.splitlines()[-1]}` shows"


def shows(source):
    """Whether a cell ends in a table, or in a figure that a `;` leaves alone."""
    last = ast.parse(source).body[-1]
    if not isinstance(last, ast.Expr):
        return False
    calls = {node.attr for node in ast.walk(last.value) if isinstance(node, ast.Attribute)}
    return isinstance(last.value, ast.Name) or "print" not in calls


def test_every_notebook_with_a_record_is_swept_by_name():
    assert {s.notebook for s in sweep.load_all()} == set(SWEPT)
