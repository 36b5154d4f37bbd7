"""The only writer and reader of results: table.csv (tidy, one observation a row) and run.json beside it.

A notebook calls `begin` with the parameters it really uses and `finish` with its table; whatever is not a clean table
is refused there. `load` gives the book every run of a sweep, or says which one is missing or broken and what mends it.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gdlib.bench import sweep as sweeps
from gdlib.bench.provenance import commit, provenance

if TYPE_CHECKING:
    import pandas as pd

# What a numeric column's name ends with, so that nobody has to guess what its numbers mean.
UNITS = ("_ns", "_us", "_ms", "_s", "_bytes", "_mb", "_share", "_ratio", "_x", "_count", "_tokens", "_steps", "_chars")
UNITS += ("_rows", "_index", "_id", "_logit", "_nats", "_per_s")
PLAIN = ("trial", "step", "seed", "prompt", "n")  # what a row is, not what was measured
TIMED = ("_ns", "_us", "_ms", "_s", "_per_s")  # of them, those that a second run cannot be expected to repeat
OF_TIMES = ("parts_share", "costs", "device_bytes")  # shares of a time, many times as JSON, the system's own reading
CLOCKED = "clocked"  # true in rows where a gate went by measured time: which drafts were verified need not repeat
BY_DRAFTS = ("_count", "_rows", "_bytes", "trace")  # what then may differ; never the text, nor whether it is identical
RESERVED = ("run",)  # added by load


class RecordError(ValueError):
    """A table that may not be written, or results that may not be shown."""


class MissingRun(RecordError):
    """A run that the sweep names is not there (or not finished)."""


class BrokenRun(RecordError):
    """A run is there, but is not what its run.json or the sweep says."""


@dataclass(frozen=True)
class Run:
    """A run in progress; `out` is None where a person runs the notebook by hand."""

    out: Path | None
    parameters: dict
    seed: int | None
    device: str | None
    start: datetime
    clock: float
    commit: dict


@dataclass(frozen=True)
class Runs:
    """All runs of a sweep: rows of all tables with a first column `run`, and each run's run.json."""

    table: "pd.DataFrame"
    infos: list[dict]


def begin(out: str | Path, parameters: dict, seed: int | None = None, device: str | None = None) -> Run:
    """Start of a run.

    out: folder to write to, "" to write nothing. parameters: every value the notebook declares, as it uses them.
    device: what it computes on after resolving "auto". Raises RecordError for a parameter that is not JSON.
    """
    for name, value in parameters.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise RecordError(
                f"parameter {name} = {value!r} is not a JSON value: record a plain number or text"
            ) from error
    parameters = json.loads(json.dumps(parameters))
    return Run(
        out=Path(out) if out else None,
        parameters=parameters,
        seed=seed,
        device=None if device is None else str(device),
        start=datetime.now(UTC),
        clock=time.perf_counter(),
        commit=commit() if out else {},
    )


def finish(run: Run, table: "pd.DataFrame") -> "pd.DataFrame":
    """Check the table and write table.csv, then run.json, into the run's folder; returns the table as `load` will.

    Raises RecordError, naming the column, where a value is missing or not finite, a type is not bool, int, float or
    text, or a measured column's name carries no unit.
    """
    columns = _check(table, run.parameters)
    table = table.astype(columns).reset_index(drop=True)
    if run.out is None:
        return table
    duration = time.perf_counter() - run.clock
    data = table.to_csv(index=False, lineterminator="\n").encode()
    info = {
        "sweep": os.environ.get("GDLIB_SWEEP"),
        "run": os.environ.get("GDLIB_RUN"),
        "profile": os.environ.get("GDLIB_PROFILE"),
        "parameters": run.parameters,
        "seed": run.seed,
        "start": run.start.isoformat(timespec="seconds"),
        "duration_s": round(duration, 3),
        "sources": os.environ.get("GDLIB_SOURCES"),
        "table": {"sha256": hashlib.sha256(data).hexdigest(), "rows": len(table), "columns": columns},
        "provenance": provenance(run.device) | run.commit,
    }
    run.out.mkdir(parents=True, exist_ok=True)
    write(run.out / "table.csv", data)
    write(run.out / "run.json", (json.dumps(info, indent=1, ensure_ascii=False) + "\n").encode())
    return table


def read(folder: str | Path) -> tuple["pd.DataFrame", dict]:
    """Table and run.json of one run folder; raises MissingRun or BrokenRun, naming the file."""
    import pandas as pd

    folder = Path(folder)
    info = check(folder)
    columns = info["table"]["columns"]
    try:
        table = pd.read_csv(folder / "table.csv", dtype=columns, keep_default_na=False, lineterminator="\n")
    except (ValueError, TypeError) as error:
        raise BrokenRun(f"{folder / 'table.csv'} is not of the columns that run.json names: {error}") from error
    if list(table.columns) != list(columns) or len(table) != info["table"]["rows"]:
        raise BrokenRun(f"{folder / 'table.csv'}: rows or columns are not those of run.json")
    return table, info


def check(folder: str | Path) -> dict:
    """The run.json of a folder whose table is whole; raises MissingRun or BrokenRun, naming the file."""
    folder = Path(folder)
    for name in ("table.csv", "run.json"):
        if not (folder / name).is_file():
            raise MissingRun(f"{folder / name} is missing")
    try:
        info = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        recorded = info["table"]["sha256"]
        info["parameters"], info["table"]["columns"], info["table"]["rows"]
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenRun(f"{folder / 'run.json'} cannot be read: {error!r}") from error
    if hashlib.sha256((folder / "table.csv").read_bytes()).hexdigest() != recorded:
        raise BrokenRun(f"{folder / 'table.csv'} is not the table that run.json describes: it was changed or cut")
    return info


def results_folder(results: str | Path | None = None) -> Path:
    """The given folder, else GDLIB_RESULTS, else results/quick; a relative path starts at the root."""
    return sweeps.root() / (results or os.environ.get("GDLIB_RESULTS") or "results/quick")


def load(sweep: str, results: str | Path | None = None) -> Runs:
    """Every run that params/<sweep>.yml names for the profile of the results folder, each checked.

    The profile is GDLIB_PROFILE, else what profile.txt in the folder says, else the folder's name. Axes of plain values
    that a table lacks become columns. Raises MissingRun or BrokenRun with the command that mends it; other folders are
    ignored.
    """
    results = results_folder(results)
    note = results / "profile.txt"
    profile = os.environ.get("GDLIB_PROFILE") or (note.read_text().strip() if note.is_file() else results.name)
    file = sweeps.root() / "params" / f"{sweep}.yml"
    points = sweeps.points(sweeps.load(file), profile)
    found = []
    for point in points:
        folder = results / sweep / point.run
        try:
            table, info = read(folder)
            if not sweeps.same(info["parameters"], point.parameters):
                reason = difference(point.parameters, info["parameters"])
                raise BrokenRun(f"{folder / 'run.json'} is stale: params/{file.name} has changed since: {reason}")
        except RecordError as error:
            raise type(error)(f"{error}; `make sweep PROFILE={profile}` mends it") from error
        found.append((point.axes, table, info))
    try:
        return joined(found)
    except BrokenRun as error:
        raise BrokenRun(f"{results / sweep}: {error}; `make sweep PROFILE={profile}` mends it") from error


def joined(runs: Sequence[tuple[dict, "pd.DataFrame", dict]]) -> Runs:
    """Of (axes, table, run.json) of every run of a sweep, as `load` gives them; BrokenRun where columns differ."""
    import pandas as pd

    kinds = {name: {type(axes.get(name)) for axes, _, _ in runs} for name in runs[0][0]}
    tables = []
    for axes, table, _ in runs:
        run = sweeps.run_name(axes)
        if list(table.columns) != list(runs[0][1].columns):
            raise BrokenRun(f"table.csv of run {run}: columns differ from those of run {sweeps.run_name(runs[0][0])}")
        table = table.copy()
        table.insert(0, "run", run)
        for name, value in axes.items():
            if name not in table and len(kinds[name]) == 1 and isinstance(value, str | int | float):
                table[name] = value
        tables.append(table)
    return Runs(pd.concat(tables, ignore_index=True), [info for _, _, info in runs])


def untimed(table: "pd.DataFrame") -> "pd.DataFrame":
    """What a second run with the same seed must repeat: the columns that are not a time or made of times, without
    the counts of drafts (0, or "") in rows where a gate chose them by the clock.
    """
    table = table[[name for name in table if not name.endswith(TIMED) and name not in OF_TIMES]].copy()
    if CLOCKED in table and table[CLOCKED].dtype.kind == "b":
        for name in table:
            if name.endswith(BY_DRAFTS):
                table.loc[table[CLOCKED], name] = table[name].dtype.type() if table[name].dtype.kind in "iufb" else ""
    return table


def together(*runs: Runs) -> Runs:
    """The runs of several sweeps whose tables have the same columns, as one."""
    import pandas as pd

    if any(list(one.table.columns) != list(runs[0].table.columns) for one in runs):
        raise RecordError("sweeps whose tables have other columns cannot be put together")
    return Runs(pd.concat([one.table for one in runs], ignore_index=True), [i for one in runs for i in one.infos])


def difference(wanted: dict, found: dict) -> str:
    """Which parameters differ, for a message."""
    missing = object()
    parts = []
    for name in sorted(wanted.keys() | found.keys()):
        first, second = wanted.get(name, missing), found.get(name, missing)
        if first is missing:
            parts.append(f"{name} = {second!r} recorded but not asked for")
        elif second is missing:
            parts.append(f"{name} = {first!r} asked for but not recorded")
        elif not sweeps.same(first, second):
            parts.append(f"{name} = {first!r} asked for, {second!r} recorded")
    return "; ".join(parts)


def _check(table: "pd.DataFrame", parameters: dict) -> dict[str, str]:
    """Column name -> type; raises RecordError."""
    import pandas as pd

    if not isinstance(table, pd.DataFrame) or table.empty:
        raise RecordError("the table must be a DataFrame with at least one row and one column")
    columns = {}
    for position, name in enumerate(table.columns):
        if not isinstance(name, str) or not name.isidentifier() or name in columns or name in RESERVED:
            raise RecordError(f"column {name!r}: names are distinct identifiers, and {RESERVED[0]!r} is kept for load")
        column = table.iloc[:, position]
        bad = column.isna().to_numpy()
        if not bad.any() and column.dtype.kind == "f":
            bad = column.abs().to_numpy() == math.inf
        if bad.any():
            row = int(bad.argmax())
            raise RecordError(f"column {name!r}, row {row}: {column.iloc[row]!r}: drop the row or measure it")
        columns[name] = _kind(name, column)
        numeric = columns[name] in ("int64", "float64")
        if numeric and name not in PLAIN and name not in parameters and not name.endswith(UNITS):
            raise RecordError(
                f"column {name!r} is a number without a unit: end its name with one of {', '.join(UNITS)}"
            )
    return columns


def _kind(name: str, column: "pd.Series") -> str:
    if column.dtype.kind in "iu":
        return "int64"
    kinds = {"b": "bool", "f": "float64"}
    if column.dtype.kind in kinds:
        return kinds[column.dtype.kind]
    if column.dtype.name == "category" or not all(type(value) is str for value in column):
        raise RecordError(f"column {name!r} has type {column.dtype}: make it bool, int, float or text")
    return "str"


def write(path: Path, data: bytes) -> None:
    """Put a file there whole or not at all, also where the machine stops or the disk is full in between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
