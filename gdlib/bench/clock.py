"""Stopwatches for the parts of a step.

On a CPU `perf_counter_ns` is read where a part ends. On a GPU a kernel is still running when its launch returns, so an
event is recorded in the stream instead and all of them are read after one synchronisation at the end.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # whoever times without a GPU does not pay for torch
    import torch


class CpuClock:
    """parts_ns[i]: nanoseconds spent in part i; whole_ns: from `start` to `stop`."""

    def __init__(self, parts: int):
        self._parts = parts

    def start(self) -> None:
        self.parts_ns = [0] * self._parts
        self._began = self._last = time.perf_counter_ns()

    def lap(self, part: int) -> None:
        now = time.perf_counter_ns()
        self.parts_ns[part] += now - self._last
        self._last = now

    def stop(self) -> None:
        self.whole_ns = time.perf_counter_ns() - self._began


class CudaClock:
    """The same by CUDA events of the current stream, read after the work is done."""

    def __init__(self, parts: int):
        import torch

        self._cuda = torch.cuda
        self._parts = parts

    def start(self) -> None:
        self._cuda.synchronize()
        self._events = [(-1, self._now())]

    def lap(self, part: int) -> None:
        self._events.append((part, self._now()))

    def stop(self) -> None:
        self._events.append((-1, self._now()))
        self._cuda.synchronize()
        self.parts_ns = [0] * self._parts
        for (_, before), (part, after) in zip(self._events, self._events[1:], strict=False):
            if part >= 0:
                self.parts_ns[part] += int(before.elapsed_time(after) * 1e6)
        self.whole_ns = int(self._events[0][1].elapsed_time(self._events[-1][1]) * 1e6)

    def _now(self) -> torch.cuda.Event:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event


def make_clock(device: torch.device, parts: int) -> CpuClock | CudaClock:
    return CudaClock(parts) if device.type == "cuda" else CpuClock(parts)


@contextmanager
def quiet_gc():
    """No garbage collection inside: it would land on whichever arm is running. Also a decorator."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def interleave(names: Sequence[str], rounds: int, seed: int) -> Iterator[str]:
    """Every name once a round, shuffled anew each round.

    With a fixed or rotating order each arm keeps its predecessor, and what that leaves in the caches becomes part of
    the arm; two arms of the same code then differ. Shuffled, every arm follows every other one equally often.
    """
    shuffle = random.Random(seed).shuffle
    for _ in range(rounds):
        order = list(names)
        shuffle(order)
        yield from order
