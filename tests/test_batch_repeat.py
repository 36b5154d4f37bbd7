"""A run repeated with the same seed gives the same table, in every column that is not a time."""

import json
import shutil

import pandas as pd
import pytest

from gdlib.bench import execute, record, repeat
from gdlib.bench import sweep as sweeps

RUN = "schema=flat"


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """Two folders of results, each of the same two runs."""
    folder = tmp_path_factory.mktemp("twice")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GDLIB_ROOT", raising=False)
        for name, run in (("oracle", RUN), ("build", "vocabulary=characters+schema=array+string_length=8")):
            sweep = sweeps.load(sweeps.root() / "params" / f"{name}.yml")
            point = {point.run: point for point in sweeps.points(sweep, "smoke")}[run]
            for one in ("first", "second"):
                execute.execute(sweep, point, "smoke", folder / one)
    return folder / "first", folder / "second"


def test_two_runs_differ_in_nothing_but_times(twice):
    assert [found for _, found in repeat.compare(*twice)] == [[], []]
    for one in ("oracle", "build"):
        (run,) = (path.name for path in (twice[0] / one).iterdir() if path.is_dir())
        (table, _), (again, _) = (record.read(folder / one / run) for folder in twice)
        assert 3 < len(record.untimed(table).columns) < len(table.columns)
        assert not table.equals(again)  # times were measured, not copied
    assert repeat.main([str(folder) for folder in twice]) == 0


def test_what_differs_is_named():
    table = pd.DataFrame({"arm": ["a", "b", "b"], "step_ms": [1.0, 2.0, 3.0], "n_tokens": [4, 5, 6]})
    assert repeat.unlike(table, table.assign(step_ms=9.0)) == []
    (found,) = repeat.unlike(table, table.assign(n_tokens=[4, 7, 8]))
    assert found == "n_tokens: 2 of 3 rows, the first of them row 1: np.int64(5), then np.int64(7)"
    assert len(repeat.unlike(table, table[:2])) == len(repeat.unlike(table, table.rename(columns={"arm": "way"}))) == 1


def test_what_a_gate_chose_by_the_clock_need_not_repeat():
    table = pd.DataFrame(
        {"clocked": [True, False], "draft_rows": [3, 3], "trace": ["a", "b"], "identical": [True, True]}
    )
    other = table.assign(draft_rows=[4, 3], trace=["c", "b"])
    assert repeat.unlike(table, other) == []
    assert len(repeat.unlike(table, other.assign(draft_rows=4, identical=False))) == 2


def test_only_the_same_runs_are_compared(twice, tmp_path, capsys):
    first, second = twice
    other = shutil.copytree(second, tmp_path / "other")
    shutil.rmtree(other / "build")
    with pytest.raises(record.RecordError, match="is in one of"):
        list(repeat.compare(first, other))
    path = other / "oracle" / RUN / "run.json"
    info = json.loads(path.read_text())
    shutil.rmtree(other / "oracle")
    for change, said in (
        ({"sources": "0"}, "code"),
        ({"sources": None}, "an input"),
        ({"parameters": info["parameters"] | {"seed": 9}}, "9 recorded"),
        ({"seed": 8}, "8 recorded"),
    ):
        here = shutil.copytree(first, tmp_path / said)
        (here / "oracle" / RUN / "run.json").write_text(json.dumps(info | change))
        (here / "oracle" / RUN / "table.csv").write_bytes((second / "oracle" / RUN / "table.csv").read_bytes())
        assert repeat.main([str(first), str(here)]) == 1
        assert said in capsys.readouterr().err
    for folder in (tmp_path, first):
        assert repeat.main([str(folder), str(folder)]) == 1 and "one folder" in capsys.readouterr().err
