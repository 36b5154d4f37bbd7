"""What may be published, and that a published folder which was edited or cut is never shown."""

import json
import shutil

import pandas as pd
import pytest
from mini_project import make_project, write_sweep

from gdlib.bench import batch, publish, record
from gdlib.bench import sweep as sweeps
from gdlib.report import build, published

COMMIT = {"commit": "a" * 40, "dirty": False}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Both runs of the mini sweep, whole, clean and current."""
    monkeypatch.setenv("GDLIB_ROOT", str(tmp_path))
    for name in ("GDLIB_PROFILE", "GDLIB_RESULTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(record, "commit", lambda: COMMIT)
    sweep = sweeps.load(make_project(tmp_path))
    for point in sweeps.points(sweep, "quick"):
        folder = tmp_path / "results" / "quick" / "mini" / point.run
        for key, value in {
            "SWEEP": "mini",
            "RUN": point.run,
            "PROFILE": "quick",
            "SOURCES": sweeps.sources(sweep),
        }.items():
            monkeypatch.setenv(f"GDLIB_{key}", value)
        record.finish(
            record.begin(folder, point.parameters, seed=7), pd.DataFrame({"trial": [0, 1], "step_us": [1.5, 2]})
        )
        (folder / "executed.ipynb").touch()
    return tmp_path


def go(project, name="box"):
    return publish.publish(name, "quick", project / "results" / "quick")


def edit(path, **changes):
    info = json.loads(path.read_text())
    for key, value in changes.items():
        if isinstance(value, dict):
            info[key] |= value
        else:
            info[key] = value
    path.write_text(json.dumps(info))


def test_tables_and_provenance_are_copied_and_read_back(project):
    assert published.machines() == []
    folder = go(project)
    assert folder == project / "book" / "published" / "box"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    runs = [f"mini/schema={schema}/{name}" for schema in ("flat", "nested") for name in ("run.json", "table.csv")]
    assert files == ["machine.json", *runs]  # no notebooks
    (one,) = published.machines()
    assert one.name == "box" and one.about["commits"] == ["a" * 40] and one.about["profile"] == "quick"
    mine = record.load("mini", "results/quick")
    pd.testing.assert_frame_equal(one.runs["mini"].table, mine.table)
    assert one.processor.startswith(one.about["cpu"])
    assert published.listing([one])["runs"].tolist() == [2]

    # Again: the folder is replaced as a whole, and results that are gone do not matter to what is published.
    (folder / "left-over").touch()
    go(project)
    assert not (folder / "left-over").exists() and not list(folder.parent.glob(".*"))
    shutil.rmtree(project / "results")
    write_sweep(project, axes={"schema": ["other"]})
    assert len(published.machines()[0].runs["mini"].infos) == 2


def run_json(project):
    return project / "results" / "quick" / "mini" / "schema=nested" / "run.json"


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda p: shutil.rmtree(run_json(p).parent), ["it has not been run"]),
        (lambda p: run_json(p).unlink(), ["it has not been run"]),
        (lambda p: (run_json(p).parent / "table.csv").write_text("trial\n1\n"), ["stale", "changed or cut"]),
        (lambda p: write_sweep(p, base={"trials": 5}), ["stale", "trials = 5 asked for, 2 recorded"]),
        (lambda p: edit(run_json(p), sources="0"), ["stale", "the code"]),
        (lambda p: edit(run_json(p), provenance={"dirty": True}), ["uncommitted changes", "commit"]),
        (lambda p: edit(run_json(p), provenance={"dirty": "unknown"}), ["outside git"]),
        (lambda p: edit(run_json(p), provenance={"cpu": "Another 9000"}), ["several machines", "Another 9000"]),
    ],
    ids=["missing", "partial", "tampered", "params", "code", "dirty", "no-git", "machines"],
)  # fmt: skip
def test_what_is_not_whole_clean_and_of_one_machine_is_refused(project, harm, words):
    harm(project)
    with pytest.raises(publish.PublishError) as caught:
        go(project)
    assert all(word in str(caught.value) for word in ["mini schema=", *words]), caught.value
    assert not list((project / "book").rglob("*.csv"))


def listed(folder):
    return json.loads((folder / "machine.json").read_text())["runs"]


def test_names_of_machines(project, capsys):
    for name in ("", "../box", "Box", ".box", "box.", "claim", "ratio"):
        with pytest.raises(publish.PublishError, match="NAME="):
            go(project, name)
    folder = go(project)
    (folder / "machine.json").write_text("{}")
    with pytest.raises(publish.PublishError, match=r"machine\.json cannot be read.*remove"):
        go(project)
    shutil.rmtree(folder)
    with batch.locked(project / "results" / "quick"), pytest.raises(sweeps.SweepError, match="running sweeps"):
        go(project)
    go(project)
    edit(folder / "machine.json", cpu="Another 9000")
    with pytest.raises(publish.PublishError, match="taken by Another 9000"):
        go(project)
    assert publish.main(["box2", "--profile", "quick"]) == 0
    assert "book/published/box2: 2 tables" in capsys.readouterr().out
    assert publish.main(["box2", "--profile", "qick"]) == 1
    assert "did you mean 'quick'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda f: (f / "mini/schema=flat/table.csv").unlink(), ["mini/schema=flat/table.csv", "missing"]),
        (lambda f: shutil.rmtree(f / "mini/schema=flat"), ["mini/schema=flat/table.csv", "missing"]),
        (lambda f: (f / "mini/schema=flat/table.csv").write_text("trial\n0\n"), ["table.csv", "changed or cut"]),
        (lambda f: edit(f / "mini/schema=flat/run.json", seed=8), ["mini/schema=flat/run.json", "was changed"]),
        (lambda f: shutil.copytree(f / "mini/schema=flat", f / "mini/schema=x"), ["mini/schema=x", "not listed"]),
        (lambda f: (f / "machine.json").unlink(), ["box/machine.json", "cannot be read"]),
        (lambda f: (f / "machine.json").write_text("{"), ["box/machine.json", "cannot be read"]),
        (lambda f: (f / "machine.json").write_text("[]"), ["box/machine.json", "cannot be read"]),
        (lambda f: edit(f / "machine.json", cpu="Another 9000"), ["box/machine.json", "cpu is not what the runs say"]),
        (lambda f: edit(f / "machine.json", runs=2 * listed(f)), ["box/machine.json", "listed twice"]),
        (lambda f: edit(f / "machine.json", runs=[listed(f)[0] | {"run": "odd"}]), ["box/machine.json", "cannot"]),
        (lambda f: (f / "mini/schema=flat/notes").touch(), ["mini/schema=flat/notes", "not listed"]),
        (lambda f: (f.parent / "box2").symlink_to(f), ["box2", "no folder of a published machine"]),
    ],
    ids=["no-table", "no-run", "edited-table", "edited-run", "extra", "no-list", "cut-list", "no-object"]
    + ["edited-list", "doubled", "odd-run", "extra-file", "link"],
)  # fmt: skip
def test_a_published_folder_that_was_changed_fails_the_build_by_name(project, harm, words):
    harm(go(project))
    with pytest.raises(record.BrokenRun) as caught:
        build.build(project / "results" / "quick", project / "_build")
    assert all(word in str(caught.value) for word in ["book/published/box", *words]), caught.value


def test_an_edited_table_or_params_file_fails_the_build_by_name(project):
    table = project / "results" / "quick" / "mini" / "schema=flat" / "table.csv"
    whole = table.read_bytes()
    table.write_bytes(whole.replace(b"1.5", b"1.4"))
    with pytest.raises(record.BrokenRun, match=r"schema=flat/table\.csv is not the table that run\.json describes"):
        build.build(project / "results" / "quick", project / "_build")
    table.write_bytes(whole)
    write_sweep(project, base={"trials": 3})
    with pytest.raises(
        record.BrokenRun, match=r"schema=flat/run\.json is stale: params/mini\.yml has changed.*trials = 3"
    ):
        build.build(project / "results" / "quick", project / "_build")


def runs_of(factor: float) -> dict[str, record.Runs]:
    """An oracle's table in which dense takes `factor` times as long as free."""
    keys = {"schema": "flat", "string_length": 4, "confidence": 0.6}
    rows = [
        keys | {"trial": trial, "arm": arm, "step_us": times * (10 + trial)}
        for trial in range(5)
        for arm, times in (("free", 1), ("dense", factor), ("ours", 1.1))
    ]
    return {"oracle": record.Runs(pd.DataFrame(rows), [])}


def test_headlines_stand_side_by_side_and_what_was_not_run_says_so():
    about = {
        "gpu": {"name": "H"},
        "cpu": "C",
        "cores": 2,
        "profile": "gpu",
        "commits": ["b"],
        "last": "2026",
        "runs": [],
    }
    others = [published.Machine("h", about, runs_of(3.0)), published.Machine("i", about, {})]
    table = published.comparison(runs_of(2.0), others).set_index("ratio")
    assert list(table.columns) == ["this machine", "h", "i"]
    dense = table.loc["a step on the oracle, dense mask, over free"]
    assert dense["this machine"].startswith("2.000") and dense["h"].startswith("3.000")
    assert set(table["i"]) == {"not run in this profile"} == set(table.loc["speed with drafts, prose, over plain"])
    figure = published.compared(runs_of(2.0), others)
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["this machine", "h", "i"]
    assert others[0].processor == "H, C, 2 cores"
