"""Trials with experts on disk: what is counted, the same state for every arm, and traces that are replayed."""

import json

import numpy as np
import pytest
import torch
from drafters import noise
from random_moe import EXPERTS, LAYERS, TOP_K, prompts_of, save_random_moe

from gdlib.bench import break_even, draft_trials, drafting, experts, record, routing, traces
from gdlib.bench.break_even import Spoilt
from gdlib.bench.experts import ALL, COLD, EVERY_ROW, IN_MEMORY, PLAIN, RESIDENT, ROOMY, WARM
from gdlib.drafts import SOURCES
from gdlib.models import hf
from gdlib.report import trace

ARMS = [PLAIN, "plain again", "grammar", "ngram", "grammar + branches"]
MORE = [RESIDENT, ROOMY]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GDLIB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield save_random_moe(tmp_path_factory.mktemp("moe"))


@pytest.fixture(scope="module")
def models(folder):
    torch.set_num_threads(1)
    return experts.load(str(folder), slots=3)


@pytest.fixture(scope="module")
def table(models):
    return experts.compare(
        models, prompts_of("wrong", "prose"), ARMS, more_on=["wrong"], more_arms=MORE, max_tokens=12, seed=5
    )


def test_every_case_has_a_row_and_every_arm_the_same_text(table):
    counts = table.groupby(["workload", "state"]).size().to_dict()
    assert counts == {(w, s): 2 * len(ARMS) for w in ("wrong", "prose") for s in (COLD, WARM)} | {
        ("wrong", IN_MEMORY): 2 * len(MORE)
    }
    assert table["identical"].all() and table["resident_identical"].all()
    assert not (table["draft_rows"] < 0).any() and (table["generated_tokens"] > 0).all()
    recorded = record.finish(record.begin("", {}), table)
    assert len(recorded) == len(table)


def test_counts_add_up(table):
    streamed = table[table["state"] != IN_MEMORY]
    found = streamed["slot_hits_count"] + streamed["pinned_hits_count"]
    assert (found + streamed["loads_count"] == streamed["distinct_count"]).all()
    assert (streamed["distinct_count"] <= streamed["selections_count"]).all()
    rows = streamed["forward_count"] - 1 + streamed["draft_rows"]  # the prompt is in the cache and takes no forward
    assert (streamed["selections_count"] == rows * LAYERS * TOP_K).all()
    assert (streamed["rejected_bytes"] <= streamed["miss_bytes"]).all()
    assert (streamed.loc[streamed["arm"] == PLAIN, "rejected_bytes"] == 0).all()
    assert (streamed["read_s"] <= streamed["elapsed_s"]).all()
    roomy = table[table["arm"] == ROOMY]
    assert (roomy["loads_count"] == 0).all() and (roomy["slot_hits_count"] == roomy["distinct_count"]).all()


def test_plain_and_its_control_begin_in_the_same_state(table):
    """Whatever ran between them: the same hits and loads; and a warm store serves more than a cold one."""
    keys = ["workload", "prompt", "state"]
    columns = ["loads_count", "slot_hits_count", "miss_bytes"]
    both = [table[table["arm"] == arm].set_index(keys)[columns] for arm in (PLAIN, "plain again")]
    assert both[0].equals(both[1])
    loads = both[0]["loads_count"].groupby("state").sum()
    assert loads[WARM] <= loads[COLD]


def test_the_order_is_drawn_and_recorded(table):
    for _, group in table.groupby(["workload", "prompt"]):
        assert sorted(group["order_index"]) == list(range(len(group)))
    orders = {tuple(group["order_index"]) for _, group in table[table["workload"] == "prose"].groupby("prompt")}
    assert len(orders) == 2


def test_unknown_names_are_refused(models):
    with pytest.raises(ValueError, match="arm 'grammer'"):
        experts.compare(models, prompts_of("prose"), ["grammer"])
    with pytest.raises(ValueError, match="state 'tepid'"):
        experts.compare(models, prompts_of("prose"), [PLAIN], ["tepid"])
    with pytest.raises(ValueError, match="no state is named"):
        experts.compare(models, prompts_of("prose"), [PLAIN], [])


def test_silent_drafting_and_reads_from_memory_are_faults(table):
    rows = table[table["workload"] == "wrong"].copy()
    experts.check_drafted(rows)
    off = rows.assign(workload="ndjson", bound_ratio=2.0)
    assert "ndjson" in draft_trials.CONFORMING
    off.loc[off["arm"] == "grammar", "draft_rows"] = 0
    with pytest.raises(AssertionError, match="is drafting on"):
        experts.check_drafted(off)
    with pytest.raises(AssertionError, match="in a plain arm"):
        experts.check_drafted(rows[rows["arm"] == PLAIN].assign(draft_rows=1))
    with pytest.raises(AssertionError, match="experts read where all are in memory"):
        experts.check_drafted(rows[rows["arm"] == ROOMY].assign(loads_count=1))


def test_a_recording_has_the_heads_tokens_and_the_experts_that_the_report_counts(monkeypatch, tmp_path):
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path))
    torch.set_num_threads(1)
    table = experts.compare(
        experts.load(hf.TINY_MOE, slots=8), drafting.workloads(["ndjson"]), [EVERY_ROW, ALL], more_on=["ndjson"],
        prompts=2, max_tokens=16, traced=True,
    )  # fmt: skip
    told = table[table["trace"] != ""]
    assert list(zip(told["state"], told["arm"], strict=True)) == [(COLD, EVERY_ROW), (COLD, ALL), (WARM, ALL)]
    assert told["prompt"].nunique() == 1
    for row in told.itertuples():
        made = json.loads(row.trace)
        assert len(made["tokens"]) == row.generated_tokens and len(made["experts"]) == row.forward_count - 1
        of_source = {source: sum(token[1] == source for token in made["tokens"]) for source in SOURCES}
        assert of_source == {source: getattr(row, f"{source}_accepted_count") for source in SOURCES}
        assert len(made["rejected"]) == row.draft_rows - sum(of_source.values())
        for key, column in (("distinct", "distinct_count"), ("loads", "loads_count"), ("miss_bytes", "miss_bytes")):
            assert sum(forward[key] for forward in made["experts"]) == getattr(row, column) > 0
        assert {forward["forward"] for forward in made["experts"]} == {token[2] for token in made["tokens"][1:]}
    every = json.loads(told["trace"].iloc[0])
    assert any(token[1] == "mtp" for token in every["tokens"])
    shown = trace.explorer(trace.recordings(told.assign(arm=told["arm"] + " " + told["state"])), "x", "Texts.").data
    assert shown.count("<section") == 3 and "MTP</span>" in shown and "asked for, " in shown


def test_nothing_is_told_where_it_is_not_asked_for(table):
    assert (table["trace"] == "").all()


@pytest.mark.parametrize("policy", ["lru", "lfru"])
def test_the_replay_reads_what_the_store_read(folder, models, policy):
    """Forward by forward, plain and drafted, with fewer slots than a forward needs and with more."""
    (workload,) = prompts_of("wrong")
    ids = workload.prompt_ids(models.tokenizer, 0)
    for slots in (0, 1, TOP_K, 5, EXPERTS):
        model, _ = experts.streamed_model(str(folder), slots=slots, policy=policy)
        gold = None
        for drafts in ((), None):
            drafts = (Spoilt(gold, 0.6, 6, ids),) if drafts is None else drafts
            run, forwards, loads = traces.record_run(model, models.vocab, ids, workload, drafts, 14, gate="all")
            gold = gold or run.ids
            asked, read = routing.replay(forwards, slots, policy, EXPERTS)
            assert read.tolist() == loads.tolist() and run.ids == gold
            assert len(forwards) == run.report["forwards"] and len(forwards[0].sources) == len(ids)
            assert asked[1:].sum() == run.report["experts"]["distinct"]
            rows = sum(forward.selected.shape[1] for forward in forwards[1:])
            assert rows == len(forwards) - 1 + run.report["rows"] and bool(drafts) == (run.report["rows"] > 0)
        model.store.close()


def test_the_routing_of_a_text_read_at_once_is_that_of_decoding_it(models):
    (workload,) = prompts_of("prose")
    ids = workload.prompt_ids(models.tokenizer, 1)
    run, forwards, _ = traces.record_run(models.streamed, models.vocab, ids, workload, (), 10)
    text = traces.read_text(models.streamed, models.vocab, "b", ids, run.ids, workload)
    assert text.selected.shape == (LAYERS, len(run.ids), TOP_K) and text.structural.shape == (len(run.ids),)
    decoded = np.concatenate([forward.selected for forward in forwards[1:]], axis=1)
    assert (np.sort(decoded, axis=2) == np.sort(text.selected[:, : decoded.shape[1]], axis=2)).all()


def test_premise_and_capacity_are_tables_that_the_record_takes(models, monkeypatch):
    monkeypatch.setattr(traces, "ARMS", {"plain": (), "all sources": (noise(257, 1, "ngram"),)})
    premise = traces.premise(models.streamed, models.tokenizer, models.vocab, prompts_of("wrong"), (1, 2, 4), 0, 12, 8)
    assert set(premise["where"]) == {"text", "forward"} and set(premise["prompt"]) == {"a", "b"}
    assert (premise["distinct_count"] <= EXPERTS).all()
    record.finish(record.begin("", {}), premise)
    monkeypatch.setattr(traces, "LARGE", routing.Shape(3, 2 * EXPERTS, 2 * TOP_K, 1e6))
    capacity = traces.capacity(
        models.streamed, models.tokenizer, models.vocab, prompts_of("wrong"), list(traces.ARMS),
        [2, 3, EXPERTS], ["lru", "belady", routing.PINNED], [4], 0, 12, 8,
    )  # fmt: skip
    record.finish(record.begin("", {}), capacity)
    assert set(capacity["policy"]) == {"store", "lru", "belady", routing.PINNED}
    here = capacity[(capacity["shape"] == traces.RECORDED) & (capacity["slots_count"] == 3)]
    reads = here.groupby(["prompt", "arm", "policy"])["loads_count"].sum().unstack()
    assert (reads["store"] == reads["lru"]).all() and (reads["belady"] <= reads["lru"]).all()
    assert len(capacity[capacity["shape"] != traces.RECORDED]) == 2 * 2 * 2 * 2


def test_a_spoilt_draft_is_right_as_often_as_asked():
    gold = list(range(100, 1100))
    for acceptance in (0.0, 0.3, 1.0):
        source = Spoilt(gold, acceptance, 4, others=[1, 2, 3], seed=3)
        right = np.mean([a == b for a, b in zip(source.path, gold, strict=True)])
        assert right == pytest.approx(acceptance, abs=0.05)
    source.begin([7])
    assert source.propose((), 9) == [gold[:4]] and source.propose((), 2) == [gold[:2]]
    assert source.propose(gold[:3], 9) == [gold[3:4]] and source.propose(gold[:4], 9) == []
    source.commit(gold[:998])
    assert source.propose((), 9) == [gold[998:]]


def test_the_surface_takes_the_rows_it_is_told_and_more_acceptance_reads_less(models):
    table = break_even.surface(
        models.streamed, models.tokenizer, models.vocab, prompts_of("wrong"), 3, [0.0, 1.0], [2, 5],
        ["every row", "bytes gate"], max_tokens=12,
    )  # fmt: skip
    record.finish(record.begin("", {}), table)
    assert table["identical"].all() and len(table) == 2 * 2 * (2 + 1)
    fixed = table[table["gate"] == "every row"].set_index(["prompt", "rows_count", "acceptance_share"]).sort_index()
    for prompt in "ab":
        for k in (2, 5):
            none, all_of = (fixed.loc[prompt, k, a] for a in (0.0, 1.0))
            assert none["accepted_count"] == 0 and none["forward_count"] == none["plain_forward_count"]
            assert all_of["accepted_count"] == all_of["draft_rows"] and all_of["miss_bytes"] < none["miss_bytes"]
            assert none["miss_bytes"] >= none["plain_miss_bytes"] and none["model_ratio"] >= 1 > all_of["model_ratio"]
    with pytest.raises(ValueError, match="want gates of"):
        break_even.surface(models.streamed, models.tokenizer, models.vocab, prompts_of("wrong"), 3, [0.5], [1])
