"""A slow disk by arithmetic, so that every machine measures the same one.

Up to `queue_depth` requests are under way at once. Each waits out its latency on its own; their bytes then come one
after another over one line of `bandwidth`. Nothing is read here: the caller reads from wherever it is quick, and waits
until the disk would have been done.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field

SPIN = 200e-6  # seconds; a sleep that short is over when the system likes


@dataclass
class Disk:
    """bandwidth: bytes/s; latency: s; queue_depth: requests. ValueError where they are no disk's."""

    bandwidth: float
    latency: float = 0.0
    queue_depth: int = 8
    _free: list[float] = field(default_factory=list, init=False, repr=False)  # when each place in the queue is free
    _line: float = field(default=0.0, init=False, repr=False)  # when the last byte promised is through

    def __post_init__(self):
        if self.bandwidth <= 0 or self.latency < 0 or self.queue_depth < 1:
            raise ValueError(
                f"{self}: want a bandwidth above 0 bytes/s, a latency of 0 s or more, a queue of 1 or more"
            )
        self._free = [0.0] * self.queue_depth

    def due(self, now: float, size: int) -> float:
        """When a request for `size` bytes is done that comes at `now`, behind all earlier ones; seconds."""
        begin = max(now, self._free[0])
        self._line = max(begin + self.latency, self._line) + size / self.bandwidth
        heapq.heapreplace(self._free, self._line)
        return self._line


def wait_until(due: float, clock: Callable[[], float] = time.perf_counter, sleep=time.sleep) -> None:
    """Return no sooner than `due`, and hardly later: sleeps most of the way and spins the rest."""
    while (left := due - clock()) > 0:
        sleep(left - SPIN if left > 2 * SPIN else 0)
