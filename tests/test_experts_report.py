"""What the chapter on experts on disk makes of its tables: nothing missing or made up, of much and of little."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from gdlib.bench import experts, routing, traces
from gdlib.report import experts as drawn
from gdlib.report import page


def run_rows(workload, arms, plain_bytes=100, states=(experts.COLD, experts.WARM), **changes):
    rows = []
    for state in states:
        for prompt in ("a", "b", "c"):
            for place, (arm, (factor, seconds)) in enumerate(arms.items()):
                loads = int(plain_bytes * factor) if state != experts.IN_MEMORY else 0
                rows.append(
                    {
                        "workload": workload,
                        "prompt": prompt,
                        "trial": 0,
                        "state": state,
                        "arm": arm,
                        "disk_gb_per_s": 1.0,
                        "order_index": place,
                        "generated_tokens": 20,
                        "forward_count": 21 if arm == experts.PLAIN else 11,
                        "draft_rows": 0 if arm == experts.PLAIN else 20,
                        "selections_count": 800,
                        "distinct_count": 400,
                        "pinned_hits_count": 0,
                        "slot_hits_count": 400 - loads,
                        "loads_count": loads,
                        "miss_bytes": 1000 * loads,
                        "rejected_bytes": 0 if arm == experts.PLAIN else 100 * loads,
                        "read_s": seconds / 2,
                        "elapsed_s": seconds,
                        "drafting_s": 0.0,
                        "device_bytes": 0,
                        "experts_count": 32,
                        "top_k_count": 4,
                        "how": "O_DIRECT",
                        "identical": True,
                        "resident_identical": True,
                        "bound_ratio": 2.0,
                        **{
                            f"{s}_{w}_count": 0
                            for s in ("grammar", "ngram", "mtp", "branches")
                            for w in ("proposed", "accepted")
                        },
                        **changes,
                    }
                )
    return rows


@pytest.fixture(scope="module")
def table():
    rows = run_rows(
        "ndjson", {"plain": (1, 2.0), experts.FRAME: (0.5, 1.0), experts.ALL: (0.4, 0.8), "mtp": (1.5, 3.0)}
    )
    rows += run_rows("prose", {"plain": (1, 2.0), experts.ALL: (1, 2.1)})
    rows += run_rows("ndjson", {experts.RESIDENT: (0, 1.0), experts.ROOMY: (0, 1.02)}, states=(experts.IN_MEMORY,))
    return drawn.named(pd.DataFrame(rows))


def trace(widths, seed):
    chance = np.random.default_rng(seed)
    rows = [np.stack([chance.permutation(8)[:2] for _ in range(2 * k)]).reshape(2, k, 2) for k in widths]
    return [routing.Forward(r, ["text"] + ["grammar"] * (r.shape[1] - 1), [True] * r.shape[1]) for r in rows]


@pytest.fixture(scope="module")
def premise():
    rows = []
    for seed, name in enumerate("ab"):
        forwards = trace([1] * 30 + [3, 4], seed)
        selected = np.concatenate([f.selected for f in forwards[:30]], axis=1)
        found = routing.premise([routing.Text(name, selected, np.arange(30) % 6 < 4)], (1, 2, 4, 8), 8)
        shares = routing.used(selected, 8).mean(axis=1)
        rows += [{"where": "text", **row} for row in found]
        rows += [{"where": "forward", **row} for row in routing.drafted(name, forwards[30:], shares, 8)]
    frame = pd.DataFrame([{"workload": "ndjson", "layers_count": 2, **row} for row in rows])
    return drawn.named(frame.rename(columns={"text": "prompt"}))


@pytest.fixture(scope="module")
def capacity():
    rows = []
    for prompt in "ab":
        forwards = trace([5] + [1] * 20, ord(prompt))
        for policy, slots in [("store", 4), *((p, s) for p in routing.POLICIES for s in (0, 4, 8))]:
            asked, loads = routing.replay(forwards, slots, "lru" if policy == "store" else policy, 8)
            case = {"workload": "ndjson", "prompt": prompt, "arm": "plain", "shape": traces.RECORDED, "policy": policy}
            counts = {"asked_count": int(asked[1:].sum()), "loads_count": int(loads[1:].sum())}
            rows.append({**case, "slots_count": slots, **counts, "generated_tokens": 21, "forward_count": 20})
        for shape in (traces.LARGE_SAME, traces.LARGE_APART):
            rows.append({**rows[-1], "shape": shape, "policy": "lru", "slots_count": 64})
    return drawn.named(pd.DataFrame(rows))


@pytest.fixture(scope="module")
def surface():
    rows = []
    for slots in (4, 8):
        for gate, widths in (
            ("every row", (2, 4)),
            ("bytes gate", (4,)),
            ("cost gate", (4,)),
            ("colibri's guard", (4,)),
        ):
            for k in widths:
                for acceptance in (0.0, 0.5, 1.0):
                    rows.append(
                        {
                            "workload": "ndjson",
                            "prompt": "a",
                            "acceptance_share": acceptance,
                            "gate": gate,
                            "rows_count": k,
                            "slots_count": slots,
                            "expert_bytes": 10,
                            "accepted_count": 0,
                            "generated_tokens": 20,
                            "forward_count": 11,
                            "draft_rows": 10 * (k - 1),
                            "distinct_count": 100,
                            "loads_count": 50,
                            "miss_bytes": int(1000 * (1 + 0.25 * k - acceptance)),
                            "elapsed_s": 1.0,
                            "plain_generated_tokens": 20,
                            "plain_forward_count": 21,
                            "plain_draft_rows": 0,
                            "plain_distinct_count": 100,
                            "plain_loads_count": 60,
                            "plain_miss_bytes": 1000,
                            "plain_elapsed_s": 1.5,
                            "identical": True,
                            "model_ratio": 1.1,
                            "model_share": 0.6,
                        }
                    )
    return drawn.named(pd.DataFrame(rows))


def test_ratios_are_of_the_same_case(table):
    cold = table[(table["workload"] == drawn.COMPACT) & (table["state"] == experts.COLD)]
    assert drawn.bytes_ratio(cold, experts.FRAME).value == 0.5 and drawn.bytes_ratio(cold, experts.FRAME).n == 3
    assert drawn.speedup(cold, experts.ALL).value == pytest.approx(2.5)
    assert drawn.bytes_ratio(cold, "grammar") is None and drawn.speedup(cold, "grammar") is None
    nothing = cold.assign(miss_bytes=0)
    assert drawn.bytes_ratio(nothing, experts.FRAME) is None
    assert drawn.hits(cold[cold["arm"] == "plain"]) == "75%"
    assert drawn.hits(cold.assign(pinned_hits_count=100, slot_hits_count=100)) == "25% pinned, 25% slots"


def test_goals_say_what_was_met_and_what_was_not_run(table):
    goals = drawn.goals(table)
    met = {(row["goal"], row["where"]): row["met"] for _, row in goals.iterrows()}
    assert met["bytes a token, grammar and branches", f"{drawn.COMPACT}, cold"] == "yes"
    assert met["tokens a second, all sources", f"{drawn.COMPACT}, warm"] == "yes"
    assert met["tokens a second, all sources", f"{drawn.PROSE}, cold"] == "no"
    assert met["tokens a second, all sources", f"{drawn.WRONG}, warm"] == page.NOT_RUN
    assert met["tokens a second, every expert in a slot", "against transformers"] == "yes"
    assert met["the same text", "every run"] == "yes"
    lower = "with MTP and n-grams, against the same", f"{drawn.COMPACT}, cold"
    assert met[lower] == "yes"
    alike = table.assign(miss_bytes=table["miss_bytes"].where(table["arm"] != experts.FRAME, table["miss_bytes"] * 0.8))
    alike = drawn.goals(alike).set_index(["goal", "where"])["met"]
    assert alike[lower] == "no"  # as much is not lower
    other = table.assign(identical=table["arm"] != "mtp")
    assert drawn.goals(other)["met"].iloc[-1] == "no"


def test_losses_are_those_that_read_more_or_take_longer_and_the_worst_comes_first(table):
    lost = drawn.losses(table)
    assert list(lost["arm"].iloc[:2]) == ["mtp", "mtp"] and set(lost["workload"]) == {drawn.COMPACT, drawn.PROSE}
    assert len(lost) == 4 and drawn.cases(table) == 8
    assert drawn.losses(table[table["arm"] != "mtp"].loc[lambda t: t["workload"] == drawn.COMPACT]).empty


def test_break_even_is_read_off_between_the_points(surface):
    mine = surface[surface["workload"] == drawn.COMPACT]
    assert drawn.crossing(mine, 4, 2) == pytest.approx(0.5) and drawn.crossing(mine, 4, 4) == pytest.approx(1.0)
    assert drawn.always_right(mine, 4, 2).value == 0.5 and drawn.always_right(mine, 4, 99) is None
    never = mine.assign(miss_bytes=5000)
    assert drawn.crossing(never, 4, 2) is None
    assert drawn.crossing(mine.assign(miss_bytes=10), 4, 2) == 0.0


def test_the_replay_is_compared_text_by_text(capacity):
    assert drawn.replayed(capacity) == "2 of 2"
    spoilt = capacity.copy()
    spoilt.loc[spoilt["policy"] == "store", "loads_count"] += [0, 1]
    assert drawn.replayed(spoilt) == "1 of 2"
    assert drawn.replayed(capacity[capacity["policy"] != "store"]) == page.NOT_RUN


def test_paper_follows_from_its_assumptions(table, premise):
    shown = drawn.on_paper(table, premise).set_index("arm")
    assert (shown.loc["plain"].nunique() == 1).drop("rows share as").all()  # one row has nothing to share
    plain = shown.loc["plain"].iloc[0]
    # a row takes 8 experts in 75 layers, of which a quarter are read, 19 MB each
    assert plain["GB read a token"] == f"{8 * 75 * 0.25 * 19e6 * 20 / 19 / 1e9:.2f}"
    assert float(plain["tokens/s at 14 GB/s"]) == pytest.approx(14 * float(plain["tokens/s at 1 GB/s"]), rel=0.03)


def test_every_table_and_figure_can_be_drawn_of_much_and_of_little(table, premise, capacity, surface):
    little = table[table["arm"].isin([experts.PLAIN, experts.ALL]) & (table["prompt"] == "a")]
    for rows in (table, little):
        shown = [
            drawn.arms(rows, experts.EVERY_ARM),
            drawn.memory(rows),
            drawn.goals(rows),
            drawn.losses(rows),
            drawn.disks(rows, 0.1),
            drawn.on_paper(rows, premise),
            drawn.arms(rows, drawn.GATES),
        ]
        shown += [drawn.premise(premise), drawn.lucebox(premise), drawn.capacity(capacity), drawn.at_scale(capacity)]
        shown += [drawn.surface_table(surface)]
        for one in shown:
            assert not one.isna().any().any()
            assert "nan" not in one.to_html().lower()
        drawings = [drawn.bytes_by_arm(rows), drawn.by_workload(rows), drawn.unions(premise), drawn.policies(capacity)]
        drawings += [drawn.surface(surface)]
        for drawing in drawings:
            drawing.canvas.draw()
            plt.close(drawing)
    assert drawn.routed_share(table) == 4 / 32
    assert drawn.disk(0.0, 0.1) == "this machine's own" and drawn.disk(0.02, 0.1).startswith("0.02 GB/s")
