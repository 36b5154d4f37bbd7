"""The gate: a run counts only if it is whole, and a failed one loses nothing and says where to look."""

import json
import os
import subprocess
import sys

import pytest
from mini_project import BEGIN, FINISH, make_project, write_notebook, write_sweep

from gdlib.bench import execute, record
from gdlib.bench import sweep as sweeps

ODD = {"schema": "a=b", "noise": 1e-3, "quiet": True, "label": "no", "sizes": [1, "1e-3", None], "trials": 3}


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("GDLIB_ROOT", str(tmp_path))
    make_project(tmp_path, axes=None, profiles={"quick": {}}, base={"trials": 2})
    return tmp_path


def run(project, **changes):
    sweep = sweeps.load(write_sweep(project, **({"axes": None, "profiles": {"quick": {}}} | changes)))
    return execute.execute(sweep, sweeps.points(sweep, "quick")[0], "quick", project / "results" / "quick")


def fails(project, *words, kept=True, **changes):
    """The run is refused in these words, leaves no folder, and its notebook is kept and named."""
    with pytest.raises(execute.RunError) as caught:
        run(project, **changes)
    message = str(caught.value)
    assert all(word in message for word in ["notebooks/mini.ipynb", "run default", *words]), message
    assert [path.name for path in (project / "results" / "quick").iterdir() if path.name != "mini"] == ["_failed"]
    folder = project / "results" / "quick" / "_failed" / "mini"
    assert (folder / "default.txt").read_text().strip() == message
    assert (folder / "default.ipynb").is_file() == kept == ("results/quick/_failed/mini/default.ipynb" in message)
    return project / "results" / "quick" / "mini"


def write(project, *middle, **changes):
    write_notebook(project / "notebooks" / "mini.ipynb", *middle, **changes)


def test_whole_runs_are_kept_with_the_values_used_and_a_failing_one_takes_nothing_away(project, monkeypatch):
    write(
        project, f"assert os.environ['OMP_NUM_THREADS'] == str(threads) == '2' and sys.executable == {sys.executable!r}"
    )
    theirs = project / "home" / "kernels" / "python3" / "kernel.json"  # a user's own kernel of that name is not taken
    theirs.parent.mkdir(parents=True)
    theirs.write_text('{"argv": ["false"], "display_name": "x", "language": "python"}')
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(project / "home"))
    home = project / "results" / "quick" / "mini"
    (home / f".tmp-default-{execute.MACHINE}-999999999").mkdir(parents=True)  # of a killed run: no such process
    (home / f".tmp-default-other-{os.getpid()}").mkdir()  # of another machine: none of our business
    folder = run(project, base=ODD, threads=2)
    table, info = record.read(folder)
    assert sweeps.same(info["parameters"], ODD) and len(table) == ODD["trials"]
    assert (info["sweep"], info["run"], info["profile"], info["seed"]) == ("mini", "default", "quick", 7)
    assert info["provenance"]["threads"]["omp"] == 2
    assert sorted(path.name for path in folder.iterdir()) == ["executed.ipynb", "run.json", "table.csv"]
    assert sorted(path.name for path in home.iterdir()) == [f".tmp-default-other-{os.getpid()}", "default"]
    assert "OMP_NUM_THREADS" not in os.environ or os.environ["OMP_NUM_THREADS"] != "2"

    before = (folder / "run.json").read_bytes()
    write(project, "raise ValueError('first line\\nno such schema')")
    assert fails(project, "cell In [4] raised ValueError", "no such schema") == home
    assert (folder / "run.json").read_bytes() == before
    failed = json.loads((project / "results/quick/_failed/mini/default.ipynb").read_text())
    assert "no such schema" in json.dumps(failed)

    write(project)
    run(project, base={"trials": 1})
    assert record.check(folder)["parameters"]["trials"] == 1
    assert not list((project / "results" / "quick" / "_failed" / "mini").iterdir())


@pytest.mark.parametrize(
    ("middle", "changes", "words"),
    [
        (["os.kill(os.getpid(), signal.SIGKILL)"], {}, ["kernel died in cell In [4]", "killed, or out of memory"]),
        (["sys.exit(0)"], {}, ["code cell 4"]),
        ([], {"finish": "1 + 1"}, ["table.csv is missing", "record.finish(run, table)"]),
        (["os.remove(out + '/run.json') if os.path.exists(out + '/run.json') else None"],
         {"finish": FINISH + "\nos.remove(out + '/run.json')"}, ["run.json is missing"]),
        (["trials = 5"], {"begin": BEGIN.replace('"trials": trials', '"trials": 5')},
         ["trials = 2 asked for, 5 recorded", "as it uses it"]),
        ([], {"begin": BEGIN.replace('"noise": noise, ', "")}, ["noise = 0.5 asked for but not recorded"]),
        ([], {"finish": FINISH + "\nopen(out + '/table.csv', 'a').write('9')"}, ["table.csv", "changed or cut"]),
    ],
    ids=["killed", "exit", "no-table", "no-record", "other-value", "unrecorded", "tampered"],
)  # fmt: skip
def test_a_notebook_that_fails_or_lies_does_not_count(project, middle, changes, words):
    write(project, *middle, **changes)
    home = fails(project, *words)
    assert not home.exists() or not list(home.iterdir())


def test_a_table_that_denies_its_axis(project):
    write(project, finish=FINISH.replace('"valid": True', '"schema": "flat"'))
    sweep = sweeps.load(write_sweep(project, axes={"schema": ["nested"]}, profiles={"quick": {}}))
    with pytest.raises(execute.RunError, match="column 'schema' holds 'flat', but the run is of 'nested'"):
        execute.execute(sweep, sweeps.points(sweep, "quick")[0], "quick", project / "results" / "quick")


def test_a_kernel_that_never_starts(project, monkeypatch):
    (project / "broken").mkdir()
    (project / "broken" / "ipykernel_launcher.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setattr(execute, "PACKAGE_ROOT", project / "broken")
    fails(project, "the kernel did not start")


def test_an_unknown_run_or_parameter_is_refused_before_any_kernel(project, capfd):
    path = write_sweep(project, axes={"schema": ["flat"]})
    base = ["--sweep", str(path), "--profile", "quick"]
    assert command(*base, "--run", "schema=none") == 1
    assert "no run 'schema=none'" in capfd.readouterr().out
    write_sweep(project, base={"trails": 1})
    assert command(*base, "--run", "schema=flat") == 1
    assert "did you mean 'trials'" in capfd.readouterr().out
    assert not (project / "results").exists()


def command(*arguments):
    environment = os.environ | {"PYTHONPATH": str(execute.PACKAGE_ROOT)}
    return subprocess.run([sys.executable, "-m", "gdlib.bench.execute", *arguments], env=environment).returncode
