"""Jump-forward: what the grammar forces is committed without asking the model. A baseline, and not lossless.

SGLang and XGrammar do this. It saves the same forwards as grammar drafts and verifies nothing, so where the model
would have cut the forced text into other tokens its later choices are made behind a text it would not have written.
Compare with `speculative(..., matcher=...)`, whose output is the guided one.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import torch

from gdlib.decoding import Generation, room
from gdlib.decoding.guided import choose_legal
from gdlib.decoding.sampling import check_sampling, pick
from gdlib.drafts import MAX_DRAFT
from gdlib.tokens.matcher import Matcher


def jump(
    model,
    prompt_ids: Sequence[int],
    matcher: Matcher,
    max_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    draft_cap: int = 24,
) -> Generation:
    """Generate a text of the matcher's grammar; forced tokens, at most `draft_cap` a forward, are never questioned.

    The report: tokens, forwards, tokens_per_forward, seconds, tokens_per_s, stop, jumped (tokens committed so), and
    masked and forced as `guided` counts them. Raises what `guided` raises, and ValueError for a cap out of range.
    """
    check_sampling(temperature, top_k, top_p)
    if not 1 <= draft_cap <= MAX_DRAFT:
        raise ValueError(f"draft_cap={draft_cap}: want 1 to {MAX_DRAFT} forced tokens a forward")
    limit = room(model, prompt_ids, max_tokens)
    counts, jumped, forwards = {"masked": 0, "forced": 0}, 0, 0
    mask_first = temperature > 0 and (top_k > 0 or top_p < 1)
    out = Generation([], "length")
    ids = out.ids

    def draw(logits: torch.Tensor) -> int:
        return pick(logits, temperature, generator, top_k, top_p)

    def forced() -> list[int]:
        tokens = matcher.forced_tokens([*prompt_ids, *ids], draft_cap)[: max(limit - len(ids), 0)]
        for token in tokens:
            matcher.accept(token)
        ids.extend(tokens)
        return tokens

    began = perf_counter()
    model.reset()
    matcher.reset()
    logits, new = None, forced()
    jumped += len(new)
    while len(ids) < limit:
        if logits is None:  # the prompt alone first: it may be read already
            logits = model(prompt_ids)
            forwards += 1
        if new:
            logits = model(new)
            forwards += 1
        token = choose_legal(logits, matcher, draw, counts, mask_first=mask_first)
        ids.append(token)
        if token in matcher.vocab.eos_ids:
            out.stop = "eos"
            break
        tail = forced()
        jumped += len(tail)
        new = [token, *tail]
    seconds = perf_counter() - began
    out.report = {
        "tokens": len(ids),
        "forwards": forwards,
        "tokens_per_forward": len(ids) / max(forwards, 1),
        "seconds": seconds,
        "tokens_per_s": len(ids) / seconds,
        "jumped": jumped,
        "stop": out.stop,
        **counts,
    }
    return out
