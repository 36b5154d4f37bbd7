"""Execute one point of a sweep through papermill, and count it only if it is whole.

Papermill's own word is not enough: it only warns about an unknown parameter, and calls cells completed that never ran.
So a run is done in a temporary folder beside its place, checked (see `_gate`), and moved there in one step; the
notebook of a run that failed is kept under <results>/_failed and named.

    python -m gdlib.bench.execute --sweep params/oracle.yml --profile quick --run NAME --results results/quick
"""

import argparse
import ast
import contextlib
import csv
import errno
import hashlib
import json
import logging
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gdlib.bench import devices, record
from gdlib.bench import sweep as sweeps
from gdlib.bench.sweep import Point, Sweep

PACKAGE_ROOT = Path(__file__).parents[2]
MACHINE = hashlib.sha256(platform.node().encode()).hexdigest()[:6]  # a process id means something on one machine only


class RunError(RuntimeError):
    """A run that does not count; the message names notebook, run, cell and cause."""


def execute(sweep: Sweep, point: Point, profile: str, results: Path) -> Path:
    """Run one point; returns its folder with executed.ipynb, table.csv and run.json. Raises RunError.

    The run's old folder, if any, stays until the new one is whole.
    """
    home = results / sweep.name
    final, work = home / point.run, home / f".tmp-{point.run}-{MACHINE}-{os.getpid()}"
    kept = failed_notebook(results, point)
    _sweep_up(home, point.run)
    for stale in (kept, kept.with_suffix(".txt")):
        stale.unlink(missing_ok=True)
    work.mkdir(parents=True)
    try:
        with _device(point) as device:
            print(f"{sweep.name} {point.run}: started", flush=True)
            _papermill(sweep, point, profile, work, device)
        _gate(sweep, point, work)
        _move(work, final)
    except Exception as error:
        cause = f"{_shown(results)}: the disk is full: make room and run it again" if _full(error) else error
        message = f"{sweep.notebook.relative_to(sweeps.root())}, run {point.run}: {cause}"
        with contextlib.suppress(OSError):  # a full disk does not hide what ended the run
            message = _keep(work / "executed.ipynb", kept, message)
        raise RunError(message) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final


def _keep(notebook: Path, kept: Path, message: str) -> str:
    """Put a failed run's notebook and message where a person finds them; returns the message with the place."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    if notebook.is_file():
        os.replace(notebook, kept)
        message += f"\n  the notebook as far as it came: {_shown(kept)}"
    record.write(kept.with_suffix(".txt"), f"{message}\n".encode())
    return message


def _full(error: BaseException | None) -> bool:
    """Whether a full disk is behind an error, this process's own or one that a cell raised."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "[Errno 28]" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def _device(point: Point) -> Iterator[str | None]:
    """The CUDA device that a run has for itself, None where it needs none; raises RunError where there is none."""
    if not point.gpu:
        yield None
        return
    names = devices.visible()
    if not names:
        raise RunError("it needs a GPU and no CUDA device is visible here: take another profile, or another machine")
    with devices.slot(names) as name:
        yield name


def failed_notebook(results: Path, point: Point) -> Path:
    """Where the notebook of a failed run is kept; the message lies beside it as .txt."""
    return results / "_failed" / point.sweep / f"{point.run}.ipynb"


def _papermill(sweep: Sweep, point: Point, profile: str, work: Path, device: str | None) -> None:
    logging.getLogger("papermill").setLevel(logging.ERROR)  # what it warns about is checked here
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    executed = work / "executed.ipynb"
    with _environment(sweep, point, profile, work, device):
        try:
            papermill.execute_notebook(
                str(sweep.notebook),
                str(executed),
                parameters=point.parameters | _injected(sweep, point, work),
                kernel_name="python3",
                language="python",
                cwd=str(sweep.notebook.parent),  # as in JupyterLab
                progress_bar=False,
                shutdown_kernel="immediate",
            )
        except PapermillExecutionError as error:
            raise RunError(f"cell In [{error.exec_count}] raised {error.ename}: {_in_short(error.evalue)}") from error
        except DeadKernelError as error:
            where = f"in cell In [{_started(executed)}]"
            raise RunError(f"the kernel died {where} (killed, or out of memory)") from error
        except RuntimeError as error:
            raise RunError(f"the kernel did not start: {_in_short(str(error))}") from error


def _gate(sweep: Sweep, point: Point, work: Path) -> None:
    """Every code cell ran without an error, with the parameters asked for, and left a table that says so."""
    cells = json.loads((work / "executed.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        empty = not "".join(cell["source"]).strip()
        state = cell["metadata"].get("papermill", {})
        if not empty and (cell["execution_count"] is None or state.get("status") != "completed"):
            raise RunError(f"code cell {number} never ran")
        if state.get("exception") or any(output["output_type"] == "error" for output in cell["outputs"]):
            raise RunError(f"code cell {number} ended in an error")
    given = [cell for cell in code if "injected-parameters" in cell["metadata"].get("tags", [])]
    asked = point.parameters | _injected(sweep, point, work)
    found = _assigned("".join(given[0]["source"])) if len(given) == 1 else {}
    if not sweeps.same(found, asked):
        raise RunError(f"papermill did not inject what was asked: {record.difference(asked, found)}")
    try:
        info = record.check(work)
    except record.RecordError as error:
        raise RunError(f"{error}: the notebook's last cell must call record.finish(run, table)") from error
    if not sweeps.same(info["parameters"], point.parameters):
        raise RunError(
            f"{record.difference(point.parameters, info['parameters'])}: "
            "give record.begin every parameter the notebook declares, as it uses it"
        )
    with open(work / "table.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for name, value in point.axes.items():
                if row.get(name, str(value)) != str(value):
                    raise RunError(f"table.csv: column {name!r} holds {row[name]!r}, but the run is of {value!r}")
    if info["provenance"]["threads"]["omp"] != point.threads:
        raise RunError(f"run.json: {info['provenance']['threads']} threads recorded, {point.threads} asked for")


def _injected(sweep: Sweep, point: Point, work: Path) -> dict:
    return {name: value for name, value in (("out", str(work)), ("threads", point.threads)) if name in sweep.takes}


def _assigned(source: str) -> dict:
    return {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(source).body}


@contextlib.contextmanager
def _environment(sweep: Sweep, point: Point, profile: str, work: Path, device: str | None):
    """The kernel's environment: this interpreter and this gdlib, the sweep's threads, and nothing of the user's own."""
    private = work / ".jupyter"
    spec = private / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": command, "display_name": "Python 3", "language": "python"}))
    threads = str(point.threads)
    values = {
        "JUPYTER_PATH": str(private),  # looked at before a kernelspec of the same name in the user's home
        "IPYTHONDIR": str(private / "ipython"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")])),
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads),
        "GDLIB_SWEEP": sweep.name,
        "GDLIB_RUN": point.run,
        "GDLIB_PROFILE": profile,
        "GDLIB_SOURCES": sweeps.sources(sweep),
        **({"CUDA_VISIBLE_DEVICES": device} if device else {}),
    }
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        shutil.rmtree(private, ignore_errors=True)


def _move(work: Path, final: Path) -> None:
    """Put the new folder in the place of the old one; a reader sees one of the two, or none, never a part."""
    old = final.with_name(f".tmp-{final.name}-{MACHINE}-{os.getpid()}-old")
    if final.exists():
        os.replace(final, old)
    os.replace(work, final)
    shutil.rmtree(old, ignore_errors=True)


def _sweep_up(home: Path, run: str) -> None:
    """Remove what killed executions of this run left behind on this machine."""
    for folder in home.glob(".tmp-*"):
        start = f".tmp-{run}-{MACHINE}-"
        pid = folder.name.removeprefix(start).removesuffix("-old")
        if folder.name.startswith(start) and pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()  # a leftover with this process's own number is from another boot


def _started(executed: Path) -> int:
    """Number of the last code cell that papermill began."""
    cells = json.loads(executed.read_text(encoding="utf-8"))["cells"] if executed.is_file() else []
    return sum(bool(cell["metadata"]["papermill"]["start_time"]) for cell in cells if cell["cell_type"] == "code")


def _in_short(text: str) -> str:
    """First and last line: one names the thing, the other mostly says what is wrong with it."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or [""]
    return " ... ".join(dict.fromkeys((lines[0], lines[-1])))


def _shown(path: Path) -> str:
    return os.path.relpath(path, sweeps.root()) if path.is_relative_to(sweeps.root()) else str(path)


def die_with_parent(number: int) -> None:
    """Have Linux send this process the signal when its parent ends: a killed batch leaves nothing running."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


def _stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gdlib.bench.execute", description=__doc__.split("\n")[0])
    parser.add_argument("--sweep", required=True, help="the params file")
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--run", required=True, help="name of the point, such as schema=flat+string_length=4")
    parser.add_argument("--results", help="folder of the results (default: results/PROFILE)")
    options = parser.parse_args(arguments)
    die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _stop)
    label, start = f"{Path(options.sweep).stem} {options.run}", time.monotonic()
    try:
        sweep = sweeps.load(options.sweep)
        found = {point.run: point for point in sweeps.points(sweep, options.profile)}
        if options.run not in found:
            raise RunError(f"{options.sweep}: no run {options.run!r} in profile {options.profile}: {', '.join(found)}")
        results = sweeps.root() / (options.results or f"results/{options.profile}")
        execute(sweep, found[options.run], options.profile, results)
    except (RunError, sweeps.SweepError) as error:
        print(f"{label}: failed after {time.monotonic() - start:.0f} s\n  {error}", flush=True)
        return 1
    except KeyboardInterrupt:
        print(f"{label}: interrupted", flush=True)
        return 130
    print(f"{label}: done in {time.monotonic() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
