"""Free decoding: the model alone. The baseline that every other arm is measured against."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from gdlib.decoding import MODEL, SELECT, Generation, Lap, room
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
    max_tokens = room(model, prompt_ids, max_tokens)
    model.reset()
    ids: list[int] = []
    new = prompt_ids
    stop = "length"
    while len(ids) < max_tokens:
        logits = model(new)
        if lap:
            lap(MODEL)
        token = pick(logits, temperature, generator)
        ids.append(token)
        if lap:
            lap(SELECT)
        if token in eos_ids:
            stop = "eos"
            break
        new = (token,)
    return Generation(ids, stop, {"tokens": len(ids), "forwards": len(ids)})
