"""A run repeated with the same seed gives the same table, in every column that is not a time."""

import pandas as pd
import pytest

from gdlib.bench import execute, record
from gdlib.bench import sweep as sweeps


@pytest.mark.parametrize(
    ("name", "run"), [("oracle", "schema=flat"), ("build", "vocabulary=characters+schema=array+string_length=8")]
)
def test_two_runs_differ_in_nothing_but_times(name, run, tmp_path, monkeypatch):
    monkeypatch.delenv("GDLIB_ROOT", raising=False)
    sweep = sweeps.load(sweeps.root() / "params" / f"{name}.yml")
    point = {point.run: point for point in sweeps.points(sweep, "smoke")}[run]
    tables = []
    for folder in ("first", "second"):
        table, info = record.read(execute.execute(sweep, point, "smoke", tmp_path / folder))
        assert info["seed"] is not None or name == "build"
        tables.append(table)
    first, second = map(record.untimed, tables)
    assert 3 < len(first.columns) < len(tables[0].columns)
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert not tables[0].equals(tables[1])  # times were measured, not copied
