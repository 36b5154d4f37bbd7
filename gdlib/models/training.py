"""How the tiny model came to be: a Qwen3-MoE of some megabytes and its multi-token head, on text made here.

One thread of a CPU and less than half an hour are enough. With the same seed, steps and software on the same machine
the weights come out the same; elsewhere rounding differs, so the checkpoint that is kept is the one that its card
describes.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from gdlib.models import corpus
from gdlib.models.hf import TINY_MOE_SHA256
from gdlib.models.mtp import MTPHead, save_head

EOS = "<|endoftext|>"
HELD_OUT = 1_000_003  # added to the seed: text that no step has seen


@dataclass(frozen=True)
class Recipe:
    """All that a run is decided by.

    steps of `tokens` tokens each, in rows of `short` tokens for the first 60 % of the steps and of `long` ones after
    that. rate: AdamW's peak (embedding, output, norms and routers); turn: that of Orthogonal (all other matrices);
    both rise over `warmup` steps and fall as a cosine to 5 %. balance, mtp: weights of the two losses beside the main
    one. vocabulary: tokens, learnt from so many `texts`; hidden, layers, experts, top_k, and expert, the width of one;
    head: the width of the multi-token head's feed-forward part, applied `depth` times.
    """

    steps: int = 1000
    tokens: int = 1024
    short: int = 512
    long: int = 1024
    rate: float = 3e-3
    turn: float = 0.02
    warmup: int = 20
    balance: float = 0.01
    mtp: float = 0.3
    seed: int = 0
    vocabulary: int = 1536
    texts: int = 4000
    hidden: int = 192
    layers: int = 4
    experts: int = 32
    top_k: int = 4
    expert: int = 56
    head: int = 256
    depth: int = 3


MEANS = {
    "steps": "steps of training",
    "tokens": "tokens of a step",
    "short": "tokens of a row in the first 60% of the steps",
    "long": "tokens of a row in the others",
    "rate": "peak rate of AdamW: embedding, output, norms and routers",
    "turn": "peak rate of the optimiser of all other matrices, whose steps are made orthogonal",
    "warmup": "steps in which both rates rise",
    "balance": "weight of the loss that keeps the experts in even use",
    "mtp": "weight of the multi-token head's loss",
    "seed": "of the weights and the text",
    "vocabulary": "tokens of the tokenizer, the end of a text among them",
    "texts": "texts that the tokenizer was learnt from",
    "hidden": "width of the model",
    "layers": "layers, each with attention and experts",
    "experts": "experts of a layer",
    "top_k": "experts that a token takes in each layer",
    "expert": "width of an expert",
    "head": "width of the head's feed-forward part",
    "depth": "how many times the head is applied, one guess each",
}  # what the card says of each


def make_tokenizer(recipe: Recipe):
    """A transformers tokenizer: byte-level BPE trained on the corpus, every digit a token of its own."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=[EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (text for _, text in islice(corpus.documents(recipe.seed), recipe.texts))
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=EOS, clean_up_tokenization_spaces=False)


def make_model(recipe: Recipe, vocabulary: int, eos: int) -> tuple[nn.Module, MTPHead]:
    """(a Qwen3-MoE of transformers, its head), float32, initialised from the seed."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(recipe.seed)
    config = Qwen3MoeConfig(
        vocab_size=vocabulary,
        hidden_size=recipe.hidden,
        intermediate_size=4 * recipe.expert,
        moe_intermediate_size=recipe.expert,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.hidden // 32,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=recipe.experts,
        num_experts_per_tok=recipe.top_k,
        norm_topk_prob=True,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        router_aux_loss_coef=recipe.balance,
        eos_token_id=eos,
        pad_token_id=eos,
        bos_token_id=None,
    )
    model = Qwen3MoeForCausalLM(config)
    head = MTPHead(recipe.hidden, recipe.hidden // 32, recipe.head, recipe.depth)
    for layer in head.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=config.initializer_range)
    return model, head


def rows(tokenizer, documents: Iterator[tuple[str, str]], length: int) -> Iterator[list[int]]:
    """Rows of `length` ids. Each begins with a document, holds as many as fit, and is cut where it is full."""
    while True:
        row: list[int] = []
        while len(row) < length:
            row += [*tokenizer(next(documents)[1])["input_ids"], tokenizer.eos_token_id]
        yield row[:length]


def losses(model, head: MTPHead, ids: torch.Tensor, part: tuple[slice, slice] | None = None) -> list[torch.Tensor]:
    """[main, balance, multi-token] losses of a batch int[B, S]; the last is there where the head reads a `part` of it.

    main: cross entropy of the next token, nats. balance: the mean over the layers of E * sum(share of selections * mean
    probability), 1 where all experts are used alike (Switch Transformers, arXiv 2101.03961). multi-token: the mean of
    the head's cross entropies over its depths.
    """
    out = model.model(input_ids=ids, use_cache=False, output_router_logits=True)
    hidden = out.last_hidden_state
    balance = []
    for logits in out.router_logits:
        shares = logits.softmax(-1)
        chosen = torch.zeros_like(shares).scatter_(-1, shares.topk(model.config.num_experts_per_tok).indices, 1.0)
        chosen = chosen.mean(0) / model.config.num_experts_per_tok
        balance.append(shares.shape[-1] * (chosen * shares.mean(0)).sum())
    main = F.cross_entropy(model.lm_head(hidden[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    result = [main, torch.stack(balance).mean()]
    if part is not None:
        ids, hidden, guesses = ids[part], hidden[part], []
        embedded = model.model.embed_tokens(ids[:, 1:])
        for depth, states in enumerate(head.states(hidden[:, :-1], embedded, model.model.norm)):
            logits = model.lm_head(states[:, depth:-1])
            guesses.append(F.cross_entropy(logits.flatten(0, 1), ids[:, depth + 2 :].flatten()))
        result.append(torch.stack(guesses).mean())
    return result


class Orthogonal(torch.optim.Optimizer):
    """Momentum whose step is made orthogonal, matrix by matrix: Muon (Jordan et al. 2024), for stacks of experts too.

    All singular values of a step are brought near 1 by rounds of a Newton-Schulz iteration with Muon's coefficients. In
    a run as short as this one it gets much further than AdamW does.
    """

    def __init__(self, weights, lr: float, momentum: float = 0.95):
        super().__init__(weights, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                memory = self.state[weight].setdefault("memory", torch.zeros_like(weight))
                memory.lerp_(weight.grad, 1 - group["momentum"])
                step = orthogonal(weight.grad.lerp(memory, group["momentum"]))
                tall = max(1.0, weight.shape[-2] / weight.shape[-1]) ** 0.5
                weight.add_(step, alpha=-group["lr"] * tall)


def orthogonal(x: torch.Tensor, rounds: int = 5) -> torch.Tensor:
    """[..., n, m] with the singular vectors of x, and singular values of about 0.7 to 1.2 (zero where x is zero)."""
    turned = x.shape[-2] > x.shape[-1]
    x = x.mT if turned else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-12)
    for _ in range(rounds):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.mT if turned else x


def train(recipe: Recipe, folder: Path, *, log: Callable[[dict], None] = lambda row: None, every: int = 250):
    """(model, head, tokenizer), trained by the recipe; the last checkpoint is in `folder`, one `every` so many steps.

    log: called every 20 steps with step, main, mtp and balance (the losses), rate and seconds.
    """
    tokenizer = make_tokenizer(recipe)
    model, head = make_model(recipe, len(tokenizer), tokenizer.eos_token_id)
    model.train()
    weights = [*model.parameters(), *head.parameters()]
    turned = [w for name, w in model.named_parameters() if ".layers." in name and w.ndim > 1 and ".gate." not in name]
    turned += [w for w in head.parameters() if w.ndim > 1]
    rest = [w for w in weights if not any(w is other for other in turned)]
    optimisers = [
        Orthogonal(turned, lr=recipe.turn),
        torch.optim.AdamW(rest, lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]
    peaks = [[group["lr"] for group in optimiser.param_groups] for optimiser in optimisers]
    documents = corpus.documents(recipe.seed)
    began = time.perf_counter()
    for step in range(recipe.steps):
        length = recipe.short if step < 0.6 * recipe.steps else recipe.long
        count = max(recipe.tokens // length, 1)
        source = rows(tokenizer, documents, length)
        ids = torch.tensor([next(source) for _ in range(count)])
        share = _schedule(step, recipe)
        for optimiser, rates in zip(optimisers, peaks, strict=True):
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * share
        found = losses(model, head, ids, _part(step, length, recipe.short))
        sum(weight * loss for weight, loss in zip((1.0, recipe.balance, recipe.mtp), found, strict=False)).backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        if step % 20 == 19 or step == recipe.steps - 1:
            values = dict(zip(("main", "balance", "mtp"), (loss.item() for loss in found), strict=False))
            log({"step": step + 1, **values, "rate": share, "seconds": time.perf_counter() - began})
        if (step + 1) % every == 0 or step == recipe.steps - 1:
            save(model, head, tokenizer, folder)
    return model.eval(), head.eval(), tokenizer


def _part(step: int, length: int, short: int) -> tuple[slice, slice] | None:
    """What the head reads of a batch: `short` tokens of its first row, their place in turn, every second step."""
    if step % 2 == 0:
        return None
    begin = step // 2 % max(length // short, 1) * short
    return slice(0, 1), slice(begin, begin + short)


def _schedule(step: int, recipe: Recipe) -> float:
    if step < recipe.warmup:
        return (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(recipe.steps - recipe.warmup, 1)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))


def save(model, head: MTPHead, tokenizer, folder: Path) -> None:
    """Write the checkpoint: weights in bfloat16, one tensor an expert and projection, as transformers lays them out."""
    from transformers import AutoModelForCausalLM

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    small = AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16)
    small.load_state_dict(model.state_dict())
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".tiny-") as scratch:
        small.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        save_head(head, Path(scratch))
        for path in Path(scratch).iterdir():
            os.replace(path, folder / path.name)


@torch.no_grad()
def evaluate(model, head: MTPHead, tokenizer, seed: int, documents: int = 8) -> dict[str, dict]:
    """kind of text -> loss (nats a token) and mtp on text that no step has seen, with `documents` of each kind.

    mtp: by depth, the share of places where the head's guess, made behind true tokens, is the model's own first choice.
    """
    out = {}
    for kind in corpus.KIND:
        total, count, right = 0.0, 0, torch.zeros(head.depth, 2)
        for _, text in islice(corpus.documents(seed + HELD_OUT, kind), documents):
            ids = torch.tensor([[*tokenizer(text)["input_ids"], tokenizer.eos_token_id]], device=model.device)
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
            logits = model.lm_head(hidden[0])
            total += F.cross_entropy(logits[:-1], ids[0, 1:], reduction="sum").item()
            count += ids.shape[1] - 1
            choice = logits.argmax(-1)
            states = head.states(hidden[:, :-1], model.model.embed_tokens(ids[:, 1:]), model.model.norm)
            for depth, state in enumerate(states):
                hits = model.lm_head(state[0, depth:]).argmax(-1) == choice[depth + 1 :]
                right[depth] += torch.tensor([hits.sum(), len(hits)])
        out[kind] = {"loss": total / count, "mtp": (right[:, 0] / right[:, 1]).tolist()}
    return out


def experts_used(model, tokenizer, seed: int, documents: int = 8) -> list[float]:
    """For every layer, the share of the selections that fell on its most used expert (1 / experts: all alike)."""
    k, counts = model.config.num_experts_per_tok, 0
    for _, text in islice(corpus.documents(seed + HELD_OUT), documents):
        ids = torch.tensor([tokenizer(text)["input_ids"]], device=model.device)
        with torch.no_grad():
            routed = model.model(input_ids=ids, use_cache=False, output_router_logits=True).router_logits
        counts += torch.stack([torch.bincount(r.topk(k).indices.flatten(), minlength=r.shape[-1]) for r in routed])
    return (counts.amax(1) / counts.sum(1)).tolist()


def sums(folder: Path) -> dict[str, str]:
    """file -> SHA-256 (hex) of the files that `gdlib.models.hf.TINY_MOE_SHA256` pins."""
    return {file: hashlib.sha256((Path(folder) / file).read_bytes()).hexdigest() for file in TINY_MOE_SHA256}


def write_card(folder: Path, recipe: Recipe, figures: dict) -> str:
    """Write README.md, the model card, into the folder, and return it.

    figures: kinds (of `evaluate`), experts (of `experts_used`), seconds, conforming: workload -> {lines, conforming,
    mtp}: of the greedy continuations of its prompts, whole lines of JSON, those that its grammar admits, and the share
    of the head's guesses that were accepted.
    """
    folder = Path(folder)
    kinds = "\n".join(
        f"| {kind} | {row['loss']:.2f} | " + " | ".join(f"{share:.0%}" for share in row["mtp"]) + " |"
        for kind, row in figures["kinds"].items()
    )
    written = "\n".join(
        f"| {name} | {row['lines']} | {row['conforming']} | {row['mtp']:.0%} |"
        for name, row in figures["conforming"].items()
    )
    depths = " | ".join(f"depth {depth + 1}" for depth in range(recipe.depth))
    values = "\n".join(f"| `{key}` | {value} | {MEANS[key]} |" for key, value in asdict(recipe).items())
    hashes = "\n".join(
        f"| `{file}` | {(folder / file).stat().st_size} | `{sha}` |" for file, sha in sums(folder).items()
    )
    most = ", ".join(f"{share:.1%}" for share in figures["experts"])
    card = CARD.format(
        recipe=recipe, kinds=kinds, written=written, depths=depths, bars="---|" * (recipe.depth + 2), values=values,
        hashes=hashes, most=most, alike=1 / recipe.experts, tokens=recipe.steps * recipe.tokens,
        seconds=figures["seconds"],
    )  # fmt: skip
    (folder / "README.md").write_text(card, encoding="utf-8")
    return card


CARD = """---
license: apache-2.0
library_name: transformers
---

# tiny-moe

A mixture of experts small enough to live in a repository: transformers' Qwen3-MoE layout, {recipe.layers} layers,
{recipe.experts} experts of width {recipe.expert}, {recipe.top_k} a token, hidden {recipe.hidden}, and a multi-token
head (`mtp.safetensors`, after DeepSeek-V3) that is applied up to {recipe.depth} times. It is there to measure decoding,
routing and reading experts from disk. It knows nothing: it continues records in the form they have, often with wrong
contents.

Written by `gdlib.models.training`; the figures below are of this very checkpoint.

## Use

It comes with gdlib under the name `tiny-moe`, and its files are checked against the sums below whenever it is loaded.
From the root of the repository:

```python
import gdlib
from gdlib.models import hf, moe, mtp

model, tokenizer = hf.load("tiny-moe")  # all in memory; or moe.stream("tiny-moe", slots=8), experts on disk
prompt = tokenizer.encode(open("workloads/example.txt").read())
answer = gdlib.generate(mtp.causal(model), prompt, tokenizer=tokenizer, drafts=["mtp", "ngram"], max_tokens=32)
print(answer.text, answer.report["sources"])
```

The same on the command line:
`.venv/bin/python -m gdlib generate --model tiny-moe --sources mtp,ngram --prompt-file workloads/example.txt`.
transformers loads the folder too (`AutoModelForCausalLM`), without the head. It has no chat form: give it the
beginning of a text of the kinds below.

## Data

Text that `gdlib.models.corpus` makes up from a seed: orders, function calls, events and reviews as NDJSON behind the
lines they are drawn from, questions with an answer and a line of JSON, and plain prose. Nothing else, and none of the
prompts of `workloads/`. The tokenizer is a byte-level BPE trained on the same text, digits one by one.

## Training

{tokens:,} tokens in {seconds:,.0f} s of wall clock, on one CPU thread. `make tiny-moe` does it again.

| name | value | what it is |
|---|---|---|
{values}

## Held-out text

Loss in nats a token, and how often the head's guess is the model's own first choice, behind true tokens.

| kind | loss | {depths} |
|{bars}
{kinds}

The most used expert of a layer has {most} of the selections ({alike:.1%} if all were alike).

## Greedy continuations of the workloads' prompts

Whole lines of JSON in them, how many of these the workload's grammar admits, and how many of the head's guesses were
accepted when all were verified.

| workload | lines | conforming | guesses accepted |
|---|---|---|---|
{written}

## Files

| file | bytes | SHA-256 |
|---|---|---|
{hashes}
"""
