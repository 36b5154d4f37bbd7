"""Tables and run.json: what is refused on writing, and that nothing missing, broken or cut is ever loaded."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
from mini_project import make_project

from gdlib.bench import provenance, record
from gdlib.bench import sweep as sweeps

GOOD = {"trial": [0, 1], "step_ms": [0.1, 2.0], "valid": [True, False], "text": ["a,b", ""], "got_tokens": [3, 4]}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Three whole runs of the mini sweep, written as a notebook would."""
    monkeypatch.setenv("GDLIB_ROOT", str(tmp_path))
    for name in ("GDLIB_PROFILE", "GDLIB_RESULTS"):
        monkeypatch.delenv(name, raising=False)
    path = make_project(tmp_path, axes={"schema": ["flat", "no"], "label": [None, 1, "1"]}, profiles={"quick": {}})
    for point in sweeps.points(sweeps.load(path), "quick"):
        run = record.begin(tmp_path / "results" / "quick" / "mini" / point.run, point.parameters, seed=1)
        record.finish(run, pd.DataFrame(GOOD))
    return tmp_path


def finish(table, **parameters):
    return record.finish(record.begin("", parameters), pd.DataFrame(table))


def test_a_table_comes_back_exactly(tmp_path):
    table = pd.DataFrame({
        "trial": np.arange(6, dtype=np.int32),
        "step_ms": [0.1, 1e-300, 1 / 3, -0.0, 1e17, 5.0],
        "loss_ratio": np.float32([0.1, 1, 2, 3, 4, 5]),
        "text": ["no", "1e-3", "NA", "a\r\nb\rc", 'say "x", é', ""],
        "number": pd.Series(["1", "2", "3", "4", "5", "6"], dtype=object),
        "valid": [True, False] * 3,
    }, index=[5, 4, 3, 2, 1, 0])  # fmt: skip
    written = record.finish(record.begin(tmp_path / "run", {"a": "b=c"}, seed=3, device="cpu"), table)
    found, info = record.read(tmp_path / "run")
    pd.testing.assert_frame_equal(found, written, check_exact=True)
    assert [str(kind) for kind in found.dtypes] == ["int64", "float64", "float64", "str", "str", "bool"]
    assert list(found["text"]) == list(table["text"]) and list(found["step_ms"]) == list(table["step_ms"])
    assert (info["seed"], info["parameters"], info["table"]["rows"]) == (3, {"a": "b=c"}, 6)
    assert info["start"].endswith("+00:00") and info["duration_s"] >= 0
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["run.json", "table.csv"]


def test_by_hand_nothing_is_written_but_all_is_checked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(finish(GOOD)) == 2 and not list(tmp_path.iterdir())
    with pytest.raises(record.RecordError):
        finish({"step_ms": [float("nan")]})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"step_ms": [1.0, float("nan")]}, ["'step_ms'", "row 1", "nan"]),
        ({"step_ms": [1.0, float("inf")]}, ["'step_ms'", "row 1", "inf"]),
        ({"step_ms": pd.array([1, None], dtype="Int64")}, ["'step_ms'", "row 1"]),
        ({"text": ["a", None]}, ["'text'", "row 1"]),
        ({"valid": [True, None]}, ["'valid'", "row 1"]),
        ({"text": ["a", 1]}, ["'text'", "object", "bool, int, float or text"]),
        ({"text": [["a"], ["b"]]}, ["'text'", "object"]),
        ({"text": pd.Categorical(["a", "b"])}, ["'text'", "category"]),
        ({"when": pd.to_datetime(["2026-01-01"])}, ["'when'", "datetime"]),
        ({"speed": [1.0]}, ["'speed'", "unit", "_ms", "_bytes"]),
        ({"run": ["a"]}, ["'run'", "kept for load"]),
        ({"step ms": [1.0]}, ["'step ms'"]),
        ({0: [1.0]}, ["column 0"]),
        ({"step_ms": []}, ["at least one row"]),
        ({}, ["at least one row"]),
    ],
    ids=str,
)
def test_unclean_tables_are_refused_by_column(table, words):
    with pytest.raises(record.RecordError) as caught:
        finish(table)
    assert all(word in str(caught.value) for word in words), caught.value


def test_duplicate_columns_and_things_that_are_no_table():
    twice = pd.DataFrame([[1.0, 2.0]], columns=["a_ms", "a_ms"])
    with pytest.raises(record.RecordError, match="'a_ms'"):
        finish(twice)
    with pytest.raises(record.RecordError, match="DataFrame"):
        record.finish(record.begin("", {}), [{"a_ms": 1}])


def test_parameters_and_row_names_need_no_unit():
    assert len(finish({"confidence": [0.5], "trial": [1], "seed": [2]}, confidence=0.5)) == 1


@pytest.mark.parametrize("value", [float("nan"), np.int64(3), {1, 2}, b"x"], ids=repr)
def test_parameters_that_are_not_json_are_named(value):
    with pytest.raises(record.RecordError, match="parameter width"):
        record.begin("", {"width": value})


def test_load_gives_every_run_with_types_and_axes(project):
    runs = record.load("mini", "results/quick")
    assert len(runs.infos) == 6 and len(runs.table) == 12 and runs.table.columns[0] == "run"
    assert not runs.table.isna().any(axis=None) and "label" not in runs.table  # of mixed kinds: no column
    kinds = {
        name: str(runs.table[name].dtype) for name in ("trial", "step_ms", "valid", "text", "got_tokens", "schema")
    }
    assert list(kinds.values()) == ["int64", "float64", "bool", "str", "int64", "str"]
    assert set(runs.table["schema"]) == {"flat", "no"} and runs.table["run"].nunique() == 6
    for run, info in zip(runs.table["run"].unique(), runs.infos, strict=True):
        assert {name: info["parameters"][name] for name in ("schema", "label")} == sweeps.parse_run(run)


def test_load_finds_results_and_profile(project, monkeypatch):
    assert len(record.load("mini").infos) == 6
    (project / "results" / "quick").rename(project / "elsewhere")
    with pytest.raises(record.MissingRun, match=r"results/quick/mini/schema=flat\+label=null/table\.csv"):
        record.load("mini")
    with pytest.raises(sweeps.SweepError, match="'elsewhere'"):
        record.load("mini", "elsewhere")
    (project / "elsewhere" / "profile.txt").write_text("quick\n")
    monkeypatch.setenv("GDLIB_RESULTS", str(project / "elsewhere"))
    assert len(record.load("mini").infos) == 6


def damage(name):
    def do(folder):
        (folder / name).unlink()

    return do


def tamper(folder):
    text = (folder / "table.csv").read_text()
    (folder / "table.csv").write_text(text.replace("0.1", "0.2"))


def cut(folder):
    data = (folder / "run.json").read_bytes()
    (folder / "run.json").write_bytes(data[: len(data) // 2])


def edit(**parameters):
    def do(folder):
        info = json.loads((folder / "run.json").read_text())
        info["parameters"] |= parameters
        (folder / "run.json").write_text(json.dumps(info))

    return do


@pytest.mark.parametrize(
    ("harm", "kind", "words"),
    [
        (damage("run.json"), record.MissingRun, ["run.json is missing"]),
        (damage("table.csv"), record.MissingRun, ["table.csv is missing"]),
        (tamper, record.BrokenRun, ["table.csv", "changed or cut"]),
        (cut, record.BrokenRun, ["run.json", "cannot be read"]),
        (edit(trials=3), record.BrokenRun, ["run.json", "trials = 2 asked for, 3 recorded"]),
        (edit(trials=2.0), record.BrokenRun, ["trials = 2 asked for, 2.0 recorded"]),
        (edit(label=1), record.BrokenRun, ["label = '1' asked for, 1 recorded"]),
        (edit(more=1), record.BrokenRun, ["more = 1 recorded but not asked for"]),
    ],
)
def test_load_refuses_by_file_and_says_what_mends(project, harm, kind, words):
    harm(project / "results" / "quick" / "mini" / "schema=no+label=~221~22")
    with pytest.raises(kind) as caught:
        record.load("mini")
    assert all(word in str(caught.value) for word in ["label=~221~22", "make sweep PROFILE=quick", *words]), (
        caught.value
    )


def test_load_refuses_other_columns_and_ignores_runs_outside_the_grid(project):
    home = project / "results" / "quick" / "mini"
    (home / "schema=old+label=null").mkdir()
    (home / ".tmp-schema=flat+label=null-abc-1").mkdir()
    assert len(record.load("mini").infos) == 6
    folder = home / "schema=no+label=1"
    info = record.check(folder)
    record.finish(record.begin(folder, info["parameters"]), pd.DataFrame({"trial": [1]}))
    with pytest.raises(record.BrokenRun, match="columns differ"):
        record.load("mini")


def test_provenance_is_json_without_torch_or_names(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = json.loads(json.dumps(provenance.provenance("cpu")))
    assert "torch" not in sys.modules and found["gpu"] is None
    assert found["threads"]["omp"] == 3 and found["cores"] >= 1 and found["memory_bytes"] > 0
    assert found["commit"] == "unknown" or len(found["commit"]) == 40
    assert "/" not in json.dumps({name: found[name] for name in ("cpu", "platform", "versions")})


def test_outside_git_the_commit_is_unknown(monkeypatch):
    monkeypatch.setattr(provenance, "_output", lambda *command: None)
    assert provenance.commit() == {"commit": "unknown", "dirty": "unknown"}


def test_the_caption_line():
    where = {
        "commit": "abc1234" + "0" * 33, "dirty": True, "cpu": "AMD EPYC", "cores": 2, "gpu": None, "device": "cpu",
        "threads": {"torch": None, "omp": 1, "numba": 1},
    }  # fmt: skip
    infos = [{"start": f"2026-11-{day}T10:00:00+00:00", "provenance": dict(where)} for day in (29, 28)]
    assert (
        provenance.line(infos, "n = 270") == "AMD EPYC, 2 cores, 1 thread · commit abc1234+dirty · 2026-11-29 · n = 270"
    )
    infos[1]["provenance"] |= {"cpu": "Intel Xeon", "dirty": False, "device": "cuda", "gpu": {"name": "H200"}}
    assert provenance.line(infos, "n = 3").startswith("AMD EPYC, 2 cores / H200, Intel Xeon, 2 cores, 1 thread")
