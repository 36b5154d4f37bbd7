"""What snakemake's output says of the runs: which began and ended, why one was lost, and about how long the rest takes.

On this machine a run speaks for itself (`execute` prints what becomes of it); on a cluster its words are in a log of
its own, and snakemake says when a job was handed over, finished or lost.
"""

import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

OWN = re.compile(r"(?P<label>\S+ \S+): (?P<what>started|done in (?P<seconds>\d+) s|failed after .*|interrupted)$")
NUMBER = re.compile(r"\s+jobid: (\d+)$")
WILDCARDS = re.compile(r"\s+wildcards: sweep=(\S+), run=(\S+)$")
MESSAGE = re.compile(r"\s+message: (.*?)(?: ?Detailed failure reason.*| ?For further error.*)?$")
LOG = re.compile(r"\s+log: (\S+)(?: \(check .*)?$")
QUEUED = re.compile(r"Job (\d+) has been submitted with SLURM jobid (\S+) ")
FINISHED = re.compile(r"Finished jobid: (\d+) ")
REFUSED = re.compile(r"\s*(?:sbatch: )?error: ")


@dataclass
class Progress:
    """Of the runs `labels` ("sweep run"); `known` holds how long runs took before, in seconds by label."""

    labels: list[str]
    known: dict[str, float]
    clock: float = field(default_factory=lambda: time.monotonic())
    begun: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    causes: dict[str, str] = field(default_factory=dict)
    _numbers: dict[str, str] = field(default_factory=dict)
    _number: str = ""
    _failing: str = ""  # the run whose error comes next
    _error: list[str] | None = None  # the lines of snakemake's report of a lost job, while it is being read

    def read(self, line: str) -> str | None:
        """Take in one line; returns what a person would want to see of it."""
        if own := OWN.match(line):
            label, what = own["label"], own["what"]
            if what == "started":
                self.begun.add(label)
                return f"{'·':>9} {label} started"
            if own["seconds"]:
                self.known[label] = float(own["seconds"])
            self._failing = label if what.startswith("failed") else ""
            return self._end(label, what.removeprefix("done in "))
        if self._failing and line.startswith("  "):
            self.causes[self._failing] = line.strip()
        self._failing = ""
        if line.startswith("Error in rule run"):
            self._error = []
        elif line.startswith(("rule run:", "[")) or not line.strip():
            self._error = None
        if found := NUMBER.match(line):
            self._number = found[1]
            if self._error is not None:
                return self._lost(found[1])
        elif found := WILDCARDS.match(line):
            self._numbers[self._number] = " ".join(found.groups())
        elif found := QUEUED.match(line):
            label = self._numbers.get(found[1], "")
            self.begun.add(label)
            return f"{'·':>9} {label} handed to Slurm as job {found[2]}"
        elif (found := FINISHED.match(line)) and found[1] in self._numbers:
            label = self._numbers[found[1]]
            return None if label in self.ended else self._end(label, "done")
        elif self._error is not None:
            if (found := MESSAGE.match(line)) and found[1] != "None":
                self._error.append(found[1].strip().rstrip("."))
            elif self._error and REFUSED.match(line):
                self._error.append(line.strip())
            elif (found := LOG.match(line)) and (label := self._numbers.get(self._number)) in self.causes:
                self.causes[label] += f"\n  its log: {found[1]}"
        return None

    def left(self) -> str:
        """`about 12 min left`, or nothing where no run has ended yet.

        A run weighs what it took last time, else what its sweep's runs took, else what all did; how fast weight is
        worked off is what was seen so far, with all that waiting and running side by side do to it.
        """
        done = sum(self._weight(label) for label in self.ended)
        rest = sum(self._weight(label) for label in self.labels if label not in self.ended)
        if not done or not rest:
            return ""
        return f"about {duration((time.monotonic() - self.clock) * rest / done)} left"

    def _weight(self, label: str) -> float:
        if label in self.known:
            return self.known[label]
        sweep = label.split()[0]
        alike = [seconds for other, seconds in self.known.items() if other.split()[0] == sweep]
        alike = alike or list(self.known.values()) or [1.0]
        return sum(alike) / len(alike)

    def _end(self, label: str, what: str) -> str:
        self.begun.add(label)
        self.ended.add(label)
        left = self.left()
        count = f"[{len(self.ended)}/{len(self.labels)}]"
        return f"{count:>9} {label} {what}{' · ' + left if left else ''}"

    def _lost(self, number: str) -> str | None:
        label = self._numbers.get(number)
        if label is None or label in self.ended:
            return None
        if self._error:
            self.causes[label] = "; ".join(self._error)
        return self._end(label, "lost")


def durations(results: Path, sweeps: Iterable[str]) -> dict[str, float]:
    """How long every run in a results folder took, in seconds by label, current or not."""
    found = {}
    for sweep in sweeps:
        for path in (results / sweep).glob("[!.]*/run.json"):
            try:
                found[f"{sweep} {path.parent.name}"] = float(json.loads(path.read_text(encoding="utf-8"))["duration_s"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
    return found


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
