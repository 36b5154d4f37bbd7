"""The tiny model's training: text that its grammars admit, a run that is the same twice, and what is written of it."""

import json
from itertools import islice

import pytest
import torch
from safetensors.torch import load_file

from gdlib.bench import conforming, drafting
from gdlib.models import corpus, hf, training
from gdlib.models.mtp import causal
from gdlib.tokens.vocabulary import Vocabulary

GRAMMARS = {"orders": "ndjson-spaced-tolerant", "calls": "calls", "nested": "nested", "reviews": "long-text"}
SMALL = training.Recipe(
    steps=6,
    tokens=128,
    short=64,
    long=128,
    vocabulary=400,
    texts=60,
    hidden=64,
    layers=2,
    experts=8,
    expert=16,
    head=32,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "small"
    history = []
    training.train(SMALL, folder, log=history.append, every=4)
    return folder, history


# the text


@pytest.mark.parametrize("kind", corpus.KIND)
def test_documents_come_from_the_seed(kind):
    first, again, other = (list(islice(corpus.documents(seed, kind), 20)) for seed in (1, 1, 2))
    assert first == again and not set(first) & set(other)
    assert all(name == kind and text.endswith("\n") and "  " not in text for name, text in first)


def test_all_kinds_come():
    assert {kind for kind, _ in islice(corpus.documents(0), 200)} == set(corpus.KIND)
    with pytest.raises(ValueError, match="kind 'poems': there is orders, calls"):
        next(corpus.documents(0, "poems"))


@pytest.mark.parametrize("kind", [*GRAMMARS, "cards"])
def test_records_are_of_the_grammar(kind):
    (work,) = drafting.workloads([GRAMMARS.get(kind, "prose-tail")])
    lines = [
        line.encode()
        for _, text in islice(corpus.documents(3, kind), 30)
        for line in text.splitlines()
        if line.startswith("{")
    ]
    assert len(lines) > 60 and all(conforming.admitted(work.grammar, lines))


def test_both_spacings_come():
    texts = [text for _, text in islice(corpus.documents(4, "orders"), 40)]
    assert any('"orderId": ' in text for text in texts) and any('"orderId":1' in text for text in texts)


def test_no_prompt_of_the_workloads_is_in_the_text():
    known = "".join(text for _, text in islice(corpus.documents(0), 3000))
    for work in drafting.workloads(conforming.WORKLOADS):
        for prompt in work.prompts:
            assert prompt not in known
            for line in prompt.splitlines():
                if line.startswith('{"') and len(line) > 90:
                    assert line not in known
    for name in ("Elsa Winter", "Carlos Nieto", "Fiona Blair", "Molly Keane"):
        assert name not in known


# the run


def test_a_run_is_the_same_twice(trained, tmp_path):
    training.train(SMALL, tmp_path / "again")
    for file in ("model.safetensors", hf.HEAD_FILE):
        first, again = load_file(trained[0] / file), load_file(tmp_path / "again" / file)
        assert first.keys() == again.keys() and all(first[name].equal(again[name]) for name in first)
    assert (trained[0] / "tokenizer.json").read_bytes() == (tmp_path / "again" / "tokenizer.json").read_bytes()


def test_another_seed_is_another_model(trained, tmp_path):
    from dataclasses import replace

    training.train(replace(SMALL, seed=1, steps=1), tmp_path / "other")
    a, b = load_file(trained[0] / "model.safetensors"), load_file(tmp_path / "other" / "model.safetensors")
    assert not a["lm_head.weight"].equal(b["lm_head.weight"])


def test_the_loss_falls_and_every_weight_is_learnt():
    tokenizer = training.make_tokenizer(SMALL)
    model, head = training.make_model(SMALL, len(tokenizer), tokenizer.eos_token_id)
    ids = torch.tensor([next(training.rows(tokenizer, corpus.documents(0), 96)) for _ in range(2)])
    found = training.losses(model, head, ids, (slice(0, 2), slice(0, 96)))
    assert [round(loss.item()) for loss in found] == [6, 1, 6]  # log of the vocabulary; even use; the same
    sum(found).backward()
    still = [n for module in (model, head) for n, w in module.named_parameters() if w.grad is None or not w.grad.any()]
    assert still == []


def test_the_history_has_the_losses(trained):
    _, history = trained
    assert [row["step"] for row in history] == [6]
    assert set(history[0]) == {"step", "main", "balance", "mtp", "rate", "seconds"}


def test_rows_begin_with_a_document_and_hold_its_end():
    tokenizer = training.make_tokenizer(SMALL)
    row = next(training.rows(tokenizer, corpus.documents(0, "prose"), 2000))
    text = next(corpus.documents(0, "prose"))[1]
    assert len(row) == 2000
    assert tokenizer.decode(row[: row.index(tokenizer.eos_token_id)]) == text
    assert row.count(tokenizer.eos_token_id) >= 2


def test_orthogonal_steps_have_singular_values_near_one():
    torch.manual_seed(0)
    for shape in ((5, 16, 40), (40, 16), (24, 70)):
        found = torch.linalg.svdvals(training.orthogonal(torch.randn(shape)))
        assert found.min() > 0.3 and found.max() < 1.3
    assert not training.orthogonal(torch.zeros(4, 6)).any()


# what is written


def test_the_checkpoint_is_in_transformers_layout(trained):
    folder, _ = trained
    model, tokenizer = hf.load(str(folder))
    weights = load_file(folder / "model.safetensors")
    assert weights["model.layers.1.mlp.experts.7.gate_proj.weight"].shape == (16, 64)
    assert {w.dtype for w in weights.values()} == {torch.bfloat16}
    assert model.mtp_head.depth == 3 and model.dtype == torch.float32 == model.mtp_head.join.weight.dtype
    text = next(corpus.documents(9))[1]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer("1203")["input_ids"] == [tokenizer.convert_tokens_to_ids(digit) for digit in "1203"]
    assert Vocabulary.from_hf(tokenizer).eos_ids == (0,) or list(Vocabulary.from_hf(tokenizer).eos_ids) == [0]


def test_the_card_says_what_was_measured(trained):
    folder, _ = trained
    model, tokenizer = hf.load(str(folder))
    kinds = training.evaluate(model, model.mtp_head, tokenizer, 0, documents=1)
    assert set(kinds) == set(corpus.KIND) and all(len(row["mtp"]) == 3 for row in kinds.values())
    used = training.experts_used(model, tokenizer, 0, documents=2)
    assert len(used) == 2 and all(1 / 8 <= share <= 1 for share in used)
    work = drafting.workloads(["ndjson"])[0]
    row = conforming.conforming(causal(model), tokenizer, Vocabulary.from_hf(tokenizer), work, 1, 8)
    assert row["tokens"] == 8 and row["conforming"] <= row["lines"]
    figures = {"kinds": kinds, "experts": used, "seconds": 12.0, "conforming": {"ndjson": row}}
    card = training.write_card(folder, SMALL, figures)
    assert (folder / "README.md").read_text() == card
    for sha in training.sums(folder).values():
        assert sha in card
    assert "768 tokens in 12 s" in card and f"| calls | {kinds['calls']['loss']:.2f} |" in card


def test_lines_that_count_begin_in_the_prompt_or_behind_it():
    assert conforming.records(b'a\n{"x":', b'1}\n{"y":2}\n{"z"') == [b'{"x":1}', b'{"y":2}']
    assert conforming.records(b"a\n", b"b\n\n") == []
    (work,) = drafting.workloads(["prose-tail"])
    good = {"topic": "a", "level": "basic", "keywords": ["b"], "minutes": 1, "followup": True}
    lines = [json.dumps(good, separators=(",", ":")).encode(), json.dumps(good).encode(), b"{"]
    assert conforming.admitted(work.grammar, lines) == [True, False, False]
