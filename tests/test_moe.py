"""Streamed experts: whatever is in memory, the output is the resident model's; an expert is read once a forward."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from tiny_moes import KINDS, VOCAB, new_model, save

from gdlib.drafts.tree import ROOT, Tree
from gdlib.models import hf, moe
from gdlib.models.expert_file import ExpertError
from gdlib.models.expert_tensors import experts_of_model
from gdlib.models.wheels import ModelError

EXPERTS, TOP_K = 8, 3


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(autouse=True)
def cache(home, monkeypatch):
    monkeypatch.setenv("GDLIB_CACHE", str(home / "cache"))


def folder(home, kind="qwen3"):
    return str(home / kind) if (home / kind).exists() else str(save(kind, home / kind))


def resident(name, dtype=torch.float32):
    """transformers' own forward over all experts in memory, with the linear layers that `hf.load` makes."""
    model = hf.load(name, dtype=dtype)[0]
    model.set_experts_implementation("eager")
    return model


def streamed(name, **options):
    return moe.stream(name, **options)[0]


def ids(count, seed=0):
    return np.random.default_rng(seed).integers(2, VOCAB, count).tolist()


def tree_of(nodes, seed=0):
    """A tree of so many nodes, each behind a node drawn from those before it."""
    random, tree = np.random.default_rng(seed), Tree()
    while len(tree) < nodes:
        at, token = int(random.integers(ROOT, len(tree))), int(random.integers(2, VOCAB))
        if tree.child(at, token) < 0:
            tree.append(at, token, "test", 1)
    return tree


def check_log(log, store, rows):
    """The counters against a slow count of what the rows selected."""
    assert len(log.selected) == len(log.missed) == store.layers
    pairs = 0
    for selected, missed in zip(log.selected, log.missed, strict=True):
        assert selected.shape == (rows, store.top_k) and selected.dtype == np.int16
        distinct = {int(expert) for row in selected for expert in row}
        assert missed == sorted(set(missed)) and set(missed) <= distinct
        pairs += len(distinct)
    assert log.loads == sum(map(len, log.missed)) and log.miss_bytes == log.loads * store.expert_bytes
    assert log.hits["pinned"] + log.hits["slots"] + log.loads == pairs
    assert (log.read_seconds > 0) == (log.loads > 0)
    return pairs


@pytest.mark.parametrize(("kind", "policy"), [("qwen3", "lfru"), *((kind, "lru") for kind in KINDS)])
def test_logits_are_those_of_the_resident_model_bit_for_bit(home, kind, policy, monkeypatch):
    monkeypatch.setattr(hf, "load_tokenizer", lambda name: None)
    name = folder(home, kind)
    whole = hf.CausalModel(resident(name))
    every = (0, 1, TOP_K - 1, TOP_K, TOP_K + 1, EXPERTS - 1, EXPERTS)
    for slots in every if kind == "qwen3" else (0, TOP_K, EXPERTS):
        model = hf.CausalModel(streamed(name, slots=slots, policy=policy, readers=slots % 3))
        for count in (1, 16, 256):
            whole.reset(), model.reset()
            prompt = ids(count, seed=count)
            assert torch.equal(model(prompt), whole(prompt))
            check_log(model.store.last, model.store, count)
            for step in range(3):
                tree = tree_of(16, seed=step) if step else Tree()
                assert torch.equal(model.verify(5, tree), whole.verify(5, tree))
                check_log(model.store.last, model.store, len(tree) + 1)
                path = tree.nodes(len(tree) - 1)[::-1] if len(tree) else []
                path = sorted(path)
                model.keep(path), whole.keep(path)
            assert all(len(model.store.residents(layer)) <= slots for layer in range(model.store.layers))


@pytest.mark.parametrize("pinned", [0, 1, 7, 24])
def test_pinned_and_slots_together(home, pinned):
    name = folder(home)
    whole = hf.CausalModel(resident(name))
    pin = [divmod(index, EXPERTS) for index in range(pinned)]
    model = hf.CausalModel(streamed(name, slots=2, pin=pin))
    for seed in range(6):
        whole.reset(), model.reset()
        prompt = ids(1 + 5 * seed, seed)
        assert torch.equal(model(prompt), whole(prompt))
        check_log(model.store.last, model.store, len(prompt))
        assert model.store.pinned() == pin
        if pinned == 24:
            assert model.store.last.loads == model.store.last.hits["slots"] == 0


def test_with_everything_resident_nothing_is_read(home):
    model = streamed(folder(home))
    tokens = torch.tensor([ids(256)])
    model(tokens)
    first = model.expert_store.last
    assert first.loads > 0
    again = model(tokens).logits
    log = model.expert_store.last
    assert log is not first and log.loads == log.miss_bytes == 0 and log.hits["slots"] == first.loads
    assert model.expert_store.forwards == 2
    assert torch.equal(again, resident(folder(home))(tokens).logits)


@pytest.mark.parametrize(("hidden", "width"), [(32, 11), (48, 40), (36, 11)])
def test_widths_that_are_no_multiple_of_sixteen(tmp_path, hidden, width):
    config = transformers.OlmoeConfig(
        vocab_size=VOCAB, hidden_size=hidden, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        num_experts=6, num_experts_per_tok=2, intermediate_size=width, max_position_embeddings=64,
    )  # fmt: skip
    name = str(save("olmoe", tmp_path / "odd"))
    torch.manual_seed(1)
    transformers.OlmoeForCausalLM(config).save_pretrained(name)
    whole, model = resident(name), streamed(name, slots=3)
    for count in (1, 2, 7, 40):
        tokens = torch.tensor([ids(count)])
        got, wanted = model(tokens).logits, whole(tokens).logits
        torch.testing.assert_close(got, wanted)
        assert hidden % 16 or torch.equal(got, wanted)


def test_other_dtypes(home):
    name, tokens = folder(home), torch.tensor([ids(40)])
    model = streamed(name, slots=3, dtype=torch.bfloat16)
    assert model.expert_store.slot_bytes == 3 * 16 * 32 * 2
    logits = model(tokens).logits
    assert logits.dtype == torch.bfloat16
    wanted = resident(name, torch.bfloat16)(tokens).logits
    assert (logits - wanted).float().abs().mean() < 0.02 * wanted.float().std()


@pytest.mark.parametrize("slots", [0, 2, 8])
def test_text_is_the_same_token_by_token(home, slots):
    name = folder(home)
    whole, model = hf.CausalModel(resident(name)), hf.CausalModel(streamed(name, slots=slots))
    texts = []
    for one in (whole, model):
        text, logits = [], one(ids(20))
        for _ in range(40):
            text.append(int(logits.argmax()))
            logits = one(text[-1:])
        texts.append(text)
    assert texts[0] == texts[1] and len(set(texts[0])) > 2


def test_the_rest_of_the_model_holds_no_experts(home, monkeypatch):
    name = folder(home, "granite")
    whole = resident(name)
    model = streamed(name)
    experts = {key for key in whole.state_dict() if ".experts." in key}
    assert experts and set(model.state_dict()) == set(whole.state_dict()) - experts
    for key, weight in model.state_dict().items():
        assert torch.equal(weight, whole.state_dict()[key])
    assert not any(weight.requires_grad for weight in model.parameters())
    assert type(model).__name__ == type(whole).__name__ and not model.training


def test_shared_experts_and_dense_layers_stay(home):
    model = streamed(folder(home, "glm4"))
    assert model.expert_store.layers == 2 and model.expert_store.file.layers == [1, 2]
    assert any("shared_experts" in key for key in model.state_dict())


def test_models_that_cannot_be_streamed(home, tmp_path):
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2
    )
    save("qwen3", tmp_path / "dense")
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "dense")
    with pytest.raises(ModelError, match="not a mixture of experts; load the model whole"):
        streamed(str(tmp_path / "dense"))
    with pytest.raises(ModelError, match="LlamaForCausalLM has no experts to stream"):
        experts_of_model(transformers.LlamaForCausalLM(config))
    model = new_model("qwen3")
    layer = model.model.layers[1].mlp
    layer.experts.__class__ = type("CleverExperts", (type(layer.experts),), {})
    with pytest.raises(ModelError, match=r"experts in CleverExperts \(model.layers.1.mlp.experts\), .* not known here"):
        experts_of_model(model)
    with pytest.raises(ModelError, match="no such folder"):
        streamed(str(tmp_path / "nowhere"))
    with pytest.raises(ExpertError, match="slots=9: want 0 to 8 a layer"):
        streamed(folder(home), slots=9)


def test_the_file_is_written_once_and_anew_for_another_checkpoint(home, tmp_path, monkeypatch):
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path / "cache"))
    name = str(save("qwen3", tmp_path / "model"))
    first = streamed(name).expert_store.file.path
    stamp = first.stat().st_mtime_ns
    assert first.parent == tmp_path / "cache" / "experts"
    assert streamed(name).expert_store.file.path == first and first.stat().st_mtime_ns == stamp
    model = new_model("qwen3")
    with torch.no_grad():
        model.model.layers[0].mlp.experts.down_proj[3] *= 2
    model.save_pretrained(name)
    second = streamed(name).expert_store.file.path
    assert second != first and sorted(first.parent.iterdir()) == sorted([first, second])


def test_a_cache_folder_that_is_read_only_or_full(home, tmp_path, monkeypatch):
    name = folder(home)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"file/experts: the experts' file .* could not be written.*Set GDLIB_CACHE"):
        streamed(name)
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path / "full"))

    def full(handle, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ModelError, match=r"full/experts: .* No space left on device.*Set GDLIB_CACHE"):
        streamed(name)
    assert not list((tmp_path / "full" / "experts").iterdir())


def test_a_fault_in_mid_run_is_an_error_and_what_comes_after_it_is_right(home, monkeypatch):
    name = folder(home)
    whole, model = hf.CausalModel(resident(name)), hf.CausalModel(streamed(name, slots=2, readers=2))
    prompt, real, fails = ids(30), os.preadv, []

    def failing(handle, buffers, offset):
        if fails and fails.pop():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    wanted = whole(prompt)
    fails[:] = [True]
    assert torch.equal(model(prompt), wanted)  # once: tried again
    for _ in range(4):
        fails[:] = [True] * 6
        with pytest.raises(ExpertError, match=r"layer \d, expert \d: .*failed, and 2 times more: Input/output error"):
            while True:
                model.verify(5, tree_of(16, seed=len(fails)))
        fails.clear()
        assert torch.equal(model.verify(7, tree_of(9)), whole.verify(7, tree_of(9)))
        assert all(len(model.store.residents(layer)) <= 2 for layer in range(3))


def test_a_forward_that_is_broken_off_between_its_reads(home, monkeypatch):
    name = folder(home)
    model, tokens = streamed(name, slots=4), torch.tensor([ids(30)])
    real, left = torch.mm, [7]

    def broken(*arguments, **options):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    wanted = resident(name)(tokens).logits
    for after in (1, 2, 5, 9, 20, 40):
        left[0] = after
        with monkeypatch.context() as patch:
            patch.setattr(torch, "mm", broken)
            with pytest.raises(KeyboardInterrupt):
                model(tokens)
        assert torch.equal(model(tokens).logits, wanted)


def test_a_file_that_is_cut_in_mid_run(home, tmp_path, monkeypatch):
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path / "cache"))
    name = folder(home)
    model = hf.CausalModel(streamed(name, slots=2))
    model(ids(30))
    path = model.store.file.path
    path.unlink()
    model((5,))  # an open file that is deleted can still be read
    streamed(name)  # and is made anew by the next process
    model = hf.CausalModel(streamed(name, slots=0))
    model(ids(30))
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(ExpertError, match=r"layer \d, expert \d: the file was cut since it was opened"):
        model((5,))


def test_two_processes_on_one_store(home, tmp_path, monkeypatch):
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    code = (
        "import sys, torch; torch.set_num_threads(1)\n"
        "from gdlib.models.moe import stream\n"
        "sys.stdin.readline()\n"
        "model, _ = stream(sys.argv[1], slots=2, usage_path=sys.argv[2])\n"
        "logits = [model(torch.tensor([[7, 8, 9 + step]])).logits for step in range(20)]\n"
        "model.expert_store.close()\n"
        "print(float(torch.stack(logits).double().sum()))"
    )
    usage = tmp_path / "usage.json"
    command = [sys.executable, "-c", code, folder(home), str(usage)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for one in both:
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [one.communicate()[0] for one in both]
    assert [one.returncode for one in both] == [0, 0] and said[0] == said[1]
    whole = resident(folder(home))
    wanted = torch.stack([whole(torch.tensor([[7, 8, 9 + step]])).logits for step in range(20)])
    assert float(said[0]) == float(wanted.detach().double().sum())
    both_used = streamed(folder(home), usage_path=usage).expert_store
    assert both_used._recorded.sum() == 2 * 20 * 3 * 3 * TOP_K
