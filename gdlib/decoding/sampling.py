"""From logits to one token."""

from __future__ import annotations

import torch


def pick(
    logits: torch.Tensor,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
) -> int:
    """The token with the largest logit (the lowest id of a tie), or at a temperature above 0 one of `distribution`.

    logits: float[V]. Raises RuntimeError where sampling meets NaN or +inf.
    """
    if temperature == 0:
        return logits.argmax().item()
    return torch.multinomial(distribution(logits, temperature, top_k, top_p), num_samples=1, generator=generator).item()


def distribution(logits: torch.Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0) -> torch.Tensor:
    """float32[V]: the probabilities that `pick` samples from.

    logits: float[V]. softmax(logits / temperature), of which top_k > 0 leaves the k most probable tokens and top_p < 1
    the fewest most probable ones that hold at least that much of what top_k left (Holtzman et al. 2020). Of equal ones
    the lowest ids stay. Temperature 0 puts all on the largest logit.
    """
    if temperature == 0:
        return torch.zeros(logits.shape, device=logits.device).index_fill_(0, logits.argmax(), 1.0)
    # float32: a softmax in bfloat16 would round small probabilities to the same few values
    scaled = logits.float() / temperature
    if 0 < top_k < len(scaled):
        least = torch.topk(scaled, top_k).values[-1]
        above = scaled > least
        ties = torch.nonzero(scaled == least).flatten()[: top_k - int(above.sum())]
        scaled = torch.where(above.index_fill(0, ties, True), scaled, -torch.inf)
    probabilities = torch.softmax(scaled, dim=-1)
    if top_p < 1:
        falling, order = torch.sort(probabilities, descending=True, stable=True)
        falling[falling.cumsum(0) - falling >= top_p] = 0
        probabilities = torch.zeros_like(probabilities).scatter_(0, order, falling / falling.sum())
    return probabilities


def check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    """ValueError where one of them is out of its range."""
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature={temperature}: want 0 (greedy) or more")
    if top_k < 0:
        raise ValueError(f"top_k={top_k}: want 0 (all tokens) or how many to keep")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p}: want more than 0, at most 1 (all tokens)")
