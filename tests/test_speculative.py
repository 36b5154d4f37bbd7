"""The drafted loop writes what plain decoding writes: every fault that such loops had elsewhere, as a test."""

import itertools
import random

import pytest
import torch
from drafters import Hashed, Markov, Scripted, bush, noise, right, right_until, tiny_llama, tiny_model, wrong
from test_tree import assert_fresh

import gdlib
from gdlib.bench.workloads import CHARACTERS
from gdlib.decoding import DecodingError
from gdlib.decoding.free import free
from gdlib.decoding.guided import guided
from gdlib.decoding.jump import jump
from gdlib.decoding.speculative import _count, speculative
from gdlib.drafts import DraftError
from gdlib.drafts.gate import AllRows, ColibriGuard, CostGate, Costs, ReArming
from gdlib.drafts.tree import ROOT, Tree
from gdlib.grammar import Grammar
from gdlib.models.hf import CausalModel, ModelError
from gdlib.models.oracle import Oracle
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

V = 97
CHARS = Vocabulary.from_characters(CHARACTERS)
CHARS_97 = Vocabulary([bytes([32 + i]) for i in range(95)] + [b""] * 3, [97])  # an eos that no model here can write
RECORDS = r"""
root ::= record+
record ::= "{\"id\":" number ",\"ok\":" ("true" | "false") ",\"kind\":\"" ("red" | "green" | "blue") "\"}"
number ::= [1-9] [0-9]?
"""


@pytest.fixture(scope="module")
def llama():
    return tiny_model()


@pytest.fixture(scope="module")
def model():
    return Hashed(V)


def drafters(gold, seed=0, vocab_size=V):
    return {
        "right": [right(gold)],
        "wrong": [wrong(gold, vocab_size)],
        "until": [right_until(gold, vocab_size, seed)],
        "noise": [noise(vocab_size, seed)],
        "bush": [bush(gold, vocab_size, seed)],
        "all": [
            right_until(gold, vocab_size, seed),
            bush(gold, vocab_size, seed + 1),
            noise(vocab_size, seed),
            wrong(gold, vocab_size),
        ],
        "silent": [Scripted(lambda place, room: [])],
    }


def check_report(generation, sources):
    """What must hold of every run's counts."""
    report = generation.report
    assert report["tokens"] == len(generation.ids) == report["accepted"] + report["bonus"]
    assert report["bonus"] <= report["forwards"] <= report["tokens"] or not generation.ids
    proposed = sum(s["proposed"] for s in report["sources"].values())
    assert report["rows"] == proposed if len(sources) == 1 else report["rows"] >= proposed
    assert report["accepted"] == sum(s["accepted"] for s in report["sources"].values())
    assert all(0 <= s["accepted"] <= s["proposed"] for s in report["sources"].values())
    assert set(report["sources"]) == {source.name for source in sources}
    assert report["stop"] == generation.stop
    assert report["tokens_per_forward"] == pytest.approx(len(generation.ids) / report["forwards"])
    assert report["seconds"] > 0 and report["tokens_per_s"] > 0


# Identity


@pytest.mark.parametrize("kind", ["right", "wrong", "until", "noise", "bush", "all", "silent"])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("cap", [1, 2, 7, 16, 48])
def test_greedy_output_is_that_of_plain_decoding(model, kind, linear, cap):
    for seed in range(3):
        chance = random.Random(seed)
        prompt = [chance.randrange(V) for _ in range(chance.randrange(1, 9))]
        plain = free(model, prompt, [], 120)
        sources = drafters(plain.ids, seed)[kind]
        drafted = speculative(model, prompt, sources, [], 120, gate=AllRows(), draft_cap=cap, linear=linear)
        assert drafted.ids == plain.ids and drafted.stop == plain.stop == "length"
        check_report(drafted, sources)
        report = drafted.report
        if kind in ("right", "until", "bush", "all"):
            assert report["accepted"] > 0 and report["forwards"] < 120
        if kind == "wrong":
            assert report["accepted"] == 0 < report["rows"] and report["forwards"] == 120
        if kind == "silent":
            assert report["rows"] == 0 and report["sources"] == {"scripted": {"proposed": 0, "accepted": 0}}


@pytest.fixture(scope="module")
def written(llama):
    return free(llama, [9, 8, 7], [], 200).ids


@pytest.mark.parametrize("kind", ["right", "until", "bush", "all"])
@pytest.mark.parametrize("linear", [False, True])
def test_greedy_output_of_a_real_model_is_that_of_plain_decoding(llama, written, kind, linear):
    drafted = speculative(llama, [9, 8, 7], drafters(written)[kind], [], 200, gate=AllRows(), linear=linear)
    assert drafted.ids == written and drafted.report["accepted"] > 20


@pytest.mark.parametrize("kind", ["right", "wrong", "until", "noise", "bush", "all"])
@pytest.mark.parametrize("temperature,top_k,top_p", [(1.0, 0, 1.0), (0.7, 5, 1.0), (1.3, 0, 0.8), (0.4, 20, 0.9)])
def test_sampled_output_is_that_of_plain_decoding_seed_for_seed(model, kind, temperature, top_k, top_p):
    how = dict(temperature=temperature, top_k=top_k, top_p=top_p)
    for seed in range(2):
        prompt = [seed, 5]
        plain = speculative(model, prompt, [], [], 80, generator=torch.Generator().manual_seed(seed), **how)
        if (top_k, top_p) == (0, 1.0):
            generator = torch.Generator().manual_seed(seed)
            assert free(model, prompt, [], 80, temperature=temperature, generator=generator).ids == plain.ids
        sources = drafters(plain.ids, seed)[kind]
        drafted = speculative(
            model, prompt, sources, [], 80, generator=torch.Generator().manual_seed(seed), gate=AllRows(), **how
        )
        assert drafted.ids == plain.ids
        check_report(drafted, sources)


@pytest.mark.parametrize(
    "gate", [AllRows, ColibriGuard, ReArming, CostGate, lambda: CostGate(Costs((1, 2), (1, 1.01)))]
)
def test_no_gate_changes_the_output(model, gate):
    plain = free(model, [1, 2, 3], [], 150)
    gate = gate()
    for kind, sources in drafters(plain.ids).items():
        for linear in (False, True):
            drafted = speculative(model, [1, 2, 3], sources, [], 150, gate=gate, linear=linear)
            assert drafted.ids == plain.ids, kind
            check_report(drafted, sources)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [5, 97, 1000, 49_153])
def test_ties_go_to_the_lowest_id_however_many_rows_there_are(dtype, size):
    chance = random.Random(size)
    for rows in (1, 2, 7, 48):
        logits = torch.zeros(rows, size, dtype=dtype)
        best = []
        for row in range(rows):
            tied = sorted(chance.randrange(size) for _ in range(4))
            logits[row, tied] = 3.0
            best.append(tied[0])
        assert logits.argmax(-1).tolist() == [row.argmax().item() for row in logits] == best


def test_plain_drafted_and_tree_choose_alike_among_ties():
    table = torch.zeros(V, V)
    for t in range(V):
        table[t, [(3 * t + 5) % V, (5 * t + 1) % V, 96]] = 2.0
    model = Markov(table)
    plain = free(model, [1], [], 60)
    for sources in drafters(plain.ids).values():
        assert speculative(model, [1], sources, [], 60, gate=AllRows()).ids == plain.ids
    matcher = Matcher(Grammar.from_regex("[ -~]*"), Vocabulary([bytes([32 + i % 90]) for i in range(V)], []))
    legal = guided(model, [1], matcher, 60)
    for sources in drafters(legal.ids).values():
        assert speculative(model, [1], sources, [], 60, gate=AllRows(), matcher=matcher).ids == legal.ids


# The end of a text


@pytest.mark.parametrize("cap", [1, 3, 4, 9])
@pytest.mark.parametrize("kind", ["right", "until", "bush"])
def test_an_eos_anywhere_in_a_block_ends_the_text_there(model, cap, kind):
    prompt = [4, 2]
    plain = free(model, prompt, [], 40)
    for place in range(len(plain.ids)):
        eos = plain.ids[place]
        first = plain.ids.index(eos)
        sources = drafters(plain.ids)[kind]  # goes on behind the eos as if nothing had happened
        drafted = speculative(model, prompt, sources, [eos], 40, gate=AllRows(), draft_cap=cap)
        assert drafted.ids == plain.ids[: first + 1] == free(model, prompt, [eos], 40).ids
        assert drafted.stop == drafted.report["stop"] == "eos" and drafted.ids.count(eos) == 1
        check_report(drafted, sources)


def test_an_eos_with_junk_behind_it(model):
    plain = free(model, [4, 2], [], 40)
    for place in range(1, 40):
        eos = plain.ids[place]
        cut = plain.ids[: plain.ids.index(eos) + 1]
        junk = Scripted(lambda at, room, cut=cut: [(cut[at:] + [cut[-1], 1, 2, cut[-1], 3])[:room]])
        drafted = speculative(model, [4, 2], [junk], [eos], 40, gate=AllRows())
        assert drafted.ids == cut and drafted.stop == "eos"
        check_report(drafted, [junk])


def test_the_accepted_prefix_ends_at_the_first_mismatch():
    table = torch.full((10, 10), -5.0)
    for t in range(10):
        table[t, (t + 1) % 10] = 5.0  # counts upwards
    model = Markov(table)
    draft = Scripted(lambda place, room: [[2, 9, 4, 5]] if place == 1 else [])  # matches 1, 0, 1, 1
    drafted = speculative(model, [0], [draft], [], 8, gate=AllRows(), trace=True)
    assert drafted.ids == [1, 2, 3, 4, 5, 6, 7, 8]
    assert drafted.report["sources"] == {"scripted": {"proposed": 4, "accepted": 1}}
    assert drafted.trace[:4] == [(1, "model", 1), (2, "scripted", 2), (3, "model", 2), (4, "model", 3)]
    assert drafted.rejected == [(9, "scripted", 2, 2), (4, "scripted", 2, 3), (5, "scripted", 2, 4)]
    eos_inside = Scripted(lambda place, room: [[2, 3, 4, 5, 6]] if place == 1 else [])
    drafted = speculative(model, [0], [eos_inside], [3], 8, gate=AllRows())
    assert drafted.ids == [1, 2, 3] and drafted.report["accepted"] == 2 and drafted.report["bonus"] == 1
    assert drafted.report["rows"] == 5 and drafted.report["forwards"] == 2


def test_no_row_is_drafted_that_could_save_nothing(model):
    plain = free(model, [4, 2], [], 10)
    for limit in range(11):
        source = right(plain.ids)
        drafted = speculative(model, [4, 2], [source], [], limit, gate=AllRows())
        assert drafted.ids == plain.ids[:limit] and drafted.stop == "length"
        assert drafted.report["forwards"] == min(limit, 2) and drafted.report["rows"] == max(limit - 2, 0)


@pytest.mark.parametrize("kind", ["right", "wrong", "bush"])
@pytest.mark.parametrize("cap", [1, 4, 24])
@pytest.mark.parametrize("make", [lambda: tiny_model(context=64), lambda: Hashed(V, context=64)])
def test_the_context_may_fill_up_in_mid_draft(make, kind, cap):
    model = make()
    for left in range(1, cap + 3, 1 if isinstance(model, Hashed) else 4):
        prompt = [(7 * i) % V for i in range(64 - left)]
        plain = free(model, prompt, [], 100)
        assert len(plain.ids) == left
        sources = drafters([*plain.ids, *[1] * 50])[kind]
        drafted = speculative(model, prompt, sources, [], 100, gate=AllRows(), draft_cap=cap)
        assert drafted.ids == plain.ids and drafted.stop == "length"
        check_report(drafted, sources)
    for length in (64, 65):
        with pytest.raises(ValueError, match=f"a prompt of {length} tokens leaves no room in a context of 64"):
            speculative(model, [1] * length, [right([1])], [], 10)
        with pytest.raises(ValueError, match=f"a prompt of {length} tokens leaves no room in a context of 64"):
            free(model, [1] * length, [], 10)


# State after rejection


@pytest.mark.parametrize("kind", ["right", "wrong", "until", "bush", "all"])
@pytest.mark.parametrize("linear", [False, True])
def test_after_every_forward_the_cache_is_that_of_a_fresh_prefill(llama, written, kind, linear):
    model, prompt, text = llama, [9, 8, 7], [9, 8, 7]

    def check(new):
        text.extend(new)
        assert model.length == len(text) - 1 and model._rows == 0
        assert_fresh(model, text[:-1])

    sources = drafters(written)[kind]
    drafted = speculative(model, prompt, sources, [], 24, gate=AllRows(), linear=linear, on_tokens=check)
    assert text == prompt + drafted.ids == prompt + written[:24]
    while len(text) < len(prompt) + 74:  # and it is good to go on with
        text.append(model(text[-1:]).argmax().item())
    assert text == prompt + written[:74]


def letters(seed=0):
    return Hashed(len(CHARS), seed)


@pytest.mark.parametrize("temperature,top_k,top_p", [(0.0, 0, 1.0), (1.0, 0, 1.0), (1.0, 7, 0.9)])
@pytest.mark.parametrize("kind", ["right", "wrong", "until", "noise", "bush", "all"])
def test_constrained_output_is_that_of_guided_decoding_and_the_state_that_of_the_text(kind, temperature, top_k, top_p):
    grammar, size = Grammar.from_gbnf(RECORDS), len(CHARS)
    matcher, how = Matcher(grammar, CHARS), dict(temperature=temperature, top_k=top_k, top_p=top_p)
    for seed in range(3):
        model = letters(seed)
        plain = guided(model, [0], Matcher(grammar, CHARS), 150, generator=torch.Generator().manual_seed(seed), **how)
        text = []

        def check(new, text=text):
            text.extend(new)
            fresh = Matcher(grammar, CHARS)
            assert all(fresh.accept(t) for t in text) and matcher.accepted() == len(text)
            assert (matcher.mask() == fresh.mask()).all() and matcher.ended() == fresh.ended()

        sources = drafters(plain.ids, seed, size)[kind]
        drafted = speculative(
            model,
            [0],
            sources,
            CHARS.eos_ids,
            150,
            matcher=matcher,
            generator=torch.Generator().manual_seed(seed),
            gate=AllRows(),
            on_tokens=check,
            **how,
        )
        assert drafted.ids == plain.ids == text and drafted.stop == plain.stop
        assert {k: drafted.report[k] for k in ("masked", "forced")} == {
            k: plain.report[k] for k in ("masked", "forced")
        }
        check_report(drafted, sources)


def test_drafts_that_break_the_grammar_at_any_place_leave_the_state_alone():
    grammar, model = Grammar.from_gbnf(RECORDS), letters()
    matcher = Matcher(grammar, CHARS)
    plain = guided(model, [0], matcher, 100)
    bad = CHARACTERS.index("q")
    for offset in range(8):
        source = Scripted(lambda at, room, offset=offset: [[*plain.ids[at : at + offset], bad, bad][:room]])
        drafted = speculative(model, [0], [source], CHARS.eos_ids, 100, matcher=matcher, gate=AllRows())
        assert drafted.ids == plain.ids and drafted.report["rows"] > 0
        assert (drafted.report["accepted"] > 0) == (offset > 0)
    assert matcher.accepted() == len(plain.ids)
    matcher.rollback(0)
    assert matcher.accepted() == len(plain.ids)


def test_a_dead_end_is_said_greedily_and_under_temperature():
    grammar = Grammar.from_gbnf('root ::= "a" "b"')
    vocab = Vocabulary([b"a", b"c", b""], [2])  # no way to write b
    for temperature in (0.0, 1.0):
        with pytest.raises(DecodingError, match="step 1: no token of the vocabulary is legal here"):
            speculative(
                Markov(torch.zeros(3, 3)),
                [0],
                [],
                [2],
                9,
                matcher=Matcher(grammar, vocab),
                temperature=temperature,
                generator=torch.Generator().manual_seed(0),
            )


# What cannot be had


def test_bad_arguments_are_named(model):
    for cap in (0, -1, 49):
        with pytest.raises(ValueError, match=f"draft_cap={cap}: want 1 to 48"):
            speculative(model, [1], [], [], 9, draft_cap=cap)
    for how, said in [
        (dict(temperature=-1), "temperature=-1"),
        (dict(temperature=float("nan")), "temperature=nan"),
        (dict(top_k=-2), "top_k=-2"),
        (dict(top_p=0.0), "top_p=0.0"),
        (dict(top_p=1.5), "top_p=1.5"),
    ]:
        with pytest.raises(ValueError, match=said):
            speculative(model, [1], [], [], 9, **how)


def test_a_model_that_cannot_verify_decodes_plainly_only():
    oracle = Oracle([1, 2, 3], 4, 5, 0.9, 0.0, 0)
    assert speculative(oracle, [0], [], [4], 9).ids == free(oracle, [0], [4], 9).ids == [1, 2, 3, 4]
    with pytest.raises(DraftError, match="Oracle cannot verify drafts"):
        speculative(oracle, [0], [right([1])], [4], 9)


# Everything in one call


def test_generate_takes_names_objects_and_models_of_both_kinds():
    vocab = CHARS_97
    bare = tiny_llama()
    plain = gdlib.generate(bare, [1, 2], vocab, drafts=(), max_tokens=60)
    assert plain.text == vocab.decode(plain.ids).decode() and plain.report["sources"] == {}
    drafted = gdlib.generate(bare, [1, 2], vocab, drafts=[right(plain.ids)], max_tokens=60, gate="all", trace=True)
    assert drafted.ids == plain.ids and drafted.report["forwards"] < 60 and len(drafted.trace) == 60
    hot = [
        gdlib.generate(bare, [1, 2], vocab, drafts=(), max_tokens=60, temperature=1.0, seed=s).ids for s in (3, 3, 4)
    ]
    assert hot[0] == hot[1] != hot[2]
    seen = []
    gdlib.generate(bare, [1, 2], vocab, drafts=[right(plain.ids)], max_tokens=60, on_tokens=seen.append)
    assert list(itertools.chain(*seen)) == plain.ids
    eos = plain.ids[20]
    ended = gdlib.generate(bare, [1, 2], Vocabulary(vocab.tokens, [eos]), drafts=(), max_tokens=60)
    assert ended.stop == "eos" and ended.ids[-1] == eos and ended.text == vocab.decode(ended.ids[:-1]).decode()


def test_generate_constrains_only_when_told_to():
    grammar, model = Grammar.from_gbnf(RECORDS), letters()
    legal = guided(model, [0], Matcher(grammar, CHARS), 80)
    drafted = gdlib.generate(
        model, [0], CHARS, grammar=grammar, drafts=[right(legal.ids)], constrain=True, max_tokens=80, gate="all"
    )
    assert drafted.ids == legal.ids and drafted.report["accepted"] > 0
    loose = gdlib.generate(model, [0], CHARS, grammar=grammar, drafts=[right(legal.ids)], max_tokens=80, gate="all")
    assert loose.ids == free(model, [0], CHARS.eos_ids, 80).ids != legal.ids


def test_generate_says_what_it_cannot_do(model):
    ask = dict(max_tokens=5)
    with pytest.raises(DraftError, match="'grammar' reads a grammar, and none was given"):
        gdlib.generate(model, [1], CHARS, drafts=["grammar"], **ask)
    with pytest.raises(DraftError, match="'magic': there is grammar, ngram, mtp, branches"):
        gdlib.generate(model, [1], CHARS, drafts=["magic"], **ask)
    with pytest.raises(DraftError, match=r"give a list of names, such as \['ngram'\]"):
        gdlib.generate(model, [1], CHARS, drafts="ngram", **ask)
    with pytest.raises(DraftError, match="'right' is given twice"):
        gdlib.generate(model, [1], CHARS, drafts=[right([1]), right([1])], **ask)
    with pytest.raises(ValueError, match="needs a grammar to constrain to"):
        gdlib.generate(model, [1], CHARS, drafts=(), constrain=True, **ask)
    with pytest.raises(ValueError, match=r"needs a vocab .* or a tokenizer"):
        gdlib.generate(model, [1], drafts=(), **ask)
    with pytest.raises(ValueError, match="gate 'x'"):
        gdlib.generate(model, [1], CHARS, drafts=(), gate="x", **ask)
    with pytest.raises(DraftError, match="gate 'bytes' counts experts read from disk"):
        gdlib.generate(model, [1], CHARS, drafts=["ngram"], gate="bytes", **ask)
    with pytest.raises(ValueError, match="prompt_ids is a text"):
        gdlib.generate(model, "text", CHARS, drafts=(), **ask)
    with pytest.raises(ValueError, match="vocab is a list"):
        gdlib.generate(model, [1], [b"a"], drafts=(), **ask)
    with pytest.raises(ValueError, match="grammar is a str"):
        gdlib.generate(model, [1], CHARS, grammar='root ::= "a"', **ask)


def test_a_prompt_may_be_any_iterable(model):
    whole = gdlib.generate(model, [1, 2, 3], CHARS, drafts=(), max_tokens=5).ids
    assert gdlib.generate(model, iter([1, 2, 3]), CHARS, drafts=(), max_tokens=5).ids == whole


# Jump-forward


def test_jumping_commits_what_is_forced_without_asking(monkeypatch):
    grammar, model = Grammar.from_gbnf(RECORDS), letters()
    matcher = Matcher(grammar, CHARS)

    def forced_tokens(self, context_ids, limit=24):
        return [CHARACTERS.index(c) for c in self.forced_bytes(limit).decode()]

    monkeypatch.setattr(Matcher, "forced_tokens", forced_tokens, raising=False)
    for limit in (0, 1, 5, 80):
        legal, jumped = guided(model, [0], matcher, limit), jump(model, [0], matcher, limit)
        assert jumped.ids == legal.ids  # one token a character: nothing can be cut otherwise
        assert jumped.report["tokens"] == limit and jumped.stop == "length"
    assert jumped.report["jumped"] > 40 and jumped.report["forwards"] < 40
    with pytest.raises(ValueError, match="draft_cap=0"):
        jump(model, [0], matcher, 9, draft_cap=0)


def test_jumping_stops_at_an_eos(monkeypatch):
    monkeypatch.setattr(Matcher, "forced_tokens", lambda self, context, limit=24: [], raising=False)
    grammar = Grammar.from_gbnf('root ::= "ab"')
    out = jump(letters(), [0], Matcher(grammar, CHARS), 9)
    assert CHARS.decode(out.ids) == b"ab" and out.stop == "eos" and out.ids[-1] == CHARS.eos_ids[0]
    assert out.report["jumped"] == 0


def test_rows_behind_another_sources_wrong_guess_are_not_held_against_a_source():
    tree = Tree()
    branch = tree.add(ROOT, [1], "branches", 9)
    tree.add(branch, [2, 3], "grammar", 9)  # behind the branch that loses
    right = tree.add(ROOT, [4], "branches", 9)
    tree.add(right, [5, 6, 7], "grammar", 9)  # its second token is refused, so the third counts against it as well
    counts = {name: {"proposed": 0, "accepted": 0} for name in ("grammar", "branches")}
    _count(counts, tree, [right, right + 1])
    assert counts["branches"] == {"proposed": 2, "accepted": 1}
    assert counts["grammar"] == {"proposed": 3, "accepted": 1}


def test_a_forward_that_fails_half_way_leaves_nothing_behind():
    bare = tiny_llama(seed=3)
    model, prompt, calls = CausalModel(bare), [5, 6, 7, 8], 0
    gold = free(model, prompt, [], 40).ids
    model = CausalModel(bare)

    def fail(module, arguments):
        nonlocal calls
        calls += 1
        assert calls != 3, "out of memory"

    hook = bare.model.layers[0].mlp.register_forward_pre_hook(fail)
    with pytest.raises(AssertionError, match="out of memory"):
        speculative(model, prompt, [right(gold)], [], 40, gate=AllRows())
    hook.remove()
    assert free(model, prompt, [], 40).ids == gold
    assert speculative(model, prompt, [right(gold)], [], 40, gate=AllRows()).ids == gold


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_draft_that_the_model_breaks_on_does_not_break_the_text(linear, sampled):
    """A token whose embedding is NaN poisons every row of its forward; plain decoding never reads it."""
    bare, hot = tiny_llama(), dict(temperature=1.0) if sampled else {}
    bare.lm_head.weight = torch.nn.Parameter(bare.lm_head.weight.clone())
    gold = gdlib.generate(bare, [1, 2], CHARS_97, drafts=(), max_tokens=40, **hot).ids
    never = next(token for token in range(3, 97) if token not in gold)
    with torch.no_grad():
        bare.model.embed_tokens.weight[never] = float("nan")
    model = CausalModel(bare)
    broken = Scripted(lambda place, room: [[never], [*gold[place : place + 2], never], gold[place : place + room]])
    drafted = gdlib.generate(model, [1, 2], CHARS_97, drafts=[broken], max_tokens=40, gate="all", linear=linear, **hot)
    assert drafted.ids == gold
    with pytest.raises(ModelError, match="not finite"):  # reached, it is said
        gdlib.generate(model, [1, never], CHARS_97, drafts=[broken], max_tokens=40, gate="all", linear=linear, **hot)


@pytest.mark.parametrize("linear", [False, True])
def test_ids_that_the_model_cannot_read_are_no_drafts(linear):
    model = tiny_model()
    gold = free(model, [1, 2], [], 12).ids
    for junk in ([500], [-1], [gold[0], 97, 3]):
        drafted = speculative(
            model, [1, 2], [Scripted(lambda place, room, junk=junk: [junk])], [], 12, gate=AllRows(), linear=linear
        )
        assert drafted.ids == gold


def test_small_vocabularies_and_other_models_have_costs_of_their_own():
    gate, small, large = CostGate(), CausalModel(tiny_llama(vocab_size=40)), tiny_model()
    for model in (small, large):
        assert speculative(model, [1, 2], [right([1])], [], 6, gate=gate).report["tokens"] == 6
        assert gate.costs is model.costs
    with pytest.raises(DraftError, match="each name once"):
        speculative(large, [1, 2], [right([1]), right([2])], [], 6)


def test_models_whose_rows_hang_together_are_not_drafted_for():
    rope = {"rope_theta": 1e4, "rope_type": "longrope", "factor": 4.0, "short_factor": [1.0] * 4}
    rope |= {"long_factor": [4.0] * 4, "original_max_position_embeddings": 32}
    model = CausalModel(tiny_llama(context=256, rope_parameters=rope))
    with pytest.raises(ModelError, match="longrope"):
        speculative(model, [1, 2, 3], [right(free(model, [1, 2, 3], [], 9).ids)], [], 9, gate=AllRows())
