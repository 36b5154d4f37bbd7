"""What a mask costs, by schema, vocabulary and engine: the measurements behind the chapter on the price of a mask.

All engines run in one process on the same schemas, texts and tokens, case by case in shuffled order; an answer that is
wrong counts beside the time it took. A slow engine gets a share of the clock and no more: what it has no time for is
named in the table, never dropped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import pandas as pd
from jsonschema_rs import Draft202012Validator

from gdlib.bench import peers, schemas
from gdlib.bench.clock import interleave, quiet_gc
from gdlib.bench.workloads import CHARACTERS
from gdlib.tokens.vocabulary import Vocabulary

OUTCOMES = ("ok", "too strict", "too loose", "refuses", "left out", "not installed")
SMALL = 10_000  # tokens


def vocabulary_of(name: str) -> tuple[Vocabulary, Callable[[str], list[int]]]:
    """`characters`, `llama3`, `tekken`, or a model's tokenizer (see gdlib.models.hf.load); and what encodes a text."""
    if name == "characters":
        return Vocabulary.from_characters(CHARACTERS), lambda text: [CHARACTERS.index(c) for c in text]
    from gdlib.models import published

    if name in published.SOURCES:
        return published.published_vocabulary(name)
    from gdlib.bench.sweep import located
    from gdlib.models.hf import load_tokenizer

    tokenizer = load_tokenizer(located(name))
    return Vocabulary.from_hf(tokenizer), lambda text: tokenizer.encode(text, add_special_tokens=False)


def engine_trials(
    vocabularies: Sequence[str],
    levels: Mapping[str, Sequence[int]],
    arms: Sequence[str],
    trials: int,
    budget_s: float,
    seed: int,
    small_only: Collection[str] = (),
) -> pd.DataFrame:
    """One row a vocabulary, family, level, trial and arm: time to the first mask, between masks, and wrong answers.

    levels: family (see schemas.FAMILIES) -> levels, ascending. Every trial has a schema of its own, the same for all
    arms. budget_s: seconds an arm may take in all over one vocabulary; a case that would take more than is left of it,
    were the time to the first mask to grow in proportion to the level, is recorded as "left out". small_only: arms that
    are left out over any vocabulary larger than SMALL, where their first case may already take half a minute.

    compile_us is from the schema's text to an engine that is ready, ttfm_us with the first mask behind it; tbm_..._us
    are over all tokens of the case's texts, mask and commit together. `timed` is False, and times are 0, where nothing
    was measured. ValueError for less than one trial.
    """
    if trials < 1:
        raise ValueError(f"trials={trials}: at least one")
    rows = []
    for vocabulary in vocabularies:
        rows += _over_one(vocabulary, levels, arms, trials, budget_s, seed, small_only)
    return pd.DataFrame(rows)


def _over_one(vocabulary, levels, arms, trials, budget_s, seed, small_only) -> list[dict]:
    vocab, encode = vocabulary_of(vocabulary)
    engines, missing = peers.open_engines(arms, vocab, encode)
    absent = {arm: ("not installed", reason) for arm, reason in missing.items()}
    for arm in set(small_only) & set(engines) if len(vocab) > SMALL else ():
        del engines[arm]
        absent[arm] = ("left out", f"this sweep asks for it over at most {SMALL} tokens only")
    left = dict.fromkeys(engines, budget_s)
    last: dict[tuple, tuple[int, float, float]] = {}  # arm, family -> level, s to first mask, s of the texts, before
    for engine in engines.values():
        _case(engine, schemas.workload("properties", 4, -1), encode, vocab.eos_ids[0])  # loads its code
    rows = []
    with quiet_gc():
        for family, level in _ascending(levels):
            for trial in range(trials):
                trial_seed = seed * 1000 + trial
                work = schemas.workload(family, level, trial_seed)
                _judge(family, level, work)
                size = len(json.dumps(work.schema))
                for arm in interleave(list(arms), 1, trial_seed):
                    row = {
                        "vocabulary": vocabulary,
                        "vocabulary_tokens": len(vocab),
                        "family": family,
                        "level_count": level,
                        "schema_bytes": size,
                        "trial": trial,
                        "seed": trial_seed,
                        "arm": arm,
                        "version": peers.version(arm),
                    }
                    if arm in absent:
                        rows.append(row | _not_timed(*absent[arm], work))
                        continue
                    before, first, texts = last.get((arm, family), (level, 0.0, 0.0))
                    expected = first * max(1.0, level / before) + texts
                    if expected > left[arm] or left[arm] <= 0:
                        reason = f"{max(left[arm], 0):.1f} of {budget_s:g} s left, {expected:.1f} s expected or more"
                        rows.append(row | _not_timed("left out", reason, work))
                        continue
                    began = time.perf_counter()
                    rows.append(row | _case(engines[arm], work, encode, vocab.eos_ids[0]))
                    spent = time.perf_counter() - began
                    left[arm] -= spent
                    first = (rows[-1]["ttfm_us"] or rows[-1]["compile_us"]) / 1e6
                    last[arm, family] = (level, first, max(spent - first, 0.0))
    return rows


def _ascending(levels: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """Small cases of all families before large ones of any, so that a budget does not go to one family."""
    order = max((len(of) for of in levels.values()), default=0)
    return [(family, of[i]) for i in range(order) for family, of in levels.items() if i < len(of)]


def _judge(family: str, level: int, work: schemas.Workload) -> None:
    """jsonschema-rs must say of every text what the workload says of it."""
    validator = Draft202012Validator(work.schema)
    for text, valid in work.texts:
        if validator.is_valid(json.loads(text)) != valid:
            raise AssertionError(f"{family} {level}: {text[:80]!r} is said to be {'valid' if valid else 'invalid'}")


def _not_timed(outcome: str, reason: str, work: schemas.Workload, compile_us: float = 0.0) -> dict:
    zero = dict.fromkeys(("ttfm_us", "tbm_mean_us", "tbm_median_us", "tbm_p99_us", "tbm_max_us"), 0.0)
    counts = {"read_tokens": 0, "texts_count": len(work.texts), "too_strict_count": 0, "too_loose_count": 0}
    return {"outcome": outcome, "timed": False, "reason": reason, "compile_us": compile_us, **zero, **counts}


def _case(engine: peers.Engine, work: schemas.Workload, encode: Callable, eos_id: int) -> dict:
    """Compile, first mask, and every text token by token; times and the answers that were wrong."""
    text = json.dumps(work.schema, ensure_ascii=False)
    ids = [encode(text) for text, _ in work.texts]
    began = time.perf_counter_ns()
    reason = peers.refusal(engine, text)
    compiled = time.perf_counter_ns()
    if reason:
        return _not_timed("refuses", reason, work, (compiled - began) / 1000)
    engine.reset()
    engine.mask()
    first = time.perf_counter_ns()
    spent: list[int] = []
    strict = loose = 0
    for tokens, (_, valid) in zip(ids, work.texts, strict=True):
        taken = _timed_text(engine, tokens, eos_id, spent)
        strict += valid and not taken
        loose += taken and not valid
    times = np.array(spent) / 1000
    return {
        "outcome": "too loose" if loose else "too strict" if strict else "ok",
        "timed": True,
        "reason": "",
        "compile_us": (compiled - began) / 1000,
        "ttfm_us": (first - began) / 1000,
        "tbm_mean_us": float(times.mean()),
        "tbm_median_us": float(np.median(times)),
        "tbm_p99_us": float(np.percentile(times, 99)),
        "tbm_max_us": float(times.max()),
        "read_tokens": len(times),
        "texts_count": len(work.texts),
        "too_strict_count": strict,
        "too_loose_count": loose,
    }


def _timed_text(engine: peers.Engine, ids: Sequence[int], eos_id: int, spent: list[int]) -> bool:
    """As peers.takes, with the nanoseconds of every mask and commit added to `spent`."""
    clock = time.perf_counter_ns
    engine.reset()
    for token_id in ids:
        began = clock()
        engine.mask()
        masked = clock()
        if not peers.allows(engine, token_id):
            spent.append(masked - began)
            return False
        again = clock()
        engine.commit(token_id)
        spent.append(masked - began + clock() - again)
    engine.mask()
    return peers.allows(engine, eos_id)
