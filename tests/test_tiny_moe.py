"""The checkpoint in the package: whole, described, small, and a model that writes what the workloads ask for."""

import shutil

import pytest
import torch

from gdlib.bench import conforming, drafting
from gdlib.decoding.generate import generate
from gdlib.models import hf, training
from gdlib.models.mtp import MTPModel, causal
from gdlib.models.wheels import ModelError
from gdlib.tokens.vocabulary import Vocabulary

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def tiny():
    model, tokenizer = hf.load(hf.TINY_MOE)
    return causal(model), tokenizer, Vocabulary.from_hf(tokenizer)


def test_it_is_small_and_the_card_has_its_sums():
    files = list(hf.TINY_MOE_FOLDER.iterdir())
    assert sum(path.stat().st_size for path in files) <= 12_000_000
    assert {path.suffix for path in files} == {".json", ".safetensors", ".md"}
    card = (hf.TINY_MOE_FOLDER / "README.md").read_text()
    assert training.sums(hf.TINY_MOE_FOLDER) == hf.TINY_MOE_SHA256
    for sha in hf.TINY_MOE_SHA256.values():
        assert sha in card


def test_its_shape(tiny):
    model, tokenizer, vocab = tiny
    config = model.model.config
    assert type(model) is MTPModel and model.mtp_depth == 3 and model.context == 2048
    assert (config.num_hidden_layers, config.num_local_experts, config.num_experts_per_tok) == (4, 32, 4)
    assert model.model.dtype == torch.float32 and len(tokenizer) == model.width == len(vocab) == 1536
    assert tokenizer.eos_token_id == 0 and tokenizer.chat_template is None


@pytest.mark.parametrize("file", hf.TINY_MOE_SHA256)
def test_a_file_that_is_another_is_refused(file, tmp_path, monkeypatch):
    shutil.copytree(hf.TINY_MOE_FOLDER, tmp_path / "copy")
    monkeypatch.setattr(hf, "TINY_MOE_FOLDER", tmp_path / "copy")
    path = tmp_path / "copy" / file
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ModelError, match=f"{file}: sha256 is .*, expected {hf.TINY_MOE_SHA256[file]}"):
        hf.load(hf.TINY_MOE)
    path.unlink()
    with pytest.raises(ModelError, match=f"{file}: no such file"):
        hf.load(hf.TINY_MOE)


@pytest.mark.parametrize("name", ["ndjson", "ndjson-spaced-tolerant", "calls"])
def test_it_writes_records_that_conform(tiny, name):
    model, tokenizer, vocab = tiny
    row = conforming.conforming(model, tokenizer, vocab, drafting.workloads([name])[0], 3, 96)
    assert row["lines"] >= 3 and row["conforming"] == row["lines"]
    assert row["mtp"] > 0.3 and row["forwards"] < row["tokens"]


def test_drafts_do_not_change_its_text(tiny):
    model, tokenizer, vocab = tiny
    for name in ("ndjson", "prose-tail"):
        work = drafting.workloads([name])[0]
        ids = work.prompt_ids(tokenizer, 1)
        common = {"grammar": work.grammar, "max_tokens": 60}
        plain = generate(model, ids, vocab, drafts=(), **common)
        for linear in (False, True):
            for drafts in (("mtp",), ("grammar", "mtp", "ngram", "branches")):
                out = generate(model, ids, vocab, drafts=drafts, gate="all", linear=linear, **common)
                assert out.ids == plain.ids and out.report["rows"] > 0
        masked = generate(model, ids, vocab, drafts=(), constrain=True, **common)
        out = generate(model, ids, vocab, drafts=("mtp", "grammar"), constrain=True, gate="all", **common)
        assert out.ids == masked.ids


def test_it_works_in_bfloat16():
    model, tokenizer = hf.load(hf.TINY_MOE, dtype=torch.bfloat16)
    drafting_model = causal(model)
    drafting_model(tokenizer("Orders of a bakery:\n")["input_ids"])
    assert len(drafting_model.mtp([5], 3)) == 3
