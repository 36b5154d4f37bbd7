"""Tokens to logits.

A model here is a callable with a memory: `model.reset()` starts a text, `model(new_ids)` reads some more tokens of it
and returns the logits of the token after the last, float[V] with V at least the vocabulary's size.
"""

from __future__ import annotations

import torch


def pick_device(name: str) -> torch.device:
    """`auto` (CUDA where there is one, else the CPU), `cpu`, `cuda` or `cuda:N`. RuntimeError where it is not here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RuntimeError(f"device={name!r} is not a device; use auto, cpu or cuda") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise RuntimeError(
            f"device={name!r} was asked for and there are {torch.cuda.device_count()} CUDA devices here; "
            "use device='auto' or 'cpu', or run on a machine with a GPU"
        )
    return device
