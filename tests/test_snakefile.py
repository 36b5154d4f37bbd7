"""The real batch on a small project: what runs, what is kept, and that any kill is mended by the same command."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pandas as pd
import pytest
from mini_project import make_project, write_sweep

from gdlib.bench import batch, record
from gdlib.bench import sweep as sweeps

REPOSITORY = Path(sweeps.__file__).parents[2]
# Waits while the file `hold` is there, after saying so in `reached`; the working folder is notebooks/.
WAIT = """if schema == "nested" and os.path.exists("../hold"):
    with open("../reached.part", "w") as file:
        print(os.getpid(), os.getppid(), file=file)
    os.replace("../reached.part", "../reached")
    while os.path.exists("../hold"):
        time.sleep(0.05)"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("GDLIB_ROOT", str(tmp_path))
    for name in ("GDLIB_PROFILE", "GDLIB_RESULTS"):
        monkeypatch.delenv(name, raising=False)
    make_project(tmp_path, WAIT)
    return tmp_path


def start(*arguments) -> subprocess.Popen:
    command = [sys.executable, "-m", "gdlib.bench.batch", "run", "--profile", "quick", *arguments]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def run(*arguments) -> tuple[int, str]:
    process = start(*arguments)
    output = process.communicate(timeout=100)[0]
    return process.returncode, output


def stamps(project) -> dict:
    """When each whole run was written: a run done anew has another stamp."""
    files = (project / "results" / "quick" / "mini").glob("[!.]*/run.json")
    return {path.parent.name: path.stat().st_mtime_ns for path in files}


def test_a_run_that_fails_anew_leaves_the_old_one_where_it_was(project):
    assert run()[0] == 0
    first = {path: path.read_bytes() for path in (project / "results/quick/mini").glob("*/table.csv")}
    make_project(project, "raise ValueError('not now')")
    code, output = run()
    assert code == 1 and "0 done, 2 failed" in output and "not now" in output
    assert len(first) == 2 and all(path.read_bytes() == data for path, data in first.items())
    make_project(project, WAIT)  # the change undone: what was kept counts again
    code, output = run()
    assert code == 0 and "0 failed, 2 up to date" in output, output


def test_a_failure_keeps_the_rest_and_the_next_call_does_only_what_is_left(project):
    cause = "if schema == 'nested' and not os.path.exists('../mended'):\n    raise ValueError('cannot nest')"
    make_project(project, cause + "\ntime.sleep(0.2)", axes={"schema": ["flat", "nested", "array"]})
    code, output = run("--jobs", "2")
    assert code == 1 and "2 done, 1 failed, 0 up to date" in output, output
    assert re.search(r"\[1/3\] mini schema=\w+", output) and "cannot nest" in output
    assert "results/quick/_failed/mini/schema=nested.ipynb" in output
    assert (project / "results/quick/_failed/mini/schema=nested.ipynb").is_file()
    first = stamps(project)
    assert set(first) == {"schema=flat", "schema=array"}
    with pytest.raises(record.MissingRun, match=r"schema=nested.*make sweep PROFILE=quick"):
        record.load("mini")

    # The same call again runs the failed one alone.
    (project / "mended").touch()
    code, output = run()
    second = stamps(project)
    assert code == 0 and "1 done, 0 failed, 2 up to date" in output, output
    assert second == first | {"schema=nested": second["schema=nested"]}
    assert not list((project / "results" / "quick" / "_failed" / "mini").iterdir())

    # Two cores were given, yet timed runs did not overlap.
    rows = record.load("mini").table.groupby("run").agg({"began_ns": "min", "ended_ns": "max"}).sort_values("began_ns")
    assert (rows["ended_ns"].to_numpy()[:-1] <= rows["began_ns"].to_numpy()[1:]).all()

    # Nothing changed: nothing runs, for this command and for snakemake by hand.
    os.utime(project / "notebooks" / "mini.ipynb")
    code, output = run()
    assert code == 0 and "0 done, 0 failed, 3 up to date" in output and stamps(project) == second, output
    by_hand = [
        sys.executable,
        "-m",
        "snakemake",
        "-n",
        "-s",
        str(REPOSITORY / "Snakefile"),
        "--directory",
        str(project),
    ]
    done = subprocess.run(by_hand, env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True)
    assert "Nothing to be done" in done.stdout + done.stderr

    # One value of an axis edited: only the new point runs.
    write_sweep(project, axes={"schema": ["flat", "nested", "deep"]})
    code, output = run()
    third = stamps(project)
    assert code == 0 and "1 done, 0 failed, 2 up to date" in output, output
    assert third == second | {"schema=deep": third["schema=deep"]}
    assert set(record.load("mini").table["schema"]) == {"flat", "nested", "deep"}


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    return True


def until(condition, seconds=40):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_any_kill_loses_nothing_and_the_same_command_goes_on(project):
    (project / "hold").touch()
    reached = project / "reached"
    kept = None
    for case in ("interrupt", "kill batch", "kill snakemake", "kill job"):
        process = start(*(["--", "--keep-incomplete"] if case == "kill snakemake" else []))
        until(reached.exists)
        kernel, job = map(int, reached.read_text().split())
        snakemake = children(process.pid)[0]
        if case == "interrupt":
            code, output = run()
            assert code == 1 and f"process {process.pid} is running" in output and "--results" in output, output
        target, number = {
            "interrupt": (process.pid, signal.SIGINT),
            "kill batch": (process.pid, signal.SIGKILL),
            "kill snakemake": (snakemake, signal.SIGKILL),
            "kill job": (job, signal.SIGKILL),
        }[case]
        os.kill(target, number)
        output = process.communicate(timeout=40)[0]
        assert process.returncode not in (0, None), (case, output)
        until(lambda pids=(snakemake, job, kernel): all(map(gone, pids)))
        assert set(stamps(project)) <= {"schema=flat"}, case
        if kept and stamps(project):
            assert stamps(project) == kept, case
        kept = stamps(project) or kept
        with pytest.raises(record.MissingRun):
            record.load("mini")
        reached.unlink()
    (project / "hold").unlink()
    code, output = run()
    assert code == 0, output
    assert len(record.load("mini").infos) == 2
    assert not [path.name for path in (project / "results" / "quick" / "mini").iterdir() if path.name[0] == "."]


def test_bad_params_and_missing_devices_stop_everything_before_it_starts(project, monkeypatch, capsys):
    absent = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", absent)
    assert batch.main(["run", "--profile", "gpu"]) == 1
    assert "params/mini.yml: profile gpu wants CUDA (device = 'cuda')" in capsys.readouterr().err
    assert batch.main(["run", "--profile", "qick"]) == 1
    assert "did you mean 'quick'" in capsys.readouterr().err
    assert batch.main(["run", "--sweep", "minni"]) == 1
    assert "did you mean 'mini'" in capsys.readouterr().err
    write_sweep(project, base={"trials": "2"})
    assert batch.main(["run"]) == 1
    assert "base.trials: '2' is str" in capsys.readouterr().err
    assert batch.main(["check"]) == 1
    assert not (project / "results").exists()


def test_a_run_is_stale_for_a_reason(project):
    sweep = sweeps.load(project / "params" / "mini.yml")
    point = sweeps.points(sweep, "quick")[0]
    folder = project / "results" / "quick" / "mini" / point.run
    assert batch.stale(folder, point, "digest") == "new"
    record.finish(record.begin(folder, point.parameters), pd.DataFrame({"trial": [1]}))
    assert "an input changed" in batch.stale(folder, point, "digest")
    info = json.loads((folder / "run.json").read_text()) | {"sources": "digest"}
    (folder / "run.json").write_text(json.dumps(info))
    assert batch.stale(folder, point, "digest") == "executed.ipynb is missing"
    (folder / "executed.ipynb").touch()
    assert batch.stale(folder, point, "digest") is None
    info["parameters"]["trials"] = 9
    (folder / "run.json").write_text(json.dumps(info))
    assert batch.stale(folder, point, "digest") == "trials = 2 asked for, 9 recorded"
    (folder / "table.csv").write_text("trial\n2\n")
    assert "changed or cut" in batch.stale(folder, point, "digest")
