"""The figures that answer to the hand show what the static ones show, and cannot break out of their page."""

import json

import pandas as pd
from matplotlib import pyplot as plt

from gdlib.report import drafts, live, page


def table():
    rows = [
        {
            "workload": workload, "prompt": prompt, "trial": 0, "dtype": "float32", "temperature": 0.0, "arm": arm,
            "generated_tokens": 100, "forward_count": forwards, "elapsed_s": forwards / 10, "bound_ratio": 2.0,
        }
        for workload in (drafts.COMPACT, drafts.PROSE)
        for prompt in "ab"
        for arm, forwards in ((drafts.PLAIN, 100), (drafts.ALL, 40), (drafts.GRAMMAR, 60))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def masks():
    rows = [
        {"family": family, "arm": arm, "level_count": level, "timed": True, "outcome": outcome, "ttfm_us": us * level}
        for family in ("properties", "enum")
        for level in (10, 100)
        for arm, us, outcome in (("gdlib", 10.0, "ok"), ("llguidance", 20.0, "too loose"))
    ]
    return pd.DataFrame(rows)


def test_workloads_and_arms_are_those_of_the_static_figure():
    figure = json.loads(live.by_workload(table()))
    series = {(one["name"], one.get("xaxis", "x")): one for one in figure["data"]}
    assert set(series) == {(arm, axis) for arm in (drafts.GRAMMAR, drafts.ALL) for axis in ("x", "x2")}
    assert series[drafts.ALL, "x"]["x"] == [2.5, 2.5] and series[drafts.ALL, "x2"]["x"] == [2.5, 2.5]
    assert series[drafts.ALL, "x"]["y"] == [drafts.COMPACT, drafts.PROSE]
    assert [one["showlegend"] for one in figure["data"]].count(True) == 2


def test_every_engine_has_its_line_in_every_panel_and_wrong_answers_are_hollow():
    figure = json.loads(live.by_level(masks(), "ttfm_us", "us"))
    assert [(one["name"], one["y"]) for one in figure["data"]] == [
        ("gdlib", [100, 1000]), ("llguidance", [200, 2000]),
    ] * 2  # fmt: skip
    assert {one["name"]: set(one["marker"]["symbol"]) for one in figure["data"]} == {
        "gdlib": {"circle"},
        "llguidance": {"circle-open"},
    }
    assert [one["showlegend"] for one in figure["data"]] == [True, True, False, False]


def test_a_live_figure_keeps_its_static_one_and_escapes_what_it_says():
    drawing, axis = plt.subplots()
    axis.plot([1, 2])
    text = page.figure(drawing, "n", "Cap.", 'Alt "x".', live='{"data": [{"name": "</script>"}], "layout": {}}').data
    assert "data:image/png" in text and text.count("</script>") == 1 and 'aria-label="Alt &quot;x&quot;."' in text
    drawing, _ = plt.subplots()
    assert "plotly" not in page.figure(drawing, "n", "Cap.", "Alt.").data
