"""One cold and one warm build of a decoder's tables, in a fresh process that imports no more than it needs.

    python -m gdlib.bench.cold VOCABULARY SCHEMA STRING_LENGTH ARM THREADS

prints one JSON line; gdlib.bench.measure.build_trials starts it and reads that line.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from gdlib.bench.workloads import CHARACTERS, FAMILIES
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary


def vocabulary_of(name: str) -> Vocabulary:
    """`characters`, or the vocabulary of a model's tokenizer (see gdlib.models.hf.load)."""
    if name == "characters":
        return Vocabulary.from_characters(CHARACTERS)
    from gdlib.models.hf import load_tokenizer

    return Vocabulary.from_hf(load_tokenizer(name))


def build(schema: str, string_length: int, vocab: Vocabulary, arm: str) -> tuple[dict[str, float], int]:
    """Build machine and masks of all states; returns the times in ms and the number of states."""
    began = time.perf_counter_ns()
    matcher = Matcher(FAMILIES[schema].grammar(string_length), vocab)
    machine = time.perf_counter_ns()
    for state in range(matcher.state_count()):
        matcher.state = state
        if arm == "dense":
            mask = torch.full((len(vocab),), -torch.inf)
            mask[torch.from_numpy(matcher.allowed_ids())] = 0
        else:
            matcher.mask()
    masks = time.perf_counter_ns()
    return {"machine_ms": (machine - began) / 1e6, "masks_ms": (masks - machine) / 1e6}, matcher.state_count()


def main(vocabulary: str, schema: str, string_length: str, arm: str, threads: str) -> None:
    imported = time.time()
    torch.set_num_threads(int(threads))
    vocab = vocabulary_of(vocabulary)
    cold, states = build(schema, int(string_length), vocab, arm)
    warm, _ = build(schema, int(string_length), vocab, arm)
    print(json.dumps({"imported": imported, "cold": cold, "warm": warm, "states": states}))


if __name__ == "__main__":
    main(*sys.argv[1:])
