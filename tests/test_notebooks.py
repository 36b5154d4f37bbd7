"""Notebooks as committed: no outputs, one cell of parameters, every one of them read, and swept by a params file."""

import ast

import nbformat
import pytest

from gdlib.bench import sweep

NOTEBOOKS = sorted((sweep.root() / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


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
    read = set()
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code" or "parameters" in cell.metadata.get("tags", []):
            continue
        for statement in ast.parse(cell.source).body:
            if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "used":
                recorded = {key.value for key in statement.value.keys}
                continue
            read |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    assert declared <= read, f"never read: {sorted(declared - read)}"
    assert recorded == declared - {"out", "threads"}


def test_every_notebook_is_swept_by_name():
    assert {s.notebook for s in sweep.load_all()} == set(NOTEBOOKS)
