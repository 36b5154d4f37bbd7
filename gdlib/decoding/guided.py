"""Guided decoding: the grammar decides what may come, the model which of it.

Two ways to the very same text. `dense` is the usual one: a mask tensor a state, cached, added to the logits of every
step. `guided` does less. Where one token alone is legal, nothing is chosen. Elsewhere the model's own choice is tried
first and the mask is built only where that choice is illegal. Greedily this changes nothing: a legal argmax of
all logits is the argmax of the legal ones. Under temperature it changes nothing either: with p the model's distribution
and Z the mass of the legal tokens, a legal token x comes out with probability p(x) + (1 - Z) p(x) / Z = p(x) / Z.
Where top-k or top-p cut the distribution this no longer holds: what they leave depends on the mask, which goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gdlib.decoding import MASK_APPLY, MASK_BUILD, SELECT, STATE_UPDATE, DecodingError, Generation, Lap, decode
from gdlib.decoding.sampling import pick
from gdlib.tokens.bitmask import apply_mask
from gdlib.tokens.matcher import Matcher


def guided(
    model,
    prompt_ids: Sequence[int],
    matcher: Matcher,
    max_tokens: int,
    *,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    skip_forced: bool = True,
    lap: Lap = None,
) -> Generation:
    """Generate a text of the matcher's grammar; `stop` is "length" where it was cut before its end.

    skip_forced=False looks at the model's choice even where one token alone is legal (to measure what skipping saves).
    """
    matcher.reset()
    counts = {"masked": 0, "forced": 0}
    mask_first = temperature > 0 and (top_k > 0 or top_p < 1)

    def draw(logits: torch.Tensor) -> int:
        token = pick(logits, temperature, generator, top_k, top_p)
        if lap:
            lap(SELECT)
        return token

    def choose(logits: torch.Tensor) -> int:
        return choose_legal(logits, matcher, draw, counts, mask_first=mask_first, skip_forced=skip_forced, lap=lap)

    generation = decode(model, prompt_ids, matcher.vocab.eos_ids, max_tokens, choose, lap)
    generation.report.update(counts)
    return generation


def choose_legal(
    logits: torch.Tensor,
    matcher: Matcher,
    draw: Callable[[torch.Tensor], int],
    counts: dict[str, int],
    *,
    mask_first: bool = False,
    skip_forced: bool = True,
    lap: Lap = None,
) -> int:
    """A legal token, accepted by the matcher: the only one there is, else what `draw` takes from the logits.

    logits: float[V], masked in place where `draw` took an illegal token of them, or before that with mask_first.
    counts: "forced" and "masked" are counted up. DecodingError where no token is legal.
    """
    token = matcher.only_token() if skip_forced else -1
    if token >= 0:
        counts["forced"] += 1
        matcher.accept(token)
    else:
        token = -1 if mask_first else draw(logits)
        if mask_first or not matcher.accept(token):
            counts["masked"] += 1
            row = matcher.mask()
            if lap:
                lap(MASK_BUILD)
            if not row.any():  # sampling from nothing would fail with a riddle
                _accept_masked(matcher, -1)
            apply_mask(logits, torch.from_numpy(row))
            if lap:
                lap(MASK_APPLY)
            token = draw(logits)
            _accept_masked(matcher, token)
    if lap:
        lap(STATE_UPDATE)
    return token


def dense(
    model,
    prompt_ids: Sequence[int],
    matcher: Matcher,
    max_tokens: int,
    masks: dict[int, torch.Tensor],
    *,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    lap: Lap = None,
) -> Generation:
    """The same text by a cached mask tensor a state, added to the logits at every step.

    masks: the cache, state -> float[V_model] of 0 and -inf, filled as states are met; pass the same one again for
    the same grammar, vocabulary, model and device.
    """
    matcher.reset()

    def choose(logits: torch.Tensor) -> int:
        mask = dense_mask(matcher, masks, logits)
        if lap:
            lap(MASK_BUILD)
        logits = logits + mask
        if lap:
            lap(MASK_APPLY)
        token = pick(logits, temperature, generator)
        if lap:
            lap(SELECT)
        _accept_masked(matcher, token)
        if lap:
            lap(STATE_UPDATE)
        return token

    generation = decode(model, prompt_ids, matcher.vocab.eos_ids, max_tokens, choose, lap)
    generation.report.update(masked=len(generation.ids), forced=0)
    return generation


def dense_mask(matcher: Matcher, masks: dict[int, torch.Tensor], logits: torch.Tensor) -> torch.Tensor:
    """The cached mask of the matcher's state, shaped like the logits: 0 at legal tokens, -inf elsewhere."""
    mask = masks.get(matcher.state)
    if mask is None:
        mask = torch.full_like(logits, -torch.inf)
        mask[torch.from_numpy(matcher.allowed_ids()).to(logits.device)] = 0
        masks[matcher.state] = mask
    return mask


def _accept_masked(matcher: Matcher, token: int) -> None:
    if not matcher.accept(token):
        left = len(matcher.allowed_ids())
        why = (
            "no token of the vocabulary is legal here" if not left else f"token {token} is not one of {left} legal ones"
        )
        raise DecodingError(
            f"step {matcher.accepted()}: {why}; the grammar needs bytes that the vocabulary or the logits rule out"
        )
