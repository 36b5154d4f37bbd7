"""One cold and one warm build of a decoder's tables, in a fresh process that imports no more than it needs.

    python -m gdlib.bench.cold VOCABULARY.json SCHEMA STRING_LENGTH ARM THREADS

prints one JSON line; gdlib.bench.measure.build_trials starts it and reads that line.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from gdlib.bench.workloads import FAMILIES
from gdlib.decoding.guided import dense_mask
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary


def save_vocabulary(vocab: Vocabulary, path: Path) -> None:
    """As JSON: a fresh process reads this in no time, and a tokenizer in seconds."""
    path.write_text(json.dumps({"tokens": [t.hex() for t in vocab.tokens], "eos_ids": vocab.eos_ids}))


def load_vocabulary(path: Path) -> Vocabulary:
    raw = json.loads(path.read_text())
    return Vocabulary([bytes.fromhex(t) for t in raw["tokens"]], raw["eos_ids"])


def build(schema: str, string_length: int, vocab: Vocabulary, arm: str) -> dict[str, float]:
    """Build the machine and the masks of all its states; returns times in ms, states counted, bytes of masks."""
    began = time.perf_counter_ns()
    matcher = Matcher(FAMILIES[schema].grammar(string_length), vocab)
    states = matcher.state_count()
    machine = time.perf_counter_ns()
    masks = fill_masks(matcher, torch.empty(len(vocab)) if arm == "dense" else None)
    ended = time.perf_counter_ns()
    return {
        "machine_ms": (machine - began) / 1e6,
        "masks_ms": (ended - machine) / 1e6,
        "machine_state_count": states,
        "mask_bytes": sum(mask.nbytes for mask in masks.values()),
    }


def fill_masks(matcher: Matcher, logits: torch.Tensor | None) -> dict:
    """State -> mask for every state: bitmasks, or dense ones shaped like `logits` where they are given."""
    masks: dict = {}
    for state in matcher.states():
        matcher.state = state
        if logits is None:
            masks[state] = matcher.mask()
        else:
            dense_mask(matcher, masks, logits)
    matcher.reset()
    return masks


def main(vocabulary: str, schema: str, string_length: str, arm: str, threads: str) -> None:
    imported = time.time()
    torch.set_num_threads(int(threads))
    vocab = load_vocabulary(Path(vocabulary))
    cold = build(schema, int(string_length), vocab, arm)
    warm = build(schema, int(string_length), vocab, arm)
    print(json.dumps({"imported": imported, "cold": cold, "warm": warm}))


if __name__ == "__main__":
    main(*sys.argv[1:])
