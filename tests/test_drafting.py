"""The draft workloads are well formed, the bound counts what a grammar leaves open, and arms are compared fairly."""

import json
import unicodedata

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gdlib import Grammar, Matcher, Vocabulary
from gdlib.bench import drafting
from gdlib.bench.drafting import (
    ARMS,
    FILES,
    JUMP,
    LOOKUP,
    TRANSFORMERS,
    Workload,
    arms,
    bound,
    clocked,
    compare,
    first_difference,
    forced_bytes,
    forced_tokens,
    read_prompts,
    workloads,
)
from gdlib.models.hf import CausalModel

BYTES = Vocabulary([bytes([b]) for b in range(256)] + [b""], [256])
RECORDS = Grammar.from_gbnf(r'root ::= r ("\n" r)* "\n"?' + "\n" + r'r ::= "{\"id\":" [0-9]+ "}"')
EOS = 256


def conforms(grammar: Grammar, text: str) -> bool:
    matcher = Matcher(grammar, BYTES)
    return all(matcher.accept(byte) for byte in text.encode()) and matcher.can_stop()


@pytest.mark.parametrize("workload", workloads(), ids=list(FILES))
def test_workloads(workload):
    assert len(workload.prompts) >= 20 and len(set(workload.prompts)) == len(workload.prompts)
    assert 96 <= workload.max_tokens <= 160
    for text in workload.prompts:
        assert text == unicodedata.normalize("NFC", text) and text.strip() and text.isascii()
    lines = [line for text in workload.prompts for line in text.split("\n") if line.startswith("{")]
    assert bool(lines) == (workload.name != "prose")
    # what the prompts show conforms, but where that it does not is what is measured
    fits = [conforms(workload.grammar, line) for line in lines]
    assert not any(fits) if workload.name in ("ndjson-spaced", "wrong") else all(fits)


def test_spaced_orders_are_the_compact_ones_with_spaces():
    compact, spaced = workloads(["ndjson", "ndjson-spaced"])
    assert compact.ids == spaced.ids

    def meant(text: str) -> list:
        return [json.loads(line) if line.startswith("{") else line for line in text.split("\n")]

    assert [meant(text) for text in compact.prompts] == [meant(text) for text in spaced.prompts]
    wrong, tolerant = workloads(["wrong", "ndjson-spaced-tolerant"])
    assert wrong.prompts == compact.prompts and tolerant.prompts == spaced.prompts
    assert all(conforms(tolerant.grammar, line) for text in compact.prompts for line in text.split("\n")[-3:-1])


def test_files_that_are_not_prompts(tmp_path):
    path = tmp_path / "p.jsonl"
    for content, expected in [
        ('{"id": "a", "text": "x"}\nno', "line 2: want an object with id and text"),
        ('{"id": "a"}', "line 1: want an object"),
        ("[]", "line 1: want an object"),
        ("", "no prompts in it"),
        ('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}', "an id comes twice"),
    ]:
        path.write_text(content)
        with pytest.raises(ValueError, match=expected):
            read_prompts(path)
    with pytest.raises(ValueError, match="workload 'poems': there is ndjson, "):
        workloads(["poems"])


def shown(grammar: Grammar, *pieces: bytes) -> list[str]:
    """The pieces with forced bytes as they are and open ones as dots."""
    flags = forced_bytes(grammar, pieces)
    return [
        "".join(chr(b) if f else "." for b, f in zip(p, g, strict=True)) for p, g in zip(pieces, flags, strict=True)
    ]


def test_forced_bytes_arm_late_die_and_arm_again():
    # the first byte is never forced; a text that may end counts as forced on where one byte alone leads on
    assert shown(RECORDS, b'{"id":1}\n{"id":22}') == ['."id":..\n{"id":...']
    assert shown(RECORDS, b'well: {"id":1}') == ['......."id":..']
    # a byte that does not conform may itself begin the next record
    assert shown(RECORDS, b'{"i{"id":1') == ['."i."id":.']
    assert shown(RECORDS, b'{"xd":1}') == ['."......']
    assert shown(RECORDS, b'{"i', b'd":', b"3") == ['."i', 'd":', "."]
    # an empty piece is a special token: the sentence does not go on behind it
    assert shown(RECORDS, b'{"i', b"", b'd":') == ['."i', "", "..."]


def test_the_bound_counts_open_tokens():
    vocab = Vocabulary([b"{", b'"id', b'":', b"1", b"}", b"\n", b'{"', b"id", b"x", b""], [9])
    text = [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 9]  # {"id":1}\n{"id":1} and eos
    # open: the first {, each 1, each } (a digit might come), eos; not the {, the one way on behind a line's end
    assert forced_tokens(text, RECORDS, vocab) == [
        *(False, True, True, False, False, True),
        *(True, True, True, False, False, False),
    ]
    assert bound(text, RECORDS, vocab) == 12 / 6
    # behind a prompt that has begun the record, the first token is still the prompt's own forward
    assert forced_tokens([1, 2, 3], RECORDS, vocab, [0]) == [True, True, False]
    assert bound([1, 2, 3], RECORDS, vocab, [0]) == 3 / 2
    # a token that is forced in part is open
    assert forced_tokens([3, 4, 5, 6, 7], RECORDS, vocab, [0, 1, 2])[2:] == [True, True, True]
    assert bound([8] * 5, RECORDS, vocab) == 1.0 and bound([], RECORDS, vocab) == 1.0


def test_first_difference():
    assert first_difference([1, 2], [1, 2]) == -1 and first_difference([], []) == -1
    assert first_difference([1, 3], [1, 2]) == 1
    assert first_difference([1, 2, 3], [1, 2]) == 2 and first_difference([], [5]) == 0


class ByteTokenizer:
    chat_template = None

    def __call__(self, text):
        return {"input_ids": list(text.encode())}


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


@pytest.fixture(scope="module")
def table(model):
    prompts = ['{"id":1}\n{"id":2}\n', '{"id":7}\n{"id":']
    workload = Workload("records", ["a", "b"], prompts, RECORDS, 24, chat=True)
    return compare(model, ByteTokenizer(), BYTES, [workload], rounds=2)


def test_every_arm_has_a_row_and_the_lossless_ones_write_the_same(table):
    assert sorted(table["arm"].unique()) == sorted(drafting.ANY_MODEL)
    assert len(table) == len(drafting.ANY_MODEL) * 2 * 2
    lossless = table[table["arm"] != JUMP]
    assert lossless["identical"].all() and (lossless["first_difference"] == -1).all() and lossless["gap"].isna().all()
    assert (table["tokens"] > 0).all() and (table["seconds"] > 0).all() and (table["bound"] >= 1).all()
    for _, rows in table.groupby(["prompt", "round"]):
        assert sorted(rows["order"]) == list(range(len(drafting.ANY_MODEL)))


def test_drafted_arms_draft_and_plain_ones_do_not(table):
    plain = table[table["arm"].isin(["plain", "plain again", "constrained", TRANSFORMERS])]
    assert (plain["rows"] == 0).all() and (plain["tokens"] == plain["forwards"]).all()
    proposed = table[[name for name in table if name.startswith("proposed_")]].sum(axis=1)
    accepted = table[[name for name in table if name.startswith("accepted_")]].sum(axis=1)
    ours = table["arm"].isin(ARMS)
    assert (proposed <= table["rows"])[ours].all() and (accepted <= proposed).all()
    assert table[table["arm"] == "all sources, all rows"]["rows"].gt(0).all()
    drafted = table[table["arm"] == "constrained, all sources"]
    assert (drafted["forwards"] <= drafted["tokens"]).all()


def test_which_arms_go_by_the_clock():
    by_clock = {name for name, options in ARMS.items() if clocked(options)}
    assert {"grammar", "all sources", "constrained, all sources"} <= by_clock
    assert not by_clock & {"plain", "constrained", "colibri", "grammar, linear", "all sources, all rows"}
    assert not clocked({"drafts": ("ngram",)}, gate="bytes")
    assert clocked({"drafts": ("ngram",), "gate": "cost"}, gate="bytes")


def test_what_is_not_the_same_is_said(model, monkeypatch):
    workload = Workload("records", ["a"], ["{"], RECORDS, 8, chat=False)
    honest = drafting.by_transformers

    def altered(*arguments):
        generation = honest(*arguments)
        generation.ids[-1] = (generation.ids[-1] + 1) % 256
        return generation

    monkeypatch.setattr(drafting, "by_transformers", altered)
    table = compare(model, ByteTokenizer(), BYTES, [workload], [TRANSFORMERS]).set_index("arm")
    assert table.loc["plain", "identical"] and not table.loc[TRANSFORMERS, "identical"]
    assert table.loc[TRANSFORMERS, "first_difference"] == table.loc["plain", "tokens"] - 1
    assert table.loc[TRANSFORMERS, "gap"] > 0


def test_arms_that_there_are_not(model):
    given = (model, BYTES, [1, 2], RECORDS, 4)
    with pytest.raises(ValueError, match="arm 'magic': there is plain, "):
        arms(*given, ["magic"])
    for name in (TRANSFORMERS, LOOKUP):
        with pytest.raises(ValueError, match="greedy"):
            arms(*given, [name], temperature=1.0)
    sampled = arms(*given, ["plain", "all sources"], temperature=1.0, seed=4)
    assert sampled["plain"]().ids == sampled["all sources"]().ids


def test_a_model_with_no_chat_form_is_given_the_text(model):
    workload = Workload("w", ["a"], ["ab"], RECORDS, 8, chat=True)
    assert workload.prompt_ids(ByteTokenizer(), 0) == [97, 98]
    assert isinstance(forced_bytes(RECORDS, [b"ab"])[0], np.ndarray)
