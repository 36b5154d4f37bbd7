"""The sweeps on drafts and losslessness, and what the book makes of them: tidy tables, faults caught, no gaps."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from transformers import LlamaConfig, LlamaForCausalLM

from gdlib import Grammar, Vocabulary
from gdlib.bench import draft_trials, drafting, lossless, record
from gdlib.bench.drafting import Workload
from gdlib.models.hf import CausalModel
from gdlib.report import drafts as drawn
from gdlib.report import lossless as shown
from gdlib.report import page

EOS = 256
RECORDS = Grammar.from_gbnf(r'root ::= r ("\n" r)* "\n"?' + "\n" + r'r ::= "{\"id\":" [0-9]+ "}"')
PROMPTS = ['{"id":1}\n{"id":2}\n{', '{"id":7}\n{']
ARMS = ["plain", "plain again", "grammar, linear", "colibri", "all sources", "all sources, all rows"]
MORE = ["grammar", "ngram", draft_trials.ALONE, drafting.JUMP, drafting.TRANSFORMERS, drafting.LOOKUP]


class Tokenizer:
    chat_template = None

    def __call__(self, text):
        return {"input_ids": list(text.encode())}


@pytest.fixture(scope="module")
def vocab():
    vocab = Vocabulary([bytes([b]) for b in range(256)] + [b""], [EOS])
    vocab.encode = lambda text: list(text.encode())
    return vocab


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        eos_token_id=EOS,
        pad_token_id=EOS,
    )
    return CausalModel(LlamaForCausalLM(config).eval())


@pytest.fixture(scope="module", autouse=True)
def two_workloads():
    """A model of random weights writes nothing that conforms, so its texts go by the names of those that need not."""

    def of(names):
        return [Workload(name, ["a", "b"], PROMPTS, RECORDS, 16, chat=False) for name in names]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafting, "workloads", of)
        yield


def swept(model, vocab, draft_cap=(8,), temperature=(0.0,), arms=ARMS, more=MORE, traced=True):
    table = draft_trials.trials(
        model, Tokenizer(), vocab, ["wrong", "prose"], arms, ["wrong"], more, draft_cap, temperature, 0, 1, 0, 3,
        "float32", traced,
    )  # fmt: skip
    return record.finish(record.begin("", {"draft_cap": list(draft_cap), "temperature": list(temperature)}), table)


@pytest.fixture(scope="module")
def table(model, vocab):
    return swept(model, vocab)


def test_the_table_is_tidy_paired_and_lossless(table):
    assert not table.duplicated([*drawn.CASE, "arm", "draft_cap"]).any()
    arms = table.groupby("workload")["arm"].agg(set)
    assert set(ARMS) <= arms["prose"] and {*ARMS, *MORE, "constrained"} == arms["wrong"]
    assert list(dict.fromkeys(table["workload"])) == ["prose", "wrong"]  # in their own order, not that of the call
    assert table.loc[table["lossless"], "identical"].all()
    assert not table.loc[table["arm"] == drafting.JUMP, "lossless"].any()
    named = [name for name in table if name.endswith("_proposed_count")]
    ours = ~table["arm"].isin([drafting.JUMP, drafting.TRANSFORMERS, drafting.LOOKUP])
    assert (table[named].sum(axis=1) == table["draft_rows"])[ours].all()
    assert table.loc[table["arm"] == "all sources, all rows", "draft_rows"].gt(0).any()
    assert {int(k) for k in json.loads(table["costs"].iloc[0])} >= {1, 8}


def test_a_trace_tells_every_token_of_the_text(table):
    told = table[table["trace"] != ""]
    assert set(told["arm"]) == {draft_trials.ALL, draft_trials.ALONE} and set(told["workload"]) == {"wrong"}
    for row in told.itertuples():
        read = json.loads(row.trace)
        assert len(read["tokens"]) == row.generated_tokens
        assert all(source in drawn.SOURCE_COLOURS for _, source, _ in read["tokens"])
        page = drawn.generation(row.trace, "x", "One text.").data
        assert page.count("<tr>") == 1 + len({forward for _, _, forward in read["tokens"]})
        assert len(drawn.misses(row.trace, 3)) <= 3


def test_text_in_a_trace_cannot_become_markup():
    trace = json.dumps({"tokens": [["<b>", "model", 1], ["\n", "grammar", 2]], "rejected": [["&", "ngram", 2, 1]]})
    page = drawn.generation(trace, "x", "One text.").data
    assert "<b>" not in page and "&lt;b&gt;" in page and "&amp;" in page and "⏎" in page


def test_caps_share_one_plain_text(model, vocab):
    table = swept(model, vocab, draft_cap=(1, 2, 8), arms=["plain", "all sources"], more=["all sources"], traced=False)
    assert sorted(table.loc[table["arm"] == "all sources", "draft_cap"].unique()) == [1, 2, 8]
    assert table.groupby(["workload", "prompt"])["arm"].apply(list).map(lambda arms: arms.count("plain")).eq(1).all()
    assert table["identical"].all()
    one = table[(table["arm"] == "all sources") & (table["draft_cap"] == 1)]
    assert (one["draft_rows"] <= one["forward_count"]).all()
    assert (
        drawn.speedup(table, drawn.ALL).n == 12
    )  # two workloads of two prompts, three caps, each beside its plain text
    plt.close(drawn.along(drawn.named(table), "draft_cap", "rows"))


def test_under_temperature_each_level_has_its_own_plain_text(model, vocab):
    arms = ["plain", "all sources"]
    table = swept(model, vocab, temperature=(0.0, 1.0), arms=arms, more=arms, traced=False)
    assert table["identical"].all() and table.groupby(["arm", "temperature"]).size().nunique() == 1
    plt.close(drawn.along(drawn.named(table), "temperature", "temperature"))


def test_drafts_that_are_off_are_caught(table):
    conforming = table.assign(workload="ndjson", bound_ratio=2.0)
    off = conforming.assign(draft_rows=np.where(conforming["arm"] == "grammar, linear", 0, conforming["draft_rows"]))
    with pytest.raises(AssertionError, match=r"grammar, linear: 0 drafts in .*is drafting on"):
        draft_trials.check_drafted(off[off["arm"] == "grammar, linear"])
    draft_trials.check_drafted(off.assign(bound_ratio=1.0))  # nothing was forced there
    with pytest.raises(AssertionError, match="a plain arm verified 2 drafts"):
        draft_trials.check_drafted(table[table["arm"] == "plain"].assign(draft_rows=2))


def test_what_was_not_run_is_said_and_nothing_is_not(table):
    named = drawn.main_format(table)
    plain = named[named["arm"] == drawn.PLAIN]
    assert drawn.acceptance(plain, "grammar") == "none" and drawn.acceptance(plain[:0], "grammar") == drawn.NOT_RUN
    assert drawn.value_of(drawn.per_forward(plain[:0])) == drawn.NOT_RUN
    bare = drawn.expectations(plain)
    assert (bare[["grammar drafts accepted", "drafted rows a forward"]] == drawn.NOT_RUN).all(axis=None)
    assert drawn.absent(named, "workload", [drawn.PROSE]) == ""
    assert drawn.absent(named, "workload", [drawn.PROSE, drawn.COMPACT]) == " Not run in this profile: compact NDJSON."
    assert drawn.missed(plain).empty and list(drawn.missed(plain)) == list(drawn.missed(named))
    note = page.table(drawn.missed(plain), "misses", "Spans cut alone.").data
    assert "<table" not in note and "CSV" not in note and "Spans cut alone. Not run in this profile." in note
    assert "None was." in page.table(drawn.missed(plain), "misses", "Spans cut alone.", empty="None was.").data


def test_one_text_has_no_interval_to_lose_by(table):
    named = drawn.main_format(table)
    first = named[named["prompt"] == named["prompt"].iloc[0]]
    assert "there are no intervals" in drawn.losing(first, drawn.OURS)
    both = drawn.losing(named, drawn.OURS)
    assert both.startswith(f"{len(drawn.losses(named, drawn.OURS))} of ") and "interval" not in both
    assert drawn.losing(named[named["arm"] == drawn.PLAIN], drawn.OURS) == drawn.NOT_RUN
    prose = named[(named["workload"] == drawn.PROSE) & (named["prompt"] != first["prompt"].iloc[0])]
    mixed = named.drop(prose.index)
    assert "ran on one text and have no interval" in drawn.losing(mixed, drawn.OURS)


def test_every_figure_and_table_of_the_chapter(table):
    named = drawn.main_format(table)
    assert set(named["workload"]) == {drawn.PROSE, drawn.WRONG}
    assert len(drawn.expectations(named)) == 2
    others = drawn.arms(named, drawn.OTHERS)
    assert (others.loc[others["arm"] == "plain", "plain = 1"] == "1.00 [1.00,\u00a01.00]").all()
    assert (others.loc[others["arm"] == "plain", "drafted rows a forward"] == "none").all()
    assert "none" in drawn.acceptance(named[named["arm"] == "plain"], "grammar")
    assert drawn.speedup(named, "no such arm") is None and drawn.text_of(None) == drawn.NOT_RUN
    assert list(drawn.missed(named).columns) == ["workload", "behind", "drafted", "the model wrote"]
    assert set(drawn.arms(named, drawn.MIXTURES)["workload"]) == {drawn.WRONG}
    assert drawn.text_of(drawn.Estimate(1.5, 1.5, 1.5, 1)) == "1.50 (n\u00a0=\u00a01)"
    assert len(drawn.jumps(named)) == 1 and len(drawn.boundaries(named)) == 2
    assert list(drawn.against_colibri(named)["its mode here"])[:2] == [drawn.NOT_RUN] * 2
    assert set(drawn.losses(named, drawn.OURS).columns) >= {"workload", "arm", "n"}
    assert drawn.levers(named).empty and drawn.of_bound(named[:0]) == drawn.NOT_RUN
    for figure in (drawn.by_workload(named), drawn.composition(named, drawn.WRONG), drawn.costs(named)):
        plt.close(figure)


@pytest.fixture(scope="module")
def identity(model, vocab):
    grammars = {name: RECORDS for name in lossless.GRAMMARS}
    grammars["wrong"] = Grammar.from_gbnf('root ::= "{" "nothing like it"')
    grammars["empty"] = Grammar.from_gbnf('root ::= ""')
    texts = [lossless.Text("prose", str(i), tuple(text.encode()), grammars, 16) for i, text in enumerate(PROMPTS)]
    tables = [lossless.identity_trials(model, vocab, texts, every, 12, 0, "float32") for every in (1, 9)]
    return tables[0], tables[1]


def test_identity_over_the_whole_grid(identity):
    whole, thin = identity
    assert whole["passed"].all() and (whole["gap_logit"] == 0).all()
    grid = list(lossless._grid())
    assert len(whole) == 2 * len(grid) and set(whole["case"]) == set(lossless.CASES)
    assert (whole["accepted_count"] <= whole["proposed_count"]).all()
    random = whole[whole["case"] == "random tokens"]
    assert random["random_proposed_count"].gt(0).all() and random["random_accepted_count"].gt(0).all()
    empty = whole[(whole["case"] == "empty") & (whole["arm"] == "grammar")]
    assert empty["proposed_count"].eq(0).all()
    # thinned, each text gets another part of the grid
    assert not set(zip(*thin[thin["prompt"] == "0"][["case", "arm"]].T.values, strict=True)) & set(
        zip(*thin[thin["prompt"] == "1"][["case", "arm"]].T.values, strict=True)
    )
    lossless.check_drafted(whole.assign(subject="x"), ["y"])


def test_silent_sources_and_differences_are_caught(identity):
    whole, _ = identity
    right = whole[whole["case"] == "right"].assign(proposed_count=0, bound_ratio=2.0)
    with pytest.raises(AssertionError, match="nothing was proposed; is drafting on"):
        lossless.check_drafted(right, ["prose"])
    with pytest.raises(AssertionError, match="nothing was accepted"):
        lossless.check_drafted(right.assign(proposed_count=3, accepted_count=0), ["prose"])
    with pytest.raises(AssertionError, match="no random token"):
        lossless.check_drafted(whole.assign(random_proposed_count=0), [])
    differs = whole.assign(passed=False, gap_logit=0.125, top_logit=20.0, dtype="bfloat16")
    steps = shown.divergences(differs)
    assert steps["identical"].iloc[0] == "0.0%" and steps["in steps of the format, largest"].iloc[0] == "1.0"


@pytest.fixture(scope="module")
def tests():
    return lossless.distribution_trials(2, 1500, 0)


def test_honest_verifiers_pass_and_the_sabotaged_one_fails(tests):
    assert tests.loc[tests["arm"] != "sabotaged", "passed"].all()
    assert not tests.loc[tests["arm"] == "sabotaged", "passed"].any()
    assert (tests["accepted_count"] > 0).all() and set(tests["generated_tokens"]) == {1500}
    ours = tests[tests["arm"] == "gdlib"].groupby("subject")["p_share"].nunique()
    assert ours.eq(1).all()  # the same tokens, whatever the shape of the drafts


def test_chi_square_knows_an_honest_sampler_and_a_forbidden_token():
    rng = np.random.default_rng(5)
    targets = rng.dirichlet(np.ones(lossless.STATES), lossless.STATES)
    ids = [0]
    for _ in range(4000):
        ids.append(int(rng.choice(lossless.STATES, p=targets[ids[-1]])))
    assert lossless.chi_square(ids, targets)[2] > 1e-3
    assert lossless.chi_square(ids, targets[::-1])[2] < 1e-10
    forbidden = targets.copy()
    forbidden[:, 3] = 0
    assert lossless.chi_square(ids, forbidden) == (0.0, 0, 0.0)


def test_the_target_is_what_the_samplers_say():
    logits = np.array([2.0, 1.0, 1.0, -1.0])
    assert lossless.target(logits.copy(), 1.0, 2, 1.0)[2:].tolist() == [0, 0]
    assert np.isclose(lossless.target(logits.copy(), 0.5, 0, 1.0)[0], np.exp(4) / np.exp([4, 2, 2, -2]).sum())
    assert lossless.target(logits.copy(), 1.0, 0, 0.5).tolist() == [1, 0, 0, 0]


def test_stale_keys_are_wrong_from_the_second_on():
    text = r'root ::= "{\"a\":" [0-9] ",\"b\":" [0-9] ",\"c\":" [0-9] "}"'
    assert lossless.stale(text) == r'root ::= "{\"a\":" [0-9] ",\"bOld\":" [0-9] ",\"c\":" [0-9] "}"'


def test_every_figure_and_table_of_losslessness(identity, tests):
    used = {"seed": 0}
    table = record.finish(record.begin("", used), pd.concat([identity[0], tests], ignore_index=True))
    some = table[table["case"] != "empty"]
    figure = shown.proposals(some)
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["right grammar", "wrong grammar", "stale grammar", "random tokens"]
    assert shown.absent(some) == " Not run in this profile: empty grammar." and shown.absent(table) == ""
    plt.close(figure)
    assert len(shown.identity(table)) == len(list(lossless._grid()))
    assert len(shown.distribution(table)) == len(tests) and len(shown.divergences(table)) == 1
    for figure in (shown.proposals(table), shown.p_values(table)):
        plt.close(figure)
