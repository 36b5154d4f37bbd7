"""Claims: the number of a sentence is found in the runs or said to be missing, and the rule alone decides."""

import numpy as np
import pandas as pd
import pytest

from gdlib.bench.record import Runs
from gdlib.bench.stats import Estimate
from gdlib.report import claims, page

INFO = {"provenance": {"commit": "0123456789"}, "run": "default"}


def oracle(slow):
    rows = [
        {"schema": "flat", "string_length": 8, "confidence": 0.9, "trial": trial, "arm": arm, "step_us": us}
        for trial in range(20)
        for arm, us in (("free", 10.0 + trial), ("dense", slow * (10.0 + trial)), ("ours", 0.9 * (10.0 + trial)))
    ]
    return {"oracle": Runs(pd.DataFrame(rows), [INFO])}


def by_name(name):
    return next(claim for claim in claims.CLAIMS if claim.name == name)


def test_names_are_distinct_and_each_sentence_has_one_place_for_its_number():
    names = [claim.name for claim in claims.CLAIMS]
    assert len(set(names)) == len(names)
    for claim in claims.CLAIMS:
        assert claim.sentence.count("{}") == 1 and claim.sweeps and claim.name.isidentifier()


@pytest.mark.parametrize(("slow", "said"), [(1.5, "held"), (0.8, "did not hold")])
def test_the_rule_decides(slow, said):
    claim = by_name("dense")
    found = claims.found(claim, oracle(slow))
    assert found.value == pytest.approx(slow) and claims.verdict(claim, found) == said
    assert claims.verdict(claim, Estimate(1.5, 1.5, 1.5, 5)) == "not settled: 5 of 6 cases"


def test_what_was_not_run_is_said_and_has_no_verdict():
    numbers = claims.numbers(oracle(1.5))
    assert numbers["dense"] == "1.50 [1.50,\u00a01.50]" and numbers["faster"] == page.NOT_RUN
    shown = claims.table(oracle(1.5), [], "smoke")
    row = shown[shown["claim"].str.contains("compact NDJSON")].iloc[0]
    assert row["this machine"] == page.NOT_RUN and row["number [95% interval], n"] == page.NOT_RUN
    first = shown.iloc[0]
    assert first["runs"] == "oracle (1); commit 0123456" and "results/smoke/oracle" in first["redo"]


def test_every_machine_has_a_column_of_its_own():
    class Machine:
        name, runs = "box", oracle(0.8)

    shown = claims.table(oracle(1.5), [Machine])
    assert shown.iloc[0]["this machine"] == "held" and shown.iloc[0]["box"].startswith("did not hold: 0.80")


def test_an_interval_of_one_case_is_none():
    assert claims._interval(Estimate(1.25, 1.25, 1.25, 1)) == "1.25, n = 1: no interval"
    assert claims._interval(Estimate(1.25, 1.0, 1.5, 8)).startswith("1.25 [1,") and np.isfinite(1.0)


def test_a_text_read_again_is_no_second_case():
    rows = [
        {
            "workload": "ndjson", "prompt": prompt, "trial": trial, "state": "warm", "disk_gb_per_s": 1.0, "arm": arm,
            "elapsed_s": seconds, "generated_tokens": 8, "miss_bytes": size, "loads_count": 1,
        }
        for prompt in ("a", "b")
        for trial in range(3)
        for arm, seconds, size in (("plain", 2.0, 100), ("all sources", 1.0 + trial, 90))
    ]  # fmt: skip
    found = claims.found(by_name("disk_bytes"), {"experts": Runs(pd.DataFrame(rows), [INFO])})
    assert found.n == 2 and found.value == pytest.approx(0.9)
    assert claims.verdict(by_name("disk_bytes"), found) == "not settled: 2 of 6 cases"
