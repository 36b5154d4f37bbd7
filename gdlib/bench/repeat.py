"""Whether runs made twice say the same: every column that is not a time, value by value.

A result that another run of the same code, seed and machine does not repeat is noise or a fault. `make repeat` runs a
profile a second time into a folder of its own and compares.

    python -m gdlib.bench.repeat FIRST SECOND
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from gdlib.bench import record


def unlike(first: pd.DataFrame, second: pd.DataFrame) -> list[str]:
    """What differs between two tables of one run, but for times: a line a column, or one on the shape."""
    first, second = record.untimed(first), record.untimed(second)
    if list(first.columns) != list(second.columns) or len(first) != len(second):
        return [f"{len(first)} rows of {list(first.columns)}, then {len(second)} of {list(second.columns)}"]
    found = []
    for name in first:
        other = (first[name] != second[name]).to_numpy()
        if other.any():
            row = int(other.argmax())
            values = f"{first[name][row]!r}, then {second[name][row]!r}"
            found.append(f"{name}: {other.sum()} of {len(other)} rows, the first of them row {row}: {values}")
    return found


def compare(first: Path, second: Path) -> Iterator[tuple[str, list[str]]]:
    """(sweep/run, what differs) of every run of two folders of results.

    Raises RecordError where a run is missing from one of them or broken, or is of other parameters or other code.
    """
    if first.resolve() == second.resolve():
        raise record.RecordError(f"{first} and {second} are one folder: run the profile again into another")
    runs = [{str(path.parent.relative_to(root)) for path in root.glob("*/*/run.json")} for root in (first, second)]
    if alone := sorted(runs[0] ^ runs[1]):
        raise record.RecordError(f"{alone[0]} is in one of {first} and {second} only: run both profiles to their end")
    if not runs[0]:
        raise record.RecordError(f"no runs in {first}: make sweep")
    for run in sorted(runs[0]):
        (one, about), (two, again) = record.read(first / run), record.read(second / run)
        seeds = ({"the seed": one.get("seed")} | one["parameters"] for one in (about, again))
        if different := record.difference(*seeds):
            raise record.RecordError(f"{run}: not the same run: {different}")
        if about.get("sources") is None or about["sources"] != again.get("sources"):
            raise record.RecordError(f"{run}: the code, the notebook or an input changed between {first} and {second}")
        yield run, unlike(one, two)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gdlib.bench.repeat", description=__doc__.split("\n")[0])
    parser.add_argument("first", type=Path, help="a folder of results, such as results/smoke")
    parser.add_argument("second", type=Path, help="one of the same profile, run again")
    options = parser.parse_args(arguments)
    counts = [0, 0]
    try:
        for run, found in compare(options.first, options.second):
            counts[bool(found)] += 1
            print(f"{'differs' if found else 'same':8}{run}", *found, sep="\n          ")
    except (record.RecordError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{sum(counts)} runs made twice: {counts[0]} the same but for times, {counts[1]} not")
    return 1 if counts[1] else 0


if __name__ == "__main__":
    sys.exit(main())
