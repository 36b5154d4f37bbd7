"""What a batch does otherwise where Slurm runs it: options for snakemake, and jobs that a killed batch left behind.

A job on a cluster outlives the process that handed it over. So a batch names its jobs after its results folder, and the
next one on the same folder cancels what is still in the queue under that name before it hands over anything.
"""

import getpass
import hashlib
import importlib.util
import shutil
import subprocess
import time
from pathlib import Path

from gdlib.bench.sweep import SweepError


def options(profile: Path, results: Path) -> list[str]:
    """Snakemake's options for a profile folder such as profiles/slurm; raises SweepError where it cannot be used."""
    if not (profile / "config.yaml").is_file():
        raise SweepError(f"{profile}: there is no config.yaml in it: name a copy of profiles/slurm")
    if importlib.util.find_spec("snakemake_executor_plugin_slurm") is None:
        raise SweepError("snakemake-executor-plugin-slurm is not installed: make install")
    for program in ("sbatch", "squeue", "scancel"):
        if not shutil.which(program):
            raise SweepError(f"there is no {program} on this machine: start the batch where jobs are handed to Slurm")
    chosen = ["--workflow-profile", str(profile), "--slurm-jobname-prefix", prefix(results)]
    # Without accounting sacct is there and fails, and a batch that asks it would wait for ever.
    return chosen if _works("sacct", "-n", "-X") else [*chosen, "--slurm-status-command", "squeue"]


def prefix(results: Path) -> str:
    """What the names of this results folder's jobs begin with."""
    return f"gdlib-{hashlib.sha256(str(results.resolve()).encode()).hexdigest()[:8]}"


def cancel_leftovers(results: Path, patience_s: float = 60) -> int:
    """Cancel the jobs that an earlier batch on this folder left in the queue, wait till they are gone; their number.

    Raises SweepError where Slurm does not answer, or does not let go of them.
    """
    jobs = _queued(results)
    if jobs and not _works("scancel", *jobs):
        raise SweepError(f"jobs {' '.join(jobs)} of an earlier batch are in the queue and cannot be cancelled")
    end = time.monotonic() + patience_s
    while left := _queued(results):
        if time.monotonic() > end:
            raise SweepError(f"jobs {' '.join(left)} of an earlier batch do not end: scancel --signal=KILL ends them")
        time.sleep(1)
    return len(jobs)


def _queued(results: Path) -> list[str]:
    command = ["squeue", "--noheader", "--user", getpass.getuser(), "--format", "%i %j"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SweepError(f"Slurm does not answer ({error}): is the controller up?") from error
    if done.returncode:
        raise SweepError(f"Slurm does not answer ({done.stderr.strip()}): is the controller up?")
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.strip()]
    return [job for job, name in rows if name.startswith(prefix(results))]


def _works(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
