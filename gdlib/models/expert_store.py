"""Experts in three tiers: pinned in memory, in the slots of their layer, on disk.

A forward asks for the experts that all its rows together need, each once. Those in memory are handed out at once,
those on disk as they arrive, read ahead by a few threads. When a layer is through, its slots hold the most valuable of
what they held and what came: the latest used ("lru") or the most often lately used ("lfru"). So the slots may be fewer
than one forward needs, down to none; then experts pass through, and are read again by the next forward.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from gdlib.models.expert_file import ExpertError, ExpertFile
from gdlib.models.expert_usage import add_usage, read_usage
from gdlib.models.slow_disk import Disk, wait_until

POLICIES = ("lru", "lfru")
WORTH_COMPUTING = 300e-6  # seconds of waiting that are worth breaking a run of experts for
HALF_LIFE = 64  # forwards after which a use counts half, for "lfru"
Weights = tuple[torch.Tensor, torch.Tensor]  # of one expert, transposed: [hidden, 2 width], [width, hidden]


@dataclass
class ForwardLog:
    """What one forward asked of the store, by MoE layer where it is a list.

    selected: int16[rows, k], the experts of each row; missed: those read from disk, ascending; hits: requests served
    from memory, by tier, an expert once a layer; loads, miss_bytes: read from disk, all layers together; read_seconds:
    how long the forward waited for that.
    """

    selected: list[np.ndarray] = field(default_factory=list)
    missed: list[list[int]] = field(default_factory=list)
    hits: dict[str, int] = field(default_factory=lambda: {"pinned": 0, "slots": 0})
    loads: int = 0
    miss_bytes: int = 0
    read_seconds: float = 0.0


@dataclass(frozen=True)
class Snapshot:
    """Which experts are in memory, and how lately and how often each was used (see `ExpertStore.snapshot`)."""

    residents: list[list[int]]
    pinned: list[tuple[int, int]]
    used: np.ndarray
    often: np.ndarray
    clock: int


class ExpertStore:
    """file: an ExpertFile; the rest as the knobs of `gdlib.models.moe.stream`.

    slots: a layer, all experts by default; capacity_bytes: of all slots together, instead. pin_bytes: room of the
    pinned tier, filled by the most selected experts once `autopin_after` selections are on record (at least one), those
    of earlier processes in `usage_path` among them; pin: [(layer, expert)] to pin from the start instead. Bytes in
    memory are counted in `dtype`: a bfloat16 file takes twice its size in float32. Layers count the MoE layers, from 0.
    disk: waits as long as this slow disk would take. readers: threads that read ahead; 0 reads where it is needed.

    expert_bytes: what one expert takes on disk, with its padding; layers, experts, top_k: the shape of the model;
    last: the ForwardLog of the latest forward; forwards: how many there were.

    Raises ExpertError for more slots or pins than there are experts, or than the memory that is free holds.
    """

    def __init__(
        self,
        file: ExpertFile,
        *,
        slots: int | None = None,
        capacity_bytes: int | None = None,
        pin_bytes: int = 0,
        pin: Sequence[tuple[int, int]] | None = None,
        policy: str = "lru",
        disk: Disk | None = None,
        readers: int = 4,
        autopin_after: int = 0,
        usage_path: str | Path | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        self.file, self.policy, self.disk, self.readers = file, policy, disk, readers
        self.layers, self.experts, self.top_k = len(file.layers), file.experts, file.top_k
        self.dtype, self.device = dtype, torch.device(device)
        self.expert_bytes = file.stride
        self.slot_bytes = sum(int(np.prod(shape)) for shape in (file.header.gate_up, file.header.down)) * dtype.itemsize
        self.autopin_after, self.usage_path = autopin_after, usage_path
        if policy not in POLICIES:
            raise ExpertError(f"policy {policy!r}: there is {' and '.join(POLICIES)}")
        if slots is not None and capacity_bytes is not None:
            raise ExpertError(f"slots={slots} and capacity_bytes={capacity_bytes}: give one of them")
        if capacity_bytes is not None:
            slots = min(capacity_bytes // (self.slot_bytes * self.layers), self.experts)
        self.slots = self.experts if slots is None else slots
        pins = [] if pin is None else sorted(set(map(tuple, pin)))
        self.pins = pin_bytes // self.slot_bytes if pin_bytes or pin is None else len(pins)
        self._check_sizes(pins, readers)

        self.last, self.forwards, self._aside = ForwardLog(), 0, False
        shape = (self.layers, self.experts)
        self._recorded = np.zeros(shape, np.int64) if usage_path is None else read_usage(usage_path, shape)
        self._usage = np.zeros(shape, np.int64)  # selections since, not yet on record
        self._used = np.zeros(shape, np.int64)  # the clock at the latest use, 0 for never
        self._often = np.zeros(shape)
        self._clock = 0
        self._at: list[list[Weights | None]] = [[None] * self.experts for _ in range(self.layers)]
        self._pinned = np.zeros(shape, bool)
        self._slot_of: list[dict[int, int]] = [{} for _ in range(self.layers)]
        self._free = [list(range(self.slots))[::-1] for _ in range(self.layers)]
        self._slab = [self._new_slab(self.slots) for _ in range(self.layers)]
        self._pin_slab = self._new_slab(self.pins)
        (self._transit,) = self._new_slab(1)
        pinned_memory = self.device.type == "cuda"
        self._buffers = [self._new_buffer(pinned_memory) for _ in range(max(2 * readers, 1))]
        self._pool = ThreadPoolExecutor(readers, "expert-reader") if readers else None
        self._copies = torch.cuda.Stream(self.device) if pinned_memory else None
        self._reads: _Reads | None = None
        if pins:
            self._pin(pins)

    # what decoding and benches ask for

    def clear(self) -> None:
        """Empty the slots and forget what was used: cold, but for what is pinned. The page cache drops the file."""
        for layer in range(self.layers):
            for expert in self.residents(layer):
                self._evict(layer, expert)
        self._used[:], self._often[:], self._clock = 0, 0, 0
        if self.file.how != "cached":
            self.file.drop_cached()

    def residents(self, layer: int) -> list[int]:
        """The experts in the slots of a layer, ascending; pinned ones are not among them."""
        return sorted(self._slot_of[layer])

    def pinned(self) -> list[tuple[int, int]]:
        """(layer, expert) of the pinned tier, ascending."""
        return [(int(layer), int(expert)) for layer, expert in np.argwhere(self._pinned)]

    def snapshot(self) -> Snapshot:
        """What `restore` brings back: the residents, their order and their frequencies."""
        residents = [self.residents(layer) for layer in range(self.layers)]
        return Snapshot(residents, self.pinned(), self._used.copy(), self._often.copy(), self._clock)

    def restore(self, snapshot: Snapshot) -> None:
        """Be as at the snapshot. What is not in memory any more is read again, uncounted and at the real disk's pace.

        ExpertError for the snapshot of a store with more slots or pins.
        """
        most = max(map(len, snapshot.residents))
        if len(snapshot.residents) != self.layers or most > self.slots or len(snapshot.pinned) > self.pins:
            raise ExpertError(
                f"a snapshot of {most} slots and {len(snapshot.pinned)} pins does not fit a store of {self.slots} and "
                f"{self.pins}"
            )
        self._end_reads()
        if snapshot.pinned != self.pinned():
            self._pin(snapshot.pinned)
        for layer, wanted in enumerate(snapshot.residents):
            for expert in set(self.residents(layer)).difference(wanted):
                self._evict(layer, expert)
            for expert in set(wanted).difference(self.residents(layer)):
                self.file.read(layer, expert, self._buffers[0][0])
                self._settle(layer, expert, self._buffers[0], keep=True)
        self._used[:], self._often[:], self._clock = snapshot.used, snapshot.often, snapshot.clock

    @contextmanager
    def aside(self):
        """What is read in here, to measure for example, leaves no trace: no usage, no pins, no log, other residents."""
        before, usage, last, forwards = self.snapshot(), self._usage.copy(), self.last, self.forwards
        self._aside = True
        try:
            yield
        finally:
            self._aside = False
            self._end_reads()
            self.restore(before)
            self._usage, self.last, self.forwards = usage, last, forwards

    def most_used(self, count: int) -> list[tuple[int, int]]:
        """(layer, expert) of the `count` most selected, on record or since; fewer where fewer were ever selected."""
        total = (self._recorded + self._usage).ravel()
        order = np.argsort(-total, kind="stable")[:count]
        return sorted(divmod(int(index), self.experts) for index in order[total[order] > 0])

    def save_usage(self) -> None:
        """Add the selections since the last time to the record at `usage_path`, if there is one."""
        if self.usage_path is not None and self._usage.any():
            add_usage(self.usage_path, self._usage)
            self._recorded += self._usage
            self._usage[:] = 0

    def close(self) -> None:
        """End the readers and save the usage."""
        if self._pool is not None:
            self._pool.shutdown()
        self.save_usage()

    def describe(self) -> dict:
        """How the store is set up, for the record of a run. Sizes in bytes."""
        return {
            "slots": self.slots,
            "policy": self.policy,
            "pins": self.pins,
            "memory": (self.layers * self.slots + self.pins) * self.slot_bytes,
            "expert_bytes": self.expert_bytes,
            "file_dtype": self.file.header.dtype,
            "read": self.file.how,
            "checks": self.file.checks,
            "io_threads": self.readers,
            "disk": None if self.disk is None else f"{self.disk.bandwidth:.3g} B/s, {self.disk.latency:.3g} s, "
            f"queue {self.disk.queue_depth}",
        }  # fmt: skip

    # what the streamed forward asks for

    def begin(self) -> None:
        """A forward of the model begins: a new log, and the pinned tier once enough was seen to choose it by."""
        self._end_reads()
        self.last = ForwardLog()
        self.forwards += 1
        if self.pins and not self._aside and not self._pinned.any():
            seen = int(self._recorded.sum() + self._usage.sum())
            if seen >= max(self.autopin_after, 1):
                self._pin(self.most_used(self.pins))

    def request(
        self, layer: int, experts: np.ndarray, counts: np.ndarray, recency: np.ndarray
    ) -> tuple[list[Weights | None], Iterator[tuple[int, Weights, bool]]]:
        """What a forward needs of a layer. experts: distinct, ascending; counts: rows of each; recency: the order in
        which they count as used, a rank each.

        Returns the weights of each, None where it is on disk, and an iterator over those: (index in `experts`,
        weights, whether to compute now), in that order. It must be run to its end, and only when those handed out first
        were used: it takes their slots. Weights hold until the layer is through, unless they are to be used now: then
        the next may take their place, or is still being read. Raises ExpertError where a read fails.
        """
        at, log = self._at[layer], self.last
        self._clock += len(experts)
        self._used[layer, experts] = recency + (self._clock - len(experts) + 1)
        self._usage[layer, experts] += counts
        if self.policy == "lfru":
            self._often[layer] *= 0.5 ** (1 / HALF_LIFE)
            self._often[layer, experts] += 1
        found = [at[expert] for expert in experts.tolist()]
        missing = [index for index, weights in enumerate(found) if weights is None]
        pinned = int(self._pinned[layer, experts].sum()) if self.pins else 0
        log.hits["pinned"] += pinned
        log.hits["slots"] += len(found) - len(missing) - pinned
        missed = experts[missing].tolist() if missing else []
        log.missed.append(missed)
        if not missing:
            return found, iter(())
        log.loads += len(missing)
        log.miss_bytes += len(missing) * self.expert_bytes
        self._reads = _Reads(self, layer, missed)
        return found, self._arrivals(layer, missing, missed, self._reads)

    def _arrivals(
        self, layer: int, missing: list[int], missed: list[int], reads: _Reads
    ) -> Iterator[tuple[int, Weights, bool]]:
        stay = self._most_valuable(layer, missed)
        for expert in self._slot_of[layer].keys() - stay:
            self._evict(layer, expert)
        for index, expert in zip(missing, missed, strict=True):
            buffer = reads.next()
            weights = self._settle(layer, expert, buffer, expert in stay)
            reads.done(buffer)
            yield index, weights, expert not in stay or reads.would_wait()

    def _end_reads(self) -> None:
        """Of a forward that failed or was broken off: the buffers are the next one's."""
        if self._reads is not None:
            self._reads.close()
            self._reads = None

    def _most_valuable(self, layer: int, missed: list[int]) -> set[int]:
        """Of what the slots hold and what comes, what they shall hold."""
        rivals = [*self._slot_of[layer], *missed]
        if len(rivals) <= self.slots:
            return set(rivals)
        used, often = self._used[layer], self._often[layer]
        rivals.sort(key=used.__getitem__ if self.policy == "lru" else lambda e: (often[e], used[e]))
        return set(rivals[len(rivals) - self.slots :])

    def _settle(self, layer: int, expert: int, buffer: tuple, keep: bool) -> Weights:
        """The weights out of a buffer, in a free slot where they shall stay, else in passing."""
        weights = self._transit
        if keep:
            weights = self._slab[layer][self._free[layer][-1]]
        self._copy(buffer, weights)
        if keep:
            self._slot_of[layer][expert] = self._free[layer].pop()
            self._at[layer][expert] = weights
        return weights

    def _copy(self, buffer: tuple, weights: Weights) -> None:
        staged = buffer[1]
        if self._copies is None:
            for to, source in zip(weights, staged, strict=True):
                to.t().copy_(source)
            return
        # What is computed with the slot's old weights has to be through before, the copy before the new are used, and
        # before the buffer is read into again. (Written without a CUDA device at hand: never run.)
        now = torch.cuda.current_stream(self.device)
        self._copies.wait_stream(now)
        with torch.cuda.stream(self._copies):
            for to, source in zip(weights, staged, strict=True):
                to.t().copy_(source.to(self.device, non_blocking=True))
        now.wait_stream(self._copies)
        self._copies.synchronize()

    def _evict(self, layer: int, expert: int) -> None:
        self._at[layer][expert] = None
        self._free[layer].append(self._slot_of[layer].pop(expert))

    def _pin(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Make these the pinned tier: read, uncounted, and out of the slots. All of them, or none if a read fails."""
        self._unpin()
        try:
            for (layer, expert), weights in zip(wanted, self._pin_slab, strict=False):
                self.file.read(layer, expert, self._buffers[0][0])
                self._copy(self._buffers[0], weights)
                if expert in self._slot_of[layer]:
                    self._evict(layer, expert)
                self._at[layer][expert] = weights
                self._pinned[layer, expert] = True
        except BaseException:
            self._unpin()
            raise

    def _unpin(self) -> None:
        for layer, expert in self.pinned():
            self._at[layer][expert] = None
        self._pinned[:] = False

    def _new_slab(self, count: int) -> list[Weights]:
        gate_up = torch.empty((count, *self.file.header.gate_up), dtype=self.dtype, device=self.device)
        down = torch.empty((count, *self.file.header.down), dtype=self.dtype, device=self.device)
        return [(gate_up[index].t(), down[index].t()) for index in range(count)]

    def _new_buffer(self, pinned_memory: bool) -> tuple:
        """(what the file reads into, the tensors of the expert in it)."""
        if pinned_memory:  # page-aligned as well
            data = torch.empty(self.file.stride, dtype=torch.uint8, pin_memory=True)
            return data.numpy(), self.file.tensors(data)
        room = self.file.new_buffer()
        return room, self.file.tensors(torch.frombuffer(room, dtype=torch.uint8))

    def _check_sizes(self, pins: list[tuple[int, int]], readers: int) -> None:
        every = self.layers * self.experts
        whole = f"the model has {every} experts ({self.layers} layers of {self.experts}, {self.slot_bytes} bytes each)"
        if not 0 <= self.slots <= self.experts:
            raise ExpertError(f"slots={self.slots}: want 0 to {self.experts} a layer; {whole}")
        if readers < 0:
            raise ExpertError(f"readers={readers}: want 0 or more threads")
        if not 0 <= self.pins <= every:
            size = self.pins * self.slot_bytes
            raise ExpertError(f"pinning {self.pins} experts ({size} bytes): {whole}, {every * self.slot_bytes} in all")
        if len(pins) > self.pins:
            raise ExpertError(f"{len(pins)} experts to pin and room for {self.pins}: {self.slot_bytes} bytes each")
        for layer, expert in pins:
            if not (0 <= layer < self.layers and 0 <= expert < self.experts):
                raise ExpertError(f"pin {(layer, expert)}: no such (layer, expert); {whole}")
        size, free = (self.layers * self.slots + self.pins) * self.slot_bytes, free_memory(self.device)
        if size > free:
            raise ExpertError(
                f"{self.slots} slots in each of {self.layers} layers and {self.pins} pinned experts take {size} bytes "
                f"of memory, and {free} are free: fewer slots, or pin less"
            )


class _Reads:
    """The reads of one layer's misses, as many ahead as there are buffers, handed out in order."""

    def __init__(self, store: ExpertStore, layer: int, experts: list[int]):
        self.store, self.layer = store, layer
        self.left, self.flying = iter(experts), deque()
        self.free = list(store._buffers)
        self._send()

    def _send(self) -> None:
        store = self.store
        while self.free and (expert := next(self.left, None)) is not None:
            buffer = self.free.pop()
            due = 0.0 if store.disk is None else store.disk.due(time.perf_counter(), store.expert_bytes)
            job = (store.file.read, self.layer, expert, buffer[0])
            self.flying.append((store._pool.submit(*job) if store._pool else job, buffer, due))

    def next(self) -> tuple:
        """The buffer with the next expert in it, waited for."""
        began = time.perf_counter()
        job, buffer, due = self.flying[0]  # until it is here: who is interrupted meanwhile must still find it
        try:
            if isinstance(job, Future):
                job.result()
            else:
                job[0](*job[1:])
            if due:
                wait_until(due)
        finally:
            self.store.last.read_seconds += time.perf_counter() - began
        self.flying.popleft()
        return buffer

    def would_wait(self) -> bool:
        """Whether `next` would have to wait for longer than an expert's few rows take to compute."""
        if not self.flying:
            return False
        job, _, due = self.flying[0]
        return (isinstance(job, Future) and not job.done()) or due - time.perf_counter() > WORTH_COMPUTING

    def done(self, buffer: tuple) -> None:
        self.free.append(buffer)
        self._send()

    def close(self) -> None:
        """Take back what is not being read yet, and wait for what is."""
        while self.flying:
            job = self.flying[0][0]
            if isinstance(job, Future) and not job.cancel():
                job.exception()
            self.flying.popleft()


def free_memory(device: torch.device) -> int:
    """Bytes that can still be had: of the GPU, or of the machine and the container that this runs in."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
        most, now, stat = (Path("/sys/fs/cgroup", f"memory.{name}").read_text() for name in ("max", "current", "stat"))
        if most.strip() != "max":  # the container's limit; pages of files that are idle count as used there
            idle = next(int(line.split()[1]) for line in stat.splitlines() if line.startswith("inactive_file "))
            free = min(free, int(most) - int(now) + idle)
    except OSError:
        pass
    return free
