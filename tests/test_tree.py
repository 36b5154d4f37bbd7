"""Trees of drafts: how they are merged and grown, and that the model reads each path as if it were the only one."""

import random

import numpy as np
import pytest
import torch
from drafters import Scripted, tiny_llama, tiny_model

from gdlib.drafts.gate import AllRows, ColibriGuard
from gdlib.drafts.grow import grow
from gdlib.drafts.tree import ROOT, Tree
from gdlib.models.hf import CausalModel, ModelError


def random_tree(chance, size, vocab_size=97):
    tree = Tree()
    while len(tree) < size:
        at, token = chance.randrange(-1, len(tree)), chance.randrange(vocab_size)
        if tree.child(at, token) < 0:
            tree.append(at, token, "s", 1)
    return tree


def chain(tokens):
    tree = Tree()
    tree.add(ROOT, tokens, "s", len(tokens))
    return tree


def test_merging_follows_what_is_there_and_appends_the_rest():
    tree = Tree()
    assert tree.add(ROOT, [5, 6, 7], "a", 10) == 2
    assert tree.add(ROOT, [5, 6, 8, 9], "b", 10) == 4
    assert tree.add(ROOT, [4, 4], "b", 1) == 5  # room for one
    assert tree.add(1, [7], "c", 0) == 2  # nothing new needs no room
    assert tree.tokens == [5, 6, 7, 8, 9, 4]
    assert tree.parents == [-1, 0, 1, 1, 3, -1]
    assert tree.depths == [1, 2, 3, 3, 4, 1]
    assert tree.sources == ["a", "a", "a", "b", "b", "b"]
    assert tree.steps == [1, 2, 3, 3, 4, 1]
    assert tree.ranks == [0, 0, 0, 1, 0, 1]
    assert tree.path(4) == [5, 6, 8, 9] and tree.path(ROOT) == [] and tree.nodes(4) == [0, 1, 3, 4]
    assert tree.children(ROOT) == [0, 5] and tree.children(1) == [2, 3] and tree.children(4) == []
    assert not tree.is_chain() and chain([1, 1, 1]).is_chain() and Tree().is_chain()


def test_keeping_part_of_a_tree():
    tree = Tree()
    tree.add(ROOT, [5, 6, 7], "a", 10)
    tree.add(0, [8, 9], "b", 10)
    part = tree.keep([4, 0, 3])
    assert part.tokens == [5, 8, 9] and part.parents == [-1, 0, 1] and part.ranks == [0, 1, 0]
    assert part.sources == ["a", "b", "b"] and part.steps == [1, 1, 2] and part.child(0, 8) == 1
    assert len(tree.keep([])) == 0
    with pytest.raises(ValueError, match="without its parent 3"):
        tree.keep([0, 4])


@pytest.mark.parametrize("seed", range(5))
def test_a_node_looks_at_its_ancestors_alone(seed):
    tree = random_tree(random.Random(seed), 12)
    seen = tree.visible()
    for node in range(len(tree)):
        want = np.zeros(len(tree) + 1, bool)
        want[[0, *(i + 1 for i in tree.nodes(node))]] = True
        assert (seen[node + 1] == want).all()
    assert seen[0].tolist() == [True] + [False] * len(tree)


# The model's side


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def model(request):
    return CausalModel(tiny_llama(attn_implementation=request.param))


@pytest.mark.parametrize("seed", range(12))
def test_one_tree_forward_agrees_with_every_path_read_alone(model, seed):
    chance = random.Random(seed)
    tree = random_tree(chance, [1, 2, 3, 8, 24, 48][seed % 6])
    prompt, root = [chance.randrange(97) for _ in range(chance.randrange(1, 30))], chance.randrange(97)
    model.reset()
    model(prompt)
    rows = model.verify(root, tree)
    assert rows.shape == (len(tree) + 1, 97)
    with torch.no_grad():
        for node in range(-1, len(tree)):
            ids = torch.tensor([[*prompt, root, *tree.path(node)]])
            alone = model.model(input_ids=ids).logits[0, -1]
            assert (rows[node + 1] - alone).abs().max() < 1e-4


@pytest.mark.parametrize("seed", range(8))
def test_what_is_kept_is_what_a_fresh_prefill_would_hold(model, seed):
    chance = random.Random(seed)
    tree = random_tree(chance, 12)
    text, root = [chance.randrange(97) for _ in range(9)], 3
    model.reset()
    model(text)
    for node in [ROOT, *chance.sample(range(12), 4), 11]:
        model.verify(root, tree)
        model.keep(tree.nodes(node))
        text += [root, *tree.path(node)]
        assert model.length == len(text)
        assert_fresh(model, text)
    assert torch.allclose(model([5]), fresh(model, [*text, 5])[0], atol=1e-4)


def fresh(model, ids):
    other = CausalModel(model.model)
    return other(ids), other._cache


def assert_fresh(model, ids):
    """The cache is that of `ids` read at once, layer by layer, in length and contents."""
    _, want = fresh(model, ids)
    for mine, theirs in zip(model._cache.layers, want.layers, strict=True):
        assert mine.keys.shape == theirs.keys.shape
        assert (mine.keys - theirs.keys).abs().max() < 1e-5
        assert (mine.values - theirs.values).abs().max() < 1e-5


def test_a_chain_is_read_like_any_text_and_an_empty_tree_like_plain_decoding():
    model, prompt, tokens = tiny_model(), [3, 1, 4], [1, 5, 9, 2, 6]
    model(prompt)
    rows = model.verify(7, chain(tokens))
    with torch.no_grad():
        whole = model.model(input_ids=torch.tensor([[*prompt, 7, *tokens]])).logits[0, len(prompt) :]
    assert torch.allclose(rows, whole, atol=1e-5)
    model.discard()
    assert model.length == len(prompt) == model._cache.get_seq_length()
    row = model.verify(7, Tree())
    model.keep([])
    plain = tiny_model()
    plain(prompt)
    assert torch.equal(row[0], plain([7])) and model.length == plain.length
    for mine, theirs in zip(model._cache.layers, plain._cache.layers, strict=True):
        assert torch.equal(mine.keys, theirs.keys) and torch.equal(mine.values, theirs.values)


def test_rows_that_nobody_kept_are_gone_with_the_next_forward():
    model, prompt = tiny_model(), [3, 1, 4]
    model(prompt)
    expected = model([7])
    for again in range(3):
        model.reset()
        model(prompt)
        model.verify(9, chain([9] * (again + 1)))
        if again == 1:
            model.verify(8, random_tree(random.Random(0), 6))
        assert torch.equal(model([7]), expected)
    model.verify(9, chain([9]))
    model.reset()
    assert torch.equal(model(prompt), fresh(model, prompt)[0])


def test_what_cannot_be_verified_is_refused():
    model = tiny_model(context=16)
    with pytest.raises(ValueError, match="read a prompt first"):
        model.verify(1, chain([1]))
    with pytest.raises(ValueError, match="no path among 0 verified"):
        model.keep([])
    model(list(range(12)))
    model.verify(1, chain([1, 2, 3]))  # positions 12 to 15
    with pytest.raises(ValueError, match=r"4 deep behind 12 \+ 1 tokens does not fit the model's context of 16"):
        model.verify(1, chain([1, 2, 3, 4]))
    for nodes in ([1, 0], [0, 0], [3], [-1]):
        model.verify(1, chain([1, 2, 3]))
        with pytest.raises(ValueError, match="no path among 3 verified"):
            model.keep(nodes)


def test_models_whose_cache_cannot_be_taken_back_are_refused():
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        sliding_window=8,
    )
    model = CausalModel(MistralForCausalLM(config).eval())
    model(list(range(20)))
    with pytest.raises(ModelError, match=r"DynamicSlidingWindowLayer.*without drafts"):
        model.verify(1, chain([1]))
    model.verify(1, Tree())  # a plain step is none of its business
    model.keep([])
    with torch.no_grad():
        whole = model.model(input_ids=torch.tensor([[*range(20), 1, 2]])).logits[0, -1]
    assert torch.allclose(model([2]), whole, atol=1e-4)


def test_attention_that_takes_no_mask_gets_no_tree():
    model = tiny_model()
    model([1, 2, 3])
    model.model.config._attn_implementation_internal = "flash_attention_2"
    tree = chain([1])
    tree.append(ROOT, 2, "s", 1)
    with pytest.raises(ModelError, match=r"flash_attention_2.*draft linearly"):
        model.verify(1, tree)


# Growing


def test_linear_takes_the_first_path_of_the_first_source_that_has_one():
    none, empty = Scripted(lambda place, room: [], "none"), Scripted(lambda place, room: [[]], "empty")
    two = Scripted(lambda place, room: [[1, 2, 3, 4], [5]], "two")
    tree = grow([none, empty, two, Scripted(lambda place, room: [[9]], "late")], AllRows(), 3, linear=True)
    assert tree.tokens == [1, 2, 3] and tree.sources == ["two"] * 3 and tree.is_chain()


def test_a_tree_mixes_sources_and_the_first_owns_what_both_propose():
    forced = Scripted(lambda place, room: [[1, 2]] if place == 0 else [], "grammar")
    tail = Scripted(lambda place, room: [[1, 2, 3, 4]] if place == 0 else [[7, 7]] if place == 4 else [], "ngram")
    tree = grow([forced, tail], AllRows(), 10)
    assert tree.tokens[:6] == [1, 2, 3, 4, 7, 7] and tree.is_chain()
    assert tree.sources == ["grammar", "grammar", "ngram", "ngram", "ngram", "ngram"]
    assert tree.steps == [1, 2, 3, 4, 1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_growing_keeps_to_its_room_and_takes_the_likeliest_first(seed):
    chance = random.Random(seed)

    def paths(place, room):
        return [[chance.randrange(4) for _ in range(chance.randrange(7))] for _ in range(chance.randrange(4))]

    gate = AllRows()
    for room, deep in [(1, 1), (5, 2), (24, 24), (48, 6)]:
        tree = grow([Scripted(paths, "grammar"), Scripted(paths, "ngram")], gate, room, deep=deep)
        assert len(tree) <= room and max(tree.depths, default=0) <= deep
        assert all(parent < node for node, parent in enumerate(tree.parents))
        assert all(
            len(tree.children(n)) == len({tree.tokens[c] for c in tree.children(n)}) for n in range(-1, len(tree))
        )
        assert tree.ranks == [tree.children(p).index(n) for n, p in enumerate(tree.parents)]
    assert len(grow([Scripted(paths)], gate, 0)) == len(grow([Scripted(paths)], gate, 5, deep=0)) == 0


def test_a_source_that_is_off_is_not_asked():
    gate = ColibriGuard()
    gate.counts["off"] = [32, 15]

    def never(place, room):
        raise AssertionError("asked")

    assert grow([Scripted(never, "off"), Scripted(lambda p, r: [[1]], "on")], gate, 4).sources[0] == "on"
    assert grow([Scripted(never, "off")], gate, 4, linear=True).tokens == []
