"""Drafts in transformers' own generate: its output token for token and seed for seed, and what cannot be had said."""

import threading

import pytest
import torch
from drafters import bush, noise, right, right_until, tiny_llama, wrong
from transformers import DynamicCache, T5Config, T5ForConditionalGeneration, TextIteratorStreamer
from transformers.generation import (
    EosTokenCriteria,
    LogitsProcessor,
    MaxLengthCriteria,
    StoppingCriteria,
    StopStringCriteria,
)

from gdlib import Grammar, GrammarLogitsProcessor, Vocabulary
from gdlib.decoding.drafted import Drafted
from gdlib.drafts import DraftError
from gdlib.models import hf

V = 97
PROMPT = torch.tensor([[5, 6, 7]])
GREEDY = dict(do_sample=False, max_new_tokens=80)
VOCAB = Vocabulary([bytes([32 + i]) for i in range(95)] + [b"", b""], [96])
RECORDS = r"""
root ::= record+
record ::= "{\"id\":" [1-9] [0-9]? ",\"ok\":" ("true" | "false") ",\"kind\":\"" ("red" | "green" | "blue") "\"}"
"""


@pytest.fixture(scope="module")
def model():
    return tiny_llama(V, eos_token_id=None, pad_token_id=0)


def tail(out, prompt=PROMPT):
    assert out.dtype == torch.long and out.shape[0] == 1 and out[:, : prompt.shape[1]].equal(prompt)
    return out[0, prompt.shape[1] :].tolist()


def sources(gold, kind):
    return {
        "right": lambda: [right(gold)],
        "wrong": lambda: [wrong(gold, V)],
        "until": lambda: [right_until(gold, V, 1)],
        "bush": lambda: [bush(gold, V, 2)],
        "all": lambda: [right_until(gold, V, 3), bush(gold, V, 4), noise(V, 5), wrong(gold, V)],
        "none": lambda: [],
    }[kind]()


class Wishes(LogitsProcessor):
    """Notes the ids that it is called with, and likes what they and its memory add up to."""

    def __init__(self):
        self.seen = []

    def __call__(self, input_ids, scores):
        self.seen.append(input_ids[0].tolist())
        scores[0, (input_ids.sum().item() + len(self.seen)) % V] += 2.0
        return scores


class Enough(StoppingCriteria):
    """Notes the ids that it is called with, and ends the text with the nth."""

    def __init__(self, calls):
        self.seen, self.calls = [], calls

    def __call__(self, input_ids, scores, **kwargs):
        self.seen.append(input_ids[0].tolist())
        return torch.tensor([len(self.seen) == self.calls])


HOW = {
    "greedy": dict(do_sample=False),
    "penalty": dict(do_sample=False, repetition_penalty=1.3, no_repeat_ngram_size=3),
    "sampled": dict(do_sample=True, top_k=0),
    "warped": dict(do_sample=True, temperature=1.7, top_k=20, top_p=0.9, min_p=0.01),
    "penalty, sampled": dict(do_sample=True, temperature=0.7, repetition_penalty=1.2, bad_words_ids=[[3], [4, 5]]),
}


@pytest.mark.parametrize("kind", ["right", "wrong", "until", "bush", "all", "none"])
@pytest.mark.parametrize("how", HOW)
def test_output_is_that_of_generate(model, kind, how):
    for seed, prompt in enumerate([PROMPT, torch.tensor([[9, 8, 9, 8, 9, 8]])]):
        torch.manual_seed(seed)
        plain = model.generate(prompt, max_new_tokens=50, **HOW[how])
        after = torch.rand(1)
        drafted = Drafted(drafts=sources(tail(plain, prompt), kind), gate="all", linear=seed > 0)
        torch.manual_seed(seed)
        assert model.generate(prompt, max_new_tokens=50, custom_generate=drafted, **HOW[how]).equal(plain)
        assert torch.rand(1).equal(after)  # as many random numbers were used
        report = drafted.report
        assert report["tokens"] == 50 == report["accepted"] + report["bonus"] and report["stop"] == "length"
        assert (report["rows"] > 0) == (kind != "none")
        assert (report["accepted"] > 0) == (report["forwards"] < 50) == (kind not in ("wrong", "none"))


@pytest.mark.parametrize("how", HOW)
def test_processors_and_criteria_see_what_they_see_without_drafts(model, how):
    runs = []
    gold = []
    for drafts in ([], [right(gold)], [bush(gold, V, 1), noise(V, 2)]):
        processor, criterion = Wishes(), Enough(50)
        torch.manual_seed(1)
        drafted = Drafted(drafts=drafts, gate="all")
        asked = dict(custom_generate=drafted) if drafts else {}
        out = model.generate(
            PROMPT, logits_processor=[processor], stopping_criteria=[criterion], max_new_tokens=80, **asked, **HOW[how]
        )
        gold[:] = tail(out) + [1] * 50
        runs.append((out.tolist(), processor.seen, criterion.seen))
        if drafts:
            assert drafted.report["accepted"] > 0 and drafted.report["stop"] == "criterion"
            assert drafted.report["tokens"] == 50
    assert runs[0] == runs[1] == runs[2] and len(runs[0][1]) == len(runs[0][2]) == 50


@pytest.mark.parametrize("offset", range(9))
def test_an_eos_or_a_criterion_ends_the_text_at_any_place_in_a_block(model, offset):
    gold = tail(model.generate(PROMPT, **GREEDY))
    last = gold[20 + offset]
    unused = min(set(range(V)) - set(gold))
    junk = gold[: 21 + offset] + [last, 1, last, 2] * 20
    for asked in (
        lambda: dict(eos_token_id=[last, 95]),
        lambda: dict(stopping_criteria=[EosTokenCriteria([95, last])]),
        lambda: dict(stopping_criteria=[Enough(21 + offset)]),
        lambda: dict(stopping_criteria=[MaxLengthCriteria(PROMPT.shape[1] + 20 + offset)]),
        lambda: dict(max_new_tokens=20 + offset),
        lambda: dict(eos_token_id=last, suppress_tokens=[unused]),
    ):
        plain = model.generate(PROMPT, **GREEDY | asked())
        drafted = Drafted(drafts=[right(junk)], gate="all", draft_cap=16)
        assert model.generate(PROMPT, custom_generate=drafted, **GREEDY | asked()).equal(plain)
        assert drafted.report["forwards"] < 5 and drafted.report["tokens"] == plain.shape[1] - 3


def test_the_time_may_run_out(model):
    drafted = Drafted(drafts=[noise(V, 1)], gate="all")
    out = model.generate(PROMPT, do_sample=False, max_new_tokens=200, max_time=1e-9, custom_generate=drafted)
    assert out.shape[1] == 4 and drafted.report["stop"] == "criterion"


@pytest.mark.parametrize("padding", [1, 4])
def test_padding_on_the_left_is_left_out(model, padding):
    ids = torch.cat([torch.zeros(1, padding, dtype=torch.long), PROMPT], dim=1)
    mask = torch.cat([torch.zeros(1, padding, dtype=torch.long), torch.ones_like(PROMPT)], dim=1)
    for asked in (GREEDY, GREEDY | dict(repetition_penalty=1.2)):
        plain = model.generate(ids, attention_mask=mask, **asked)
        drafted = Drafted(drafts=[right(tail(plain, ids))], gate="all")
        assert model.generate(ids, attention_mask=mask, custom_generate=drafted, **asked).equal(plain)
        assert drafted.report["accepted"] > 0
    for hides in ([[1, 0, 1]], [[1, 1, 0]], [[0, 0, 0]]):
        with pytest.raises(ValueError, match="attention_mask hides more than padding on the left"):
            model.generate(PROMPT, attention_mask=torch.tensor(hides), custom_generate=drafted, **GREEDY)
    with pytest.raises(ValueError, match="position_ids do not count"):
        model.generate(PROMPT, position_ids=torch.tensor([[0, 2, 3]]), custom_generate=drafted, **GREEDY)


def test_return_dict(model):
    plain = model.generate(PROMPT, return_dict_in_generate=True, **GREEDY)
    drafted = Drafted(drafts=[right(tail(plain.sequences))], gate="all")
    out = model.generate(PROMPT, return_dict_in_generate=True, custom_generate=drafted, **GREEDY)
    assert type(out) is type(plain) and out.sequences.equal(plain.sequences)
    for name in ("output_scores", "output_logits", "output_hidden_states"):
        with pytest.raises(ValueError, match=f"{name}=True"):
            model.generate(PROMPT, return_dict_in_generate=True, custom_generate=drafted, **{name: True}, **GREEDY)


class Collecting:
    def __init__(self):
        self.got, self.ended = [], 0

    def put(self, value):
        self.got.append(value.flatten().tolist())

    def end(self):
        self.ended += 1


@pytest.mark.parametrize("how", HOW)
def test_a_streamer_gets_what_it_would_get(model, how):
    streams = []
    for asked in ({}, {"custom_generate": Drafted(drafts=[noise(V, 1)], gate="all")}):
        stream, criterion = Collecting(), Enough(30)
        torch.manual_seed(0)
        model.generate(PROMPT, streamer=stream, stopping_criteria=[criterion], max_new_tokens=40, **HOW[how], **asked)
        assert stream.ended == 1
        streams.append(stream.got)
    assert streams[0] == streams[1] and len(streams[0]) == 31


def test_the_context_may_fill_up():
    small = tiny_llama(V, context=64, eos_token_id=None, pad_token_id=0)
    for left in range(1, 6):
        prompt = torch.arange(1, 65 - left)[None]  # 0 would be padding
        plain = small.generate(prompt, do_sample=False, max_new_tokens=left)
        drafted = Drafted(drafts=[right(tail(plain, prompt) + [1] * 9)], gate="all")
        out = small.generate(prompt, do_sample=False, max_new_tokens=left + 7, custom_generate=drafted)
        assert out.equal(plain) and drafted.report["stop"] == "length"
    with pytest.raises(ValueError, match="a prompt of 64 tokens leaves no room in a context of 64"):
        small.generate(torch.arange(1, 65)[None], do_sample=False, max_new_tokens=3, custom_generate=drafted)


def test_one_object_serves_models_that_change(model):
    other = tiny_llama(V, seed=3, eos_token_id=None, pad_token_id=0)
    drafted = Drafted()
    for _ in range(2):
        for each in (model, other):
            plain = each.generate(PROMPT, **GREEDY)
            assert each.generate(PROMPT, custom_generate=drafted, **GREEDY).equal(plain)
    with torch.no_grad():
        other.lm_head.weight.neg_()
    changed = other.generate(PROMPT, **GREEDY)
    assert not changed.equal(plain) and other.generate(PROMPT, custom_generate=drafted, **GREEDY).equal(changed)
    assert set(drafted._costs) == {model, other}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_dtype_stays(dtype):
    each = tiny_llama(V, eos_token_id=None, pad_token_id=0).to(dtype)
    drafted = Drafted(drafts=[noise(V, 1)], gate="all")
    out = each.generate(PROMPT, custom_generate=drafted, **GREEDY)
    assert out.shape == (1, 83) and each.dtype == dtype


def test_a_grammar_drafts_under_its_own_logits_processor(model):
    grammar = Grammar.from_gbnf(RECORDS)
    plain = model.generate(PROMPT, logits_processor=[GrammarLogitsProcessor(grammar, VOCAB)], **GREEDY)
    drafted = Drafted(grammar, VOCAB, gate="all")
    legal = dict(logits_processor=[GrammarLogitsProcessor(grammar, VOCAB)])
    assert model.generate(PROMPT, custom_generate=drafted, **legal, **GREEDY).equal(plain)
    assert drafted.report["sources"]["grammar"]["accepted"] > 20 and drafted.report["forwards"] < 60
    torch.manual_seed(2)
    plain = model.generate(PROMPT, max_new_tokens=80, do_sample=True, **legal)
    torch.manual_seed(2)
    assert model.generate(PROMPT, max_new_tokens=80, do_sample=True, custom_generate=drafted, **legal).equal(plain)
    assert drafted.report["accepted"] > 20


# What cannot be had


def test_what_is_refused_is_named(model):
    drafted = Drafted()

    def refuses(said, inputs=PROMPT, error=ValueError, **asked):
        with pytest.raises(error, match=said):
            model.generate(inputs, custom_generate=drafted, **GREEDY | asked)

    refuses("2 texts at once", torch.tensor([[1, 2], [3, 4]]))
    refuses("3 texts at once", do_sample=True, num_return_sequences=3)
    refuses("this asks for beam search", num_beams=2)
    refuses("this asks for assisted generation", assistant_model=tiny_llama(V))
    refuses("this asks for assisted generation", prompt_lookup_num_tokens=3)
    refuses("cache_implementation='static'", cache_implementation="static")
    refuses("a cache was given", cache=DynamicCache(config=model.config))
    refuses("inputs_embeds", None, inputs_embeds=torch.zeros(1, 3, 32))
    assert drafted.report is None
    windowed = tiny_llama(V, eos_token_id=None, pad_token_id=0)
    windowed.config.layer_types, windowed.config.sliding_window = ["full_attention", "sliding_attention"], 16
    with pytest.raises(hf.ModelError, match="rejected drafts cannot be taken out"):
        windowed.generate(PROMPT, custom_generate=drafted, **GREEDY)
    two = T5ForConditionalGeneration(
        T5Config(vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0)
    )
    with pytest.raises(ValueError, match="T5ForConditionalGeneration is an encoder-decoder"):
        two.generate(torch.tensor([[1, 2]]), custom_generate=drafted, **GREEDY)


def test_bad_arguments_are_named_at_once():
    grammar = Grammar.from_gbnf(RECORDS)
    for said, error, how in [
        ("drafts from a grammar need the tokenizer", ValueError, dict(grammar=grammar)),
        ("'grammar' reads a grammar, and none was given", DraftError, dict(drafts=["grammar"])),
        ("'mtp': no multi-token head", DraftError, dict(drafts=["mtp"])),
        ("'magic': there is", DraftError, dict(drafts=["magic"])),
        ("draft_cap=49: want 1 to 48", ValueError, dict(draft_cap=49)),
        ("gate 'x': there is", ValueError, dict(gate="x")),
    ]:
        with pytest.raises(error, match=said):
            Drafted(**how)


# A real model


@pytest.fixture(scope="module")
def smollm2():
    return hf.load()


def test_a_real_model_writes_the_same_in_fewer_forwards(smollm2):
    real, tokenizer = smollm2
    grammar = Grammar.from_gbnf(RECORDS.replace("record+", r'(record "\n")+'))
    lines = [
        '{"id":7,"ok":true,"kind":"red"}',
        '{"id":8,"ok":false,"kind":"green"}',
        '{"id":9,"ok":true,"kind":"blue"}',
    ]
    inputs = tokenizer("Seven is fine, eight is not, nine is:\n" + "\n".join(lines) + "\n", return_tensors="pt")
    asked = dict(do_sample=False, max_new_tokens=40)
    plain = real.generate(**inputs, **asked)
    drafted = Drafted(grammar, tokenizer)
    stream = TextIteratorStreamer(tokenizer, skip_prompt=True)
    out = []
    runs = threading.Thread(
        target=lambda: out.append(real.generate(**inputs, streamer=stream, custom_generate=drafted, **asked))
    )
    runs.start()
    text = "".join(stream)
    runs.join()
    assert out[0].equal(plain) and text == tokenizer.decode(plain[0, inputs["input_ids"].shape[1] :])
    report = drafted.report
    assert report["accepted"] > 20 and report["forwards"] < 20
    stops = [StopStringCriteria(tokenizer, '"ok":')]
    stopped = real.generate(**inputs, stopping_criteria=stops, **asked)
    assert real.generate(**inputs, stopping_criteria=stops, custom_generate=drafted, **asked).equal(stopped)
    assert drafted.report["stop"] == "criterion" and stopped.shape[1] < plain.shape[1]
