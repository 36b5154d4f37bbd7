"""Run every sweep of a profile: check all of it first, then only what is missing, and say plainly what came of it.

Snakemake schedules and isolates the runs, here or on a cluster; whether a run is up to date is read from the run itself
(its parameters, its table's digest, the digest of the code it ran), so nothing depends on file dates or on snakemake's
memory surviving.

    python -m gdlib.bench.batch run --profile quick [--results DIR] [--jobs N] [--slurm DIR] [--sweep NAME ...]
                                    [-- options for snakemake]
"""

import argparse
import contextlib
import fcntl
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from gdlib.bench import devices, record, slurm
from gdlib.bench import sweep as sweeps
from gdlib.bench.execute import die_with_parent, failed_notebook
from gdlib.bench.progress import Progress, duration, durations
from gdlib.bench.sweep import Point, SweepError

SNAKEFILE = Path(__file__).parents[2] / "Snakefile"


def run(
    profile: str,
    results: Path,
    jobs: int = 1,
    names: Sequence[str] = (),
    options: Sequence[str] = (),
    cluster: Path | None = None,
) -> int:
    """Bring the results folder up to date; returns the number of runs that are missing at the end.

    jobs: cores snakemake may use; timed runs never overlap on one device, whatever it is. options: passed on to
    snakemake. cluster: a profile folder such as profiles/slurm, to hand the runs to Slurm.
    Raises SweepError before anything runs where a params file, a device or another batch stands in the way.
    """
    found = sweeps.load_all(names)
    digests = {sweep.name: sweeps.sources(sweep) for sweep in found}
    points = [point for sweep in found for point in sweeps.points(sweep, profile)]
    where = slurm.options(cluster, results) if cluster else _here(points, profile, jobs)
    results.mkdir(parents=True, exist_ok=True)
    with locked(results):
        record.write(results / "profile.txt", f"{profile}\n".encode())
        if cluster and (count := slurm.cancel_leftovers(results)):
            print(f"cancelled what an earlier batch left in the queue: {count}", flush=True)
        todo = []
        for point in points:
            folder = results / point.sweep / point.run
            if reason := stale(folder, point, digests[point.sweep]):
                todo.append(point)
                if reason != "new":
                    print(f"again: {point.sweep} {point.run}: {reason}", flush=True)
        print(f"{profile}: {len(points)} runs, {len(points) - len(todo)} of them up to date", flush=True)
        if cluster:
            _remove_halves(results, todo)
        told = Progress([_label(point) for point in todo], durations(results, digests))
        notes = {_label(point): _note(results, point) for point in todo}
        code = 0
        try:
            if todo:
                code = _snakemake(profile, results, todo, where, names, options, told)
        finally:
            if cluster:  # snakemake cancels them when it is interrupted, unless it was killed
                with contextlib.suppress(SweepError):
                    slurm.cancel_leftovers(results)
            lost = [point for point in todo if stale(results / point.sweep / point.run, point, digests[point.sweep])]
            lines = list(_summary(profile, results, todo, lost, notes, told, len(points) - len(todo)))
            if code and not (lost and told.begun):
                lines.append(f"snakemake ended with status {code}, see {_log(results)}")
            print("\n".join(lines), flush=True)
            with contextlib.suppress(OSError):
                record.write(results / "_log" / "summary.txt", ("\n".join(lines) + "\n").encode())
    return len(lost) or code


def _summary(profile, results, todo, lost, notes, told, current) -> Iterator[str]:
    """What became of every run: how many are done, failed, not begun, skipped, and each lost one's own error."""
    failed = [point for point in lost if _label(point) in told.begun or _label(point) in told.causes]
    counts = f"{profile}: {len(todo) - len(lost)} done, {len(failed)} failed, {current} up to date"
    yield counts + (f", {len(lost) - len(failed)} not run" if len(lost) > len(failed) else "")
    for point in lost:
        if point not in failed:
            continue
        note = _note(results, point)
        cause = told.causes.get(_label(point), f"stopped before its end, see {_log(results)}")
        yield f"failed: {_label(point)}\n  {note[1] if note and note != notes[_label(point)] else cause}"
    if lost:
        yield "the same command does what is missing, and only that"


def _note(results: Path, point: Point) -> tuple[int, str] | None:
    """What a run left about its failure, and when."""
    path = failed_notebook(results, point).with_suffix(".txt")
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns, path.read_text(encoding="utf-8").strip()
    return None


def _label(point: Point) -> str:
    return f"{point.sweep} {point.run}"


def _log(results: Path) -> str:
    return os.path.relpath(results / "_log" / "snakemake.log", sweeps.root())


def _remove_halves(results: Path, todo: list[Point]) -> None:
    """What runs left half done that were killed on other machines; none is under way while the queue is empty."""
    for point in todo:
        for folder in (results / point.sweep).glob(".tmp-*"):
            if folder.name.startswith(f".tmp-{point.run}-"):
                shutil.rmtree(folder, ignore_errors=True)


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


def _here(points: list[Point], profile: str, jobs: int) -> list[str]:
    """Snakemake's options for this machine; raises SweepError where a run wants CUDA and there is none."""
    wanting = [p for p in points if p.gpu or str(p.parameters.get("device", "")).startswith("cuda")]
    count = 1
    if wanting:
        import torch

        if not torch.cuda.is_available():
            device = wanting[0].parameters.get("device", "cuda")
            raise SweepError(
                f"params/{wanting[0].sweep}.yml: profile {profile} wants CUDA (device = {device!r}) and this machine "
                "has none: set device: auto or cpu, use a profile without it, or a machine with a GPU and a CUDA build "
                "of torch"
            )
        count = max(1, len(devices.visible()))
    cores = max([jobs, *(point.threads for point in points)])
    shares = ["--resources", f"timing={count}", f"gpu={count}"]
    return ["--cores", str(cores), *shares, "--keep-going", "--scheduler", "greedy", "--config", f"devices={count}"]


@contextlib.contextmanager
def locked(results: Path):
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
    profile: str,
    results: Path,
    todo: list[Point],
    where: list[str],
    names: Sequence[str],
    options: Sequence[str],
    told: Progress,
) -> int:
    """Force exactly these runs; progress goes to the terminal, everything else to _log/snakemake.log."""
    inside = os.path.relpath(results, sweeps.root())
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE), "--directory", str(sweeps.root())]
    command += ["--nolock", "--rerun-incomplete", "--nocolor", "--force", *where]
    command += ["--config"] if "--config" not in where else []
    command += [f"profile={profile}", f"results={inside}"]
    command += [*([f"sweeps={' '.join(names)}"] if names else []), *options, "--"]
    command += [f"{inside}/{point.sweep}/{point.run}/run.json" for point in todo]
    log = results / "_log" / "snakemake.log"
    log.parent.mkdir(exist_ok=True)
    with open(log, "wb", buffering=0) as file:
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
                with contextlib.suppress(OSError):  # a full disk ends runs, which say so, and not the batch
                    file.write(text.encode())
                if line := told.read(text.rstrip("\n")):
                    print(line, flush=True)
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
    batch.add_argument("--jobs", type=int, default=1, help="cores to use (default 1); one timed run a device at a time")
    batch.add_argument(
        "--slurm", type=Path, metavar="DIR", help="hand the runs to Slurm, by the profile in this folder"
    )
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
        cluster = options.slurm and sweeps.root() / options.slurm.expanduser()
        failed = run(options.profile, results, options.jobs, options.sweep, options.options, cluster)
    except SweepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(f"error: {error}: finished runs are kept, the same command goes on from here", file=sys.stderr)
        return 1
    print(f"{options.profile}: {duration(time.monotonic() - start)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
