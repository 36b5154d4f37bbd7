"""The mask chapter's measurements and what is drawn of them: tidy tables, counted gaps, figures that hide none."""

import time

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from gdlib.bench import inside, masks, peers, probes, record, schemas
from gdlib.report import masks as drawn

ARMS = [arm for arm in ("gdlib", "llguidance", "outlines-core") if peers.version(arm) != "none"]
LEVELS = {"properties": [3, 6], "enum": [5], "digits": [3]}


@pytest.fixture(scope="module")
def engines():
    return masks.engine_trials(["characters"], LEVELS, ARMS, 2, 20.0, 3)


@pytest.fixture(scope="module")
def within():
    vocab, encode = masks.vocabulary_of("characters")
    return inside.inside_trials("characters", vocab, encode, [1, 3], 1, 1, 0)


def finished(table, **used):
    return record.finish(record.begin("", used), table)


def test_engine_table_is_tidy_whole_and_paired(engines):
    table = finished(engines, seed=3)
    assert not table.duplicated([*drawn.CASE, "arm"]).any()
    assert len(table) == 4 * 2 * len(ARMS)
    ours = table[table["arm"] == "gdlib"]
    assert (ours["outcome"] == "ok").all() and ours["timed"].all()
    assert (table["ttfm_us"] >= table["compile_us"]).all()
    timed = table[table["timed"]]
    assert (timed["tbm_max_us"] >= timed["tbm_p99_us"]).all() and (timed["tbm_p99_us"] >= timed["tbm_median_us"]).all()
    for _, case in table.groupby(drawn.CASE):
        assert case["schema_bytes"].nunique() == 1  # the same schema for all
    if "outlines-core" in ARMS:  # it reads no bounds
        digits = table[(table["arm"] == "outlines-core") & (table["family"] == "digits")]
        assert set(digits["outcome"]) == {"too loose"}
    with pytest.raises(ValueError, match="at least one"):
        masks.engine_trials(["characters"], LEVELS, ARMS, 0, 1.0, 0)


class Slow:
    """Takes everything; compiling takes a while for every property."""

    fronts = peers.FRONTS

    def __init__(self, vocab, encode):
        self.row = np.full((len(vocab) + 31) // 32, -1, np.int32)

    def compile(self, text, front="json_schema"):
        time.sleep(0.002 * text.count('"type"'))

    def reset(self): ...

    def mask(self): ...

    def commit(self, token_id): ...


def test_a_slow_engine_is_left_out_by_name_and_never_dropped(monkeypatch):
    monkeypatch.setitem(peers.ENGINES, "slow", ("gdlib", Slow))
    levels = {"properties": [2, 200], "digits": [3]}
    table = finished(masks.engine_trials(["characters"], levels, ["gdlib", "slow"], 1, 0.3, 0), seed=0)
    slow = table[table["arm"] == "slow"].set_index(["family", "level_count"])
    assert slow.loc[("properties", 2), "outcome"] == "too loose" and slow.loc[("properties", 2), "timed"]
    assert slow.loc[("properties", 200), "outcome"] == "left out" and not slow.loc[("properties", 200), "timed"]
    assert "expected" in slow.loc[("properties", 200), "reason"]
    assert (table[table["arm"] == "gdlib"]["outcome"] == "ok").all()
    monkeypatch.setattr(masks, "SMALL", 10)
    small = masks.engine_trials(["characters"], {"digits": [3]}, ["gdlib", "slow"], 1, 0.3, 0, ["slow"])
    assert list(small.set_index("arm")["outcome"][["gdlib", "slow"]]) == ["ok", "left out"]


def test_small_cases_of_all_families_come_first():
    order = masks._ascending({"enum": [1, 10, 100], "tree": [2]})
    assert order == [("enum", 1), ("tree", 2), ("enum", 10), ("enum", 100)]


def test_a_workload_that_lies_is_an_error():
    lie = schemas.Workload({"type": "integer"}, (("1", True), ("2", False)))
    with pytest.raises(AssertionError, match="invalid"):
        masks._judge("lie", 1, lie)


def test_inside_table_answers_every_question(within):
    table = finished(within, seed=0)
    assert set(table["question"]) == set(inside.QUESTIONS)
    arms = table.groupby("question")["arm"].agg(set)
    assert arms["cache"] == set(inside.SITUATIONS) and arms["batch"] == set(inside.BATCHES)
    assert (table.loc[table["question"] != "parts", "value_us"] > 0).all() and (table["value_us"] >= 0).all()
    parts = drawn.part_times(table)
    assert list(parts.columns) == list(inside.PARTS) and set(parts.index) == set(inside.PART_WORKLOADS)
    # the laps find the work where the engine does it: a method renamed there would leave its part at nothing
    assert (parts[["reading", "lowering", "expansion", "walk", "copy", "accept"]].sum() > 0).all()


def test_laps_are_exclusive_and_taken_off_again():
    class Machine:
        def outer(self):
            time.sleep(0.002)
            self.inner()

        def inner(self):
            time.sleep(0.004)

    before = dict(vars(Machine))
    laps = inside.Laps()
    with laps.around({(Machine, "outer"): "walk", (Machine, "inner"): "expansion"}):
        Machine().outer()
    assert dict(vars(Machine)) == before
    assert 0 < laps.ns["walk"] < laps.ns["expansion"]
    assert sum(laps.ns.values()) == laps.ns["walk"] + laps.ns["expansion"]


def test_everything_can_be_drawn(engines, within):
    shown = drawn.outcomes(engines)
    assert list(shown["cases"]) == [8] * len(ARMS)
    assert (shown[list(set(masks.OUTCOMES) & set(shown.columns))].sum(axis=1) == shown["cases"]).all()
    assert len(drawn.times(engines)) == len(ARMS)
    figures = [
        drawn.by_level(engines, "ttfm_us", "time"),
        drawn.by_vocabulary(engines, "tbm_mean_us", "time"),
        drawn.batch(within),
        drawn.parts(within),
    ]
    assert len(figures[0].axes) == len(LEVELS)
    assert len(drawn.cache(within)) == len(inside.SITUATIONS)
    assert len(drawn.recognisers(within)) == len(inside.REGULAR) * len(drawn.RECOGNIZERS)
    plt.close("all")


def test_ratios_are_of_cases_that_both_got_right(engines):
    ours = engines[(engines["arm"] == "gdlib") & (engines["outcome"] == "ok")]
    theirs = ours.assign(arm="llguidance", ttfm_us=ours["ttfm_us"] * 3)
    paired = pd.concat([ours, theirs], ignore_index=True)
    them = paired["arm"] == "llguidance"
    assert drawn.over(paired, "llguidance", "ttfm_us").value == pytest.approx(3)
    paired.loc[them & (paired["family"] == "enum"), "outcome"] = "too loose"
    right = (them & (paired["outcome"] == "ok")).sum()
    assert 0 < right < len(ours) and drawn.over(paired, "llguidance", "ttfm_us").n == right
    paired.loc[them, "outcome"] = "refuses"
    assert drawn.over(paired, "llguidance", "ttfm_us") is None


def test_coverage_shows_the_worst_verdict():
    assert drawn._worst({"ok", "too strict"}) == "too strict" and drawn._worst({"ok"}) == "ok"
    assert drawn._worst({"too loose", "too strict"}) == drawn._worst({"both"}) == "too strict and too loose"
    table = finished(probes.probe_trials(["gdlib"]))
    counts = drawn.coverage_counts(table)
    assert (counts[list(probes.VERDICTS)].sum(axis=1) == counts["probes"]).all()
    assert counts["probes"].sum() == len(probes.PROBES)
    assert len(drawn.wrong(table)) == table["verdict"].isin(["too strict", "too loose", "both"]).sum()
    assert set(drawn.refused(table)["feature"]) and isinstance(drawn.coverage(table, "gbnf"), pd.DataFrame)
