"""How often each expert was selected, kept over processes, so that the next one knows which to hold."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import numpy as np

from gdlib.models.wheels import ModelError


def read_usage(path: str | Path, shape: tuple[int, int]) -> np.ndarray:
    """int64[layers, experts]: the selections recorded in a file, zeros where there is none yet.

    Raises ModelError for a file that is not such a record, or one of another model.
    """
    path = Path(path)
    if not path.exists():
        return np.zeros(shape, np.int64)
    try:
        counts = np.array(json.loads(path.read_text(encoding="utf-8"))["selections"])
        if counts.size and (counts.dtype.kind != "i" or counts.min() < 0):
            raise ValueError("want whole numbers from 0")
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ModelError(f"{path}: no record of experts used ({error}); delete it") from error
    if counts.shape != shape:
        raise ModelError(f"{path}: a record of {counts.shape} layers and experts, the model has {shape}; delete it")
    return counts


def add_usage(path: str | Path, counts: np.ndarray) -> None:
    """Add selections, int64[layers, experts], to the record. One process at a time; what is there is whole always.

    Raises ModelError where it cannot be read or written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_name(f".{path.name}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            total = read_usage(path, counts.shape) + counts
            scratch = path.with_name(f".{path.name}.new")
            with open(scratch, "w", encoding="utf-8") as file:
                json.dump({"selections": total.tolist()}, file)
                file.flush()
                os.fsync(file.fileno())
            os.rename(scratch, path)
    except OSError as error:
        raise ModelError(f"{path}: the experts used could not be recorded: {error.strerror or error}") from error
