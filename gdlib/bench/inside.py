"""What a mask costs inside gdlib: batches, what is kept from one grammar to the next, recognisers, and the parts of it.

One table in long form, a row a measured quantity, since the questions have different ones. Nothing in the engine knows
that it is measured: parts are laps around its methods, put on for one pass and taken off again.

    python -m gdlib.bench.inside GRAMMARS.json WARM

prints what one fresh process measures, as JSON; `cache_trials` starts it and reads that.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from gdlib.bench import schemas
from gdlib.grammar import Grammar
from gdlib.recognizers import RECOGNIZERS
from gdlib.recognizers.arena import Arena
from gdlib.tokens.bitmask import bitmask_words
from gdlib.tokens.forest import Forest
from gdlib.tokens.matcher import Matcher, fill_masks
from gdlib.tokens.vocabulary import Vocabulary

Encode = Callable[[str], list[int]]
QUESTIONS = ("batch", "cache", "recogniser", "parts")
BATCHES = ("one grammar", "a grammar a row")
SITUATIONS = ("cold process", "warm process", "same structure", "same grammar")
PARTS = ("reading", "lowering", "expansion", "spots", "walk", "copy", "accept")
BATCH_STEPS = 24


def inside_trials(
    vocabulary: str, vocab: Vocabulary, encode: Encode, batches: Sequence[int], processes: int, trials: int, seed: int
) -> pd.DataFrame:
    """All four questions over one vocabulary; see the functions below for arms and quantities.

    Columns: question, subject (grammar or family), arm, level_count (matchers of a batch, else the family's level),
    trial, quantity, value_us.
    """
    rows = [
        *batch_trials(vocab, encode, batches, trials, seed),
        *cache_trials(vocab, encode, processes, seed),
        *recognizer_trials(vocab, encode, trials, seed),
        *parts_trials(vocab, encode, trials, seed),
    ]
    table = pd.DataFrame(rows)
    table.insert(0, "vocabulary", vocabulary)
    table.insert(1, "vocabulary_tokens", len(vocab))
    return table


def _row(question: str, subject: str, arm: str, level: int, trial: int, quantity: str, ns: float) -> dict:
    return {
        "question": question,
        "subject": subject,
        "arm": arm,
        "level_count": level,
        "trial": trial,
        "quantity": quantity,
        "value_us": ns / 1000,
    }


def batch_trials(vocab: Vocabulary, encode: Encode, batches: Sequence[int], trials: int, seed: int) -> list[dict]:
    """A step of a batch: `fill_masks` over all matchers, then each takes its next token.

    Every matcher stands at another place of its text. quantity: "masks, first use" (they are made on the way), "masks,
    kept" (the same steps a second time) and "accept"; each the median over the steps, for the whole batch.
    """
    rows = []
    for trial, batch, arm in itertools.product(range(trials), batches, BATCHES):
        texts = []
        for index in range(1 if arm == BATCHES[0] else batch):
            work = schemas.workload("properties", 12, ((seed * 100 + trial) * 1000 + batch) * 1000 + index)
            texts.append((Matcher(Grammar.from_json_schema(work.schema), vocab), encode(work.texts[0][0])))
        standing = [(texts[i % len(texts)][0].copy(), texts[i % len(texts)][1]) for i in range(batch)]
        again: list[int] = []
        for quantity in ("masks, first use", "masks, kept"):
            filled, accepted = _batch_steps(standing, vocab)
            again += accepted
            rows.append(_row("batch", "properties", arm, batch, trial, quantity, float(np.median(filled))))
        rows.append(_row("batch", "properties", arm, batch, trial, "accept", float(np.median(again))))
    return rows


def _batch_steps(standing: list[tuple[Matcher, list[int]]], vocab: Vocabulary) -> tuple[list[int], list[int]]:
    """Nanoseconds of the masks and of the accepts of every step."""
    rows = np.zeros((len(standing), bitmask_words(len(vocab))), np.int32)
    matchers, places = [m for m, _ in standing], []
    for index, (matcher, ids) in enumerate(standing):
        place = index % len(ids)
        matcher.reset()
        for token in ids[:place]:
            matcher.accept(token)
        places.append(place)
    filled, accepted = [], []
    for _ in range(BATCH_STEPS):
        began = time.perf_counter_ns()
        fill_masks(matchers, rows)
        middle = time.perf_counter_ns()
        for index, (matcher, ids) in enumerate(standing):
            if places[index] == len(ids):
                matcher.reset()
                places[index] = 0
            if not matcher.accept(ids[places[index]]):
                raise AssertionError(f"token {places[index]} of a valid text was refused")
            places[index] += 1
        filled.append(middle - began)
        accepted.append(time.perf_counter_ns() - middle)
    return filled, accepted


def cache_trials(vocab: Vocabulary, encode: Encode, processes: int, seed: int) -> list[dict]:
    """What a process knows already, in fresh processes: arms are SITUATIONS.

    "cold process": the first grammar of a process that has only loaded the vocabulary. "warm process": the same grammar
    in one that read a grammar of another kind before. "same structure": then one with other names. "same grammar": then
    the first once more, from its schema on. quantity: "compile", "first mask" (behind it), "between masks" (mean over a
    text).
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "vocabulary.json"
        works = [schemas.workload("properties", 12, seed * 1000 + index) for index in range(2)]
        other = schemas.workload("choices", 4, seed)
        saved.write_text(
            json.dumps(
                {
                    "tokens": [token.hex() for token in vocab.tokens],
                    "eos_ids": vocab.eos_ids,
                    "works": [[work.schema, encode(work.texts[0][0])] for work in (other, *works)],
                }
            )
        )
        for process, warm in itertools.product(range(processes), (False, True)):
            command = [sys.executable, "-m", "gdlib.bench.inside", str(saved), str(int(warm))]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr[-2000:]}")
            for arm, times in json.loads(done.stdout.splitlines()[-1]).items():
                for quantity, ns in times.items():
                    rows.append(_row("cache", "properties", arm, 12, process, quantity, ns))
    return rows


def _one_process(path: str, warm: bool) -> dict[str, dict[str, float]]:
    raw = json.loads(Path(path).read_text())
    vocab = Vocabulary([bytes.fromhex(token) for token in raw["tokens"]], raw["eos_ids"])
    other, first, second = raw["works"]
    if not warm:
        return {"cold process": _once(vocab, *first)}
    _once(vocab, *other)
    return {
        "warm process": _once(vocab, *first),
        "same structure": _once(vocab, *second),
        "same grammar": _once(vocab, *first),
    }


def _once(vocab: Vocabulary, schema: dict, ids: Sequence[int]) -> dict[str, float]:
    row = np.zeros(bitmask_words(len(vocab)), np.int32)
    began = time.perf_counter_ns()
    matcher = Matcher(Grammar.from_json_schema(schema), vocab)
    compiled = time.perf_counter_ns()
    matcher.fill_mask(row)
    first = time.perf_counter_ns()
    for token in ids:
        matcher.fill_mask(row)
        matcher.accept(token)
    ended = time.perf_counter_ns()
    return {
        "compile": compiled - began,
        "first mask": first - compiled,
        "between masks": (ended - first) / len(ids),
    }


# Grammars that all three recognisers can read, and a text of each
REGULAR = {
    "date and time (regex)": (
        lambda: Grammar.from_regex(
            r"(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ"
        ),
        "2031-04-17T08:15:42Z",
    ),
    "list of words (GBNF)": (
        lambda: Grammar.from_gbnf('root ::= "[" item (", " item)* "]"\nitem ::= [0-9]+ | "\\"" [a-z ]* "\\""'),
        '[12, "some words in a row", 7, "and more", 2031]',
    ),
    "object (GBNF)": (
        lambda: Grammar.from_gbnf(
            'root ::= "{\\"name\\": " text ", \\"age\\": " number ", \\"known\\": " ("true" | "false") "}"\n'
            'text ::= "\\"" [^"\\\\\\x00-\\x1F]{0,30} "\\""\nnumber ::= "0" | [1-9] [0-9]{0,2}'
        ),
        '{"name": "Ann of the hills", "age": 31, "known": true}',
    ),
}


def recognizer_trials(vocab: Vocabulary, encode: Encode, trials: int, seed: int) -> list[dict]:
    """The same grammars by each recogniser, each time in an arena of its own, so that none finds another's masks.

    quantity: "compile" (the machine, from a grammar that is read), "first mask" and "between masks" (mean over a text).
    """
    rows = []
    for trial in range(-1, trials):  # the first round loads compiled code
        for (name, (make, text)), kind in itertools.product(REGULAR.items(), RECOGNIZERS):
            grammar, arena, ids = make(), Arena(kind == "earley"), encode(text)
            row = np.zeros(bitmask_words(len(vocab)), np.int32)
            began = time.perf_counter_ns()
            matcher = Matcher(grammar, vocab, kind, arena)
            compiled = time.perf_counter_ns()
            matcher.fill_mask(row)
            first = time.perf_counter_ns()
            taken = True
            for token in ids:
                matcher.fill_mask(row)
                taken &= matcher.accept(token)
            ended = time.perf_counter_ns()
            if not (taken and matcher.can_stop()):
                raise AssertionError(f"{name}: {kind} refused its text")
            if trial < 0:
                continue
            spent = {"compile": compiled - began, "first mask": first - compiled}
            for quantity, ns in {**spent, "between masks": (ended - first) / len(ids)}.items():
                rows.append(_row("recogniser", name, kind, 1, trial, quantity, ns))
    return rows


PART_WORKLOADS = {"properties": 50, "enum": 500, "characters": 100, "choices": 16, "tree": 4, "digits": 8}


def parts_trials(vocab: Vocabulary, encode: Encode, trials: int, seed: int) -> list[dict]:
    """Where the time of a grammar and its valid texts goes, in us for the whole of it.

    Two passes over two schemas of the same kind: "whole" has a clock around everything and nothing inside, "parts"
    reads it at every part. quantity: "whole", or one of PARTS: reading the schema, lowering it into the machine,
    expanding what a text reaches first, spots (what tokens do inside a repeated character), the walk over the
    vocabulary, copying the mask into the caller's row, accepting the token.
    """
    rows = []
    for trial in range(-1, trials):  # the first round loads compiled code and builds what all grammars share
        for family, level in PART_WORKLOADS.items():
            whole, parts = (
                schemas.workload(family, level, (seed * 100 + trial + 1) * 1000 + which) for which in (0, 1)
            )
            began = time.perf_counter_ns()
            _whole_case(vocab, encode, whole, None)
            ended = time.perf_counter_ns()
            laps = Laps()
            with laps.around({(Arena, "expand"): "expansion", (Forest, "_build"): "spots"}):
                _whole_case(vocab, encode, parts, laps)
            if trial >= 0:
                rows.append(_row("parts", family, "whole", level, trial, "whole", ended - began))
                rows += [_row("parts", family, "parts", level, trial, part, laps.ns[part]) for part in PARTS]
    return rows


class Laps:
    """ns[part]: nanoseconds spent in a part, without those of the parts inside it."""

    def __init__(self):
        self.ns = dict.fromkeys(PARTS, 0)
        self._open: list[str] = []
        self._last = 0

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.perf_counter_ns()
        if self._open:
            self.ns[self._open[-1]] += now - self._last
        self._last = now

    @contextlib.contextmanager
    def around(self, methods: dict[tuple[type, str], str]) -> Iterator[None]:
        """For as long as this lasts, every call of these methods is a part."""
        kept = {place: getattr(*place) for place in methods}

        def lapped(method: Callable, name: str) -> Callable:
            def call(*arguments):
                with self.part(name):
                    return method(*arguments)

            return call

        for (owner, attribute), name in methods.items():
            setattr(owner, attribute, lapped(kept[owner, attribute], name))
        try:
            yield
        finally:
            for (owner, attribute), method in kept.items():
                setattr(owner, attribute, method)


def _whole_case(vocab: Vocabulary, encode: Encode, work: schemas.Workload, laps: Laps | None) -> None:
    def part(name: str):
        return laps.part(name) if laps else contextlib.nullcontext()

    row = np.zeros(bitmask_words(len(vocab)), np.int32)
    with part("reading"):
        grammar = Grammar.from_json_schema(work.schema)
    with part("lowering"):
        matcher = Matcher(grammar, vocab)
    for text, valid in work.texts:
        if not valid:
            continue
        matcher.reset()
        for token in encode(text):
            with part("walk"):
                mask = matcher.mask()
            with part("copy"):
                row[:] = mask
            with part("accept"):
                matcher.accept(token)


if __name__ == "__main__":
    print(json.dumps(_one_process(sys.argv[1], sys.argv[2] == "1")))
