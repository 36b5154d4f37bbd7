"""Whose rows paid for which experts: the sums against a slow count, row by row."""

import random
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from drafters import Hashed, right, wrong

from gdlib.decoding.expert_use import ExpertUse
from gdlib.decoding.speculative import speculative
from gdlib.drafts.gate import AllRows, BytesGate, CostGate, expected_bytes

LAYERS, EXPERTS, TOP_K, SIZE = 3, 12, 2, 1000


class FakeStore:
    """Logs routing drawn by row, as a store would, for a model without experts; keeps nothing between forwards."""

    layers, experts, top_k, expert_bytes, slots, pins = LAYERS, EXPERTS, TOP_K, SIZE, 2, LAYERS

    def __init__(self, seed=0, resident=4):
        self.chance, self.last, self.logs, self.resident = random.Random(seed), None, [], resident

    def forward(self, rows):
        selected = [
            np.array([self.chance.sample(range(EXPERTS), TOP_K) for _ in range(rows)], np.int16) for _ in range(LAYERS)
        ]
        missed = [sorted({int(e) for e in layer.ravel() if e >= self.resident}) for layer in selected]
        hits = sum(len({int(e) for e in layer.ravel() if e < self.resident}) for layer in selected)
        loads = sum(map(len, missed))
        self.last = SimpleNamespace(
            selected=selected,
            missed=missed,
            hits={"pinned": 0, "slots": hits},
            loads=loads,
            miss_bytes=loads * SIZE,
            read_seconds=0.5,
        )
        self.logs.append(self.last)

    @contextmanager
    def aside(self):
        last = self.last
        yield
        self.last = last


class OnDisk(Hashed):
    def __init__(self, vocab_size, **options):
        super().__init__(vocab_size)
        self.store = FakeStore(**options)

    def __call__(self, new_ids):
        self.store.forward(len(new_ids))
        return super().__call__(new_ids)

    def verify(self, root, tree):
        self.store.forward(1 + len(tree))
        return super().verify(root, tree)


def slow_count(forwards):
    """(rejected bytes, source -> counts) of (log, sources, kept), one row after the other."""
    rejected, counts = 0, {}
    for log, sources, kept in forwards:
        for name in sources:
            mine = counts.setdefault(name, dict(rows=0, selections=0, distinct=0, loads=0, miss_bytes=0))
            mine["rows"] += 1
            mine["selections"] += LAYERS * TOP_K
        for selected, missed in zip(log.selected, log.missed, strict=True):
            for name in set(sources):
                seen = {int(e) for row, source in enumerate(sources) if source == name for e in selected[row]}
                counts[name]["distinct"] += len(seen)
            for expert in missed:
                needing = [row for row in range(len(sources)) if expert in selected[row]]
                of_kept = [row for row in needing if kept[row]]
                rejected += 0 if of_kept else SIZE
                payer = counts[sources[(of_kept or needing)[0]]]
                payer["loads"] += 1
                payer["miss_bytes"] += SIZE
    return rejected, counts


@pytest.mark.parametrize("seed", range(4))
def test_the_loop_sums_what_every_row_asked_for(seed):
    model, prompt = OnDisk(50, seed=seed), [1, 2, 3]
    gold = speculative(OnDisk(50), prompt, [], [], 40).ids
    seen = []
    drafted = speculative(
        model,
        prompt,
        [right(gold[:25]), wrong(gold, 50)],
        [],
        40,
        gate=AllRows(),
        draft_cap=5,
        on_forward=lambda *forward: seen.append(forward),
    )
    use = drafted.report["experts"]
    assert drafted.ids == gold and len(seen) == drafted.report["forwards"]
    assert seen[0][1] == ["prompt"] * 3 and all(sources[0] == "text" for _, sources, _ in seen[1:])
    assert sum(sum(kept) for _, _, kept in seen[1:]) == 40 - 1  # the last token is not read
    rejected, counts = slow_count(seen[1:])
    assert use["rejected_bytes"] == rejected > 0
    assert use["sources"] == counts and set(counts) == {"text", "right", "wrong"}
    assert use["loads"] == sum(log.loads for log, *_ in seen[1:]) == sum(c["loads"] for c in counts.values())
    assert use["miss_bytes"] == use["loads"] * SIZE and use["expert_bytes"] == SIZE
    assert use["selections"] == sum(c["selections"] for c in counts.values())
    assert use["distinct"] == use["loads"] + use["hits"]["slots"]
    assert use["forwards"] == len(seen) - 1 and use["read_seconds"] == 0.5 * use["forwards"]
    assert use["prompt"]["forwards"] == 1 and use["prompt"]["selections"] == 3 * LAYERS * TOP_K


def test_measuring_costs_behind_the_prompt_is_nobodys_forward():
    model, seen = OnDisk(50), []
    gate = CostGate()
    run = speculative(model, [1, 2, 3], [right([])], [], 5, gate=gate, on_forward=lambda *forward: seen.append(forward))
    assert gate.costs is model.costs and len(model.store.logs) > run.report["forwards"]  # it did measure
    assert run.report["experts"]["prompt"]["selections"] == 3 * LAYERS * TOP_K
    assert [len(log.selected[0]) for log, *_ in seen] == [len(sources) for _, sources, _ in seen]


def test_plain_decoding_is_counted_too_and_models_in_memory_have_no_such_report():
    plain = speculative(OnDisk(50), [1, 2], [], [], 10).report["experts"]
    assert set(plain["sources"]) == {"text"} and plain["rejected_bytes"] == 0
    assert plain["sources"]["text"]["rows"] == plain["forwards"] == 9
    assert "experts" not in speculative(Hashed(50), [1, 2], [], [], 10).report


def test_a_kept_prompt_is_no_forward():
    use = ExpertUse(FakeStore())
    assert use.report()["prompt"]["forwards"] == 0 and use.report()["sources"] == {}


def test_bytes_begin_with_even_routing_and_follow_what_is_read():
    costs = expected_bytes(FakeStore(), (1, 2, 4))
    absent = 1 - 3 / EXPERTS
    assert costs(1) == pytest.approx(SIZE * (1 + LAYERS * absent * TOP_K))
    assert costs(2) == pytest.approx(SIZE * (1 + LAYERS * absent * (TOP_K + TOP_K * (1 - TOP_K / EXPERTS))))
    model, gate = OnDisk(50, resident=EXPERTS), BytesGate()  # nothing is ever read: rows cost nothing
    gold = speculative(OnDisk(50), [1, 2], [], [], 300).ids
    drafted = speculative(model, [1, 2], [right(gold)], [], 300, gate=gate, draft_cap=8)
    assert drafted.ids == gold and gate.costs is model.byte_costs
    assert gate.costs(9) < expected_bytes(FakeStore())(9) / 2 and drafted.report["tokens_per_forward"] > 6


def test_the_byte_gate_drafts_nothing_where_wrong_rows_read_much():
    model = OnDisk(50, resident=0)
    gold = speculative(OnDisk(50), [1, 2], [], [], 200).ids
    drafted = speculative(model, [1, 2], [wrong(gold, 50)], [], 200, gate=BytesGate())
    assert drafted.ids == gold and drafted.report["rows"] < 40
