"""A byte machine lifted to tokens: masks, accept, rollback.

A token is legal where its bytes, read one after another, keep the machine alive; so one token may cross any number of
segments. The masks come from one walk over the vocabulary's trie a state, done on first use and kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numba
import numpy as np
import torch

from gdlib.grammar.nodes import Grammar
from gdlib.recognizers.fsm import DEAD, Fsm, build_fsm
from gdlib.tokens.bitmask import bitmask_to_ids, bitmask_words
from gdlib.tokens.vocabulary import Vocabulary

ENDED = -2  # the state after an eos: nothing may follow


@dataclass
class _Tables:
    """What all matchers of one grammar and vocabulary share, filled as states are met."""

    fsm: Fsm
    masks: dict[int, np.ndarray] = field(default_factory=dict)
    edges: dict[int, dict[int, int]] = field(default_factory=dict)
    only: dict[int, int] = field(default_factory=dict)


class Matcher:
    """Where one text stands in a grammar. Cheap to copy: the tables are shared."""

    def __init__(self, grammar: Grammar, vocab: Vocabulary):
        self.vocab = vocab
        self._tables = _Tables(build_fsm(grammar))
        self.reset()

    def reset(self) -> None:
        self.state = 0
        self._past: list[int] = []
        self._edges = self._tables.edges.setdefault(0, {})

    def copy(self) -> Matcher:
        other = object.__new__(Matcher)
        other.__dict__.update(self.__dict__, _past=self._past.copy())
        return other

    def accept(self, token_id: int) -> bool:
        """Take one token. False, and nothing changed, where it may not come."""
        target = self._edges.get(token_id)
        if target is None:
            target = self._target(token_id)
        if target == DEAD:
            return False
        self._past.append(self.state)
        self.state = target
        edges = self._tables.edges.get(target)
        self._edges = self._tables.edges.setdefault(target, {}) if edges is None else edges
        return True

    def rollback(self, n: int) -> None:
        """Take back the last `n` accepted tokens. ValueError where there were fewer."""
        if not 0 <= n <= len(self._past):
            raise ValueError(f"rollback of {n} tokens, but {len(self._past)} were accepted")
        if n:
            self.state = self._past[-n]
            del self._past[-n:]
            self._edges = self._tables.edges.setdefault(self.state, {})

    def accepted(self) -> int:
        """How many tokens were accepted so far."""
        return len(self._past)

    def can_stop(self) -> bool:
        """True where the bytes so far are a whole sentence; then eos is in the mask."""
        return self.state != ENDED and bool(self._tables.fsm.accepting[self.state])

    def state_count(self) -> int:
        """How many states the byte machine has; each has one mask."""
        return len(self._tables.fsm.delta)

    def mask(self) -> np.ndarray:
        """int32[ceil(V / 32)]: the shared mask of this state. Read it, never write it; `fill_mask` copies."""
        row = self._tables.masks.get(self.state)
        return self._build_mask() if row is None else row

    def fill_mask(self, row: np.ndarray | torch.Tensor) -> None:
        """Write the mask of this state into `row`, int32[ceil(V / 32)] on the CPU."""
        out = row.numpy() if isinstance(row, torch.Tensor) else row
        want = (bitmask_words(len(self.vocab)),)
        if out.dtype != np.int32 or out.shape != want:
            raise ValueError(f"bitmask row is {out.dtype}{list(out.shape)}, want int32{list(want)}")
        out[:] = self.mask()

    def allowed_ids(self) -> np.ndarray:
        """int64[n]: the ids that may come next, ascending."""
        return bitmask_to_ids(self.mask(), len(self.vocab))

    def only_token(self) -> int:
        """The one token that may come next, or -1 where there are several (or none)."""
        only = self._tables.only.get(self.state)
        if only is None:
            row = self.mask()
            words = np.flatnonzero(row)
            single = len(words) == 1 and int(row[words[0]]) & 0xFFFFFFFF
            only = int(words[0]) * 32 + single.bit_length() - 1 if single and single.bit_count() == 1 else -1
            self._tables.only[self.state] = only
        return only

    def _target(self, token_id: int) -> int:
        state = DEAD
        if self.state != ENDED and 0 <= token_id < len(self.vocab):
            if token_id in self.vocab.eos_ids:
                state = ENDED if self.can_stop() else DEAD
            elif self.vocab.tokens[token_id]:
                state = self.state
                for byte in self.vocab.tokens[token_id]:
                    state = int(self._tables.fsm.delta[state, byte])
                    if state == DEAD:
                        break
        self._edges[token_id] = state
        return state

    def _build_mask(self) -> np.ndarray:
        row = np.zeros(bitmask_words(len(self.vocab)), dtype=np.int32)
        if self.state != ENDED:
            trie, fsm = self.vocab.trie, self._tables.fsm
            stack = np.empty(trie.height + 1, dtype=np.int32)
            _walk(fsm.delta, self.state, trie.byte, trie.depth, trie.skip, trie.token, trie.same, stack, row)
            if self.can_stop():
                for eos in self.vocab.eos_ids:
                    row.view(np.uint32)[eos >> 5] |= np.uint32(1 << (eos & 31))
        self._tables.masks[self.state] = row
        return row


@numba.njit(cache=True, nogil=True)
def _walk(delta, state, byte, depth, skip, token, same, stack, row):
    """Set the bit of every token alive from `state`. stack[d] is the state after d bytes of the current path."""
    stack[0] = state
    node = 0
    while node < byte.shape[0]:
        level = depth[node]
        target = delta[stack[level - 1], byte[node]]
        if target < 0:
            node = skip[node]
            continue
        stack[level] = target
        found = token[node]
        while found >= 0:
            row[found >> 5] |= np.int32(1) << np.int32(found & 31)
            found = same[found]
        node += 1
