"""Drafts of the model itself: a head that predicts several tokens at once, where the model has one."""

from __future__ import annotations

from collections.abc import Sequence

from gdlib.drafts import DraftError


class MTPSource:
    """model: has `mtp_depth`, how many tokens its head predicts, and `mtp(ahead, room)`, those behind `ahead`.

    The model follows what it has read, which is the text but for its last token, since that is read by the next
    forward: so `ahead` begins with it. Raises DraftError for a model without such a head.
    """

    name = "mtp"

    def __init__(self, model):
        if not getattr(model, "mtp_depth", 0) or not hasattr(model, "mtp"):
            inner = type(getattr(model, "model", model)).__name__
            if getattr(getattr(model, "model", None), "mtp_head", None) is not None:
                raise DraftError(
                    f"{type(model).__name__} hides the multi-token head of {inner}: wrap it by gdlib.models.mtp.causal"
                )
            raise DraftError(f"{inner} has no multi-token head: leave 'mtp' out of the draft sources")
        self.model = model
        self._last = -1

    def begin(self, prompt_ids: Sequence[int]) -> None:
        """The model reads the prompt; its last token is not ahead of it."""
        self._last = -1

    def commit(self, ids: Sequence[int]) -> None:
        """Note the last token; the model reads it with the next forward."""
        if len(ids):
            self._last = ids[-1]

    def propose(self, ahead: Sequence[int], room: int) -> list[Sequence[int]]:
        """One path of at most `mtp_depth` tokens; how far behind its own text it can look is the model's business."""
        room = min(room, self.model.mtp_depth)
        path = self.model.mtp((self._last, *ahead), room) if room > 0 and self._last >= 0 else []
        return [path[:room]] if len(path) else []
