"""What drafts are worth: the workloads, the bound that a grammar sets, and one table row a prompt and arm.

All arms of a prompt run in one process, interleaved in an order drawn for the prompt, behind a prompt that is already
in the cache. Every lossless arm is compared with plain decoding token by token, so a row says what was gained and
whether anything was lost.
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from gdlib.bench.clock import quiet_gc
from gdlib.bench.sweep import root
from gdlib.decoding import Generation
from gdlib.decoding.generate import generate
from gdlib.decoding.jump import jump
from gdlib.drafts import SOURCES
from gdlib.drafts.gate import CLOCKED
from gdlib.grammar import Grammar
from gdlib.models.hf import chat_ids
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

FOLDER = "workloads"
# name -> (file of prompts, file of the grammar, most tokens, asked as a chat)
FILES = {
    "ndjson": ("orders", "orders", 128, False),
    "ndjson-spaced": ("orders-spaced", "orders", 128, False),
    "ndjson-spaced-tolerant": ("orders-spaced", "orders-tolerant", 128, False),
    "calls": ("calls", "calls", 112, False),
    "nested": ("nested", "events", 112, False),
    "long-text": ("reviews", "reviews", 144, False),
    "prose-tail": ("cards", "card", 128, False),
    "prose": ("prose", "orders", 128, True),
    "wrong": ("orders", "orders-stale", 128, False),
}

_ALL = ("grammar", "ngram", "branches")
# arm -> options of `generate`; those that constrain write the text of "constrained", all others that of "plain"
ARMS: dict[str, dict] = {
    "plain": {"drafts": ()},
    "plain again": {"drafts": ()},  # the A/A control: the same code under another name
    "colibri": {"drafts": ("grammar", "ngram"), "linear": True, "gate": "colibri"},
    "grammar, linear": {"drafts": ("grammar",), "linear": True, "gate": "all"},
    "grammar": {"drafts": ("grammar",)},
    "ngram": {"drafts": ("ngram",)},
    "branches": {"drafts": ("branches",)},
    "grammar + ngram": {"drafts": ("grammar", "ngram")},
    "grammar + branches": {"drafts": ("grammar", "branches")},
    "ngram + branches": {"drafts": ("ngram", "branches")},
    "all sources": {"drafts": _ALL},
    "mtp": {"drafts": ("mtp",)},  # where the model has a multi-token head
    "all sources, mtp": {"drafts": ("grammar", "ngram", "mtp", "branches")},
    "all sources, all rows": {"drafts": _ALL, "gate": "all"},
    "all sources, re-arming": {"drafts": _ALL, "gate": "rearming"},
    "constrained": {"drafts": (), "constrain": True},
    "constrained, all sources": {"drafts": _ALL, "constrain": True},
}
JUMP = "jump-forward"  # commits unverified: "identical" says how often that changed nothing
TRANSFORMERS, LOOKUP = "transformers", "transformers, prompt lookup"
LOOKUP_TOKENS = 10  # what transformers' documentation proposes
EVERY_ARM = (*ARMS, JUMP, TRANSFORMERS, LOOKUP)
ANY_MODEL = tuple(name for name in EVERY_ARM if "mtp" not in ARMS.get(name, {}).get("drafts", ()))  # needs no head


def clocked(options: Mapping, gate: str = "cost") -> bool:
    """Whether these options of `generate` verify drafts by measured time. gate: of options that name none."""
    return bool(options.get("drafts")) and options.get("gate", gate) in CLOCKED


@dataclass(frozen=True)
class Workload:
    """prompts: texts by `ids`, to be continued as they stand, or asked as a chat where `chat` is set."""

    name: str
    ids: list[str]
    prompts: list[str]
    grammar: Grammar
    max_tokens: int
    chat: bool

    def prompt_ids(self, tokenizer, index: int) -> list[int]:
        """The token ids of one prompt, in the tokenizer's chat form where there is one and it is asked for."""
        text = self.prompts[index]
        if self.chat and tokenizer.chat_template:
            return chat_ids(tokenizer, [{"role": "user", "content": text}])
        return list(tokenizer(text)["input_ids"])


def workloads(names: Iterable[str] = tuple(FILES)) -> list[Workload]:
    """The workloads of these names, in order. ValueError for one there is not, or a file that is not in order."""
    return [_load(name) for name in names]


def grammar_file(name: str) -> Path:
    """Where the grammar of a workload stands, as GBNF."""
    return root() / FOLDER / "grammars" / f"{FILES[name][1]}.gbnf"


def _load(name: str) -> Workload:
    if name not in FILES:
        raise ValueError(f"workload {name!r}: there is {', '.join(FILES)}")
    prompts, _, max_tokens, chat = FILES[name]
    ids, texts = read_prompts(root() / FOLDER / "drafts" / f"{prompts}.jsonl")
    rules = Grammar.from_gbnf(grammar_file(name).read_text(encoding="utf-8"))
    return Workload(name, ids, texts, rules, max_tokens, chat)


def read_prompts(path: str | Path) -> tuple[list[str], list[str]]:
    """(ids, texts) of a file with one {"id", "text"} a line. ValueError, with the line, where it is not such a file."""
    ids, texts = [], []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            ids.append(row["id"])
            texts.append(row["text"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: want an object with id and text ({error!r})") from error
    if not ids or len(set(ids)) < len(ids):
        raise ValueError(f"{path}: {'an id comes twice' if ids else 'no prompts in it'}")
    return ids, texts


_BYTES = Vocabulary([bytes([b]) for b in range(256)] + [b""], [256])


def forced_bytes(grammar: Grammar, pieces: Sequence[bytes], inside: bool = False) -> list[np.ndarray]:
    """bool[len(piece)] for every piece of a text: the bytes that the grammar left no choice but.

    The text is followed as a draft source follows it: from the first byte that the root admits, over what does not
    conform to the next such byte, and past the end of a sentence where one byte alone leads on. An empty piece stands
    for a special token, which ends what was being said. inside: the text begins in the grammar, as a constrained one.
    """
    matcher = Matcher(grammar, _BYTES)
    out = []
    for piece in pieces:
        flags = np.zeros(len(piece), bool)
        inside = inside and bool(piece)
        for index, byte in enumerate(piece):
            if inside:
                follows = matcher.allowed_ids()
                flags[index] = (follows < 256).sum() == 1
                inside = matcher.accept(byte)
            if not inside:
                flags[index] = False
                matcher.reset()
                inside = matcher.accept(byte)
        out.append(flags)
    return out


def forced_tokens(
    ids: Sequence[int], grammar: Grammar, vocab: Vocabulary, prompt_ids: Sequence[int] = ()
) -> list[bool]:
    """For each of `ids`, whether the grammar, read behind the prompt, leaves all bytes of the token no choice."""
    pieces = [vocab.decode([token]) for token in (*prompt_ids, *ids)]
    return [bool(flags.size and flags.all()) for flags in forced_bytes(grammar, pieces)[len(prompt_ids) :]]


def bound(ids: Sequence[int], grammar: Grammar, vocab: Vocabulary, prompt_ids: Sequence[int] = ()) -> float:
    """The most tokens a forward that drafts of forced text alone can give on this output: tokens over open tokens.

    ids: what the model wrote, in its own tokenisation. A token is open unless the grammar forces its every byte; the
    first is open in any case, since the prompt's forward carries no drafts. 1.0 is "nothing to gain" (no ids: 1.0).
    It is an upper bound: a forced token that a longer legal one could swallow counts as forced.
    """
    is_forced = forced_tokens(ids, grammar, vocab, prompt_ids)[1:]
    return len(ids) / (len(ids) - sum(is_forced)) if ids else 1.0


def structural_share(ids: Sequence[int], grammar: Grammar, vocab: Vocabulary, prompt_ids: Sequence[int] = ()) -> float:
    """The share of the bytes of `ids` that the grammar, read behind the prompt, leaves no choice; 0.0 of no bytes."""
    pieces = [vocab.decode([token]) for token in (*prompt_ids, *ids)]
    flags = forced_bytes(grammar, pieces)[len(prompt_ids) :]
    size = sum(map(len, flags))
    return float(sum(f.sum() for f in flags) / size) if size else 0.0


class Counter:
    """Counts forwards and rows of a transformers model while it is in use as a context manager.

    began: perf_counter() at the end of the first forward, which reads the prompt.
    """

    def __init__(self, model):
        self.model, self.forwards, self.rows, self.began = model, 0, 0, 0.0

    def __enter__(self) -> Counter:
        self._hooks = [
            self.model.register_forward_pre_hook(self._count, with_kwargs=True),
            self.model.register_forward_hook(self._end),
        ]
        return self

    def __exit__(self, *error) -> None:
        for hook in self._hooks:
            hook.remove()

    def _count(self, module, arguments, options) -> None:
        ids = arguments[0] if arguments else options["input_ids"]
        self.forwards += 1
        self.rows += ids.shape[-1]

    def _end(self, module, arguments, output) -> None:
        if self.forwards == 1:
            self.began = time.perf_counter()


def by_transformers(model, prompt_ids: Sequence[int], eos_ids: Sequence[int], max_tokens: int, lookup: int = 0):
    """A Generation by transformers' own greedy `generate`; lookup: its prompt_lookup_num_tokens, 0 for none.

    model: a CausalModel. The clock starts when the prompt was read, as it does for our loop, where the prompt is in the
    cache. (A cache of the prompt is no help here: the first forward of prompt lookup reads all of it again.) The
    report: tokens, forwards, tokens_per_forward, seconds, tokens_per_s, rows (beyond one a forward).
    """
    inner = model.model
    ids = torch.tensor([list(prompt_ids)], device=model.device)
    options = {"prompt_lookup_num_tokens": lookup} if lookup else {}
    with torch.no_grad(), Counter(inner) as counter:
        out = inner.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=max_tokens,
            eos_token_id=list(eos_ids),
            pad_token_id=eos_ids[0],
            **options,
        )
        seconds = time.perf_counter() - counter.began
    new = out[0, len(prompt_ids) :].tolist()
    report = {
        "tokens": len(new),
        "forwards": counter.forwards,
        "tokens_per_forward": len(new) / max(counter.forwards, 1),
        "seconds": seconds,
        "tokens_per_s": len(new) / seconds,
        "rows": counter.rows - len(prompt_ids) + 1 - counter.forwards,
    }
    return Generation(new, "eos" if new and new[-1] in eos_ids else "length", report)


def arms(
    model,
    vocab: Vocabulary,
    prompt_ids: Sequence[int],
    grammar: Grammar,
    max_tokens: int,
    names: Sequence[str] = ANY_MODEL,
    extra: Mapping[str, dict] = MappingProxyType({}),
    **options,
) -> dict[str, Callable[[], Generation]]:
    """name -> what decodes this prompt under that arm.

    extra: more arms, as in ARMS; a draft that is no name is called with (grammar, vocab) and gives a source.
    options: of `generate`, for all arms that take them (temperature, seed, draft_cap, ...); an arm's own win.
    ValueError for an arm there is not, and for transformers' arms, which are greedy here, under a temperature.
    """
    there = (*EVERY_ARM, *extra)
    unknown = [name for name in names if name not in there]
    if unknown:
        raise ValueError(f"arm {unknown[0]!r}: there is {', '.join(there)}")
    if options.get("temperature", 0) > 0 and not {TRANSFORMERS, LOOKUP}.isdisjoint(names):
        raise ValueError("transformers' arms are greedy: leave them out under a temperature")
    common = {"grammar": grammar, "max_tokens": max_tokens, **options}

    def ours(own: dict) -> Callable[[], Generation]:
        made = [draft if isinstance(draft, str) else draft(grammar, vocab) for draft in own["drafts"]]
        return lambda: generate(model, prompt_ids, vocab, **{**common, **own, "drafts": made})

    every = {name: ours(own) for name, own in {**ARMS, **extra}.items() if name in names}
    for name, lookup in ((TRANSFORMERS, 0), (LOOKUP, LOOKUP_TOKENS)):
        every[name] = lambda lookup=lookup: by_transformers(model, prompt_ids, vocab.eos_ids, max_tokens, lookup)
    sampling = {key: options[key] for key in ("temperature", "top_k", "top_p", "draft_cap") if key in options}

    def jumped() -> Generation:
        generator = torch.Generator(model.device).manual_seed(options.get("seed", 0))
        return jump(model, prompt_ids, Matcher(grammar, vocab), max_tokens, generator=generator, **sampling)

    every[JUMP] = jumped
    return {name: every[name] for name in names}


def base_of(arm: str) -> str:
    """The arm whose text this one should write."""
    return "constrained" if arm == JUMP or ARMS.get(arm, {}).get("constrain") else "plain"


def first_difference(ids: Sequence[int], base: Sequence[int]) -> int:
    """The index of the first token that differs, -1 where the two are the same."""
    if list(ids) == list(base):
        return -1
    same = (a == b for a, b in zip(ids, base, strict=False))
    return next((i for i, equal in enumerate(same) if not equal), min(len(ids), len(base)))


def top2_gap(model, prompt_ids: Sequence[int], ids: Sequence[int]) -> float:
    """How far the best logit behind prompt and ids is above the second best: near 0 is a tie that rounding decides."""
    model.reset()
    best = model([*prompt_ids, *ids]).float().topk(2).values
    return float(best[0] - best[1])


@quiet_gc()
def compare(
    model,
    tokenizer,
    vocab: Vocabulary,
    chosen: Sequence[Workload],
    names: Sequence[str] = ANY_MODEL,
    *,
    prompts: int = 0,
    rounds: int = 1,
    max_tokens: int = 0,
    seed: int = 0,
    **options,
):
    """pandas.DataFrame: one row a workload, prompt, arm and round. "plain" is always among the arms.

    model: a CausalModel of the tokenizer. prompts: the first so many of each workload, 0 for all; max_tokens: instead
    of the workload's own, 0 for those; options: see `arms`. Columns: workload, prompt, arm, round, order (place in the
    order of that prompt and round), tokens, forwards, tokens_per_forward, rows (of drafts verified), seconds,
    draft_seconds (of them, for growing trees), tokens_per_s, stop, bound and structural (of plain's text: see `bound`
    and `structural_share`), identical (to plain's ids, or to those of "constrained" for arms that constrain),
    first_difference (-1: none) and gap (between plain's two best logits there, NaN where there is none),
    proposed_<source> and accepted_<source>. A first short run of every arm, in no row, loads what is compiled.
    """
    import pandas as pd

    names = list(dict.fromkeys(["plain", *names]))
    if any(base_of(name) == "constrained" for name in names):
        names = list(dict.fromkeys(["plain", "constrained", *names]))
    rows, warm = [], False
    for workload in chosen:
        limit = max_tokens or workload.max_tokens
        for index in range(min(prompts, len(workload.prompts)) if prompts else len(workload.prompts)):
            prompt_ids = workload.prompt_ids(tokenizer, index)
            given = (model, vocab, prompt_ids, workload.grammar)
            if not warm:
                for run in arms(*given, min(limit, 3), names, **options).values():
                    run()
                warm = True
            here = []
            for turn in range(rounds):
                order = copy.copy(names)
                random.Random(f"{seed}/{workload.name}/{index}/{turn}").shuffle(order)
                model.reset()
                model(prompt_ids)  # read once, before the clock
                runs = arms(*given, limit, names, **options)
                done = {name: runs[name]() for name in order}
                for name in names:
                    here.append(_row(workload, index, name, turn, order.index(name), done))
            plain = done["plain"].ids
            highest = bound(plain, workload.grammar, vocab, prompt_ids)
            structural = structural_share(plain, workload.grammar, vocab, prompt_ids)
            for row in here:
                at = row["first_difference"]
                base = done[base_of(row["arm"])].ids
                lossless = base_of(row["arm"]) == "plain"
                row["bound"] = highest
                row["structural"] = structural
                row["gap"] = top2_gap(model, prompt_ids, base[:at]) if lossless and at >= 0 else float("nan")
            rows += here
    return pd.DataFrame(rows)


def _row(workload: Workload, index: int, name: str, turn: int, place: int, done: dict[str, Generation]) -> dict:
    generation, report = done[name], done[name].report
    at = first_difference(generation.ids, done[base_of(name)].ids)
    counts = report.get("sources", {})
    return {
        "workload": workload.name,
        "prompt": workload.ids[index],
        "arm": name,
        "round": turn,
        "order": place,
        "tokens": report["tokens"],
        "forwards": report["forwards"],
        "tokens_per_forward": report["tokens_per_forward"],
        "rows": report.get("rows", 0),
        "seconds": report["seconds"],
        "draft_seconds": report.get("draft_seconds", 0.0),
        "tokens_per_s": report["tokens_per_s"],
        "stop": generation.stop,
        "identical": at < 0,
        "first_difference": at,
        **{f"{what}_{source}": counts.get(source, {}).get(what, 0) for source in SOURCES for what in _COUNTED},
    }


_COUNTED = ("proposed", "accepted")
