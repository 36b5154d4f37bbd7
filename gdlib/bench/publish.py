"""Copy a finished profile's tables and provenance into book/published/NAME, where the public book shows them for good.

    python -m gdlib.bench.publish NAME --profile gpu [--results DIR]      (make publish NAME=... PROFILE=gpu)

What goes there must be what a commit makes on one machine: every run of every sweep, whole, of the code that is there
now, measured with nothing uncommitted. machine.json lists the runs with digests: what is missing or edited is seen.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

from gdlib.bench import batch, record
from gdlib.bench import sweep as sweeps

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?")
TAKEN = ("claim", "ratio", "redo", "runs")  # columns of the tables in which a machine has one


class PublishError(RuntimeError):
    """These results may not be published; the message names the run and the way out."""


def published() -> Path:
    """The folder of committed tables, one folder a machine."""
    return sweeps.root() / "book" / "published"


def publish(name: str, profile: str, results: Path) -> Path:
    """Copy every run's table.csv and run.json, and write machine.json; returns the new folder.

    Raises PublishError where a run is missing, stale, dirty or of another machine than the rest, or NAME is another
    machine's; SweepError where a params file is wrong. A folder of the same machine is replaced as a whole.
    """
    if not NAME.fullmatch(name) or name in TAKEN:
        raise PublishError(f"NAME={name!r}: give a machine's name in small letters, digits, . and -, such as h200")
    points = _points(profile)
    if not results.is_dir():
        raise PublishError(f"{results}: it has not been run: `make sweep PROFILE={profile}`")
    with batch.locked(results):
        return _publish(name, [_checked(sweep, point, profile, results) for sweep, point in points], results)


def _publish(name: str, infos: list[dict], results: Path) -> Path:
    machine = described(infos)
    final = published() / name
    if (final / "machine.json").is_file():
        try:
            there = json.loads((final / "machine.json").read_text(encoding="utf-8"))
            same = all(there[key] == machine[key] for key in ("cpu", "gpu"))
        except (ValueError, KeyError, TypeError) as error:
            raise PublishError(
                f"{final / 'machine.json'} cannot be read ({error!r}): remove {final}, and publish again"
            ) from error
        if not same:
            raise PublishError(
                f"{final}: this name is taken by {_spoken(there)}, these runs are of {_spoken(machine)}: take another"
            )
    work = final.with_name(f".{name}.{os.getpid()}")
    try:
        runs = []
        for info in infos:
            place = Path(info["sweep"]) / info["run"]
            (work / place).mkdir(parents=True)
            for file in ("table.csv", "run.json"):
                shutil.copyfile(results / place / file, work / place / file)
            digest = hashlib.sha256((work / place / "run.json").read_bytes()).hexdigest()
            runs.append({"sweep": info["sweep"], "run": info["run"], "sha256": digest})
        text = json.dumps({**machine, "runs": runs}, indent=1, ensure_ascii=False) + "\n"
        record.write(work / "machine.json", text.encode())
        shutil.rmtree(final, ignore_errors=True)
        os.replace(work, final)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final


def _points(profile: str) -> list[tuple[sweeps.Sweep, sweeps.Point]]:
    return [(sweep, point) for sweep in sweeps.load_all() for point in sweeps.points(sweep, profile)]


def _checked(sweep: sweeps.Sweep, point: sweeps.Point, profile: str, results: Path) -> dict:
    """The run.json of a run that may be published."""
    folder = results / point.sweep / point.run
    mend = f"`make sweep PROFILE={profile}` mends it"
    reason = batch.stale(folder, point, sweeps.sources(sweep))
    if reason:
        reason = "it has not been run" if reason == "new" else f"it is stale: {reason}"
        raise PublishError(f"{point.sweep} {point.run}: {reason}: {mend}")
    info = record.check(folder)
    dirty = (info.get("provenance") or {}).get("dirty", "unknown")
    if dirty is not False:
        what = "outside git" if dirty == "unknown" else "with uncommitted changes"
        raise PublishError(
            f"{point.sweep} {point.run}: it was run {what}, so nobody can redo it: commit, remove {folder}, and {mend}"
        )
    return info | {"sweep": point.sweep, "run": point.run}


def described(infos: list[dict]) -> dict:
    """Profile, processor, GPU and what else all runs share; raises PublishError where they are of several machines."""
    where = [info["provenance"] for info in infos]
    for key in ("cpu", "gpu"):
        # A run that does without a GPU does not look for one.
        values = {
            json.dumps(one[key], sort_keys=True): info for one, info in zip(where, infos, strict=True) if one[key]
        }
        if len(values) > 1:
            first, second = list(values.items())[:2]
            raise PublishError(
                f"runs of several machines: {first[1]['sweep']} {first[1]['run']} on {first[0]}, "
                f"{second[1]['sweep']} {second[1]['run']} on {second[0]}: run one of them again"
            )
    return {
        "profile": infos[0]["profile"],
        "cpu": where[0]["cpu"],
        "gpu": next((one["gpu"] for one in where if one["gpu"]), None),
        "cores": max(one["cores"] for one in where),
        "memory_bytes": max(one["memory_bytes"] for one in where),
        "platform": where[0]["platform"],
        "commits": sorted({one["commit"] for one in where}),
        "first": min(info["start"] for info in infos),
        "last": max(info["start"] for info in infos),
    }


def _spoken(machine: dict) -> str:
    return " with ".join(filter(None, [machine["cpu"], (machine["gpu"] or {}).get("name")]))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gdlib.bench.publish", description=__doc__.split("\n")[0])
    parser.add_argument("name", help="the machine's name, such as h200")
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--results", type=Path, help="folder of the results (default: results/PROFILE)")
    options = parser.parse_args(arguments)
    results = sweeps.root() / (options.results or Path("results") / options.profile)
    try:
        folder = publish(options.name, options.profile, results)
    except (PublishError, record.RecordError, sweeps.SweepError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    shown = os.path.relpath(folder, sweeps.root())
    print(f"{shown}: {len(list(folder.rglob('table.csv')))} tables, {size / 1e6:.1f} MB; commit it to publish it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
