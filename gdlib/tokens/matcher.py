"""A byte machine lifted to tokens: masks, accept, rollback.

A token is legal where its bytes, read one after another, keep the machine alive; so one token may cross any number of
rules. Masks come from one walk over the vocabulary's trie a configuration, done on first use and kept (see masks.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gdlib.grammar.nodes import Grammar
from gdlib.recognizers import Recognizer, next_arena
from gdlib.recognizers import machine as m
from gdlib.recognizers.arena import Arena, ArenaFull, LimitError
from gdlib.tokens.bitmask import bitmask_to_ids, bitmask_words
from gdlib.tokens.canonical import span_store
from gdlib.tokens.masks import mask_store
from gdlib.tokens.vocabulary import Vocabulary

ENDED = -1  # the state after an eos: nothing may follow
MAX_TARGETS = 1_000_000


class Matcher:
    """Where one text stands in a grammar. Cheap to copy: everything but the place is shared."""

    def __init__(self, grammar: Grammar, vocab: Vocabulary, recognizer: str = "auto", arena: Arena | None = None):
        """recognizer: "fsm", "pda", "earley", or "auto" for the cheapest that is exact for this grammar.

        Raises GrammarError where the grammar cannot be read so.
        """
        self.vocab = vocab
        self._size = len(vocab)
        self._asked = recognizer
        try:
            self._attach(Recognizer(grammar, recognizer, arena))
        except LimitError:
            if recognizer != "auto" or arena is not None:
                raise
            self._attach(Recognizer(grammar, "earley"))
        self.reset()

    def _attach(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer
        self._conf = recognizer.arena.conf
        self._store = mask_store(self.vocab, recognizer.arena)
        self._kept, self._targets = self._store.kept, self._store.targets
        self._spans = span_store(self.vocab, recognizer.arena)

    def reset(self) -> None:
        self.state = self._recognizer.start
        self._past: list[int] = []
        self._ids: list[int] = []

    def copy(self) -> Matcher:
        other = object.__new__(Matcher)
        other.__dict__.update(self.__dict__, _past=self._past.copy(), _ids=self._ids.copy())
        return other

    def accept(self, token_id: int) -> bool:
        """Take one token. False, and nothing changed, where it may not come."""
        token_id = int(token_id)  # a numpy integer would overflow below
        target = self._targets.get(self.state * self._size + token_id)
        if target is None or not 0 <= token_id < self._size:
            target = self._target(token_id)
        if target == 0:
            return False
        self._past.append(self.state)
        self._ids.append(token_id)
        self.state = target
        return True

    def rollback(self, n: int) -> None:
        """Take back the last `n` accepted tokens. ValueError where there were fewer."""
        if not 0 <= n <= len(self._past):
            raise ValueError(f"rollback of {n} tokens, but {len(self._past)} were accepted")
        if n:
            self.state = self._past[-n]
            del self._past[-n:], self._ids[-n:]

    def accepted(self) -> int:
        """How many tokens were accepted so far."""
        return len(self._past)

    def can_stop(self) -> bool:
        """True where the bytes so far are a whole sentence; then eos is in the mask."""
        return self.state > 0 and bool(self._conf[self.state, m.ACCEPTING])

    def ended(self) -> bool:
        """True behind an eos: nothing may follow."""
        return self.state == ENDED

    def state_count(self, limit: int = 100_000) -> int:
        """How many configurations texts of this grammar can reach; each has one mask. LimitError past `limit`."""
        return len(self.states(limit))

    def states(self, limit: int = 100_000) -> list[int]:
        """Every configuration that texts of this grammar can reach. LimitError past `limit`."""
        return self._settled(lambda: self._recognizer.reachable(limit)).tolist()

    def mask(self) -> np.ndarray:
        """int32[ceil(V / 32)]: the shared mask of this state. Read it, never write it; `fill_mask` copies."""
        if self.state == ENDED:
            return np.zeros(bitmask_words(self._size), np.int32)
        row = self._kept.get(self.state)
        if row is not None:
            self._kept.move_to_end(self.state)
            return row
        return self._settled(lambda: self._store.build(self.state, self._recognizer))

    def fill_mask(self, row) -> None:
        """Write the mask of this state into `row`, int32[ceil(V / 32)], numpy or torch on the CPU."""
        out = row if isinstance(row, np.ndarray) else row.numpy()
        mask = self.mask()
        if out.dtype != np.int32 or out.shape != mask.shape:
            raise ValueError(f"bitmask row is {out.dtype}{list(out.shape)}, want int32{list(mask.shape)}")
        out[:] = mask

    def allowed_ids(self) -> np.ndarray:
        """int64[n]: the ids that may come next, ascending."""
        return bitmask_to_ids(self.mask(), self._size)

    def only_token(self) -> int:
        """The one token that may come next, or -1 where there are several (or none)."""
        only = self._store.only.get(self.state)
        if only is None:
            row = self.mask()
            words = np.flatnonzero(row)
            single = len(words) == 1 and int(row[words[0]]) & 0xFFFFFFFF
            only = int(words[0]) * 32 + single.bit_length() - 1 if single and single.bit_count() == 1 else -1
            if self.state != ENDED:
                self._store.only[self.state] = only
        return only

    def forced_bytes(self, limit: int = 4096) -> bytes:
        """The longest run, up to `limit`, in which exactly one byte is legal and the text may not end."""
        if self.state == ENDED or limit <= 0:
            return b""
        return self._settled(lambda: self._recognizer.forced(self.state, limit)[0])

    def forced_tokens(self, context_ids: Sequence[int], limit: int = 24) -> list[int]:
        """The forced bytes in the tokens that the tokenizer would write behind `context_ids`, at most `limit` of them.

        context_ids: the text so far, prompt included (the last few tokens are enough). Held back is every token from
        the first place on where some legal token would take what is left of the forced bytes and more: a model may
        write that one instead (see canonical.py).
        """
        if self.state == ENDED or limit <= 0:
            return []
        return list(self._settled(lambda: self._spans.span(self._recognizer, self.state, context_ids, limit)).tokens)

    def _target(self, token_id: int) -> int:
        if self.state == ENDED or not 0 <= token_id < self._size:
            return 0
        if token_id in self.vocab.eos_ids:
            return ENDED if self.can_stop() else 0
        text = self.vocab.tokens[token_id]
        target = 0
        if text:
            try:
                target = self._recognizer.advance(self.state, text)
            except (ArenaFull, LimitError):
                target = self._settled(lambda: self._recognizer.advance(self.state, text))
        if len(self._targets) > MAX_TARGETS:
            self._targets.clear()
        self._targets[self.state * self._size + token_id] = target
        return target

    def _settled(self, work):
        """`work()`, in another arena where this one is full, and by Earley's machine where the pda's has no end."""
        larger = False
        while True:
            try:
                return work()
            except ArenaFull:
                self._move(self._recognizer.kind, next_arena(self._recognizer.arena, larger))
                larger = True
            except LimitError:
                if self._asked != "auto" or self._recognizer.kind != "pda":
                    raise
                self._move("earley", None)

    def _move(self, kind: str, arena: Arena | None) -> None:
        """Go on elsewhere; what was accepted is read again there."""
        ids = self._ids
        self._attach(Recognizer(self._recognizer.grammar, kind, arena))
        self.reset()
        if not all(self.accept(token) for token in ids):
            raise AssertionError("the same grammar read the same text otherwise")


def fill_masks(matchers: Sequence[Matcher], rows) -> None:
    """Write the mask of matcher i into rows[i], int32[batch, ceil(V / 32)], numpy or torch on the CPU.

    Grammars and states may all differ. Walks run without the interpreter's lock, so other threads go on meanwhile.
    Raises ValueError where shapes or dtypes do not fit.
    """
    out = rows if isinstance(rows, np.ndarray) else rows.numpy()
    if out.dtype != np.int32 or out.ndim != 2 or len(out) != len(matchers):
        raise ValueError(f"bitmask rows are {out.dtype}{list(out.shape)}, want int32[{len(matchers)}, words]")
    for matcher, row in zip(matchers, out, strict=True):
        matcher.fill_mask(row)
