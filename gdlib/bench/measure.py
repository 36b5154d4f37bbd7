"""The measurements behind the chapters on the price of a mask. Each function returns a tidy table.

All arms of a trial run in one process, interleaved, on the same logits. Every arm runs twice a round: once with nothing but
a clock around the whole, which gives the time of a step, and once with the clock read after every part, which says where
the time goes. The two are never mixed, and the table holds what the second one costs.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch

from gdlib.bench import workloads
from gdlib.bench.clock import interleave, make_clock, quiet_gc
from gdlib.bench.workloads import CHARACTERS, FAMILIES, Family, Prompt, conforms, is_json
from gdlib.decoding import HEAL, PARTS, Generation
from gdlib.decoding.free import free
from gdlib.decoding.guided import dense, guided
from gdlib.decoding.healing import heal
from gdlib.grammar import Grammar
from gdlib.grammar.nodes import longest
from gdlib.models.oracle import Oracle
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

# free twice: the second is the A/A control, the same code under another name
ORACLE_ARMS = ("free", "free again", "healing", "dense", "ours", "ours, nothing skipped", "fixed widths")
MODEL_ARMS = ("free", "free again", "healing", "dense", "ours")


def time_arms(arms: dict[str, Callable], device: torch.device, rounds: int, first: int, idle_steps: int = 0) -> dict:
    """Run every arm once untimed, then `rounds` times whole and `rounds` times in parts, interleaved.

    arms: name -> function of `lap` that returns a Generation. idle_steps: steps of a generation that cost nothing (a
    prompt that is already in the cache). Returns name -> (Generation, {column: median over the rounds, in us a step}).
    """
    clock = make_clock(device, len(PARTS))
    generations: dict[str, Generation] = {name: arm(None) for name, arm in arms.items()}
    seen: dict[str, list] = {name: [] for name in arms}
    with quiet_gc():
        for _, _, name in interleave(arms, rounds, first):
            clock.start()
            arms[name](None)
            clock.stop()
            whole = clock.whole_ns
            clock.start()
            arms[name](clock.lap)
            clock.stop()
            seen[name].append([whole, clock.whole_ns, *clock.parts_ns])
    columns = ["step_us", "instrumented_us", *(f"{part}_us" for part in PARTS)]
    out = {}
    for name, rows in seen.items():
        steps = max(len(generations[name].ids) - idle_steps, 1)
        data = np.array(rows, dtype=float)
        values = dict(zip(columns, np.median(data, axis=0) / 1000 / steps, strict=True))
        # of the same pass: what the parts do not account for is the loop between them
        values["parts_share"] = float(np.median(data[:, 2:].sum(axis=1) / data[:, 1]))
        out[name] = (generations[name], values)
    return out


def oracle_trials(
    schema: str,
    string_length: int,
    confidence: Sequence[float],
    trials: int,
    rounds: int,
    noise: float,
    seed: int,
    device: torch.device,
) -> pd.DataFrame:
    """One row a confidence, trial and arm: times a step in us, counts, and what the text was worth.

    Trials of one seed draw the same gold text at every confidence and, in all arms, the same noise at every step.
    """
    family = FAMILIES[schema]
    vocab = Vocabulary.from_characters(CHARACTERS)
    grammar, template = family.grammar(string_length), family.grammar(string_length, fixed=True)
    ours, fixed, masks = Matcher(grammar, vocab), Matcher(template, vocab), {}
    judge = family.schema(string_length)
    limit = longest(grammar.root) + 1
    rows = []
    for level in confidence:
        for trial in range(trials):
            trial_seed = seed * 1_000_003 + trial
            gold = family.gold(random.Random(f"{schema}/{string_length}/{trial_seed}"), string_length)
            gold_ids = [CHARACTERS.index(c) for c in gold]
            model = Oracle(gold_ids, vocab.eos_ids[0], len(vocab), level, noise, trial_seed, device)
            budget = len(gold_ids) + 1
            arms = _arms(model, (), vocab, ours, masks, limit)
            arms["ours, nothing skipped"] = lambda lap, m=model: guided(m, (), ours, limit, skip_forced=False, lap=lap)
            arms["fixed widths"] = lambda lap, m=model, b=budget: guided(m, (), fixed, b, lap=lap)
            measured = time_arms(arms, device, rounds, first=trial)
            for name in ORACLE_ARMS:
                generation, times = measured[name]
                text = vocab.decode(generation.ids).decode()
                if name == "healing":
                    text = heal(text) or text
                rows.append(
                    {
                        "schema": schema,
                        "string_length": string_length,
                        "confidence": level,
                        "trial": trial,
                        "seed": trial_seed,
                        "arm": name,
                        **times,
                        **_counts(generation),
                        "json_valid": is_json(text),
                        "schema_valid": conforms(text, judge),
                        "exact": text == gold,
                        "gold_fits": _accepts(fixed, gold_ids),
                        "cause": _cause(text, generation, judge),
                    }
                )
    return pd.DataFrame(rows)


def model_trials(
    model,
    tokenizer,
    vocab: Vocabulary,
    prompts: Sequence[Prompt],
    examples: Sequence[Prompt],
    shots: int,
    max_tokens: int,
    rounds: int,
    device: torch.device,
) -> pd.DataFrame:
    """One row a prompt and arm, on a real model (gdlib.models.hf.CausalModel).

    shots: 0 asks plainly, 1 shows a worked example of the same family first, another one out of `examples`. The prompt is read once, before the
    clock starts, and its keys and values serve all arms; a step is a forward over one token and all around it.
    """
    from gdlib.models.hf import chat_ids

    matchers: dict[tuple, Matcher] = {}
    rows = []
    for index, prompt in enumerate(prompts):
        example = next(p for p in examples if p.family == prompt.family and p.id != prompt.id) if shots else None
        prompt_ids = chat_ids(tokenizer, prompt.messages(example))
        judge = prompt.schema()
        if prompt.fields not in matchers:
            matchers[prompt.fields] = Matcher(prompt.grammar(), vocab)
        arms = _arms(model, prompt_ids, vocab, matchers[prompt.fields], {}, max_tokens, anywhere=True)
        measured = time_arms(arms, device, rounds, first=index, idle_steps=1)
        for name in MODEL_ARMS:
            generation, times = measured[name]
            ended = generation.stop == "eos"
            text = vocab.decode(generation.ids).decode(errors="replace")
            if name == "healing":
                text = heal(text, anywhere=True) or text
            rows.append(
                {
                    "prompt": prompt.id,
                    "family": prompt.family,
                    "shots": shots,
                    "arm": name,
                    **times,
                    **_counts(generation),
                    "prompt_tokens": len(prompt_ids),
                    "json_valid": is_json(text),
                    "schema_valid": conforms(text, judge),
                    "exact": is_json(text) and json.loads(text) == prompt.gold,
                    "failure": workloads.failure(text, judge, ended),
                    "text": json.dumps(text, ensure_ascii=True),
                }
            )
    return pd.DataFrame(rows)


def _arms(model, prompt_ids, vocab, matcher, masks, limit, anywhere=False) -> dict[str, Callable]:
    def healing(lap):
        generation = free(model, prompt_ids, vocab.eos_ids, limit, lap=lap)
        heal(vocab.decode(generation.ids).decode(errors="replace"), anywhere)
        if lap:
            lap(HEAL)
        return generation

    return {
        "free": lambda lap: free(model, prompt_ids, vocab.eos_ids, limit, lap=lap),
        "free again": lambda lap: free(model, prompt_ids, vocab.eos_ids, limit, lap=lap),
        "healing": healing,
        "dense": lambda lap: dense(model, prompt_ids, matcher, limit, masks, lap=lap),
        "ours": lambda lap: guided(model, prompt_ids, matcher, limit, lap=lap),
    }


def _counts(generation: Generation) -> dict:
    report = generation.report
    return {
        "generated_tokens": report["tokens"],
        "masked_steps": report.get("masked", 0),
        "forced_steps": report.get("forced", 0),
        "stop": generation.stop,
    }


def _accepts(matcher: Matcher, ids: Sequence[int]) -> bool:
    matcher.reset()
    return all(matcher.accept(i) for i in ids) and matcher.can_stop()


def _cause(text: str, generation: Generation, schema: dict) -> str:
    """Why a text of the oracle is not valid: "", "wrong field", "truncated", "leading zero" or "not JSON"."""
    if conforms(text, schema):
        return ""
    if is_json(text):
        return "wrong field"
    if generation.stop == "length":
        return "truncated"
    return "leading zero" if is_json(_without_leading_zeros(text)) else "not JSON"


def _without_leading_zeros(text: str) -> str:
    return re.sub(r"(?<=:)0+(?=\d)", "", text)


def vocabulary_of(name: str) -> Vocabulary:
    """`characters`, or a model's name: its tokenizer's vocabulary."""
    if name == "characters":
        return Vocabulary.from_characters(CHARACTERS)
    from gdlib.models.hf import load_tokenizer

    return Vocabulary.from_hf(load_tokenizer(name))


def build_trials(vocabulary: str, schema: str, string_length: int, processes: int, threads: int = 1) -> pd.DataFrame:
    """Cold and warm build of both decoders' tables: one row a fresh process, arm and temperature.

    cold is the first build of a process that has imported gdlib and loaded the vocabulary, warm the second. machine_ms: the
    byte machine; masks_ms: the masks of all its states (the usual dense way: a float tensor a state; ours: a bitmask a
    state), with the vocabulary's trie the first time; import_ms: from process start to imported.
    """
    rows = []
    for process in range(processes):
        for arm in ("dense", "ours"):
            command = [sys.executable, "-m", "gdlib.bench.measure", vocabulary, schema, str(string_length), arm, str(threads)]
            started = time.time()
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr[-2000:]}")
            report = json.loads(done.stdout.splitlines()[-1])
            for temperature in ("cold", "warm"):
                rows.append(
                    {
                        "vocabulary": vocabulary,
                        "schema": schema,
                        "string_length": string_length,
                        "trial": process,
                        "arm": arm,
                        "temperature": temperature,
                        **report[temperature],
                        "machine_state_count": report["states"],
                        "import_ms": (report["imported"] - started) * 1000,
                    }
                )
    return pd.DataFrame(rows)


def _build(family: Family, string_length: int, vocab: Vocabulary, arm: str) -> tuple[dict[str, float], int]:
    began = time.perf_counter_ns()
    grammar: Grammar = family.grammar(string_length)
    matcher = Matcher(grammar, vocab)
    middle = time.perf_counter_ns()
    states = matcher.state_count()
    for state in range(states):
        matcher.state = state
        if arm == "dense":
            mask = torch.full((len(vocab),), -torch.inf)
            mask[torch.from_numpy(matcher.allowed_ids())] = 0
        else:
            matcher.mask()
    ended = time.perf_counter_ns()
    return {"machine_ms": (middle - began) / 1e6, "masks_ms": (ended - middle) / 1e6}, states


def main(vocabulary: str, schema: str, string_length: str, arm: str, threads: str) -> None:
    """One fresh process of `build_trials`: prints one JSON line."""
    imported = time.time()
    torch.set_num_threads(int(threads))
    vocab = vocabulary_of(vocabulary)
    cold, states = _build(FAMILIES[schema], int(string_length), vocab, arm)
    warm, _ = _build(FAMILIES[schema], int(string_length), vocab, arm)
    print(json.dumps({"imported": imported, "cold": cold, "warm": warm, "states": states}))


if __name__ == "__main__":
    main(*sys.argv[1:])
