"""Run every sweep of a profile: check all of it first, then only what is missing, and say plainly what came of it.

Snakemake schedules and isolates the runs; whether a run is up to date is read from the run itself (its parameters, its
table's digest, the digest of the code it ran), so nothing depends on file dates or on snakemake's memory surviving.

    python -m gdlib.bench.batch run --profile quick [--results DIR] [--jobs N] [--sweep NAME ...] [-- snakemake options]
"""

import argparse
import contextlib
import fcntl
import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gdlib.bench import record
from gdlib.bench import sweep as sweeps
from gdlib.bench.execute import die_with_parent, failed_notebook
from gdlib.bench.sweep import Point, SweepError

SNAKEFILE = Path(__file__).parents[2] / "Snakefile"
EVENT = re.compile(r"^(?P<label>\S+ \S+): (?P<what>started|done in .*|failed after .*|interrupted)$")


def run(profile: str, results: Path, jobs: int = 1, names: Sequence[str] = (), options: Sequence[str] = ()) -> int:
    """Bring the results folder up to date; returns the number of runs that failed.

    jobs: cores snakemake may use; timed runs never overlap, whatever it is. options: passed on to snakemake.
    Raises SweepError before anything runs where a params file, a device or another batch stands in the way.
    """
    found = sweeps.load_all(names)
    digests = {sweep.name: sweeps.sources(sweep) for sweep in found}
    points = [point for sweep in found for point in sweeps.points(sweep, profile)]
    _need_devices(points, profile)
    results.mkdir(parents=True, exist_ok=True)
    with _lock(results):
        (results / "profile.txt").write_text(profile + "\n")
        todo = []
        for point in points:
            folder = results / point.sweep / point.run
            if reason := stale(folder, point, digests[point.sweep]):
                todo.append(point)
                if reason != "new":
                    print(f"again: {point.sweep} {point.run}: {reason}", flush=True)
        print(f"{profile}: {len(points)} runs, {len(points) - len(todo)} of them up to date", flush=True)
        code = _snakemake(profile, results, todo, jobs, names, options) if todo else 0
        lost = [point for point in todo if stale(results / point.sweep / point.run, point, digests[point.sweep])]
    print(f"{profile}: {len(todo) - len(lost)} done, {len(lost)} failed, {len(points) - len(todo)} up to date")
    log = os.path.relpath(results / "_log" / "snakemake.log", sweeps.root())
    for point in lost:
        note = failed_notebook(results, point).with_suffix(".txt")
        cause = note.read_text(encoding="utf-8").strip() if note.is_file() else f"stopped before its end, see {log}"
        print(f"failed: {point.sweep} {point.run}\n  {cause}")
    if code and not lost:
        print(f"snakemake ended with status {code}, see {log}")
    return len(lost) or code


def stale(folder: Path, point: Point, sources: str) -> str | None:
    """Why a run must be done (again), or None where it is whole and of these parameters and this code."""
    if not folder.is_dir():
        return "new"
    try:
        info = record.check(folder)
    except record.MissingRun:
        return "new"
    except record.BrokenRun as error:
        return str(error)
    if not sweeps.same(info["parameters"], point.parameters):
        return record.difference(point.parameters, info["parameters"])
    if info.get("sources") != sources:
        return "the code, the notebook or an input changed"
    return None if (folder / "executed.ipynb").is_file() else "executed.ipynb is missing"


def _need_devices(points: list[Point], profile: str) -> None:
    wanting = [p for p in points if p.gpu or str(p.parameters.get("device", "")).startswith("cuda")]
    if not wanting:
        return
    import torch

    if not torch.cuda.is_available():
        device = wanting[0].parameters.get("device", "cuda")
        raise SweepError(
            f"params/{wanting[0].sweep}.yml: profile {profile} wants CUDA (device = {device!r}) and this machine has "
            "none: set device: auto or cpu, use a profile without it, or a machine with a GPU and a CUDA build of torch"
        )


@contextlib.contextmanager
def _lock(results: Path):
    """One batch a results folder; the lock goes with the process, so a killed one leaves none behind."""
    with open(results / ".lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise SweepError(
                f"{results}: process {file.read().strip()} is running sweeps into this folder: "
                "wait for it, or give another --results"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _snakemake(
    profile: str, results: Path, todo: list[Point], jobs: int, names: Sequence[str], options: Sequence[str]
) -> int:
    """Force exactly these runs; progress goes to the terminal, everything else to _log/snakemake.log."""
    inside = os.path.relpath(results, sweeps.root())
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE), "--directory", str(sweeps.root())]
    command += ["--cores", str(max([jobs, *(point.threads for point in todo)])), "--resources", "timing=1", "gpu=1"]
    command += ["--nolock", "--rerun-incomplete", "--keep-going", "--scheduler", "greedy", "--nocolor", "--force"]
    command += ["--config", f"profile={profile}", f"results={inside}"]
    command += [*([f"sweeps={' '.join(names)}"] if names else []), *options, "--"]
    command += [f"{inside}/{point.sweep}/{point.run}/run.json" for point in todo]
    log = results / "_log" / "snakemake.log"
    log.parent.mkdir(exist_ok=True)
    ended = 0
    with open(log, "w") as file:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=functools.partial(die_with_parent, signal.SIGKILL),
        )
        try:
            for text in process.stdout:
                file.write(text)
                file.flush()
                event = EVENT.match(text)
                if event:
                    ended += event["what"] != "started"
                    count = f"[{ended}/{len(todo)}]" if event["what"] != "started" else "·"
                    print(f"{count:>9} {event['label']} {event['what'].removeprefix('done in ')}", flush=True)
            return process.wait()
        except KeyboardInterrupt:
            print("stopping; finished runs are kept, the same command goes on from here", flush=True)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            raise
        finally:
            _end(process)


def _end(process: subprocess.Popen) -> None:
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process.stdout.close()


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gdlib.bench.batch", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="check every params file and run nothing")
    batch = commands.add_parser("run", help="run what is missing")
    batch.add_argument("--profile", default="quick")
    batch.add_argument("--results", type=Path, help="folder of the results (default: results/PROFILE)")
    batch.add_argument("--jobs", type=int, default=1, help="cores to use (default 1); timed runs never overlap")
    batch.add_argument("--sweep", action="append", default=[], help="only this sweep (may be repeated)")
    batch.add_argument("options", nargs="*", help="after --: options for snakemake, such as --executor slurm")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell starts what it puts in the background with SIGINT ignored
        signal.signal(number, _interrupt)
    start = time.monotonic()
    try:
        if options.command == "check":
            for sweep in sweeps.load_all():
                counts = ", ".join(f"{name} {len(sweeps.points(sweep, name))}" for name in sweep.profiles)
                print(f"{sweep.path.name}: {sweep.title} ({counts} runs)")
            return 0
        results = sweeps.root() / (options.results or Path("results") / options.profile)
        failed = run(options.profile, results, options.jobs, options.sweep, options.options)
    except SweepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"{options.profile}: {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
