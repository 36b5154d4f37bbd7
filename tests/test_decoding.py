"""The loops: all guided ones write the same text, legal to its end, and sampling keeps the distribution."""

import itertools
import json
import random

import pytest
import torch

from gdlib.bench.workloads import CHARACTERS, FAMILIES, conforms
from gdlib.decoding import DecodingError
from gdlib.decoding.free import free
from gdlib.decoding.guided import dense, guided
from gdlib.decoding.healing import heal
from gdlib.decoding.sampling import pick
from gdlib.grammar import Grammar
from gdlib.grammar.nodes import Alt, Seq, literal, longest
from gdlib.models.oracle import Oracle
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

CHARS = Vocabulary.from_characters(CHARACTERS)
EOS = CHARS.eos_ids[0]


def ids_of(text):
    return [CHARACTERS.index(c) for c in text]


class Scripted:
    """A model whose logits at step t are row t of a table (its last row for ever after)."""

    def __init__(self, rows, context=None):
        self.rows, self.context = torch.as_tensor(rows, dtype=torch.float32), context
        self.reset()

    def reset(self):
        self.step = 0

    def __call__(self, new_ids):
        self.step += 1
        return self.rows[min(self.step, len(self.rows)) - 1].clone()


@pytest.mark.parametrize("schema", FAMILIES)
@pytest.mark.parametrize("length", [1, 4, 16])
@pytest.mark.parametrize("confidence", [0.05, 0.6, 0.95])
@pytest.mark.parametrize("noise", [0.0, 1.25, 30.0])
def test_guided_texts_are_valid_and_the_same_by_every_way(schema, length, confidence, noise):
    family = FAMILIES[schema]
    grammar = family.grammar(length)
    matcher, masks, limit = Matcher(grammar, CHARS), {}, longest(grammar.root) + 1
    for trial in range(6):
        gold = family.gold(random.Random(trial), length)
        model = Oracle(ids_of(gold), EOS, len(CHARS), confidence, noise, trial)
        by_dense = dense(model, (), matcher, limit, masks)
        assert by_dense.stop == "eos" and by_dense.ids.count(EOS) == 1 and by_dense.ids[-1] == EOS
        assert conforms(CHARS.decode(by_dense.ids).decode(), family.schema(length))
        for skip in (True, False):
            ours = guided(model, (), matcher, limit, skip_forced=skip)
            assert ours.ids == by_dense.ids and ours.stop == "eos"
            assert ours.report["tokens"] == ours.report["forwards"] == len(ours.ids)
            assert (ours.report["forced"] > 0) == skip
        if noise == 0 and confidence > 0.5:  # undisturbed and right: nothing is left to mask
            assert CHARS.decode(by_dense.ids).decode() == gold and ours.report["masked"] == 0
            assert free(model, (), [EOS], limit).ids == by_dense.ids


def test_gold_texts_are_in_their_grammar_and_schema():
    for family, length, seed in itertools.product(FAMILIES.values(), (1, 4, 16), range(20)):
        gold = family.gold(random.Random(seed), length)
        matcher = Matcher(family.grammar(length), CHARS)
        assert all(matcher.accept(i) for i in ids_of(gold)) and matcher.can_stop()
        assert conforms(gold, family.schema(length)) and json.dumps(json.loads(gold), separators=(",", ":")) == gold


def test_ties_go_to_the_lowest_id_everywhere():
    vocab = Vocabulary([b"a", b"b", b"c", b""], [3])
    grammar = Grammar(Seq((Alt((literal("b"), literal("c"))), Alt((literal("a"), literal("c"))))))
    model = Scripted(torch.zeros(1, 4))
    assert free(model, (), [3], 2).ids == [0, 0]
    for run in (
        guided(model, (), Matcher(grammar, vocab), 9),
        guided(model, (), Matcher(grammar, vocab), 9, skip_forced=False),
        dense(model, (), Matcher(grammar, vocab), 9, {}),
    ):
        assert run.ids == [1, 0, 3]


def test_eos_ends_a_text_once_and_length_cuts_it():
    model = Scripted([[0, 9, 0], [0, 0, 9], [9, 0, 0]])
    run = free(model, (), [2], 10)
    assert run.ids == [1, 2] and run.stop == "eos"
    run = free(model, (), [2], 1)
    assert run.ids == [1] and run.stop == "length"
    assert free(model, (), [2], 0).ids == []


def test_a_padded_head_is_never_chosen_by_guided_decoding():
    vocab = Vocabulary([b"a", b"b", b""], [2])
    model = Scripted([[0.0, 1.0, 2.0, 9.0, 8.0]])  # two ids more than the vocabulary has, and they are loudest
    grammar = Grammar(literal("ab"))
    assert guided(model, (), Matcher(grammar, vocab), 9, skip_forced=False).ids == [0, 1, 2]
    assert dense(model, (), Matcher(grammar, vocab), 9, {}).ids == [0, 1, 2]


def test_a_dead_end_of_the_vocabulary_is_an_error_not_a_wrong_text():
    vocab = Vocabulary([b"a", b""], [1])
    model, matcher = Scripted([[0.0, 0.0]]), Matcher(Grammar(literal("ab")), vocab)
    for run in (lambda: guided(model, (), matcher, 9), lambda: dense(model, (), matcher, 9, {})):
        with pytest.raises(DecodingError, match="step 1: no token of the vocabulary is legal here"):
            run()


def test_the_context_is_never_overrun():
    rows = torch.eye(3)[[0, 0, 0]]
    vocab = Vocabulary([b"a", b"b", b""], [2])
    grammar = Grammar(literal("a" * 50))
    for prompt in range(1, 8):
        model = Scripted(rows, context=8)
        for run in (
            free(model, [0] * prompt, [2], 50),
            guided(model, [0] * prompt, Matcher(grammar, vocab), 50),
            dense(model, [0] * prompt, Matcher(grammar, vocab), 50, {}),
        ):
            assert run.stop == "length" and len(run.ids) == 8 - prompt
    for prompt in (8, 9):
        with pytest.raises(ValueError, match=f"prompt of {prompt} tokens leaves no room in a context of 8"):
            free(Scripted(rows, context=8), [0] * prompt, [2], 50)


LOGITS = torch.tensor([1.0, 0.5, 0.0, -0.5, 2.0, -torch.inf])
LEGAL = (1, 2, 3)


def sample(decode, n: int) -> torch.Tensor:
    """Counts of the first token of n guided decodes over six tokens of which three are legal."""
    counts = torch.zeros(6)
    for _ in range(n):
        counts[decode()] += 1
    return counts


def p_value(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """Chi-square goodness of fit over the cells that can come."""
    keep = expected > 0
    if counts[~keep].sum():
        return 0.0
    e = expected[keep] * counts.sum()
    statistic = ((counts[keep] - e) ** 2 / e).sum()
    degrees = (keep.sum().double() - 1) / 2
    return 1 - torch.special.gammainc(degrees, statistic.double() / 2).item()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_trying_the_choice_first_keeps_the_masked_distribution(temperature):
    vocab = Vocabulary([bytes([c]) for c in b"abcdef"], [])
    matcher = Matcher(Grammar(Alt(tuple(literal(bytes([b"abcdef"[i]])) for i in LEGAL))), vocab)
    generator = torch.Generator().manual_seed(5)
    model = Scripted(LOGITS[None])
    masked = torch.full((6,), -torch.inf)
    masked[list(LEGAL)] = LOGITS[list(LEGAL)]
    expected = torch.softmax(masked / temperature, 0)
    options = {"temperature": temperature, "generator": generator}
    ways = [
        lambda: guided(model, (), matcher, 1, **options).ids[0],
        lambda: dense(model, (), matcher, 1, {}, **options).ids[0],
    ]
    for way in ways:
        assert p_value(sample(way, 8000), expected) > 1e-4

    def sabotaged():  # takes the largest legal logit where the sample was illegal
        token = pick(LOGITS, **options)
        return token if token in LEGAL else pick(masked)

    assert p_value(sample(sabotaged, 8000), expected) < 1e-9


def test_sampling_from_broken_logits_is_an_error():
    for bad in (torch.nan, torch.inf):
        with pytest.raises(RuntimeError):
            pick(torch.tensor([0.0, bad, 1.0]), temperature=1.0)


@pytest.mark.parametrize(
    ("text", "strict", "anywhere"),
    [
        ('{"a":1}', '{"a":1}', '{"a":1}'),
        (' {"a":1} and more', '{"a":1}', '{"a":1}'),
        ('{"a":1}}', '{"a":1}', '{"a":1}'),
        ('{"a":1', None, None),
        ("", None, None),
        ("12 men", "12", None),
        ('Here: {"a":[1]} done', None, '{"a":[1]}'),
        ('```json\n{"a": 1}\n```', None, '{"a": 1}'),
        ("[1, 2] [3]", "[1, 2]", "[1, 2]"),
        ("[" * 100_000, None, None),
    ],
)
def test_healing_keeps_the_longest_valid_prefix(text, strict, anywhere):
    assert heal(text) == strict and heal(text, anywhere=True) == anywhere


def test_healing_agrees_with_trying_every_prefix():
    rng = random.Random(3)
    for _ in range(300):
        text = "".join(rng.choice('{}[]":,1a ') for _ in range(rng.randrange(12)))
        valid = []
        for end in range(len(text) + 1):
            try:
                json.loads(text[:end])
                valid.append(text[:end].strip())
            except ValueError:
                continue
        assert heal(text) == (max(valid, key=len) if valid else None), text


def test_laps_name_every_part_of_every_step():
    matcher = Matcher(FAMILIES["flat"].grammar(2), CHARS)
    model = Oracle(ids_of('{"name":"ab"'), EOS, len(CHARS), 0.9, 0.0, 0)
    for run in (
        lambda lap: free(model, (), [EOS], 20, lap=lap),
        lambda lap: guided(model, (), matcher, 60, lap=lap),
        lambda lap: dense(model, (), matcher, 60, {}, lap=lap),
    ):
        seen = []
        generation = run(seen.append)
        assert seen.count(0) == len(generation.ids)  # a forward a step
        assert run(None).ids == generation.ids


def test_oracle_gives_every_arm_the_same_noise_and_says_what_is_wrong():
    model = Oracle([3, 1], 5, 6, 0.8, 1.0, seed=11)
    first = [model([]) for _ in range(4)]
    model.reset()
    assert all(torch.equal(a, model([])) for a in first)
    quiet = Oracle([3, 1], 5, 6, 0.8, 0.0, seed=11)
    assert torch.softmax(quiet([]), 0)[3].item() == pytest.approx(0.8)
    assert [quiet([]).argmax().item() for _ in range(3)] == [1, 5, 5]
    for confidence in (0, 1, 1.2):
        with pytest.raises(ValueError, match="confidence"):
            Oracle([1], 0, 3, confidence, 1.0, 0)
    with pytest.raises(ValueError, match="noise"):
        Oracle([1], 0, 3, 0.5, -1.0, 0)
