"""From logits to one token."""

from __future__ import annotations

import torch


def pick(logits: torch.Tensor, temperature: float = 0.0, generator: torch.Generator | None = None) -> int:
    """The token with the largest logit (the lowest id of a tie), or at a temperature above 0 one sampled from softmax.

    logits: float[V]. Raises RuntimeError where sampling meets NaN or +inf.
    """
    if temperature == 0:
        return logits.argmax().item()
    # float32: a softmax in bfloat16 would round small probabilities to the same few values
    probabilities = torch.softmax(logits.float() / temperature, dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator).item()
