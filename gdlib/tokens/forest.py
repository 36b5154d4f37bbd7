"""The vocabulary's trie, and smaller tries of what tokens write once they leave a repeated character.

Inside a JSON string nearly every token may come, and walking the whole vocabulary to find that out takes a thousand
times longer than any other mask. But what may come there is always the same: the tokens that stay inside (told apart
only by how many characters they write, should there be a bound), and those that leave, of which only the part behind
the last character of the string depends on where it leads. The first kind is a stored list; the second a small trie of
its own. Both depend on the vocabulary and on the characters alone, so every grammar shares them. The same holds below
any node of the trie behind which such a loop begins: a token `"name` enters a string with its first byte. A *spot* is
such a place: a class of characters, the state inside a character, and a node of the trie. (llguidance keeps masks of
fixed classes as "slices"; here counts are exact, mid-character states have theirs, and tails are shared.)
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from gdlib.grammar.nodes import ANY_CHARACTER, Character, Dfa
from gdlib.grammar.regular import character_dfa
from gdlib.recognizers import machine as m
from gdlib.recognizers.arena import MAX_CLASSES, class_of
from gdlib.recognizers.compiled import compiled
from gdlib.tokens.bitmask import bitmask_words
from gdlib.tokens.vocabulary import Trie, Vocabulary

NO_WALK = -2  # in place of a held slot: all but the tails is stored
HEAVY = 40  # nodes in a subtree that make a spot worth having
VISITS = 3  # a spot is built when it is met so many times
WORTH = 8  # and a class of characters gets a slot when it is, if it is not that of all strings
SLOTS = 24  # classes with spots
MAX_STORED = 400  # states of machines with stored masks, in one arena
MAX_TAILS = 40_000  # texts that may leave a machine, more are walked
ROWS = 16  # stored masks by the number of characters, 0..ROWS - 1
NO_BOUND = 0x7FFFFFFF
ON_TABLE = -1  # in place of a held slot: walk only along the table of an open Words


@dataclass(frozen=True)
class Inside:
    """Masks of the tokens that stay in a loop from its beginning.

    rows: int32[ROWS + 1, words], row n for tokens of at most n characters, the last for any number; long_ids,
    long_chars: the tokens of ROWS characters and more; tails: the root of what the tokens write that leave, or -1.
    """

    rows: np.ndarray
    tails: int
    long_ids: np.ndarray
    long_chars: np.ndarray

    def copy_to(self, row: np.ndarray, characters: int) -> None:
        """Write the mask of what stays inside and begins at most so many characters."""
        if characters >= NO_BOUND:
            row[:] = self.rows[ROWS]
            return
        row[:] = self.rows[min(characters, ROWS - 1)]
        if characters >= ROWS:
            _set_bits(row, self.long_ids[self.long_chars <= characters])


class Tries:
    """Tries in one set of flat arrays, nodes as in Trie. An entry is one token at one node: its id, how many characters
    it has inside the loop that the trie belongs to, and the next entry of the same node.
    """

    def __init__(self, trie: Trie, texts: list[bytes], room: int):
        self.texts = texts  # what each entry writes
        nodes, size = len(trie.byte), len(texts)
        self.byte, self.depth, self.skip, self.entry = (
            _Growing(a, room) for a in (trie.byte, trie.depth, trie.skip, trie.token)
        )
        self.heavy = _Growing(np.full(nodes, -1, np.int32), room)
        self.ids = _Growing(np.arange(size, dtype=np.int32), room)
        self.chars, self.next = _Growing(np.zeros(size, np.int32), room), _Growing(trie.same, room)
        self.child = _Growing(trie.child.reshape(1, 256), 256)
        self.records = _Growing(np.zeros((1, 4), np.int32), 512)  # a spot's ids from, to, root of its tails, most chars
        self.spot_ids, self.spot_chars = (_Growing(np.zeros(0, np.int32), room) for _ in range(2))
        self.spots = np.zeros((SLOTS * 64, 1), np.int32)
        self.slot_of = np.full(MAX_CLASSES, -1, np.int32)
        self.first = np.zeros((SLOTS, 4), np.uint64)
        self._pack()

    def _pack(self) -> None:
        """What compiled code reads: the arrays with their room, so that this changes only when one was moved."""
        growing = (
            self.byte,
            self.depth,
            self.skip,
            self.entry,
            self.heavy,
            self.ids,
            self.chars,
            self.next,
            self.child,
        )
        spots = (self.records, self.spot_ids, self.spot_chars)
        self.tables = (*(g.room for g in growing), self.spots, *(g.room for g in spots), self.first, self.slot_of)

    def _plant(self, texts: list[bytes], ids: np.ndarray, chars: np.ndarray) -> int:
        """Add a trie of these texts; the number of its root."""
        trie = Trie(texts)
        nodes, entries = self.byte.size, self.ids.size
        self.texts += texts
        self.byte.add(trie.byte)
        self.depth.add(trie.depth)
        self.skip.add(trie.skip + np.int32(nodes))
        self.entry.add(_moved(trie.token, entries))
        self.ids.add(ids)
        self.chars.add(chars)
        self.next.add(_moved(trie.same, entries))
        self.child.add(_moved(trie.child, nodes).reshape(1, 256))
        self.heavy.add(np.full(len(trie.byte), -1, np.int32))
        return self.child.size - 1


class Forest(Tries):
    """The trie of one vocabulary and those of its spots; grows as spots are met."""

    def __init__(self, vocab: Vocabulary):
        super().__init__(vocab.trie, list(vocab.written), len(vocab.trie.byte) // 2 + 4096)
        self.vocab, self.lock = vocab, threading.RLock()
        self.n_heavy = 0
        self._weigh(0)
        self.spots = np.zeros((SLOTS * 64, self.n_heavy + 4096), np.int32)
        self.visits: dict[int, int] = {}
        self.machines: list[Dfa] = []
        self.inside: dict[
            int, Inside | int
        ] = {}  # slot * 64 + state -> at the loop's beginning, or the spot of a state
        self.stack = np.zeros((2, max(vocab.trie.height, 1) + 2), np.int32)
        self.wanted = np.zeros((64, 2), np.int32)
        self._pack()

    def _weigh(self, start: int) -> None:
        """Number the heavy nodes from `start` on, as far as there are columns for their spots."""
        skip = self.skip.used()
        nodes = np.flatnonzero(skip[start:] - np.arange(start, len(skip)) > HEAVY) + start
        if start:
            nodes = nodes[: self.spots.shape[1] - self.n_heavy]
        self.heavy.room[nodes] = np.arange(self.n_heavy, self.n_heavy + len(nodes))
        self.n_heavy += len(nodes)

    def slot(self, number: int) -> int:
        """The slot of a class of characters, -1 where it has none (yet)."""
        slot = int(self.slot_of[number])
        if slot < 0 and len(self.machines) < SLOTS:
            what = class_of(number)
            visits = self.visits[number] = self.visits.get(number, 0) + 1
            if visits >= (1 if isinstance(what, Character) and what.ranges == ANY_CHARACTER else WORTH):
                dfa = character_dfa(what.ranges, what.style) if isinstance(what, Character) else _one_byte(what)
                if len(dfa.delta) > 64:
                    self.visits[number] = -(1 << 60)
                    return -1
                slot = len(self.machines)
                self.machines.append(dfa)
                alive = (dfa.delta[0] >= 0)[dfa.columns]
                self.first[slot] = np.packbits(alive, bitorder="little").view(np.uint64)
                self.slot_of[number] = slot
        return slot

    def begin(self, slot: int, state: int) -> Inside | int:
        """What is stored for a text that stands in a loop: masks at its beginning, a spot inside a character."""
        key = slot * 64 + state
        found = self.inside.get(key)
        if found is None:
            found = spot = self._build(slot, state, 0, len(self.vocab.trie.byte), 0)
            if state == 0:
                start, end, tails, _ = self.records.room[spot].tolist()
                ids, chars = self.spot_ids.room[start:end], self.spot_chars.room[start:end]
                rows = np.zeros((ROWS + 1, bitmask_words(len(self.vocab))), np.int32)
                _fill_rows(ids, chars, rows)
                long = chars >= ROWS
                found = Inside(rows, tails, ids[long], chars[long])
            self.inside[key] = found
        return found

    def build_wanted(self) -> None:
        """Make the spots that a walk asked for."""
        for node, key in dict.fromkeys(map(tuple, self.wanted[1 : self.wanted[0, 0] + 1].tolist())):
            spot = self._build(key >> 6, key & 63, node + 1, int(self.skip.room[node]), int(self.depth.room[node]))
            self.spots[key, self.heavy.room[node]] = spot
        self.wanted[0, 0] = 0

    def _build(self, slot: int, state: int, start: int, end: int, depth: int) -> int:
        """A new spot over the nodes [start, end) below one of `depth`; its number."""
        dfa = self.machines[slot]
        found = np.empty((_count_entries(self.entry.room, self.next.room, start, end), 3), np.int32)
        count = _classify(
            dfa.columns, dfa.delta, dfa.accepting, state, *self.tables[:4], self.tables[7],
            start, end, depth, np.zeros((self.stack.shape[1] + 1, 2), np.int32), found,
        )  # fmt: skip
        found = found[:count]  # entry, bytes before it leaves or -1, characters
        inside, leaving = found[found[:, 1] < 0], found[found[:, 1] >= 0]
        root = -1
        if len(leaving):
            entries = leaving[:, 0].tolist()
            texts = [self.texts[e][n:] for e, n in zip(entries, leaving[:, 1].tolist(), strict=True)]
            root = self._plant(texts, self.ids.room[leaving[:, 0]], leaving[:, 2])
        at = self.spot_ids.size
        chars = inside[:, 2]
        self.spot_ids.add(self.ids.room[inside[:, 0]])
        self.spot_chars.add(chars)
        self.records.add(np.array([[at, self.spot_ids.size, root, chars.max(initial=0)]], np.int32))
        self._pack()
        return self.records.size - 1

    def _plant(self, texts: list[bytes], ids: np.ndarray, chars: np.ndarray) -> int:
        nodes = self.byte.size
        root = super()._plant(texts, ids, chars)
        self._weigh(nodes)
        return root


class Annex(Tries):
    """Stored masks of machines that read many bytes (formats, patterns): by state, what stays inside and what leaves.

    Machines belong to grammars, so this goes with the arena in which they live.
    """

    def __init__(self, vocab: Vocabulary):
        super().__init__(Trie([]), [], 1 << 14)
        self.vocab = vocab
        self.masks: dict[tuple, tuple[np.ndarray, int] | None] = {}

    def add(self, key: tuple, dfa: Dfa, state: int, behind: np.ndarray) -> None:
        """Store (mask of what stays inside, root of what leaves or -1) under `key`, None where that is too much.

        behind: uint64[4], the first bytes of what may follow the machine; key names all of these.
        """
        if len(self.masks) >= MAX_STORED:
            self.masks[key] = None
            return
        found = np.empty((MAX_TAILS, 2), np.int32)
        mask = np.zeros(bitmask_words(len(self.vocab)), np.int32)
        trie = self.vocab.trie
        stack = np.zeros(trie.height + 2, np.int32)
        count = _classify_machine(
            dfa.columns, dfa.delta, dfa.accepting, state, behind,
            trie.byte, trie.depth, trie.skip, trie.token, trie.same, stack, mask, found,
        )  # fmt: skip
        stored = None
        if count >= 0:
            found = found[:count]
            texts = [self.vocab.tokens[i][n:] for i, n in found.tolist()]
            root = self._plant(texts, found[:, 0], np.zeros(count, np.int32)) if texts else -1
            self._pack()
            stored = mask, root
        self.masks[key] = stored


class _Growing:
    """An array with room behind its end."""

    def __init__(self, start: np.ndarray, more: int):
        self.room = np.empty((len(start) + more, *start.shape[1:]), start.dtype)
        self.room[: len(start)] = start
        self.size = len(start)

    def used(self) -> np.ndarray:
        return self.room[: self.size]

    def add(self, rows: np.ndarray) -> None:
        if self.size + len(rows) > len(self.room):
            self.room = np.concatenate([self.room, np.empty_like(self.room), np.empty_like(rows)])
        self.room[self.size : self.size + len(rows)] = rows
        self.size += len(rows)


def _moved(numbers: np.ndarray, by: int) -> np.ndarray:
    return np.where(numbers >= 0, numbers + np.int32(by), np.int32(-1)).astype(np.int32)


def _set_bits(row: np.ndarray, ids: np.ndarray) -> None:
    bits = np.left_shift(np.uint32(1), (ids & 31).astype(np.uint32))
    np.bitwise_or.at(row.view(np.uint32), ids >> 5, bits)


def _one_byte(raw: bytes) -> Dfa:
    allowed = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
    return Dfa(allowed, np.array([[-1, 1], [-1, -1]], np.int32), np.array([False, True]))


@compiled
def _classify(columns, delta, accepting, state, byte, depth, skip, entry, following, node, end, above, stack, found):
    """For every entry in the nodes [node, end): does it stay in the loop, or where does it leave? Returns how many."""
    out = 0
    stack[0, 0], stack[0, 1] = state, 0
    while node < end:
        level = depth[node] - above
        here, count = stack[level - 1, 0], stack[level - 1, 1]
        target = delta[here, columns[byte[node]]]
        if target < 0:
            stop = skip[node]
            if here == 0 and level > 1:  # between two characters: all below leaves here
                while node < stop:
                    e = entry[node]
                    while e >= 0:
                        found[out, 0], found[out, 1], found[out, 2] = e, above + level - 1, count
                        out += 1
                        e = following[e]
                    node += 1
            node = stop
            continue
        stack[level, 0] = 0 if accepting[target] else target
        stack[level, 1] = count + (1 if here == 0 else 0)
        e = entry[node]
        while e >= 0:
            found[out, 0], found[out, 1], found[out, 2] = e, -1, stack[level, 1]
            out += 1
            e = following[e]
        node += 1
    return out


@compiled
def _count_entries(entry, following, start, end):
    count = 0
    for node in range(start, end):
        e = entry[node]
        while e >= 0:
            count += 1
            e = following[e]
    return count


@compiled
def _classify_machine(columns, delta, accepting, state, behind, byte, depth, skip, token, same, stack, mask, found):
    """Set the bits of the tokens that stay in a machine, and list (token, bytes) of those that may leave it behind so
    many bytes; returns how many, or -1 where they are more than fit.
    """
    out, node = 0, 0
    stack[0] = state
    while node < byte.shape[0]:
        level = depth[node]
        target = delta[stack[level - 1], columns[byte[node]]]
        if target < 0:
            node = skip[node]
            continue
        stack[level] = target
        e = token[node]
        while e >= 0:
            mask[e >> 5] |= np.int32(1) << np.int32(e & 31)
            e = same[e]
        if accepting[target]:
            below = node + 1
            while below < skip[node]:
                if (behind[byte[below] >> 6] >> np.uint64(byte[below] & 63)) & np.uint64(1):
                    for other in range(below, skip[below]):
                        e = token[other]
                        while e >= 0:
                            if out >= found.shape[0]:
                                return -1
                            found[out, 0], found[out, 1] = e, level
                            out += 1
                            e = same[e]
                below = skip[below]
        node += 1
    return out


@compiled
def _fill_rows(ids, chars, rows):
    """Set the bit of every token in the rows of its number of characters and above."""
    last = rows.shape[0] - 1
    for i in range(ids.shape[0]):
        bit = np.int32(1) << np.int32(ids[i] & 31)
        for n in range(min(chars[i], last), last + 1):
            rows[n, ids[i] >> 5] |= bit


@compiled
def _bounds(t, config):
    """How many more characters the loop of `config` needs and takes, from the next character on.

    At the beginning of a character tokens write one at least, so that "one at least" is no bound.
    """
    conf, cont, node = t[4], t[2], t[0]
    if conf[config, m.LOOP] <= 0:
        return 0, NO_BOUND
    repeat = cont[conf[config, m.LOOP], 0]
    more = 1 if conf[config, m.KEY] & 63 == 0 else 0  # at a character's beginning the stack already counts it
    low, high = node[repeat, 2], node[repeat, 3]
    return low + more if low > 0 else 0, high + more if high >= 0 else NO_BOUND


@compiled
def _table_bytes(t, config, out):
    """The next bytes along the table of an open Words, and the quote, which may close another text: four words."""
    node, item, conf, ints, pool = t[0], t[3], t[4], t[9], t[8]
    n = item[conf[config, m.ITEMS], 0]
    record, at, end, depth = node[n, 1], node[n, 2], node[n, 3], node[n, 4]
    bounds = ints[record + m.WORDS_TABLE] + 1
    out[:] = 0
    out[m.QUOTE >> 6] |= np.uint64(1) << np.uint64(m.QUOTE & 63)
    while at < end:
        byte = pool[ints[bounds + at] + depth]
        out[byte >> 6] |= np.uint64(1) << np.uint64(byte & 63)
        at = m._words_range(t, record, at, end, depth, byte)[1]


@compiled
def _on_table(t, v, at, base, stack, row):
    """One node of a walk along the table of an open Words: returns the node to go on with, or a code.

    Tokens that leave the table were dealt with as in a loop; but what closes a text of the table has another future
    than what closes any other text, so its tokens are taken back and walked. So are those that close at once.
    """
    first, cells, conf, item, node, ints = t[5], t[6], t[4], t[3], t[0], t[9]
    byte, depth, skip, entry, ids, following = v[0], v[1], v[2], v[3], v[5], v[7]
    level, b = depth[at], byte[at]
    here = stack[0, level - 1]
    n = item[conf[here, m.ITEMS], 0]
    low, high = m._words_range(t, node[n, 1], node[n, 2], node[n, 3], node[n, 4], b)
    off = low >= high
    if off and (b != m.QUOTE or level > base + 1):
        return skip[at]
    target = 0
    if (first[here, b >> 6] >> np.uint64(b & 63)) & np.uint64(1):
        target = cells[m._cell_of(conf, first, here, b)]
        if target == 0:
            target = m.step(t, here, b)
            if target < 0:
                return target
        target = max(target, 0)
    table = ints[node[n, 1] + m.WORDS_TABLE] + 1
    if not off and ints[table + low + 1] - ints[table + low] > node[n, 4] + 1:
        if target == 0 or node[item[conf[target, m.ITEMS], 0], 0] != m.WORDS:
            return skip[at]  # only where no text of the table is left, nor another one
        stack[0, level], stack[1, level] = target, ON_TABLE
        return at + 1
    for other in range(at, skip[at]):
        e = entry[other]
        while e >= 0:
            row[ids[e] >> 5] &= ~(np.int32(1) << np.int32(ids[e] & 31))
            e = following[e]
    if target == 0:
        return skip[at]
    stack[0, level], stack[1, level] = target, 0
    e = entry[at]
    while e >= 0:
        row[ids[e] >> 5] |= np.int32(1) << np.int32(ids[e] & 31)
        e = following[e]
    return at + 1


@compiled
def fill(t, v, start, spot, tails, held, jobs, stack, wanted, row):
    """Set the bit of every token that is alive from configuration `start`; 0, or a code of the machine's.

    t: an arena's tables, v: a forest's. Where the text stands in a loop with something stored: inside a character,
    `spot` holds everything; at its beginning `row` has the tokens that stay inside, `tails` is the root of those
    that leave, and `held`, 1 + the class's slot or ON_TABLE, keeps the walk from what begins in the loop. Otherwise
    spot and tails are -1, held 0. jobs, int32[n, 4], and stack are scratch; wanted, int32[n, 2], lists the spots
    that were met often enough to be built (node, slot * 64 + state), as many as wanted[0, 0] says. The bits set so
    far stay right where a code is returned, so the caller does what it asks for and calls again.
    """
    first, cells, conf, _size = t[5], t[6], t[4], t[13]
    table = t[16][2]
    byte, depth, skip, entry, heavy, ids, chars, following, child = v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]
    spots, records, spot_ids, spot_chars, class_first, slot_of = v[9], v[10], v[11], v[12], v[13], v[14]
    count = 0
    if (spot < 0 and held != NO_WALK) or held == ON_TABLE:
        jobs[0, 0], jobs[0, 1], jobs[0, 2], jobs[0, 3] = 0, start, 0, NO_BOUND
        count = 1
    if spot >= 0:
        tails = records[spot, 2]
        least, most = _bounds(t, start)
        for i in range(records[spot, 0], records[spot, 1]):
            if spot_chars[i] <= most:
                row[spot_ids[i] >> 5] |= np.int32(1) << np.int32(spot_ids[i] & 31)
    if tails >= 0:
        out = m.exit_of(t, start)
        if out < 0:
            return out
        if out > 0:
            jobs[count, 0], jobs[count, 1] = tails, out
            jobs[count, 2], jobs[count, 3] = _bounds(t, start)
            count += 1
    while count > 0:
        count -= 1
        root, config, low, high = jobs[count, 0], jobs[count, 1], jobs[count, 2], jobs[count, 3]
        free = low == 0 and high == NO_BOUND
        base = 0 if root >= 0 else depth[-2 - root]
        stack[0, base], stack[1, base] = config, 0
        if root == 0:
            stack[1, 0] = held
        elif root < 0:
            stack[1, base] = ON_TABLE
        if stack[1, base] == ON_TABLE:
            _table_bytes(t, config, table)
        for word in range(4 if root >= 0 else 1):
            todo = first[config, word] if root >= 0 else np.uint64(1)
            if root >= 0 and stack[1, base] == ON_TABLE:
                todo = table[word]
            if stack[1, base] > 0:
                todo &= ~class_first[stack[1, base] - 1, word]
            while todo:
                lowest = todo & (~todo + np.uint64(1))
                todo &= ~lowest
                if root >= 0:
                    at = child[root, word * 64 + m._popcount(lowest - np.uint64(1))]
                    if at < 0:
                        continue
                    end = skip[at]
                else:
                    at = -1 - root
                    end = skip[at - 1]
                while at < end:
                    level, b = depth[at], byte[at]
                    here, hold = stack[0, level - 1], stack[1, level - 1]
                    if hold == ON_TABLE:
                        if level == base + 1 and (table[b >> 6] >> np.uint64(b & 63)) & np.uint64(1) == 0:
                            at = skip[at]
                            continue
                        at = _on_table(t, v, at, base, stack, row)
                        if at < 0:
                            return at
                        continue
                    if (first[here, b >> 6] >> np.uint64(b & 63)) & np.uint64(1) == 0 or (
                        hold > 0 and (class_first[hold - 1, b >> 6] >> np.uint64(b & 63)) & np.uint64(1)
                    ):
                        at = skip[at]
                        continue
                    target = cells[m._cell_of(conf, first, here, b)]
                    if target == 0:
                        target = m.step(t, here, b)
                        if target < 0:
                            return target
                    if target <= 0:
                        at = skip[at]
                        continue
                    stack[0, level], stack[1, level] = target, 0
                    e = entry[at]
                    while e >= 0:
                        if free or low <= chars[e] <= high:
                            row[ids[e] >> 5] |= np.int32(1) << np.int32(ids[e] & 31)
                        e = following[e]
                    if heavy[at] >= 0 and free and conf[target, m.LOOP]:
                        key = conf[target, m.KEY]
                        slot = slot_of[key >> 6]
                        if slot >= 0:
                            spot = spots[slot * 64 + (key & 63), heavy[at]]
                            if spot <= 0:
                                spots[slot * 64 + (key & 63), heavy[at]] = spot - 1
                                if spot - 1 <= -VISITS and wanted[0, 0] + 1 < wanted.shape[0]:
                                    wanted[0, 0] += 1
                                    wanted[wanted[0, 0], 0], wanted[wanted[0, 0], 1] = at, slot * 64 + (key & 63)
                                holds = 0
                            else:
                                holds = m.loop_holds(t, target)
                                if holds < 0:
                                    return holds
                            if holds > 0:
                                least, most = _bounds(t, target)
                                for i in range(records[spot, 0], records[spot, 1]):
                                    if spot_chars[i] <= most:
                                        which = spot_ids[i]
                                        row[which >> 5] |= np.int32(1) << np.int32(which & 31)
                                opened = conf[target, m.LOOP] == m.OPEN
                                if opened:  # last in, first out: the tails come before the walk along the table
                                    jobs[count, 0], jobs[count, 1] = -2 - at, target
                                    jobs[count, 2], jobs[count, 3] = 0, NO_BOUND
                                    count += 1
                                if records[spot, 2] >= 0:
                                    out = m.exit_of(t, target)
                                    if out < 0:
                                        return out
                                    if out > 0:
                                        jobs[count, 0], jobs[count, 1] = records[spot, 2], out
                                        jobs[count, 2], jobs[count, 3] = least, most
                                        count += 1
                                if count + 2 >= jobs.shape[0]:
                                    return m.OVERFLOW
                                if opened:
                                    at = skip[at]
                                    continue
                                if key & 63:
                                    at = skip[at]
                                    continue
                                stack[1, level] = slot + 1
                    at += 1
    return 0
