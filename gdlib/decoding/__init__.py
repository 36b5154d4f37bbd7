"""The loops: free, healing, guided (ours) and dense (the usual way).

Every loop is a plain function over a model, prompt ids and a limit. Each takes an optional `lap`, called with the
number of the part of the step that has just ended, so that one loop serves both for use and for measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

PARTS = ("model", "mask_build", "mask_apply", "select", "state_update", "heal")
MODEL, MASK_BUILD, MASK_APPLY, SELECT, STATE_UPDATE, HEAL = range(len(PARTS))

Lap = Callable[[int], None] | None


class DecodingError(RuntimeError):
    """A decode that cannot go on; the message says at which step and why."""


@dataclass
class Generation:
    """ids: what was generated, the eos included where there is one; stop: "eos" or "length".

    report: counts of this run, `tokens`, `forwards`, and for guided decoding how many steps needed a mask and how
    many had a single legal token.
    """

    ids: list[int]
    stop: str
    report: dict[str, int] = field(default_factory=dict)
