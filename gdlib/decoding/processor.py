"""The grammar as a logits processor, for those who decode with transformers' own `generate`.

    processor = gdlib.GrammarLogitsProcessor(grammar, tokenizer)
    model.generate(**inputs, logits_processor=[processor])

Works for batches, sampling and beams: each row is matched with the row of the step before that it goes on from.
"""

from __future__ import annotations

import torch

from gdlib.decoding import DecodingError
from gdlib.grammar.nodes import Grammar
from gdlib.tokens.bitmask import allocate_bitmask, apply_mask
from gdlib.tokens.matcher import Matcher, fill_masks
from gdlib.tokens.vocabulary import Vocabulary


class GrammarLogitsProcessor:
    """Sets the scores of all tokens to -inf that the grammar does not allow, in place.

    vocabulary: a Vocabulary, or a transformers fast tokenizer to make one from. A text starts where `generate` starts;
    one processor serves any number of calls, one after another.
    """

    def __init__(self, grammar: Grammar, vocabulary, recognizer: str = "auto"):
        self.vocab = vocabulary if isinstance(vocabulary, Vocabulary) else Vocabulary.from_hf(vocabulary)
        self._fresh = Matcher(grammar, self.vocab, recognizer)
        self._prompts: list[list[int]] = []
        self._open: dict[tuple[int, ...], Matcher] = {}

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """input_ids: int64[batch, length]; scores: float[batch, V or more], changed and returned.

        Raises DecodingError where a row holds a token that the grammar does not allow.
        """
        rows = input_ids.tolist()
        start = len(self._prompts[0]) if self._prompts else 0
        goes_on = bool(self._prompts) and len(rows[0]) > start and all(row[:start] in self._prompts for row in rows)
        if not goes_on or not all(tuple(row[start:-1]) in self._open for row in rows):
            self._prompts = rows
            self._open = {(): self._fresh}
            matchers = [self._fresh] * len(rows)
        else:
            matchers = [self._next(row[start:]) for row in rows]
            self._open = {tuple(row[start:]): m for row, m in zip(rows, matchers, strict=True)}
        masks = allocate_bitmask(len(rows), len(self.vocab))
        fill_masks(matchers, masks)
        for index, matcher in enumerate(matchers):
            if matcher.ended():  # `generate` pads behind an eos and looks at no score
                masks[index] = -1
        return apply_mask(scores, masks)

    def _next(self, ids: list[int]) -> Matcher:
        before = self._open[tuple(ids[:-1])]
        if before.ended():
            return before
        matcher = before.copy()
        if not matcher.accept(ids[-1]):
            raise DecodingError(
                f"token {ids[-1]} after {len(ids) - 1} tokens is not one the grammar allows; another logits processor "
                "or a warper may have brought it back: put this one last"
            )
        return matcher
