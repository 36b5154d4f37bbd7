"""The measurements behind the chapters on the price of a mask. Each function returns a tidy table.

All arms of a trial run in one process, interleaved, on the same logits. On the oracle every arm runs twice a round:
once with nothing but a clock around the whole, which gives the time of a step, and once with the clock read after
every part, which says where the time goes. The two are never mixed, and the table holds what the second one costs.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from gdlib.bench import workloads
from gdlib.bench.clock import interleave, make_clock, quiet_gc
from gdlib.bench.cold import fill_masks, save_vocabulary
from gdlib.bench.sweep import located
from gdlib.bench.workloads import CHARACTERS, Prompt, conforms, family_of, is_json
from gdlib.decoding import HEAL, PARTS, Generation
from gdlib.decoding.free import free
from gdlib.decoding.guided import dense, guided
from gdlib.decoding.healing import heal
from gdlib.grammar import Grammar
from gdlib.grammar.nodes import literal, longest
from gdlib.models.oracle import Oracle
from gdlib.tokens.bitmask import apply_mask
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

# free twice: the second is the A/A control, the same code under another name
ORACLE_ARMS = ("free", "free again", "healing", "dense", "ours", "ours, nothing skipped", "fixed widths")
MODEL_ARMS = ("free", "free again", "dense", "ours")


def time_arms(
    arms: dict[str, Callable], device: torch.device, rounds: int, seed: int, twice: bool = True, idle_steps: int = 0
) -> dict:
    """Run every arm `rounds` times, interleaved in an order that `seed` shuffles.

    arms: name -> function of `lap` that returns a Generation. twice: a warm-up of every arm first, then whole and
    in parts by separate passes; without it one pass gives both, for models whose step dwarfs a reading of the clock.
    idle_steps: steps of a generation that cost nothing (a prompt that is already in the cache). Returns
    name -> (Generation, {column: median over the rounds, in us a step}).
    """
    clock = make_clock(device, len(PARTS))
    generations: dict[str, Generation] = {}
    seen: dict[str, list] = {name: [] for name in arms}
    if twice:
        for arm in arms.values():
            arm(None)
    for name in interleave(list(arms), rounds, seed):
        if twice:
            clock.start()
            arms[name](None)
            clock.stop()
            whole = clock.whole_ns
        clock.start()
        generations[name] = arms[name](clock.lap)
        clock.stop()
        seen[name].append([whole if twice else clock.whole_ns, clock.whole_ns, *clock.parts_ns])
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


@quiet_gc()
def oracle_trials(
    schema: str,
    string_length: Sequence[int],
    confidence: Sequence[float],
    trials: int,
    rounds: int,
    noise: float,
    seed: int,
    device: torch.device,
) -> pd.DataFrame:
    """One row a string length, confidence, trial and arm: times a step in us, counts, and what the text was worth.

    Every trial has a gold text and a noise of its own, the same in all its arms. ValueError for a schema that is not
    one of FAMILIES, and for less than one trial or round.
    """
    if trials < 1 or rounds < 1:
        raise ValueError(f"trials={trials}, rounds={rounds}: at least one of each")
    family = family_of(schema)
    vocab = Vocabulary.from_characters(CHARACTERS)
    rows = []
    for length in string_length:
        grammar, template = family.grammar(length), family.grammar(length, fixed=True)
        ours, fixed, masks = Matcher(grammar, vocab), Matcher(template, vocab), {}
        judge = family.schema(length)
        limit = longest(grammar.root) + 1
        for level, trial in itertools.product(confidence, range(trials)):
            trial_seed = random.Random(f"{seed}/{schema}/{length}/{level}/{trial}").getrandbits(31)
            gold = family.gold(random.Random(trial_seed), length)
            gold_ids = [CHARACTERS.index(c) for c in gold]
            model = Oracle(gold_ids, vocab.eos_ids[0], len(vocab), level, noise, trial_seed, device)
            arms = _arms(model, (), vocab, ours, masks, limit)
            arms |= _oracle_arms(model, ours, limit, fixed, budget=len(gold_ids))
            measured = time_arms(arms, device, rounds, trial_seed)
            for name in ORACLE_ARMS:
                generation, times = measured[name]
                text = vocab.decode(generation.ids).decode()
                if name == "healing":
                    text = heal(text) or text
                rows.append(
                    {
                        "schema": schema,
                        "string_length": length,
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


@quiet_gc()
def model_trials(
    model,
    tokenizer,
    vocab: Vocabulary,
    prompts: Sequence[Prompt],
    examples: Sequence[Prompt],
    arms: Sequence[str],
    baselines_on: Collection[str],
    shots: int,
    max_tokens: int,
    rounds: int,
    device: torch.device,
) -> pd.DataFrame:
    """One row a prompt and arm, on a real model (gdlib.models.hf.CausalModel).

    arms: out of MODEL_ARMS; `healing` is added as what `free` wrote and the time of healing it on top.
    baselines_on: ids of the prompts on which `dense` and `free again` run (they write what `ours` and `free` write, and
    a forward is dear). shots: 0 asks plainly, 1 shows a worked example of the same family first, another one out of
    `examples`. The prompt is read once, before the clock starts, and its keys and values serve all arms; a step is a
    forward over one token and all around it. All masks of a grammar are built beforehand, both ways; build_ms and
    mask_bytes say what that took.
    """
    from gdlib.models.hf import chat_ids

    if "free" not in arms or not set(arms) <= set(MODEL_ARMS):
        raise ValueError(f"arms={list(arms)}: want 'free' and others out of {', '.join(MODEL_ARMS)}")
    if rounds < 1:
        raise ValueError(f"rounds={rounds}: at least one")
    matchers: dict[tuple, Matcher] = {}
    rows = []
    Matcher(Grammar(literal("{")), vocab).mask()  # the first walk loads compiled code and builds the trie
    for index, prompt in enumerate(prompts):
        example = next(p for p in examples if p.family == prompt.family and p.id != prompt.id) if shots else None
        prompt_ids = chat_ids(tokenizer, prompt.messages(example))
        model.reset()
        logits = model(prompt_ids)
        if prompt.fields not in matchers:
            # One family's tables at a time: dense masks of all states take hundreds of MB (see the build sweep).
            began = time.perf_counter()
            matcher = Matcher(prompt.grammar(), vocab)
            bitmasks = fill_masks(matcher, None)
            apply_mask(logits.clone(), torch.from_numpy(matcher.mask()))  # its first call loads compiled code
            ours_ready = time.perf_counter()
            dense_masks = fill_masks(matcher, logits) if "dense" in arms else {}
            built = {
                "ours": (ours_ready - began, sum(mask.nbytes for mask in bitmasks.values())),
                "dense": (time.perf_counter() - began, sum(mask.nbytes for mask in dense_masks.values())),
            }
            matchers = {prompt.fields: matcher}
        every = _arms(model, prompt_ids, vocab, matcher, dense_masks, max_tokens)
        chosen = [arm for arm in arms if arm in ("free", "ours") or prompt.id in baselines_on]
        measured = time_arms({arm: every[arm] for arm in chosen}, device, rounds, seed=index, twice=False, idle_steps=1)
        generation, times = measured["free"]
        healed, healing_us = _timed_heal(vocab.decode(generation.ids))
        steps = max(len(generation.ids) - 1, 1)
        added = {name: times[name] + healing_us / steps for name in ("step_us", "instrumented_us")}
        measured["healing"] = (generation, {**times, **added, "heal_us": healing_us / steps})
        for name, (generation, times) in measured.items():
            text = vocab.decode(generation.ids).decode(errors="replace") if name != "healing" else healed
            rows.append(
                {
                    "prompt": prompt.id,
                    "family": prompt.family,
                    "shots": shots,
                    "arm": name,
                    **times,
                    **_counts(generation),
                    "prompt_tokens": len(prompt_ids),
                    "vocabulary_tokens": len(vocab),
                    "build_ms": built[name][0] * 1000 if name in built else 0.0,
                    "mask_bytes": built[name][1] if name in built else 0,
                    "machine_state_count": matcher.state_count(),
                    "json_valid": is_json(text),
                    "schema_valid": conforms(text, prompt.schema()),
                    "exact": is_json(text) and json.dumps(json.loads(text)) == json.dumps(prompt.gold),
                    "failure": workloads.failure(text, prompt.schema(), generation.stop == "eos"),
                    "text": json.dumps(text),  # one line of ASCII, whatever the model wrote
                }
            )
    return pd.DataFrame(rows)


def _timed_heal(raw: bytes) -> tuple[str, float]:
    """The healed text (the text itself where nothing heals it) and the microseconds that took."""
    began = time.perf_counter_ns()
    text = raw.decode(errors="replace")
    healed = heal(text, anywhere=True) or text
    return healed, (time.perf_counter_ns() - began) / 1000


def _arms(model, prompt_ids, vocab, matcher, masks, limit) -> dict[str, Callable]:
    def healing(lap):
        generation = free(model, prompt_ids, vocab.eos_ids, limit, lap=lap)
        heal(vocab.decode(generation.ids).decode())
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


def _oracle_arms(model, ours: Matcher, limit: int, fixed: Matcher, budget: int) -> dict[str, Callable]:
    return {
        "ours, nothing skipped": lambda lap: guided(model, (), ours, limit, skip_forced=False, lap=lap),
        "fixed widths": lambda lap: guided(model, (), fixed, budget, lap=lap),
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
    """`characters`, or the vocabulary of a model's tokenizer (see gdlib.models.hf.load)."""
    if name == "characters":
        return Vocabulary.from_characters(CHARACTERS)
    from gdlib.models.hf import load_tokenizer

    return Vocabulary.from_hf(load_tokenizer(located(name)))


def build_trials(vocabulary: str, schema: str, string_length: int, processes: int, threads: int = 1) -> pd.DataFrame:
    """Cold and warm build of both decoders' tables: one row a fresh process, arm and temperature.

    cold is the first build of a process that has imported gdlib and loaded the vocabulary, warm the second. machine_ms:
    the byte machine; masks_ms: the masks of all its states (the usual dense way: a float tensor a state; ours: a
    bitmask a state), with the vocabulary's trie the first time; import_ms: from process start to imported.
    """
    family_of(schema)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "vocabulary.json"
        save_vocabulary(vocabulary_of(vocabulary), saved)
        for process, arm in itertools.product(range(processes), ("dense", "ours")):
            command = [
                sys.executable,
                "-m",
                "gdlib.bench.cold",
                str(saved),
                schema,
                str(string_length),
                arm,
                str(threads),
            ]
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
                        "import_ms": (report["imported"] - started) * 1000,
                    }
                )
    return pd.DataFrame(rows)
