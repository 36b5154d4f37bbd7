"""The loops: free, healing, guided (ours), dense (the usual way), speculative (drafted) and jump (unverified).

Every loop is a plain function over a model, prompt ids and a limit. Those that go one token a step take an optional
`lap`, called with the number of the part of the step that has just ended, so that one loop serves both for use and for
measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # whoever only wants the names of the parts does not pay for torch
    import torch

PARTS = ("model", "mask_build", "mask_apply", "select", "state_update", "heal")
MODEL, MASK_BUILD, MASK_APPLY, SELECT, STATE_UPDATE, HEAL = range(len(PARTS))

Lap = Callable[[int], None] | None


class DecodingError(RuntimeError):
    """A decode that cannot go on; the message says at which step and why."""


def room(model, prompt_ids: Sequence[int], max_tokens: int) -> int:
    """How many tokens may be generated: `max_tokens`, or what the model's context leaves beside the prompt.

    ValueError where the prompt leaves nothing.
    """
    context = getattr(model, "context", None)
    if context is None:
        return max_tokens
    if len(prompt_ids) >= context:
        raise ValueError(f"a prompt of {len(prompt_ids)} tokens leaves no room in a context of {context}: shorten it")
    return min(max_tokens, context - len(prompt_ids))


@dataclass
class Generation:
    """ids: what was generated, the eos included where there is one; stop: "eos" or "length".

    report: counts of this run, `tokens`, `forwards`, and for guided decoding how many steps needed a mask and how
    many had a single legal token; see `speculative` for what drafting adds. text: the ids as text, without the eos,
    where a vocabulary was given. trace and rejected: where asked for, (token, its source or "model", number of the
    forward) of every emitted token, and (token, source, number of the forward, index in `ids` it stood for) of every
    draft row that was refused.
    """

    ids: list[int]
    stop: str
    report: dict = field(default_factory=dict)
    text: str = ""
    trace: list[tuple[int, str, int]] = field(default_factory=list, repr=False)
    rejected: list[tuple[int, str, int, int]] = field(default_factory=list, repr=False)


def decode(
    model,
    prompt_ids: Sequence[int],
    eos_ids: Collection[int],
    max_tokens: int,
    choose: Callable[[torch.Tensor], int],
    lap: Lap,
) -> Generation:
    """The loop itself: a forward, a choice among its logits (float[V]), the next, until an eos or the limit."""
    max_tokens = room(model, prompt_ids, max_tokens)
    model.reset()
    ids: list[int] = []
    new = prompt_ids
    stop = "length"
    while len(ids) < max_tokens:
        logits = model(new)
        if lap:
            lap(MODEL)
        token = choose(logits)
        ids.append(token)
        if token in eos_ids:
            stop = "eos"
            break
        new = (token,)
    return Generation(ids, stop, {"tokens": len(ids), "forwards": len(ids)})
