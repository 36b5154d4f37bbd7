"""The store: which experts are in memory is what a slow account of the policy says, and every request is counted."""

import errno
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future

import numpy as np
import pytest
import torch
from tiny_moes import new_model

from gdlib.models import expert_store
from gdlib.models.expert_file import ExpertError, ExpertFile, repack
from gdlib.models.expert_store import HALF_LIFE, ExpertStore
from gdlib.models.expert_tensors import experts_of_model
from gdlib.models.expert_usage import add_usage, read_usage
from gdlib.models.slow_disk import SPIN, Disk, wait_until
from gdlib.models.wheels import ModelError

LAYERS, EXPERTS = 3, 8


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "all.experts"
    repack(new_model("qwen3"), path)
    return path


@pytest.fixture(scope="module")
def weights():
    experts = experts_of_model(new_model("qwen3"))
    return [[experts.read(layer, expert) for expert in range(EXPERTS)] for layer in range(LAYERS)]


def store(path, **options):
    return ExpertStore(ExpertFile(path), **options)


def ask(store, layer, experts, weights=None, recency=None):
    """One layer's request, as the forward makes it; what came is compared with the weights of the model."""
    experts = np.array(sorted(experts))
    recency = np.arange(len(experts)) if recency is None else np.array(recency)
    found, arrivals = store.request(layer, experts, np.ones(len(experts), int), recency)

    def check(index, got):
        if weights is not None:
            for transposed, want in zip(got, weights[layer][experts[index]], strict=True):
                assert torch.equal(transposed.t(), want.to(store.dtype))

    for index, got in enumerate(found):
        if got is not None:
            check(index, got)
    order = []
    come = {}
    for index, got, now in arrivals:
        come[index] = got
        order.append(int(experts[index]))
        if now:  # what came since the last time holds until here
            for at, weights_of in come.items():
                check(at, weights_of)
            come = {}
    for index, got in come.items():
        check(index, got)
    assert order == store.last.missed[-1] == [int(e) for e, got in zip(experts, found, strict=True) if got is None]


def slow_policy(policy, slots, requests, pinned=()):
    """After each request (experts, in the order of their use): (what was missed, what the slots hold)."""
    held, history = [], []
    for request in requests:
        missed = sorted(set(request) - set(held) - set(pinned))
        history.append(request)
        rivals = (set(held) | set(request)) - set(pinned)

        def latest(expert):
            return max((n, request.index(expert)) for n, request in enumerate(history) if expert in request)

        def often(expert):
            ages = [len(history) - 1 - n for n, request in enumerate(history) if expert in request]
            return sum(0.5 ** (age / HALF_LIFE) for age in ages)

        def value(expert):
            return latest(expert) if policy == "lru" else (round(often(expert), 9), latest(expert))

        held = sorted(rivals, key=value, reverse=True)[:slots]
        yield missed, sorted(held)


@pytest.mark.parametrize("policy", ["lru", "lfru"])
@pytest.mark.parametrize("slots", range(EXPERTS + 1))
@pytest.mark.parametrize("pinned", [(), (2, 5)])
def test_eviction_is_that_of_a_slow_account(path, weights, policy, slots, pinned):
    random = np.random.default_rng(slots)
    chances = random.dirichlet(np.full(EXPERTS, 0.6))
    requests = []
    for _ in range(60):
        size = int(random.integers(1, 6))
        requests.append(
            random.choice(EXPERTS, size, replace=False, p=(chances + 0.02) / (chances + 0.02).sum()).tolist()
        )
    here = store(path, slots=slots, policy=policy, pin=[(1, expert) for expert in pinned])
    for request, (missed, held) in zip(requests, slow_policy(policy, slots, requests, pinned), strict=True):
        here.begin()
        experts = sorted(request)
        ask(here, 1, request, weights, recency=[request.index(expert) for expert in experts])
        assert (here.last.missed, here.residents(1)) == ([missed], held)
        assert here.pinned() == [(1, expert) for expert in pinned]
        fast = len(set(request) & set(pinned))
        assert here.last.hits == {"pinned": fast, "slots": len(request) - fast - len(missed)}
        assert here.last.loads == len(missed) and here.last.miss_bytes == len(missed) * here.expert_bytes
    assert here.residents(0) == here.residents(2) == []
    assert here.forwards == len(requests)


def test_capacity_in_bytes(path):
    one = 3 * 16 * 32 * 4
    for capacity, slots in [(0, 0), (3 * one - 1, 0), (3 * one, 1), (7 * one, 2), (24 * one, 8), (10**9, 8)]:
        here = store(path, capacity_bytes=capacity)
        assert here.slots == slots and here.slot_bytes == one
    assert store(path).slots == EXPERTS
    assert store(path, dtype=torch.bfloat16, capacity_bytes=3 * one).slots == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 9}, "slots=9: want 0 to 8 a layer; the model has 24 experts"),
        ({"slots": -1}, "slots=-1: want 0 to 8"),
        ({"slots": 2, "capacity_bytes": 100}, "slots=2 and capacity_bytes=100: give one"),
        ({"policy": "fifo"}, "policy 'fifo': there is lru and lfru"),
        ({"readers": -1}, "readers=-1: want 0 or more"),
        ({"pin_bytes": 25 * 6144}, r"pinning 25 experts \(153600 bytes\): the model has 24 .*147456 in all"),
        ({"pin_bytes": 2**40}, "pinning 178956970 experts .*147456 in all"),
        ({"pin_bytes": -6144}, "pinning -1 experts"),
        ({"pin": [(0, 8)]}, r"pin \(0, 8\): no such \(layer, expert\)"),
        ({"pin": [(3, 0)]}, r"pin \(3, 0\): no such"),
        ({"pin": [(0, 0), (0, 1)], "pin_bytes": 6144}, "2 experts to pin and room for 1"),
    ],
)
def test_stores_that_cannot_be(path, options, message):
    with pytest.raises(ExpertError, match=message):
        store(path, **options)


def test_more_than_the_memory_that_is_free(path, monkeypatch):
    monkeypatch.setattr(expert_store, "free_memory", lambda device: 100_000)
    store(path, slots=2)
    with pytest.raises(
        ExpertError, match=r"4 slots in each of 3 layers and 5 pinned experts take 104448 bytes .*100000"
    ):
        store(path, slots=4, pin_bytes=5 * 6144)


def test_free_memory_is_a_number_of_this_machine():
    assert 10**7 < expert_store.free_memory(torch.device("cpu")) < 10**14


def test_clear_and_snapshot(path, weights):
    here = store(path, slots=3, pin=[(0, 7)], policy="lfru")
    random = np.random.default_rng(0)
    for _ in range(20):
        here.begin()
        for layer in range(LAYERS):
            ask(here, layer, random.choice(EXPERTS, 3, replace=False).tolist())
    left, log = here.snapshot(), here.last
    assert left.residents == [here.residents(layer) for layer in range(LAYERS)] and left.pinned == [(0, 7)]

    def future():
        random, seen = np.random.default_rng(1), []
        for _ in range(20):
            here.begin()
            for layer in range(LAYERS):
                ask(here, layer, random.choice(EXPERTS, 3, replace=False).tolist(), weights)
            seen.append((here.last.missed, here.last.hits))
        return seen

    here.restore(left)
    assert here.last is log and here.snapshot().residents == left.residents
    first = future()
    here.restore(left)
    assert future() == first
    here.clear()
    assert [here.residents(layer) for layer in range(LAYERS)] == [[], [], []] and here.pinned() == [(0, 7)]
    cold = future()
    assert cold != first
    here.clear()
    assert future() == cold
    here.restore(left)
    assert future() == first

    for small in (store(path, slots=2, pin=[(0, 7)]), store(path, slots=3)):
        with pytest.raises(ExpertError, match="a snapshot of 3 slots and 1 pins does not fit"):
            small.restore(left)
    other = store(path, slots=5, pin=[(1, 1)])
    other.restore(left)
    assert other.pinned() == [(0, 7)] and other.snapshot().residents == left.residents
    other.begin()
    ask(other, 0, [7], weights)
    ask(other, 1, [1], weights)


def test_pins_from_usage(path, weights, tmp_path):
    usage = tmp_path / "deep" / "usage.json"
    here = store(path, slots=1, pin_bytes=2 * 6144 + 100, autopin_after=12, usage_path=usage)
    assert here.pins == 2
    for _ in range(4):  # 12 selections
        here.begin()
        assert here.pinned() == []
        ask(here, 0, [3, 4])
        ask(here, 2, [6])
    assert here.most_used(5) == [(0, 3), (0, 4), (2, 6)]
    here.begin()
    assert here.pinned() == [(0, 3), (0, 4)]  # the first where several are as frequent
    assert 4 not in here.residents(0)
    ask(here, 0, [3, 4], weights)
    assert here.last.hits == {"pinned": 2, "slots": 0} and here.last.loads == 0
    here.save_usage()
    here.save_usage()  # nothing new
    for _ in range(10):
        ask(here, 2, [6])
    here.close()
    counts = np.array(json.loads(usage.read_text())["selections"])
    assert counts.sum() == 4 * 3 + 2 + 10 and counts[2, 6] == 14

    later = store(path, slots=1, pin_bytes=6144, autopin_after=12, usage_path=usage)
    assert later.pinned() == []
    later.begin()
    assert later.pinned() == [(2, 6)]
    picky = store(path, slots=1, pin_bytes=6144, autopin_after=1000, usage_path=usage)
    picky.begin()
    assert picky.pinned() == []
    fresh = store(path, slots=1, pin_bytes=6144)
    fresh.begin()
    assert fresh.pinned() == []  # nothing to choose by
    assert list(usage.parent.glob("*")) == [usage] or len(list(usage.parent.iterdir())) == 2  # and its lock


def test_records_of_usage_that_are_wrong(tmp_path):
    usage = tmp_path / "usage.json"
    add_usage(usage, np.ones((2, 3), np.int64))
    add_usage(usage, np.ones((2, 3), np.int64))
    assert (read_usage(usage, (2, 3)) == 2).all()
    with pytest.raises(ModelError, match=r"a record of \(2, 3\) layers and experts, the model has \(3, 8\); delete it"):
        read_usage(usage, (3, 8))
    for wrong in ("{", '{"selections": [[-5]]}', '{"selections": [[1.9]]}', '{"selections": [["7"]]}', "[" * 100_000,
                  '{"selections": [[100000000000000000000]]}'):  # fmt: skip
        usage.write_text(wrong)
        with pytest.raises(ModelError, match=r"usage.json: no record of experts used"):
            read_usage(usage, (2, 3))
    with pytest.raises(ModelError, match="could not be recorded"):
        add_usage(usage / "below a file" / "usage.json", np.ones((2, 3), np.int64))


def test_usage_of_two_processes_adds_up(tmp_path):
    code = (
        "import sys, numpy as np; from gdlib.models.expert_usage import add_usage\n"
        "for _ in range(50): add_usage(sys.argv[1], np.ones((2, 3), np.int64))"
    )
    usage = tmp_path / "usage.json"
    both = [subprocess.Popen([sys.executable, "-c", code, str(usage)]) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert (read_usage(usage, (2, 3)) == 100).all()


@pytest.mark.parametrize("readers", [0, 1, 4])
def test_a_failed_read_leaves_a_store_that_goes_on(path, weights, readers, monkeypatch):
    here, real, fails = store(path, slots=4, readers=readers), os.preadv, []

    def failing(handle, buffers, offset):
        if fails and fails.pop():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    here.begin()
    ask(here, 0, [0, 1, 2])
    for _ in range(5):
        fails[:] = [True] * 20
        here.begin()
        with pytest.raises(ExpertError, match="layer 0, expert 3: "):
            ask(here, 0, [1, 3, 4, 5, 6, 7])
        fails.clear()
        here.begin()
        ask(here, 0, [1, 2], weights)
        assert len(here.residents(0)) <= 4
        here.begin()
        ask(here, 0, [0, 2], weights)


def test_described(path):
    here = store(path, slots=2, pin_bytes=6144, readers=3, disk=Disk(1e9, 1e-4, 4))
    said = here.describe()
    assert said["slots"] == 2 and said["pins"] == 1 and said["io_threads"] == 3 and said["file_dtype"] == "bfloat16"
    assert (
        said["memory"] == 7 * 6144 and said["expert_bytes"] == 4096 and said["disk"] == "1e+09 B/s, 0.0001 s, queue 4"
    )
    assert said["read"] in ("O_DIRECT", "buffered") and store(path).describe()["disk"] is None


# the slow disk


def test_the_arithmetic_of_the_slow_disk():
    disk = Disk(bandwidth=100.0, latency=1.0, queue_depth=2)
    assert disk.due(10.0, 50) == 11.5  # latency, then half a second of bytes
    assert disk.due(10.0, 50) == 12.0  # its latency passed meanwhile; its bytes come behind
    assert disk.due(10.0, 50) == 13.0  # a third one waits for a place in the queue, from 11.5 on
    assert disk.due(10.0, 50) == 13.5
    assert disk.due(99.0, 100) == 101.0  # idle in between
    one = Disk(bandwidth=100.0, latency=1.0, queue_depth=1)
    assert [one.due(0.0, 100) for _ in range(3)] == [2.0, 4.0, 6.0]
    quick = Disk(bandwidth=float("inf"), latency=0.25, queue_depth=64)
    assert [quick.due(0.0, 10**9) for _ in range(3)] == [0.25] * 3
    for bad in ({"bandwidth": 0}, {"bandwidth": 1, "latency": -1}, {"bandwidth": 1, "queue_depth": 0}):
        with pytest.raises(ValueError, match="want a bandwidth above 0"):
            Disk(**bad)


def test_waiting_is_no_shorter_and_hardly_longer():
    now, slept = [0.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds + 60e-6  # a system that always sleeps longer

    wait_until(1.0, lambda: now[0], sleep)
    assert 1.0 <= now[0] < 1.0 + 120e-6 and sum(slept) > 0.99 and slept[-1] == 0
    before = len(slept)
    wait_until(0.5, lambda: now[0], sleep)
    assert len(slept) == before
    now[0] = 0.0
    wait_until(SPIN, lambda: now[0], sleep)
    assert set(slept[before:]) == {0} and now[0] >= SPIN


def test_the_store_waits_for_the_slow_disk(path, monkeypatch):
    """By its promises, not by the clock: every read is waited for until the disk said."""
    promised, waited = [], []

    class Recorded(Disk):
        def due(self, now, size):
            promised.append((super().due(now, size), size))
            return promised[-1][0]

    monkeypatch.setattr(expert_store, "wait_until", waited.append)
    here = store(path, slots=2, disk=Recorded(1e12, 1e-6, 2), readers=2)
    here.begin()
    ask(here, 0, range(8))
    ask(here, 1, [0, 1])
    ask(here, 1, [0, 1])
    assert waited == [due for due, _ in promised] and len(waited) == 10
    assert {size for _, size in promised} == {here.expert_bytes}


def test_a_read_that_was_interrupted_is_waited_for_before_its_buffer_is_read_into_again(path, weights, monkeypatch):
    """Ctrl-C while a read is under way: the read goes on, and must not land in what the next forward reads."""
    held, go, began = store(path, slots=EXPERTS, readers=2), threading.Event(), threading.Event()
    read, slow = held.file.read, [True]

    def hanging(*arguments):
        if slow.pop() if slow else False:
            began.set()
            go.wait(30)
        return read(*arguments)

    monkeypatch.setattr(held.file, "read", hanging)
    held.begin()
    _, arrivals = held.request(0, np.arange(4), np.ones(4, int), np.arange(4))
    assert began.wait(30)
    result = Future.result
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Future, "result", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        next(arrivals)
    assert Future.result is result
    threading.Timer(0.05, go.set).start()
    held.begin()  # waits for the read that was left
    assert go.is_set()
    for layer in range(LAYERS):
        ask(held, layer, range(EXPERTS), weights)


def test_pins_are_all_there_or_none(path, monkeypatch):
    held = store(path, slots=2, pin_bytes=6 * 6144, readers=0)
    assert held.pins > 2
    read, count = held.file.read, [0]

    def failing(*arguments):
        count[0] += 1
        if count[0] > 3:
            raise ExpertError("an input/output error")
        return read(*arguments)

    held._usage[:] = 1
    with monkeypatch.context() as patch:
        patch.setattr(held.file, "read", failing)
        with pytest.raises(ExpertError, match="input/output"):
            held.begin()
    assert held.pinned() == []
    held.begin()
    assert len(held.pinned()) == held.pins


def test_what_is_measured_aside_leaves_no_trace(path, weights):
    held = store(path, slots=3, pin_bytes=4 * 6144)
    held.begin()
    ask(held, 0, [1, 2, 5], weights)
    log, usage, residents, forwards = held.last, held._usage.copy(), held.residents(0), held.forwards
    with held.aside():
        for _ in range(3):
            held.begin()  # nothing is pinned by what is measured
            ask(held, 0, [0, 3, 4, 6, 7], weights)
        assert held.pinned() == [] and held.residents(0) != residents
    assert held.last is log and held.forwards == forwards and held.residents(0) == residents
    assert np.array_equal(held._usage, usage)
    held.begin()
    assert set(held.pinned()) <= {(0, 1), (0, 2), (0, 5)} and held.pinned()
