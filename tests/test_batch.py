"""The batch's parts: what it says as it goes, who gets which device, and that what Slurm or a disk refuses is told."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest
import yaml
from mini_project import make_project

from gdlib.bench import batch, devices, execute, record, slurm
from gdlib.bench import sweep as sweeps
from gdlib.bench.progress import Progress, duration

REPOSITORY = Path(sweeps.__file__).parents[2]
ON_SLURM = """rule run:
    jobid: 2
    wildcards: sweep=mini, run=schema=flat+noise=1.5
rule run:
    jobid: 3
    wildcards: sweep=mini, run=schema=nested
[Mon Nov 30 08:42:36 2026]
rule run:
    jobid: 4
    wildcards: sweep=mini, run=default

Job 2 has been submitted with SLURM jobid 17 (log: a/17.log).
Finished jobid: 2 (Rule: run)
1 of 3 steps (33%) done
[Mon Nov 30 08:43:22 2026]
Error in rule run:
    message: SLURM-job '9' failed, SLURM status is: 'TIMEOUT'. Detailed failure reason unavailable.
    jobid: 3
    log: /tmp/logs/9.log (check log file(s) for error details)
    shell:
        exec python
Error in rule run:
    message: SLURM sbatch failed. The error message was 'sbatch: error: Batch job submission failed: Invalid account'.
    sbatch call:
        sbatch --parsable
For further error details see the cluster/cloud log and the log files of the involved rule(s).
    jobid: 4
"""


def test_progress_on_a_cluster_is_read_from_snakemake():
    told = Progress(["mini schema=flat+noise=1.5", "mini schema=nested", "mini default"], {})
    lines = [line for line in map(told.read, ON_SLURM.splitlines()) if line]
    assert [line.strip(" ·").split(" · ")[0] for line in lines] == [
        "mini schema=flat+noise=1.5 handed to Slurm as job 17",
        "[1/3] mini schema=flat+noise=1.5 done",
        "[2/3] mini schema=nested lost",
        "[3/3] mini default lost",
    ]
    assert told.ended == set(told.labels) and told.left() == ""
    assert told.causes["mini schema=nested"] == (
        "SLURM-job '9' failed, SLURM status is: 'TIMEOUT'\n  its log: /tmp/logs/9.log"
    )
    assert "Invalid account" in told.causes["mini default"]


def test_what_is_left_is_weighed_by_how_long_runs_took(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("gdlib.bench.progress.time.monotonic", lambda: clock[0])
    told = Progress(["a x=1", "a x=2", "b default"], {"b default": 600.0})
    assert told.left() == "" and told.read("a x=1: started") == "        · a x=1 started"
    clock[0] = 12.0  # ten seconds of work took twelve
    line = told.read("a x=1: done in 10 s")
    assert line == "    [1/3] a x=1 10 s · about 12 min left"  # (10 + 600) * 12 / 10 seconds
    clock[0] = 24.0
    assert "failed after 3 s · about 12 min left" in told.read("a x=2: failed after 3 s")
    assert told.read("  notebooks/mini.ipynb: no") is None and told.causes == {"a x=2": "notebooks/mini.ipynb: no"}
    assert told.read("something else: said") is None
    assert [duration(seconds) for seconds in (1, 89, 600, 12_000)] == ["1 s", "89 s", "10 min", "3 h 20 min"]


def test_a_device_is_held_by_one_run_at_a_time(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 5")
    names = devices.visible()
    assert names == ["2", "5"]
    got = []

    def wait():
        with devices.slot(names, patience_s=0.01) as name:
            got.append(name)

    with devices.slot(names) as first:
        with devices.slot(names) as second:
            assert {first, second} == {"2", "5"}
            third = threading.Thread(target=wait)
            third.start()
            third.join(0.2)
            assert not got
        third.join(20)
        assert got == [second]
    monkeypatch.setenv("SLURM_JOB_ID", "7")  # Slurm has seen to it, and may call every job's device 0
    with devices.slot(["0"]) as outer, devices.slot(["0"]) as inner:
        assert outer == inner == "0"
    for none in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        assert devices.visible() == []


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("GDLIB_ROOT", str(tmp_path))
    for name in ("GDLIB_PROFILE", "GDLIB_RESULTS", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    make_project(tmp_path)
    return tmp_path


def test_a_run_that_needs_a_gpu_says_so_where_there_is_none(project, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    sweep = sweeps.load(project / "params" / "mini.yml")
    with pytest.raises(execute.RunError, match="needs a GPU and no CUDA device is visible"):
        execute.execute(sweep, sweeps.points(sweep, "gpu")[0], "gpu", project / "results" / "gpu")


def test_runs_on_a_box_with_several_devices_have_each_one_to_themselves(project, monkeypatch):
    cell = "with open(f'../{schema}.device', 'w') as file:\n    print(os.environ['CUDA_VISIBLE_DEVICES'], file=file)"
    make_project(project, cell, "time.sleep(1)", axes={"schema": ["a", "b", "c"]})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    command = [sys.executable, "-m", "snakemake", "-s", str(REPOSITORY / "Snakefile"), "--directory", str(project)]
    command += ["--cores", "2", "--resources", "timing=2", "gpu=2", "--config", "profile=gpu", "devices=2"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    times = record.load("mini", "results/gpu").table.groupby("schema").agg({"began_ns": "min", "ended_ns": "max"})
    times["device"] = [(project / f"{schema}.device").read_text().strip() for schema in times.index]
    assert set(times["device"]) == {"0", "1"}
    for _, held in times.sort_values("began_ns").groupby("device"):
        assert (held["ended_ns"].to_numpy()[:-1] <= held["began_ns"].to_numpy()[1:]).all()


FAKE = {
    "sbatch": 'echo "sbatch: error: Batch job submission failed: Invalid account or account/partition combination '
    'specified" >&2; exit 1',
    "squeue": "echo 41 gdlib-other_1",
    "scancel": "exit 1",
    "sacct": "echo 'Slurm accounting storage is disabled' >&2; exit 1",
    "scontrol": "echo 'MinJobAge = 300 sec'",
    "sinfo": "echo main",
}


@pytest.fixture
def cluster(project, monkeypatch):
    """A Slurm that refuses everything, and a profile folder for it."""
    programs = project / "bin"
    programs.mkdir()
    for name, body in FAKE.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    shutil.copytree(REPOSITORY / "profiles" / "slurm", project / "mine")
    return project


def test_what_slurm_refuses_is_told_in_its_own_words(cluster):
    command = [sys.executable, "-m", "gdlib.bench.batch", "run", "--slurm", "mine"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "0 done, 2 failed, 0 up to date" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("Invalid account or account/partition combination specified") >= 2
    assert "[2/2]" in done.stdout and "the same command does what is missing" in done.stdout
    summary = (cluster / "results" / "quick" / "_log" / "summary.txt").read_text()
    assert "failed: mini schema=nested" in summary


def test_options_for_slurm_and_what_stands_in_their_way(cluster, monkeypatch):
    results = cluster / "results" / "quick"
    chosen = slurm.options(cluster / "mine", results)
    assert chosen[-2:] == ["--slurm-status-command", "squeue"]  # sacct is there, and answers nothing
    (cluster / "bin" / "sacct").write_text("#!/bin/sh\n")
    assert "--slurm-status-command" not in slurm.options(cluster / "mine", results)
    assert slurm.prefix(results) != slurm.prefix(cluster / "results" / "gpu")
    assert slurm.cancel_leftovers(results) == 0  # another batch's jobs are none of its business
    (cluster / "bin" / "squeue").write_text(f"#!/bin/sh\necho 42 {slurm.prefix(results)}_x\n")
    with pytest.raises(sweeps.SweepError, match=r"jobs 42 of an earlier batch .* cannot be cancelled"):
        slurm.cancel_leftovers(results)
    (cluster / "bin" / "squeue").write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
    with pytest.raises(sweeps.SweepError, match="no controller"):
        slurm.cancel_leftovers(results)
    with pytest.raises(sweeps.SweepError, match=r"there is no config\.yaml"):
        slurm.options(cluster / "yours", results)
    monkeypatch.setenv("PATH", str(cluster / "none"))
    with pytest.raises(sweeps.SweepError, match="there is no sbatch on this machine"):
        slurm.options(cluster / "mine", results)


def test_the_profile_asks_by_names_that_the_snakefile_and_the_plugin_know():
    from snakemake_executor_plugin_slurm import ExecutorSettings

    config = yaml.safe_load((REPOSITORY / "profiles" / "slurm" / "config.yaml").read_text())
    settings = {key.removeprefix("slurm-").replace("-", "_") for key in config if key.startswith("slurm-")}
    assert settings <= set(ExecutorSettings.__dataclass_fields__)
    asked = yaml.safe_load((REPOSITORY / "profiles" / "slurm" / "cluster.yml").read_text())
    text = (REPOSITORY / "Snakefile").read_text()
    assert all(f'asked("{key}"' in text for key in asked)


def test_a_full_disk_costs_the_run_and_nothing_else(project):
    """In a mount of its own: the second run fills it, says so, and after room is made the same command goes on."""
    fill = "if schema == 'nested' and not os.path.exists('../roomy'):\n    open(out + '/big', 'wb').write(bytes(2**24))"
    make_project(project, fill)
    (project / "results").mkdir()
    steps = f"""
    mount -t tmpfs -o size=2m none {project}/results || exit 77
    "{sys.executable}" -m gdlib.bench.batch run; echo "status $?"
    ls results/quick/mini
    touch roomy
    "{sys.executable}" -m gdlib.bench.batch run; echo "status $?"
    """
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", steps],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("mounts need rights that are not given here")
    first, second = done.stdout.split("status 1\n")
    assert "1 done, 1 failed" in first and "results/quick: the disk is full: make room" in first, done.stdout
    assert second.splitlines()[0] == "schema=flat"
    assert "1 done, 0 failed, 1 up to date" in second and "status 0" in second


def test_a_disk_that_is_full_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    record.write(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        record.write(path, b"new")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_columns_made_of_times_are_known_by_their_names():
    table = pd.DataFrame(
        {"trial": [1], "step_us": [1.0], "tokens_per_s": [2.0], "parts_share": [0.5], "read_tokens": [3]}
    )
    assert list(record.untimed(table)) == ["trial", "read_tokens"]


def test_the_disk_being_full_where_the_batch_writes_is_an_error_in_one_line(project, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record, "write", full)
    assert batch.main(["run"]) == 1
    assert "error: [Errno 28] No space left on device: finished runs are kept" in capsys.readouterr().err
