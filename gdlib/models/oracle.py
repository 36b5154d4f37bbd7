"""A model that knows the answer and is disturbed by noise.

The oracle of guided-decoding-bench: at step t the gold token of position t is lifted by a confidence and all others are
Gaussian noise. A forward costs next to nothing, so the price of everything around it is laid bare; and because the
gold text is tied to the position, a decoder that loses step with it keeps being pushed the wrong way, as a real model
pushes when it wants a text that the grammar does not allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


class Oracle:
    """gold: the ids to be pushed, one a step; past its end the eos is pushed.

    confidence: the probability that the softmax gives the gold token where the noise is zero, in (0, 1).
    noise: standard deviation of the other tokens' logits. One seed gives one noise a position, so that all
    decoders of a trial see the same logits at the same step.
    """

    def __init__(
        self,
        gold: Sequence[int],
        eos_id: int,
        vocab_size: int,
        confidence: float,
        noise: float,
        seed: int,
        device: torch.device | str = "cpu",
    ):
        if not 0 < confidence < 1:
            raise ValueError(f"confidence={confidence} is not between 0 and 1")
        if noise < 0:
            raise ValueError(f"noise={noise} is negative")
        self.gold = [int(i) for i in gold]
        self.eos_id, self.vocab_size, self.noise, self.seed = eos_id, vocab_size, noise, seed
        # softmax: e^lift / (e^lift + V - 1) = confidence
        self.lift = math.log(confidence / (1 - confidence)) + math.log(vocab_size - 1)
        self.device = torch.device(device)
        self._generator = torch.Generator(self.device)
        self.reset()

    def reset(self) -> None:
        self.position = 0
        self._generator.manual_seed(self.seed)

    def __call__(self, new_ids: Sequence[int]) -> torch.Tensor:
        """float32[V]: the logits of the next token. The tokens read do not matter, only how many steps went by."""
        logits = torch.randn(self.vocab_size, generator=self._generator, device=self.device).mul_(self.noise)
        logits[self.gold[self.position] if self.position < len(self.gold) else self.eos_id] = self.lift
        self.position += 1
        return logits
