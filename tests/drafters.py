"""Scripted draft sources, a tiny real model and a Markov model, for the tests of drafting."""

import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gdlib.models.hf import CausalModel

torch.set_num_threads(1)  # identity is claimed for float32 on one thread


def tiny_llama(vocab_size=97, context=256, seed=0, **options):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        **options,
    )
    return LlamaForCausalLM(config).eval()


class Scripted:
    """Proposes what `paths(place, left)` says: place = how many tokens of the output come before, left = the room.

    gold: what plain decoding writes; it is there for `paths` to be right or wrong about.
    """

    def __init__(self, paths, name="scripted"):
        self.paths, self.name = paths, name
        self.committed = []

    def begin(self, prompt_ids):
        self.committed = []

    def commit(self, ids):
        self.committed += ids

    def propose(self, ahead, room):
        return [list(path)[:room] for path in self.paths(len(self.committed) + len(ahead), room)]


def right(gold, name="right"):
    return Scripted(lambda place, room: [gold[place : place + room]], name)


def wrong(gold, vocab_size, name="wrong"):
    return Scripted(lambda place, room: [[(t + 1) % vocab_size for t in gold[place : place + room]]], name)


def right_until(gold, vocab_size, seed, name="until"):
    """Right for a random number of tokens, then wrong."""
    chance = random.Random(seed)

    def paths(place, room):
        path = list(gold[place : place + room])
        for i in range(chance.randrange(len(path) + 1), len(path)):
            path[i] = (path[i] + 1 + chance.randrange(vocab_size - 1)) % vocab_size
        return [path]

    return Scripted(paths, name)


def noise(vocab_size, seed, name="noise"):
    chance = random.Random(seed)
    return Scripted(lambda place, room: [[chance.randrange(vocab_size) for _ in range(chance.randrange(6))]], name)


def bush(gold, vocab_size, seed, ways=4, name="bush"):
    """Several ways on, of any length; the right one among them most of the time, at a random place."""
    chance = random.Random(seed)

    def paths(place, room):
        out = []
        for _ in range(ways):
            path = list(gold[place : place + chance.randrange(1, 7)])
            if path and chance.random() < 0.7:
                path[chance.randrange(len(path))] = chance.randrange(vocab_size)
            out.append(path)
        return out

    return Scripted(paths, name)


class Markov:
    """A model whose next logits depend on the last token alone, row t of a table; it can verify trees."""

    def __init__(self, table, context=None):
        self.table, self.context = torch.as_tensor(table, dtype=torch.float32), context
        self.reset()

    def reset(self):
        self.length, self._pending = 0, None

    def __call__(self, new_ids):
        self.length += len(new_ids)
        return self.table[new_ids[-1]].clone()

    def verify(self, root, tree):
        self._pending = len(tree)
        return self.table[[root, *tree.tokens]]

    def keep(self, nodes):
        assert self._pending is not None and all(node < self._pending for node in nodes)
        self.length, self._pending = self.length + 1 + len(nodes), None

    def discard(self):
        self._pending = None


class Hashed:
    """A model whose logits depend on every token before them and on their order; quick, so good for wide sweeps."""

    def __init__(self, vocab_size, seed=0, scale=2.0, context=None):
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(1009, vocab_size, generator=generator) * scale
        self.context = context
        self.reset()

    def reset(self):
        self.text, self._read = [], None

    def __call__(self, new_ids):
        self.text += new_ids
        return self.table[self._hash(self.text)].clone()

    def verify(self, root, tree):
        self._read = [root, *tree.tokens]
        ways = [self.text + [root, *tree.path(node)] for node in range(-1, len(tree))]
        return self.table[[self._hash(way) for way in ways]]

    def keep(self, nodes):
        self.text += [self._read[0], *(self._read[node + 1] for node in nodes)]
        self._read = None

    def discard(self):
        self._read = None

    @property
    def length(self):
        return len(self.text)

    @staticmethod
    def _hash(ids):
        return hash(tuple(ids)) % 1009


def tiny_model(**options):
    return CausalModel(tiny_llama(**options))
