"""Masks of configurations, kept while there is room: what all matchers of one vocabulary share."""

from __future__ import annotations

import weakref
from collections import OrderedDict

import numpy as np

from gdlib.recognizers import Recognizer
from gdlib.recognizers import machine as m
from gdlib.recognizers.arena import Arena
from gdlib.tokens.bitmask import bitmask_words
from gdlib.tokens.forest import NO_BOUND, NO_WALK, ON_TABLE, Annex, Inside, fill
from gdlib.tokens.vocabulary import Vocabulary

MAX_JOBS = 4096
NOTHING = np.zeros(4, np.uint64)
SLAB = 256  # masks that are allocated at once


class MaskStore:
    """Configuration -> mask, for one vocabulary and one arena, least recently used out first.

    `limit` is in bytes. Masks are int32[words] and shared: read them, never write them, and copy what is to outlast the
    next mask, since the memory of one that is out is used again.
    """

    def __init__(self, vocab: Vocabulary, limit: int):
        self.vocab, self.forest = vocab, vocab.forest  # not the arena: its end is this store's end
        self.words = bitmask_words(len(vocab))
        self.limit = max(16, limit // (self.words * 4))  # in masks
        self.kept: OrderedDict[int, np.ndarray] = OrderedDict()
        self.targets: dict[int, int] = {}  # config * V + token -> config behind it
        self.only: dict[int, int] = {}
        self.built = 0
        self.jobs = np.zeros((MAX_JOBS, 4), np.int32)
        self.annex = Annex(vocab)
        self.zones: dict[int, np.ndarray] = {}  # of a Counted's record: see Arena.zones
        self.visits: dict[tuple, int] = {}

    def build(self, config: int, recognizer: Recognizer, split: bool = True) -> np.ndarray:
        """Make and keep the mask of `config`; `split` where its items may be looked at apart."""
        arena, forest = recognizer.arena, self.forest
        with arena.lock, forest.lock:
            _, count, _, accepting, loop, key, behind, wide = arena.conf[config].tolist()
            row = None
            if loop > 0 and behind < 0:
                loop *= recognizer.run(m.loop_holds, config)
            if wide and not loop:
                if count == 1:
                    row = self._from_machine(config, recognizer)
                elif split and recognizer.kind == "pda":
                    row = self._united(config, recognizer)
            if row is None:
                row = self._row()
                spot = tails = -1
                held = 0
                slot = forest.slot(key >> 6) if loop else -1
                if slot >= 0:
                    begin = forest.begin(slot, key & 63)
                    if isinstance(begin, Inside):
                        high = -1 if loop == m.OPEN else int(arena.node[arena.cont[loop, 0], 3])
                        begin.copy_to(row, NO_BOUND if high < 0 else high + 1)
                        tails, held = begin.tails, slot + 1
                    else:
                        row.fill(0)
                        spot = begin
                    if loop == m.OPEN:
                        held = ON_TABLE
                else:
                    row.fill(0)
                self._walk(recognizer, forest.tables, config, spot, tails, held, row)
                if forest.wanted[0, 0]:
                    forest.build_wanted()
            if accepting:
                for eos in self.vocab.eos_ids:
                    row.view(np.uint32)[eos >> 5] |= np.uint32(1 << (eos & 31))
            self.built += 1
            self.kept[config] = row
        return row

    def _walk(self, recognizer: Recognizer, tries: tuple, config: int, spot: int, tails: int, held: int, row) -> None:
        """`fill`, with whatever it asks for."""
        forest, tables = self.forest, recognizer.arena.tables
        while code := fill(tables, tries, config, spot, tails, held, self.jobs, forest.stack, forest.wanted, row):
            recognizer.settle(code)

    def _united(self, config: int, recognizer: Recognizer) -> np.ndarray:
        """The mask of a configuration that reads many bytes in several ways: what is legal in any of them."""
        out = np.zeros(64, np.int32)
        while (count := m.parts(recognizer.arena.tables, config, out)) < 0:
            if count == m.OVERFLOW:
                out = np.zeros(len(out) * 16, np.int32)
            else:
                recognizer.settle(count)
        row = self._row()
        row.fill(0)
        for part in out[:count].tolist():
            known = self.kept.get(part)
            row |= self.build(part, recognizer, split=False) if known is None else known
        return row

    def _from_machine(self, config: int, recognizer: Recognizer) -> np.ndarray | None:
        """The mask of a configuration inside one machine, where what depends on the machine alone is stored."""
        arena = recognizer.arena
        n = int(arena.tables[3][arena.conf[config, m.ITEMS], 0])
        kind, record, state, count = arena.node[n, :4].tolist()
        zone = 0
        if kind == m.COUNTED:
            if record not in self.zones:
                self.zones[record] = arena.zones(record, self.vocab.trie.height)
            zone = int(self.zones[record][count])
        if kind not in (m.MACHINE, m.COUNTED) or zone < 0:
            return None
        behind = recognizer.run(m.exit_of, config)
        first = arena.first[behind] if behind else NOTHING
        key = (record, state, zone, first.tobytes())
        if kind == m.MACHINE:
            visits = self.visits[key] = self.visits.get(key, 0) + 1
            if visits < 2:
                return None
        if key not in self.annex.masks:
            dfa = arena.dfas[record] if kind == m.MACHINE else arena.zone_dfa(record, count)
            self.annex.add(key, dfa, state, first)
        stored = self.annex.masks[key]
        if stored is None:
            return None
        mask, tails = stored
        row = self._row()
        row[:] = mask
        if tails >= 0 and behind:
            self._walk(recognizer, self.annex.tables, config, -1, tails, NO_WALK, row)
        return row

    def _row(self) -> np.ndarray:
        """Memory for one mask."""
        if len(self.kept) >= self.limit:
            gone, row = self.kept.popitem(last=False)
            self.only.pop(gone, None)
            return row
        spare = self.vocab.spare_rows
        if not spare:
            slab = np.zeros((min(SLAB, self.limit), self.words), np.int32)
            slab.fill(0)  # pages are touched here, all at once, and not one by one between two tokens
            spare.extend(slab)
        return spare.pop()


def mask_store(vocab: Vocabulary, arena: Arena) -> MaskStore:
    """The one store of this vocabulary and arena; when the arena goes, the memory of its masks is used again."""
    store = vocab.stores.get(arena)
    if store is None:
        store = vocab.stores[arena] = MaskStore(vocab, vocab.mask_bytes)
        weakref.finalize(arena, _give_back, vocab.spare_rows, store.kept)
    return store


def _give_back(spare: list, kept: OrderedDict) -> None:
    spare.extend(kept.values())
