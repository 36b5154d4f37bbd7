"""The multi-token head: what it reads, that it learns, its cache beside the model's, and drafts that change no text."""

import random

import pytest
import torch
from drafters import bush, noise, right_until, tiny_llama, wrong
from torch import nn

from gdlib import Grammar, Vocabulary
from gdlib.decoding.generate import generate
from gdlib.decoding.speculative import speculative
from gdlib.drafts.gate import AllRows
from gdlib.drafts.mtp import MTPSource
from gdlib.drafts.ngram import NGramSource
from gdlib.drafts.tree import ROOT, Tree
from gdlib.models.hf import HEAD_FILE, CausalModel
from gdlib.models.mtp import MTPHead, MTPModel, causal, load_head, save_head
from gdlib.models.training import losses
from gdlib.models.wheels import ModelError

V, H, DEPTH, PERIOD = 97, 32, 3, 13
CYCLE = [3 + 5 * i for i in range(PERIOD)]  # the toy text: each token has one that follows it
VOCAB = Vocabulary([bytes([32 + i]) for i in range(95)] + [b"", b""], [96])


def headed(seed=0, context=256, scale=3.0) -> MTPModel:
    """A model and a head with random weights, large enough that guesses differ from place to place."""
    model = tiny_llama(V, context=context, seed=seed)
    torch.manual_seed(seed + 1)
    model.mtp_head = MTPHead(H, 4, 48, DEPTH).eval()
    with torch.no_grad():
        for weight in model.mtp_head.parameters():
            weight.mul_(scale)
    return MTPModel(model)


@pytest.fixture(scope="module")
def taught() -> MTPModel:
    """A model and its head that learnt the cycle, read from any place in it."""
    model = headed(scale=1.0)
    inner, head = model.model, model.head
    weights = list(inner.parameters())
    optimiser = torch.optim.AdamW([*weights, *(w for w in head.parameters() if all(w is not v for v in weights))], 5e-3)
    for step in range(60):
        ids = torch.tensor([(CYCLE * 4)[(start := (step + 3 * row) % PERIOD) : start + 32] for row in range(4)])
        hidden = inner.model(input_ids=ids, use_cache=False).last_hidden_state
        loss = nn.functional.cross_entropy(inner.lm_head(hidden[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        states = head.states(hidden[:, :-1], inner.model.embed_tokens(ids[:, 1:]), inner.model.norm)
        for depth, state in enumerate(states):
            logits = inner.lm_head(state[:, depth:-1])
            loss = loss + nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, depth + 2 :].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return MTPModel(inner.eval())


def follow(token: int, count: int) -> list[int]:
    at = CYCLE.index(token)
    return [CYCLE[(at + i) % PERIOD] for i in range(1, count + 1)]


def share_right(model: MTPModel) -> float:
    """Of the guesses at every place of the cycle, all depths."""
    right = []
    for at in range(PERIOD):
        model.reset()
        text = (CYCLE * 3)[at : at + 17]
        model(text[:-1])
        right += [a == b for a, b in zip(model.mtp([text[-1]], DEPTH), follow(text[-1], DEPTH), strict=True)]
    return sum(right) / len(right)


# wiring


def test_a_head_that_learnt_a_cycle_is_right_at_every_depth(taught):
    assert share_right(taught) == 1.0


def test_all_drafts_of_the_cycle_are_accepted(taught):
    out = speculative(taught, CYCLE[:5], [MTPSource(taught)], [], 81, gate=AllRows())
    assert out.ids == follow(CYCLE[4], 81)
    assert out.report["sources"]["mtp"] == {"proposed": 60, "accepted": 60} and out.report["forwards"] == 21


def test_without_the_hidden_states_it_belongs_to_the_head_is_at_chance(taught):
    """The control: what the head knows it has from the model and not from the last token alone."""

    class Shuffled(MTPModel):
        def _run(self, hidden, ids, begin):
            return super()._run(torch.randn_like(hidden) * hidden.std(), [5] * len(ids), begin)

    assert share_right(Shuffled(taught.model)) < 0.3


def test_a_slot_reads_the_hidden_state_of_its_token_and_the_embedding_of_the_next():
    model = headed(scale=1.0)
    hidden, embedded = torch.randn(1, 9, H), torch.randn(1, 9, H)
    norm = model.model.model.norm
    plain = model.head.states(hidden, embedded, norm)
    for at in range(9):
        for which in (0, 1):
            changed = [hidden.clone(), embedded.clone()]
            changed[which][0, at] += 1.0
            for depth, (before, after) in enumerate(zip(plain, model.head.states(*changed, norm), strict=True)):
                moved = [slot for slot in range(depth, 9) if not torch.equal(before[0, slot], after[0, slot])]
                # a state of depth d has hidden states up to d slots back, and the embedding of its own slot
                first = at + depth if which == 0 else at
                assert moved == list(range(max(first, depth), 9)), (at, which, depth)


def test_the_head_drafts_what_it_was_trained_to():
    """Step for step with true tokens, the states are those of the loss: one slot off would show here."""
    model = headed()
    text = [random.Random(1).randrange(V) for _ in range(20)]
    with torch.no_grad():
        hidden = model.model.model(input_ids=torch.tensor([text])).last_hidden_state
        embedded = model.model.model.embed_tokens(torch.tensor([text[1:]]))
        states = model.head.states(hidden[:, :-1], embedded, model.model.model.norm)
    for read in range(1, 17):
        model.reset()
        model(text[:read])
        for depth in range(DEPTH):
            path = tuple(text[read : read + depth + 1])
            found = model._step(path).state[0]
            assert torch.allclose(found, states[depth][0, read - 1 + depth], atol=1e-4), (read, depth)


def test_the_loss_reads_the_token_after_the_next(taught):
    ids = torch.tensor([(CYCLE * 4)[:40]])

    inner = taught.model
    forward = inner.model.forward

    def routed(*args, output_router_logits, **options):
        out = forward(*args, **options)
        out.router_logits = [torch.zeros(40, 8)]
        return out

    inner.config.num_experts_per_tok = 2
    inner.model.forward = routed
    try:
        with torch.no_grad():
            main, balance, guess = losses(inner, taught.head, ids, (slice(0, 1), slice(0, 40)))
    finally:
        del inner.model.forward
    assert main < 0.2 and guess < 0.2 and balance == pytest.approx(1.0)


def test_guesses_vary_with_the_text():
    model = headed()
    guesses = set()
    for start in range(12):
        model.reset()
        model([start, start + 1, start + 2])
        guesses.add(tuple(model.mtp([start + 3], DEPTH)))
    assert len(guesses) > 8


# the head's cache beside the model's


def fresh(model: MTPModel, text) -> MTPModel:
    other = MTPModel(model.model)
    other(text)
    return other


def check_like_fresh(model: MTPModel, text: list[int], root: int) -> None:
    other = fresh(model, text)
    assert model.length == len(text) and model._ids[: len(text)] == text
    assert model.mtp([root], DEPTH) == other.mtp([root], DEPTH)
    assert torch.allclose(model._hidden[: len(text)], other._hidden[: len(text)], atol=1e-4)
    for kept, clean in ((model._keys, other._keys), (model._values, other._values)):
        assert torch.allclose(kept[:, : len(text)], clean[:, : len(text)], atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_after_any_walk_the_head_is_where_a_fresh_one_is(seed):
    chance = random.Random(seed)
    model = headed(seed)
    text = [chance.randrange(V) for _ in range(chance.randrange(1, 9))]
    model(text)
    for _ in range(25):
        root, move = chance.randrange(V), chance.random()
        if chance.random() < 0.5:
            model.mtp([root, *(chance.randrange(V) for _ in range(chance.randrange(3)))], DEPTH)
        if move < 0.2:
            model((root,))
            text.append(root)
        elif move < 0.3:
            model.verify(root, Tree())
            model.keep([])
            text.append(root)
        else:
            tree = Tree()
            for node in range(chance.randrange(1, 8)):
                at = chance.randrange(-1, node) if node else ROOT
                token = chance.randrange(V)
                if tree.child(at, token) < 0:
                    tree.append(at, token, "x", 1)
            model.verify(root, tree)
            if move < 0.4:
                model.discard()
            else:
                kept = tree.nodes(chance.randrange(-1, len(tree)))
                model.keep(kept)
                text += [root, *(tree.tokens[node] for node in kept)]
        check_like_fresh(model, text, chance.randrange(V))


def test_a_kept_prompt_keeps_its_slots():
    model = headed()
    prompt = [5, 9, 2, 40, 41]
    model(prompt)
    first = model.mtp([7], DEPTH)
    model((7, 8, 9))
    model.mtp([1], DEPTH)
    for other in ([7], [50], [7]):
        model.reset()
        model(prompt)
        assert model._filled == len(prompt) - 1
        check_like_fresh(model, prompt, other[0])
    assert model.mtp([7], DEPTH) == first
    model.reset()
    model([1, 2])
    check_like_fresh(model, [1, 2], 3)


def test_paths_side_by_side_do_not_disturb_each_other():
    model = headed()
    model([4, 8, 15])
    asked = [(16, 23), (16, 42, 1), (16,), (16, 23, 5), (7,), (16, 42), (16, 23)]
    alone = []
    for path in asked:
        other = fresh(model, [4, 8, 15])
        alone.append(other.mtp(path, DEPTH))
    assert [model.mtp(path, DEPTH) for path in asked] == alone
    assert [len(guesses) for guesses in alone] == [2, 1, 3, 1, 3, 2, 2]
    assert model.mtp((16, 23, 5, 6), DEPTH) == [] == model.mtp((), DEPTH) == model.mtp((16,), 0)


def test_before_a_prompt_there_are_no_guesses():
    model = headed()
    assert model.mtp([1], DEPTH) == []
    model([1, 2])
    model.reset()
    assert model.mtp([1], DEPTH) == []


@pytest.mark.parametrize("left", range(7))
def test_guesses_end_where_the_context_does(left):
    model = headed(context=32)
    model(list(range(1, 33 - left)))
    assert len(model.mtp([5], DEPTH)) == max(min(DEPTH, left - 1), 0)


# drafts change nothing


SOURCES = {
    "mtp": lambda model, gold: [MTPSource(model)],
    "mtp, ngram": lambda model, gold: [MTPSource(model), NGramSource()],
    "mtp, others": lambda model, gold: [right_until(gold, V, 1), MTPSource(model), bush(gold, V, 2), noise(V, 3)],
    "wrong, mtp": lambda model, gold: [wrong(gold, V), MTPSource(model)],
}


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("kind", SOURCES)
def test_text_is_that_of_plain_decoding(kind, linear):
    for seed, temperature in ((0, 0.0), (1, 0.9)):
        model = headed(seed)
        prompt, generator = [5 + seed, 6, 7], torch.Generator()
        common = {"temperature": temperature, "generator": generator}
        plain = speculative(model, prompt, [], [], 80, **common)
        sources = SOURCES[kind](model, plain.ids + [1] * 30)
        generator.manual_seed(generator.initial_seed())
        out = speculative(model, prompt, sources, [], 80, gate=AllRows(), linear=linear, draft_cap=9, **common)
        assert out.ids == plain.ids and out.stop == plain.stop
        assert linear or out.report["sources"]["mtp"]["proposed"] > 0


def test_text_under_a_grammar_is_that_of_plain_decoding(taught):
    grammar = Grammar.from_gbnf('root ::= ("(" [a-z]+ ")" | "[" [0-9]+ "]")+')
    for constrain in (False, True):
        common = {"grammar": grammar, "max_tokens": 90, "constrain": constrain}
        plain = generate(taught, CYCLE[:4], VOCAB, drafts=(), **common)
        out = generate(taught, CYCLE[:4], VOCAB, drafts=("grammar", "mtp", "ngram", "branches"), gate="all", **common)
        assert out.ids == plain.ids and out.report["rows"] > 0


@pytest.mark.parametrize("left", range(1, 7))
def test_the_context_may_fill_up(left):
    model = headed(context=64)
    prompt = list(range(1, 65 - left))
    plain = speculative(model, prompt, [], [], 20)
    out = speculative(model, prompt, [MTPSource(model)], [], 20, gate=AllRows())
    assert out.ids == plain.ids and out.stop == plain.stop == "length" and len(out.ids) == left


def test_logits_are_those_of_a_model_without_a_head():
    model = headed()
    plain = CausalModel(model.model)
    assert torch.equal(model([1, 2, 3]), plain([1, 2, 3]))
    model.mtp([4], DEPTH)
    assert torch.equal(model([4]), plain([4]))


# files


def test_the_wrapper_goes_by_the_head():
    model = headed()
    assert type(causal(model.model)) is MTPModel and type(causal(tiny_llama(V))) is CausalModel


def test_a_head_comes_back_from_its_file(tmp_path):
    head = headed().head
    save_head(head, tmp_path)
    back = load_head(tmp_path, dtype=torch.bfloat16)
    assert back.depth == DEPTH and all(
        a.bfloat16().equal(b) for a, b in zip(head.parameters(), back.parameters(), strict=True)
    )


@pytest.mark.parametrize("what", ["absent", "short", "other sizes"])
def test_a_head_that_is_not_whole_is_refused_by_name(tmp_path, what):
    if what != "absent":
        save_head(headed().head, tmp_path)
    path = tmp_path / HEAD_FILE
    if what == "short":
        path.write_bytes(path.read_bytes()[:-1])
    if what == "other sizes":
        path.write_bytes(path.read_bytes().replace(b'"width":"48"', b'"width":"50"'))
    with pytest.raises(ModelError, match=HEAD_FILE):
        load_head(tmp_path)
