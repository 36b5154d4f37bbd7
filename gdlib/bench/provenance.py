"""Where and with what a number was measured, without saying whose machine it was: no user, host or path names."""

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import gdlib

PACKAGES = ("torch", "transformers", "numpy", "numba", "pandas", "safetensors", "gguf", "tokenizers")
PACKAGES += ("llguidance", "xgrammar", "outlines_core", "tiktoken")  # the other engines


def provenance(device: str | None = None) -> dict:
    """Commit, versions, processor, memory, accelerator and threads of this process, as JSON values.

    device: what the run computed on ("cpu", "cuda", ...), where it knows; a GPU is described only if torch is loaded.
    """
    return {
        **commit(),
        "versions": {"python": platform.python_version(), "gdlib": gdlib.__version__} | _versions(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cgroup_cpu_max": _read("/sys/fs/cgroup/cpu.max"),
        "memory_bytes": _memory_bytes(),
        "device": device,
        "gpu": _gpu(),
        "threads": _threads(),
    }


def commit() -> dict:
    """{"commit", "dirty"} of gdlib's checkout, "unknown" outside git; an untracked file counts as dirty."""
    head = _output("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD")
    changes = _output("git", "-C", str(Path(__file__).parents[2]), "status", "--porcelain")
    return {"commit": head or "unknown", "dirty": "unknown" if not head or changes is None else bool(changes)}


def cpu_model() -> str:
    """The processor's own name, such as "AMD EPYC 7B13"."""
    found = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo") or "", re.MULTILINE)
    name = found[1] if found else platform.processor() or platform.machine()
    name = re.sub(r"\((R|TM)\)|\b(Processor|CPU)\b|@.*|\d+-Core", " ", name)
    return " ".join(name.split()) or "unknown processor"


def line(infos: Sequence[dict], n: str) -> str:
    """One line for a caption: machine, cores, threads, commit, date of the last run, and what it rests on.

    infos: the run.json of every run shown; where they disagree, each value is named once, joined by " / ".
    """
    machines, threads, commits = [], [], []
    for info in infos:
        where = info["provenance"]
        gpu = f"{where['gpu']['name']}, " if where["gpu"] and str(where["device"]).startswith("cuda") else ""
        machines.append(f"{gpu}{where['cpu']}, {_plural(where['cores'], 'core')}")
        threads.append(str(where["threads"]["omp"] or where["threads"]["torch"] or "default"))
        commits.append(where["commit"][:7] + {True: "+dirty"}.get(where["dirty"], ""))
    parts = [
        f"{_joined(machines)}, {_joined(threads)} {'thread' if set(threads) == {'1'} else 'threads'}",
        f"commit {_joined(commits)}",
        max(info["start"] for info in infos)[:10],
        f"profile {_joined([str(info['profile']) for info in infos])}" if all(i.get("profile") for i in infos) else "",
        n,
    ]
    return " · ".join(filter(None, parts))


def _joined(values: list[str]) -> str:
    return " / ".join(dict.fromkeys(values))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _versions() -> dict:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _memory_bytes() -> int:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read("/sys/fs/cgroup/memory.max") or ""
    return min(physical, int(limit)) if limit.isdigit() else physical


def _threads() -> dict:
    torch = sys.modules.get("torch")
    return {
        "torch": torch.get_num_threads() if torch else None,
        "omp": _int(os.environ.get("OMP_NUM_THREADS")),
        "numba": _int(os.environ.get("NUMBA_NUM_THREADS")),
    }


def _gpu() -> dict | None:
    # Never the one to load torch or to start CUDA in a process that does without.
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    driver = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {"name": torch.cuda.get_device_name(), "driver": (driver or "unknown").splitlines()[0]}


def _int(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
