"""The calculator's fits: they find what made the numbers, say what they miss by, and claim nothing from too little."""

import json

import numpy as np
import pandas as pd
import pytest

from gdlib.report import calculator


def masks(vocabularies=(100, 50_000, 128_000), slope=0.2, noise=0.0, trials=4):
    rng = np.random.default_rng(1)
    rows = []
    for tokens in vocabularies:
        for family, base in (("properties", 4.0), ("enum", 8.0)):
            for trial in range(trials):
                us = base * tokens**slope * np.exp(noise * rng.standard_normal())
                rows.append(("gdlib", "ok", True, family, tokens, trial, us))
    rows.append(("gdlib", "refuses", False, "tree", 100, 0, 0.0))
    names = ["arm", "outcome", "timed", "family", "vocabulary_tokens", "trial", "tbm_mean_us"]
    return pd.DataFrame(rows, columns=names)


def inside(slope=0.9):
    rows = [
        ("batch", arm, quantity, 1000, level, base * level**slope)
        for arm, base in (("one grammar", 3.0), ("a grammar a row", 5.0))
        for quantity in ("masks, kept", "masks, first use")
        for level in (1, 4, 16)
    ]
    return pd.DataFrame(rows, columns=["question", "arm", "quantity", "vocabulary_tokens", "level_count", "value_us"])


def drafts(texts=6, kappa=0.8):
    rows, costs = [], json.dumps({1: 10.0, 2: 11.0, 4: 13.0, 8: 20.0, 16: 19.0})
    for index in range(texts):
        share = 0.3 + 0.1 * index
        tokens, forwards = 1000, round(1000 * (1 - kappa * share * 0.9))
        for arm, count in (("plain", 1000), ("grammar, linear", forwards)):
            rows.append(
                {
                    "workload": "ndjson", "prompt": f"p{index}", "trial": 0, "dtype": "float32", "temperature": 0.0,
                    "arm": arm, "generated_tokens": tokens, "forward_count": count, "elapsed_s": count / 100,
                    "grammar_proposed_count": 100, "grammar_accepted_count": 90, "structural_share": share,
                    "costs": "" if rows else costs,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def test_the_fits_find_what_made_the_numbers():
    fit = calculator.fitted(masks(), inside(), drafts())
    assert fit["mask"]["slope"] == pytest.approx(0.2) and fit["batch"]["slope"] == pytest.approx(0.9)
    assert np.exp(fit["mask"]["kinds"]["enum"]) == pytest.approx(8.0) and set(fit["mask"]["kinds"]) == {
        "properties",
        "enum",
    }
    assert fit["draft"]["kappa"] == pytest.approx(0.8, rel=1e-2) and fit["draft"]["spread"] < 0.01
    assert fit["rows"]["cost"] == [1.0, 1.1, 1.3, 2.0, 2.0]  # more rows never cost less
    json.dumps(fit, allow_nan=False)
    found = calculator.estimate(
        fit, {"kind": "enum", "vocabulary": 50_000, "batch": 4, "forward_ms": 1, "structural": 0.5, "acceptance": 0.9}
    )
    assert found["mask_us"][0] == pytest.approx(8 * 50_000**0.2 * 4**0.9)
    assert found["mask_share"][0] == pytest.approx(found["mask_us"][0] / (found["mask_us"][0] + 1000))
    assert found["tokens"][0] == pytest.approx(1 / (1 - 0.8 * 0.45), rel=1e-2)
    assert found["tokens"][1] <= found["tokens"][0] <= found["tokens"][2] and found["beyond"] == []


def test_errors_are_those_of_unseen_cases():
    spread = calculator.fitted(masks(noise=0.3, trials=40), inside(), drafts())["mask"]["spread"]
    assert 0.45 < spread < 0.8  # 1.96 standard deviations are 0.59


def test_too_few_cases_have_no_error_and_one_vocabulary_no_slope():
    fit = calculator.fitted(masks((96,), trials=1), inside(), drafts(1))
    assert fit["mask"]["spread"] is None and fit["draft"]["spread"] is None and fit["draft"]["gain_spread"] is None
    assert fit["mask"]["slope"] == 0
    found = calculator.estimate(fit, {**calculator.beginning(fit), "vocabulary": 128_000, "batch": 100})
    assert found["beyond"] == ["vocabulary", "batch", "rows"] and found["mask_us"][1:] == [None, None]
    said = calculator.said(fit)
    assert "one vocabulary of 96 tokens" in said["vocabularies"] and said["mask_error"] == "no error can be given"
    shown = calculator.form(fit, "c").data
    assert "no error can be given" in shown and "<script type" in shown
    assert len(calculator.table(fit)) == len(calculator.EXAMPLES) * 2


def test_nothing_drafted_gives_nothing():
    table = drafts(3).assign(grammar_proposed_count=0, grammar_accepted_count=0)
    fit = calculator.fitted(masks(), inside(), table)
    found = calculator.estimate(fit, calculator.beginning(fit))
    assert found["tokens"][0] == found["gain"][0] == 1.0 and calculator.said(fit)["kappa"] == "not fitted"


def test_rows_past_the_widest_go_on_in_a_line():
    rows = {"widths": [1, 2, 4], "cost": [1.0, 1.2, 1.6]}
    assert calculator._cost(rows, 3) == pytest.approx(1.4) and calculator._cost(rows, 6) == pytest.approx(2.0)
