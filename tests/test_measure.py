"""The measuring itself: what the tables hold, that pairs are pairs, and that statistics are what they say."""

import collections
import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from gdlib.bench import measure, record
from gdlib.bench.clock import CpuClock, interleave, make_clock
from gdlib.bench.stats import bootstrap, paired_ratio, share
from gdlib.bench.workloads import Prompt as Task
from gdlib.bench.workloads import failure, first_of_each_family, load_prompts
from gdlib.decoding import PARTS
from gdlib.report import figures, summary, tables

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def oracle():
    return measure.oracle_trials("array", [4, 8], [0.6, 0.95], 3, 1, 1.25, 7, CPU)


@pytest.fixture(scope="module")
def grid(oracle):
    return pd.concat([oracle, measure.oracle_trials("flat", [4, 8], [0.6, 0.95], 3, 1, 1.25, 7, CPU)])


def test_oracle_table_is_tidy_and_whole(oracle):
    assert len(oracle) == 2 * 2 * 3 * len(measure.ORACLE_ARMS)
    assert not oracle.duplicated(["string_length", "confidence", "trial", "arm"]).any()
    used = {"schema": "array", "string_length": [4, 8], "confidence": [0.6, 0.95], "trials": 3}
    record.finish(record.begin("", used), oracle)  # names, units, nothing missing
    guided = oracle[oracle["arm"].isin(["dense", "ours", "ours, nothing skipped"])]
    assert guided["schema_valid"].all() and (guided["cause"] == "").all() and (guided["stop"] == "eos").all()
    assert oracle["parts_share"].gt(0).all() and oracle["parts_share"].lt(1.0001).all()  # of the whole of their pass
    parts = oracle[[f"{p}_us" for p in PARTS]].sum(axis=1)
    assert np.allclose(parts / oracle["instrumented_us"], oracle["parts_share"])  # one round: medians are the values


def test_parameters_change_what_is_measured(oracle):
    other = measure.oracle_trials("array", [4, 8], [0.6, 0.95], 3, 1, 1.25, 8, CPU)
    keys = ["string_length", "confidence", "trial", "arm"]
    free = [t[t["arm"] == "free"].set_index(keys) for t in (oracle, other)]
    assert (free[0]["seed"] != free[1]["seed"]).all()
    assert (free[0]["generated_tokens"] != free[1]["generated_tokens"]).any()
    silent = measure.oracle_trials("flat", [4], [0.6], 3, 1, 0.0, 7, CPU)
    assert silent.loc[silent["arm"] == "free", "exact"].all()
    loud = measure.oracle_trials("flat", [4], [0.6], 3, 1, 20.0, 7, CPU)
    assert not loud.loc[loud["arm"] == "free", "exact"].any()
    assert loud.loc[loud["arm"] == "ours", "schema_valid"].all()


def test_same_seed_gives_the_same_table_in_every_column_that_is_not_a_time(oracle):
    again = measure.oracle_trials("array", [4, 8], [0.6, 0.95], 3, 1, 1.25, 7, CPU)
    timed = [c for c in oracle if c.endswith("_us")] + ["parts_share"]
    assert oracle.drop(columns=timed).equals(again.drop(columns=timed))


def test_fixed_widths_fail_only_where_the_gold_text_has_other_widths():
    table = measure.oracle_trials("array", [4], [0.95], 40, 1, 0.0, 1, CPU)
    fixed = table[table["arm"] == "fixed widths"]
    assert fixed["gold_fits"].any() and fixed.loc[fixed["gold_fits"], "json_valid"].all()
    assert not fixed["json_valid"].all() and set(fixed["cause"]) <= {"", "truncated", "leading zero", "not JSON"}


class Echo:
    """A model with a memory that writes a given text over a byte vocabulary, then ends it."""

    def __init__(self, answer: bytes):
        self.answer = answer
        self.reset()

    def reset(self):
        self.step = 0

    def __call__(self, new_ids):
        logits = torch.zeros(257)
        logits[self.answer[self.step] if self.step < len(self.answer) else 256] = 1
        self.step += 1
        return logits


class EchoTokenizer:
    def apply_chat_template(self, messages, add_generation_prompt, return_dict):
        return {"input_ids": list(messages[-1]["content"].encode())}


def test_model_table_on_a_model_that_writes_prose_and_json():
    from gdlib.tokens.vocabulary import Vocabulary

    vocab = Vocabulary([bytes([b]) for b in range(256)] + [b""], [256])
    fields = (("name", "text", 8), ("age", "int", 3), ("ok", "bool"))
    gold = {"name": "Bo", "age": 7, "ok": True}
    tasks = [Task(f"p-{i}", "p", "Bo is 7, ok.", fields, gold) for i in range(2)]
    answer = b'Sure: {"name": "Bo", "age": 7, "ok": true}'
    arms = ["free", "free again", "dense", "ours"]
    table = measure.model_trials(Echo(answer), EchoTokenizer(), vocab, tasks, tasks, arms, {"p-0"}, 0, 80, 1, CPU)
    record.finish(record.begin("", {"shots": 0}), table)
    by = table.set_index(["arm", "prompt"])
    assert set(by.loc["free", "failure"]) == {"prose"} and set(by.loc["healing", "failure"]) == {""}
    assert by.loc["healing", "exact"].all() and list(by.loc["dense"].index) == ["p-0"]
    assert by.loc["ours", "schema_valid"].all() and by.loc[("ours", "p-0"), "masked_steps"] > 0
    assert by.loc["ours", "build_ms"].min() > 0 and by.loc["free", "build_ms"].max() == 0
    assert by.loc[("dense", "p-0"), "mask_bytes"] > 28 * by.loc[("ours", "p-0"), "mask_bytes"]
    assert list(by.loc["free again"].index) == ["p-0"]
    assert summary.overhead_share(table, "free").value == 0 and summary.overhead_share(table, "dense").n == 1
    assert by.loc[("ours", "p-0"), "text"] == by.loc[("dense", "p-0"), "text"]
    with pytest.raises(ValueError, match="'free' and others out of"):
        measure.model_trials(Echo(answer), EchoTokenizer(), vocab, tasks, tasks, ["ours"], (), 0, 80, 1, CPU)


def test_build_table_is_of_fresh_processes():
    table = measure.build_trials("characters", "flat", 4, 1)
    assert len(table) == 4 and set(table["temperature"]) == {"cold", "warm"} and set(table["arm"]) == {"dense", "ours"}
    record.finish(record.begin("", {"vocabulary": "characters", "schema": "flat", "string_length": 4}), table)
    sizes = table.groupby("arm")["mask_bytes"].first()
    assert sizes["dense"] == 32 * sizes["ours"]  # 96 tokens: a float each, or a bit
    with pytest.raises(ValueError, match="nonesuch"):
        measure.build_trials("characters", "nonesuch", 4, 1)


def test_every_arm_comes_at_every_place_and_after_every_other():
    order = list(interleave("abcd", 1200, seed=3))
    rounds = [order[i : i + 4] for i in range(0, len(order), 4)]
    assert all(sorted(r) == list("abcd") for r in rounds)
    places = collections.Counter((name, place) for r in rounds for place, name in enumerate(r))
    follows = collections.Counter(itertools.pairwise(order))
    assert all(240 <= places[name, place] <= 360 for name in "abcd" for place in range(4))
    assert all(240 <= follows[a, b] <= 480 for a in "abcd" for b in "abcd" if a != b)
    assert order != list(interleave("abcd", 1200, seed=4)) and order == list(interleave("abcd", 1200, seed=3))


def test_clock_sums_its_laps(monkeypatch):
    ticks = iter((100, 105, 107, 120, 121))
    monkeypatch.setattr("gdlib.bench.clock.time", SimpleNamespace(perf_counter_ns=lambda: next(ticks)))
    clock = make_clock(CPU, 2)
    assert isinstance(clock, CpuClock)
    clock.start()
    for part in (0, 1, 0):
        clock.lap(part)
    clock.stop()
    assert clock.parts_ns == [5 + 13, 2] and clock.whole_ns == 21


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_clock_sums_its_laps():
    clock = make_clock(torch.device("cuda"), 2)
    work = torch.randn(2000, 2000, device="cuda")
    clock.start()
    for part in (0, 1, 0):
        work @ work
        clock.lap(part)
    clock.stop()
    assert clock.parts_ns[1] > 0 and sum(clock.parts_ns) <= clock.whole_ns * 1.01


def test_intervals_cover_what_they_should():
    rng = np.random.default_rng(0)
    medians = [bootstrap(rng.normal(3, 1, 40), resamples=300) for _ in range(200)]
    assert 0.88 <= np.mean([e.low <= 3 <= e.high for e in medians]) <= 0.99
    shares = [share(rng.random(30) < 0.9) for _ in range(300)]
    assert 0.9 <= np.mean([e.low <= 0.9 <= e.high for e in shares]) <= 0.99
    assert share([True] * 10).low < 1 and share([True] * 10).high == 1
    same = paired_ratio(np.arange(1, 50), np.arange(1, 50))
    assert same.value == same.low == same.high == 1 and same.n == 49


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: bootstrap([]), "no values"),
        (lambda: bootstrap([1, np.nan]), "1 of 2 values are not finite"),
        (lambda: paired_ratio([1, 2], [1]), "pairs do not match"),
        (lambda: paired_ratio([1], [0]), "above zero"),
        (lambda: share([]), "no observations"),
    ],
)
def test_statistics_refuse_what_they_cannot_summarise(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_ratios_are_paired_by_trial_not_pooled(oracle):
    pairs = summary.paired(oracle, "dense", "step_us", summary.ORACLE_KEYS)
    assert len(pairs) == 12
    shuffled = oracle.sample(frac=1, random_state=3)
    assert summary.slowdown(shuffled, "dense", summary.ORACLE_KEYS).value == pytest.approx(
        summary.slowdown(oracle, "dense", summary.ORACLE_KEYS).value
    )
    with pytest.raises(ValueError, match="do not name one trial"):
        summary.paired(oracle, "dense", "step_us", ["trial"])


SCHEMA = Task("x", "p", "", (("a", "int", 2),), {}).schema()


@pytest.mark.parametrize(
    ("text", "stopped", "kind"),
    [
        ('{"a": 1}', True, ""),
        ('{"a": 1}', False, ""),
        ('```json\n{"a": 1}\n```', True, "fence"),
        ("The answer is 1.", True, "prose"),
        ('{"a": 1} There.', True, "prose"),
        ("", True, "prose"),
        ('{"a": ', False, "truncated"),
        ('{"a": ]', True, "not JSON"),
        ('{"b": 1}', True, "wrong field"),
        ('{"a": 100}', True, "wrong field"),
        ('{"a": 1, "b": 2}', True, "wrong field"),
        ("[1]", True, "wrong field"),
    ],
)
def test_failures_are_named_by_kind(text, stopped, kind):
    assert failure(text, SCHEMA, stopped) == kind


def test_prompts_that_cannot_be_read_name_the_line(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "a", "family": "f", "text": "t", "fields": [], "gold": {}}\n{"id": 1}\n')
    with pytest.raises(ValueError, match=r"p.jsonl, line 2: not a prompt"):
        load_prompts(path)
    path.write_text("")
    with pytest.raises(ValueError, match="no prompts"):
        load_prompts(path)


def test_choosing_prompts_keeps_families_even():
    tasks = [Task(f"{f}{i}", f, "", (), {}) for i in range(3) for f in "ab"]
    assert [t.id for t in first_of_each_family(tasks, 2)] == ["a0", "b0", "a1", "b1"]
    assert first_of_each_family(tasks, 0) == tasks
    assert [t.id for t in first_of_each_family(tasks, 2, families=1)] == ["a0", "a1"]


def test_figures_and_tables_draw_what_a_run_gives(oracle):
    for drawing in (
        figures.step_time(oracle),
        figures.slowdown(oracle, summary.ORACLE_KEYS),
        figures.slowdown_grid(oracle, "confidence", "confidence"),
        figures.parts(oracle),
        figures.validity(oracle, "string_length", "letters"),
        figures.fixed_widths(oracle),
    ):
        assert drawing.axes and all(axis.get_xlabel() or axis.get_ylabel() for axis in drawing.axes[:1])
    shown = tables.oracle(oracle)
    assert list(shown["arm"]) == list(measure.ORACLE_ARMS)
    assert shown.set_index("arm").loc["free", "over free, median"] == "1.000 [1.000,\u00a01.000]"


def test_reproduction_verdicts_follow_the_numbers(grid):
    rows = [
        {"vocabulary": "characters", "arm": "dense", "temperature": t, "machine_ms": 1.0, "masks_ms": ms}
        for t, ms in (("cold", 32.0), ("warm", 21.0))
    ]
    claims = tables.reproduction(grid, pd.DataFrame(rows)).set_index("claim")
    assert set(claims["verdict"]) <= {tables.REPRODUCED, tables.NOT, tables.EXTENDED}
    assert claims.loc["build, cold", "verdict"] == tables.REPRODUCED  # 33 ms of 33 ms
    assert tables._near(0.933, 1.0, share=True) == tables.NOT  # a perfect decoder does not reproduce a flawed one
    assert claims.loc["FSM: valid JSON (bounded widths, dense and ours)", "verdict"] == tables.EXTENDED
    slower = grid.copy()
    slower.loc[slower["arm"] == "dense", "step_us"] = 1.95 * slower.loc[slower["arm"] == "free", "step_us"].to_numpy()
    doubled = tables.reproduction(slower, pd.DataFrame(rows)).set_index("claim")
    assert doubled.loc["FSM over free, median", "verdict"] == tables.REPRODUCED
    assert doubled.loc["2. The FSM about doubles a step", "verdict"] == tables.REPRODUCED
    assert doubled.loc["3. Mask build and apply are over 84% of the FSM's overhead", "theirs"] == "84%"
    assert sum(c.startswith(("1. ", "2. ", "3. ", "4. ", "5. ", "6. ")) for c in claims.index) == 6


def test_no_two_configurations_share_their_noise(grid):
    """Trials that shared it would be counted as independent and are not."""
    keys = ["schema", "string_length", "confidence", "trial"]
    free = grid[grid["arm"] == "free"]
    assert free["seed"].is_unique and not free.duplicated(keys).any()


@pytest.mark.parametrize(
    ("change", "says"),
    [({"schema": "flatt"}, "flatt.*flat, nested, array"), ({"trials": 0}, "trials=0"), ({"rounds": 0}, "rounds=0")],
)
def test_values_that_cannot_be_measured_are_named(change, says):
    values = {"schema": "flat", "string_length": [4], "confidence": [0.6], "trials": 1, "rounds": 1, "noise": 1.0}
    with pytest.raises(ValueError, match=says):
        measure.oracle_trials(**(values | change), seed=0, device=CPU)
