"""Free decoding: the model alone. The baseline that every other arm is measured against."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from gdlib.decoding import SELECT, Generation, Lap, decode
from gdlib.decoding.sampling import pick


def free(
    model,
    prompt_ids: Sequence[int],
    eos_ids: Collection[int],
    max_tokens: int,
    *,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    lap: Lap = None,
) -> Generation:
    """Generate until an eos, `max_tokens`, or the end of the model's context."""

    def choose(logits: torch.Tensor) -> int:
        token = pick(logits, temperature, generator)
        if lap:
            lap(SELECT)
        return token

    return decode(model, prompt_ids, eos_ids, max_tokens, choose, lap)
