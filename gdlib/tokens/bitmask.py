"""Which tokens may come next, one bit a token.

The layout is the one that xgrammar and llguidance share: int32[ceil(V / 32)], bit i of word i >> 5 set where token i
may come. Logits may be wider than the vocabulary (padded output heads); every id past the last word's bits, and every
unset bit, is masked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

if TYPE_CHECKING:  # masks need no torch; only what touches logits loads it
    import torch


def bitmask_words(vocab_size: int) -> int:
    return (vocab_size + 31) // 32


def allocate_bitmask(batch: int, vocab_size: int) -> torch.Tensor:
    """int32[batch, ceil(V / 32)] on the CPU, all zero (nothing allowed)."""
    import torch

    return torch.zeros((batch, bitmask_words(vocab_size)), dtype=torch.int32)


def bitmask_to_ids(row: torch.Tensor | np.ndarray, vocab_size: int) -> np.ndarray:
    """int64[n]: the allowed token ids of one row, ascending."""
    words = np.asarray(row).astype(np.int32).view(np.uint8)
    return np.flatnonzero(np.unpackbits(words, bitorder="little")[:vocab_size])


def apply_mask(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Set the logits of every token that is not allowed to -inf, in place, and return `logits`.

    logits: float[V] or float[batch, V]; rows: int32[words] or int32[batch, words], moved to the device of the logits.
    No host synchronisation. Raises ValueError where shapes or dtypes do not fit.
    """
    import torch

    if rows.dtype != torch.int32 or rows.dim() != logits.dim() or rows.shape[:-1] != logits.shape[:-1]:
        raise ValueError(
            f"bitmask {rows.dtype}{list(rows.shape)} does not fit logits {list(logits.shape)}: "
            "want int32 with the same leading shape"
        )
    if not logits.is_floating_point():
        raise ValueError(f"logits must be floating point, got {logits.dtype}")
    if logits.device.type == "cpu" and logits.is_contiguous() and rows.is_contiguous():
        width = logits.shape[-1]
        if logits.dtype == torch.float32:
            _apply_cpu(logits.view(-1, width).numpy(), rows.view(-1, rows.shape[-1]).numpy(), np.float32(-np.inf))
            return logits
        if logits.dtype in (torch.bfloat16, torch.float16):
            minus_inf = torch.tensor(-torch.inf, dtype=logits.dtype).view(torch.int16).item()
            bits = logits.view(torch.int16).view(-1, width).numpy()
            _apply_cpu(bits, rows.view(-1, rows.shape[-1]).numpy(), np.int16(minus_inf))
            return logits
    rows = rows.to(logits.device, non_blocking=True)
    shifts = torch.arange(32, dtype=torch.int32, device=logits.device)
    allowed = ((rows.unsqueeze(-1) >> shifts) & 1).bool().flatten(-2)  # [..., words * 32]
    width = logits.shape[-1]
    if allowed.shape[-1] < width:
        allowed = torch.nn.functional.pad(allowed, (0, width - allowed.shape[-1]))
    return logits.masked_fill_(~allowed[..., :width], -torch.inf)


@numba.njit(cache=True, nogil=True)
def _apply_cpu(logits, rows, minus_inf):
    batch, width = logits.shape
    words = rows.shape[1]
    for b in range(batch):
        for w in range(words):
            word = rows[b, w]
            if word == -1:  # all 32 allowed
                continue
            stop = min(width, w * 32 + 32)
            for i in range(w * 32, stop):
                if (word >> (i & 31)) & 1 == 0:
                    logits[b, i] = minus_inf
        for i in range(words * 32, width):
            logits[b, i] = minus_inf
