"""One lazily built deterministic machine under all recognisers, as compiled code over flat arrays.

A *configuration* is everything that is known of a text so far: a set of items (node, stack), where the node reads the
next byte and the stack says what comes after it. Stacks are shared cells (node, rest), so a million texts with a
common future have one stack. Nodes, stacks and configurations are interned: the same set of items is the same number,
its successors are computed once, and a mask can be kept under that number. What a recogniser contributes is only how
a rule call is entered and left:

- pda: the call pushes what follows it (a set of stacks; Lang 1974's graph-structured stack as interned cells);
- earley: the call leaves a waiting item behind and starts the rule with a return cell that names this very
  configuration (Earley 1970, with sets interned by content, and tail calls that leave nothing behind, after Leo 1991);
- fsm: no calls at all, the nodes are the positions of a Glushkov automaton, determinised on the way.

All functions return a configuration (> 0), DEAD where no text goes on, or one of the negative codes below.
"""

from __future__ import annotations

import numba
import numpy as np

from gdlib.recognizers.compiled import compiled

DEAD = 0  # no text continues this way
NEED = -2  # a Lazy node must be built first: size[AT] names it
FULL = -3  # the arena has no room left
OVERFLOW = -4  # more items than the limit: ambiguity, or recursion that reads nothing: size[AT] names the last rule

# kinds of node, and what the fields a, b, c, d of each mean
NOTHING = 0  # the empty text
BYTES = 1  # a: byte set
TEXT = 2  # a, b: the bytes pool[a:b], a < b; the node behind the first byte is this node + 1
MACHINE = 3  # a: record of a Dfa (see DFA_*), b: its state; the nodes of all its states lie side by side
SEQ = 4  # a, then b
CHOICE = 5  # ints[a:b]: the choices
REPEAT = 6  # a, at least b and at most c times (c < 0: no bound); d: 1 + the class's number where a is one character
LAZY = 7  # body[node], built on demand
WORDS = (
    8  # a: record of a Words (see WORDS_*), ints b, c: the texts still possible, d: how many bytes of them were read
)
POSITION = 9  # a: byte set, ints[b:c]: the positions that may follow, d = 1 where the text may end here
COUNTED = 11  # a: record of a Counted (see COUNT_*), b: the state of its machine, c: the characters begun so far
RETURN = 10  # earley only: the bottom of a rule's stack; a: the rule's LAZY node. The cell's `rest` is the origin

# a Dfa's record in ints
DFA_DELTA, DFA_COLUMNS, DFA_WIDTH, DFA_ACCEPTING, DFA_SETS, DFA_NODES, DFA_STATES = range(7)
# a Words' record in ints; the table it points to is: how many texts, then their bounds in the pool. OTHER is a
# machine of whole texts, or with CLASS > 0 one of single characters, of which any number may stand between two
# quotes: CLASS is 1 + the class's number, REST the repetition of the character and the closing quote
WORDS_TABLE, WORDS_SKIP, WORDS_OTHER, WORDS_NUMBER, WORDS_CLASS, WORDS_REST = range(6)

# a Counted's record in ints
COUNT_DFA, COUNT_STARTS, COUNT_USEFUL, COUNT_TOP, COUNT_LOW, COUNT_SATURATED = range(6)

# columns of `conf`. Where a configuration stands in a repeated character and one byte tells whether it stays there,
# LOOP is the stack under it, KEY its class's number * 64 + the state inside the character, EXIT what is behind the
# loop. In a Words with CLASS the text may leave the table and be any quoted string at every byte; there LOOP is OPEN.
ITEMS, COUNT, CELLS, ACCEPTING, LOOP, KEY, EXIT, WIDE = range(8)
OPEN = -1
QUOTE = 34
MANY = 48  # configurations with more first bytes than this keep their successors by byte, others by rank

# entries of `size`
N_NODES, N_CONTS, N_ITEMS, N_CONFS, N_CELLS, AT, STAMP, LIMIT, EARLEY, MET = range(10)

GOES_ON = -1  # no node: marks a stack that was already taken up behind a complete rule
AGAIN = -2  # no node: marks a repetition's stack as pushed in this very closure
SELF = 0x7FFFFFFF  # the origin "this configuration", before it has a number


@numba.njit(cache=True, inline="always")
def _bit(sets, index, byte):
    return (sets[index, byte >> 6] >> np.uint64(byte & 63)) & np.uint64(1)


@compiled
def _popcount(word):
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def _cell_of(conf, first, config, byte):
    """Where the successor of `config` by `byte` is kept; `byte` must be one of its first bytes."""
    if conf[config, WIDE]:
        return conf[config, CELLS] + byte
    rank = 0
    for word in range(byte >> 6):
        rank += _popcount(first[config, word])
    below = (np.uint64(1) << np.uint64(byte & 63)) - np.uint64(1)
    return conf[config, CELLS] + rank + _popcount(first[config, byte >> 6] & below)


@compiled
def _hash4(a, b, c, d):
    h = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(b)
    h = (h ^ (h >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(c)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0x94D049BB133111EB) + np.uint64(d)
    return np.int64((h ^ (h >> np.uint64(31))) & np.uint64(0x7FFFFFFFFFFFFFFF))


@compiled
def make_node(node, hashes, size, kind, a, b, c, d):
    """The number of this node, interned; FULL where there is no room."""
    mask = hashes.shape[0] - 1
    slot = _hash4(a, b, c, d * 16 + kind) & mask
    while hashes[slot] > 0:
        n = hashes[slot]
        if node[n, 0] == kind and node[n, 1] == a and node[n, 2] == b and node[n, 3] == c and node[n, 4] == d:
            return n
        slot = (slot + 1) & mask
    n = size[N_NODES]
    if n + 1 >= node.shape[0]:
        return FULL
    size[N_NODES] = n + 1
    hashes[slot] = n
    node[n, 0], node[n, 1], node[n, 2], node[n, 3], node[n, 4] = kind, a, b, c, d
    return n


@compiled
def _push(cont, hashes, size, top, rest):
    """The stack with node `top` above stack `rest`, interned; 0 is the empty stack."""
    mask = hashes.shape[0] - 1
    slot = _hash4(top, rest, 0, 0) & mask
    while hashes[slot] > 0:
        k = hashes[slot]
        if cont[k, 0] == top and cont[k, 1] == rest:
            return k
        slot = (slot + 1) & mask
    k = size[N_CONTS]
    if k + 1 >= cont.shape[0]:
        return FULL
    size[N_CONTS] = k + 1
    hashes[slot] = k
    cont[k, 0], cont[k, 1] = top, rest
    return k


@compiled
def _words_range(t, record, start, end, depth, byte):
    """The texts of [start, end) whose byte at `depth` is `byte`: (from, to), by bisection."""
    ints, pool = t[9], t[8]
    table = ints[record + WORDS_TABLE] + 1
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        if pool[ints[table + middle] + depth] < byte:
            low = middle + 1
        else:
            high = middle
    begin, high = low, end
    while low < high:
        middle = (low + high) >> 1
        if pool[ints[table + middle] + depth] <= byte:
            low = middle + 1
        else:
            high = middle
    return begin, low


@compiled
def _skipped(t, record, index):
    at = t[9][record + WORDS_SKIP]
    return at >= 0 and (t[9][at + (index >> 5)] >> (index & 31)) & 1 == 1


@compiled
def _any_left(t, record, start, end):
    for index in range(start, end):  # noqa: SIM110 (compiled)
        if not _skipped(t, record, index):
            return True
    return False


@compiled
def _other_state(t, record, start, depth):
    """The state of a Words' `other` machine behind the first `depth` bytes of text `start`, or -1."""
    ints, pool = t[9], t[8]
    dfa = ints[record + WORDS_OTHER]
    begin = ints[ints[record + WORDS_TABLE] + 1 + start]
    state = 0
    quoted = ints[record + WORDS_CLASS] > 0
    for at in range(begin + 1 if quoted else begin, begin + depth):
        column = pool[ints[dfa + DFA_COLUMNS] + pool[at]]
        state = ints[ints[dfa + DFA_DELTA] + state * ints[dfa + DFA_WIDTH] + column]
        if state < 0:
            return -1
        if quoted and pool[ints[dfa + DFA_ACCEPTING] + state]:
            state = 0
    return state


@compiled
def _other_step(t, record, state, depth, byte, k):
    """What `other` makes of `byte` where the table does not go on: (node, stack), the node -1 where it is dead."""
    node, cont, pool, ints, size = t[0], t[2], t[8], t[9], t[13]
    dfa, number = ints[record + WORDS_OTHER], ints[record + WORDS_NUMBER]
    quoted = ints[record + WORDS_CLASS] > 0
    if state < 0 or (quoted and depth == 0):
        return -1, k
    behind = make_node(node, t[10], size, LAZY, number, -1, 0, 0)
    if behind == FULL:
        return FULL, k
    if quoted and byte == QUOTE and state == 0:
        return behind, k
    column = pool[ints[dfa + DFA_COLUMNS] + byte]
    state = ints[ints[dfa + DFA_DELTA] + state * ints[dfa + DFA_WIDTH] + column]
    if state < 0:
        return -1, k
    k = _push(cont, t[11], size, behind, k)
    rest = ints[record + WORDS_REST]  # SEQ of the repetition and the quote
    if quoted and k != FULL:
        k = _push(cont, t[11], size, node[rest, 2], k)
        k = k if k == FULL else _push(cont, t[11], size, node[rest, 1], k)
    if k == FULL:
        return FULL, k
    return ints[dfa + DFA_NODES] + state, k


@compiled
def _counted_step(t, n, column):
    """(state, count) of a Counted's node behind a byte of `column`; the state is -1 where that leads nowhere."""
    node, pool, ints = t[0], t[8], t[9]
    record, state, count = node[n, 1], node[n, 2], node[n, 3]
    dfa, top = ints[record + COUNT_DFA], ints[record + COUNT_TOP]
    width = ints[dfa + DFA_WIDTH]
    target = ints[ints[dfa + DFA_DELTA] + state * width + column]
    if target < 0:
        return -1, count
    if pool[ints[record + COUNT_STARTS] + state]:
        count += 1
        if count > top:
            if ints[record + COUNT_SATURATED] == 0:
                return -1, count
            count = top
    states = ints[dfa + DFA_STATES]
    if pool[ints[record + COUNT_USEFUL] + count * states + target] == 0:
        return -1, count
    return target, count


@compiled
def _first_bytes(t, n, out):
    """Add the bytes that leaf `n` can read to the four words `out`."""
    node, sets, pool, ints = t[0], t[7], t[8], t[9]
    kind = node[n, 0]
    if kind == TEXT:
        byte = pool[node[n, 1]]
        out[byte >> 6] |= np.uint64(1) << np.uint64(byte & 63)
        return
    if kind in (BYTES, POSITION):
        for w in range(4):
            out[w] |= sets[node[n, 1], w]
        return
    if kind == MACHINE:
        index = ints[ints[node[n, 1] + DFA_SETS] + node[n, 2]]
        for w in range(4):
            out[w] |= sets[index, w]
        return
    if kind == COUNTED:
        columns = ints[ints[node[n, 1] + COUNT_DFA] + DFA_COLUMNS]
        last, alive = -1, False
        for byte in range(256):
            if pool[columns + byte] != last:
                last = pool[columns + byte]
                alive = _counted_step(t, n, last)[0] >= 0
            if alive:
                out[byte >> 6] |= np.uint64(1) << np.uint64(byte & 63)
        return
    if kind != WORDS:
        return
    record, start, end, depth = node[n, 1], node[n, 2], node[n, 3], node[n, 4]
    table = ints[record + WORDS_TABLE] + 1
    open_ended = ints[record + WORDS_OTHER] >= 0
    here0, here1, here2, here3 = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    if open_ended:
        state = _other_state(t, record, start, depth)
        if state >= 0 and (depth > 0 or ints[record + WORDS_CLASS] == 0):
            index = ints[ints[ints[record + WORDS_OTHER] + DFA_SETS] + state]
            here0, here1, here2, here3 = sets[index, 0], sets[index, 1], sets[index, 2], sets[index, 3]
            if ints[record + WORDS_CLASS] > 0 and state == 0:
                here0 |= np.uint64(1) << np.uint64(QUOTE)
    index = start
    while index < end:
        begin = ints[table + index]
        byte = pool[begin + depth]
        stop = _words_range(t, record, index, end, depth, byte)[1]
        bit = np.uint64(1) << np.uint64(byte & 63)
        whole = ints[table + index + 1] - begin == depth + 1
        if whole:
            good = not _skipped(t, record, index)
        else:
            good = open_ended or _any_left(t, record, index, stop)
        word = byte >> 6
        if word == 0:
            here0 = (here0 & ~bit) | (bit if good else np.uint64(0))
        elif word == 1:
            here1 = (here1 & ~bit) | (bit if good else np.uint64(0))
        elif word == 2:
            here2 = (here2 & ~bit) | (bit if good else np.uint64(0))
        else:
            here3 = (here3 & ~bit) | (bit if good else np.uint64(0))
        index = stop
    out[0] |= here0
    out[1] |= here1
    out[2] |= here2
    out[3] |= here3


@compiled
def _rebase(t, k, config, scratch):
    """Stack `k` with its bottom's origin SELF replaced by `config`."""
    cont, node, size = t[2], t[0], t[13]
    depth = 0
    while k != 0 and node[cont[k, 0], 0] != RETURN:
        scratch[depth] = cont[k, 0]
        depth += 1
        if depth >= scratch.shape[0]:
            return FULL
        k = cont[k, 1]
    if k == 0 or cont[k, 1] != SELF:
        return -1  # nothing to replace
    k = _push(cont, t[11], size, cont[k, 0], config)
    while depth > 0 and k > 0:
        depth -= 1
        k = _push(cont, t[11], size, scratch[depth], k)
    return k


@compiled
def _seen(keys, stamps, size, n, k):
    """True where (n, k) was met before in this closure; marks it as met."""
    mask = keys.shape[0] - 1
    key = (np.int64(n) << 32) | np.int64(np.uint32(k))
    slot = _hash4(n, k, 1, 1) & mask
    while stamps[slot] == size[STAMP]:
        if keys[slot] == key:
            return True
        slot = (slot + 1) & mask
    stamps[slot] = size[STAMP]
    keys[slot] = key
    size[MET] += 1
    return False


@compiled
def _close(t, todo, count):
    """Turn the first `count` pairs of `todo` into a configuration: everything that can be reached without a byte."""
    node, body, cont, size, out, ints, pool = t[0], t[1], t[2], t[13], t[17], t[9], t[8]
    size[STAMP] += 1
    size[MET] = 0
    limit = size[LIMIT]
    earley = size[EARLEY] == 1
    found = 0
    steps = 0
    accepting = 0
    while count > 0:
        count -= 1
        n, k = todo[count, 0], todo[count, 1]
        kind = node[n, 0]
        steps += 1
        if steps > 64 * limit or size[MET] > 2 * limit or found >= limit or count + 8 >= todo.shape[0]:
            return OVERFLOW
        if kind == NOTHING:
            if k == 0:
                accepting = 1
                continue
            top = cont[k, 0]
            if node[top, 0] == REPEAT and _was_seen(t[14], t[15], size, AGAIN, k):
                continue  # an iteration that read nothing: what may follow it was taken up when it began
            if node[top, 0] != RETURN:
                todo[count, 0], todo[count, 1] = top, cont[k, 1]
                count += 1
                continue
            # earley: the rule of `top` is complete; go on wherever its origin waits for it
            rule, origin = node[top, 1], cont[k, 1]
            if _seen(t[14], t[15], size, n, k):
                continue
            if origin == SELF:
                for at in range(found):
                    w = np.int32(out[at] >> 32)
                    if w == rule and node[w, 0] == LAZY:
                        todo[count, 0], todo[count, 1] = 0, np.int32(out[at] & 0xFFFFFFFF)
                        count += 1
                        if count + 8 >= todo.shape[0]:
                            return OVERFLOW
                continue
            conf, item = t[4], t[3]
            for at in range(conf[origin, ITEMS], conf[origin, ITEMS] + conf[origin, COUNT]):
                if item[at, 0] == rule:
                    rest = item[at, 1]
                    moved = _rebase(t, rest, origin, t[18])
                    if moved == FULL:
                        return FULL
                    rest = rest if moved < 0 else moved
                    if _seen(t[14], t[15], size, GOES_ON, rest):
                        continue
                    todo[count, 0], todo[count, 1] = 0, rest
                    count += 1
                    if count + 8 >= todo.shape[0]:
                        return OVERFLOW
            continue
        if kind == SEQ:
            rest = _push(cont, t[11], size, node[n, 2], k)
            if rest == FULL:
                return FULL
            todo[count, 0], todo[count, 1] = node[n, 1], rest
            count += 1
            continue
        if kind == TEXT:
            if not _seen(t[14], t[15], size, n, k):
                out[found] = (np.int64(n) << 32) | np.int64(k)
                found += 1
            continue
        if _seen(t[14], t[15], size, n, k):
            continue
        if kind == MACHINE:
            record, state = node[n, 1], node[n, 2]
            if pool[ints[record + DFA_ACCEPTING] + state]:
                todo[count, 0], todo[count, 1] = 0, k
                count += 1
            sets, index = t[7], ints[ints[record + DFA_SETS] + state]
            if sets[index, 0] | sets[index, 1] | sets[index, 2] | sets[index, 3]:
                out[found] = (np.int64(n) << 32) | np.int64(k)
                found += 1
        elif kind == COUNTED:
            record, state = node[n, 1], node[n, 2]
            if pool[ints[ints[record + COUNT_DFA] + DFA_ACCEPTING] + state] and node[n, 3] >= ints[record + COUNT_LOW]:
                todo[count, 0], todo[count, 1] = 0, k
                count += 1
            out[found] = (np.int64(n) << 32) | np.int64(k)
            found += 1
        elif kind in (BYTES, WORDS):
            out[found] = (np.int64(n) << 32) | np.int64(k)
            found += 1
        elif kind == POSITION:
            out[found] = np.int64(n) << 32
            found += 1
        elif kind == CHOICE:
            for at in range(node[n, 1], node[n, 2]):
                todo[count, 0], todo[count, 1] = ints[at], k
                count += 1
                if count + 8 >= todo.shape[0]:
                    return OVERFLOW
        elif kind == REPEAT:
            low, high = node[n, 2], node[n, 3]
            if low == 0:
                todo[count, 0], todo[count, 1] = 0, k
                count += 1
            if high != 0:
                more = n
                if low != 0 or high > 0:
                    more = make_node(
                        node, t[10], size, REPEAT, node[n, 1], max(low - 1, 0), high - 1 if high > 0 else -1, node[n, 4]
                    )
                rest = FULL if more == FULL else _push(cont, t[11], size, more, k)
                if rest == FULL:
                    return FULL
                if low == 0:
                    _seen(t[14], t[15], size, AGAIN, rest)
                todo[count, 0], todo[count, 1] = node[n, 1], rest
                count += 1
        elif kind == LAZY:
            size[AT] = n
            if body[n] == 0:
                return NEED
            if not earley:
                todo[count, 0], todo[count, 1] = body[n], k
                count += 1
                continue
            if k == 0 or node[cont[k, 0], 0] == RETURN:  # a tail call: whoever waits for the caller waits for this
                todo[count, 0], todo[count, 1] = body[n], k
                count += 1
                continue
            out[found] = (np.int64(n) << 32) | np.int64(k)
            found += 1
            bottom = make_node(node, t[10], size, RETURN, n, 0, 0, 0)
            start = FULL if bottom == FULL else _push(cont, t[11], size, bottom, SELF)
            if start == FULL:
                return FULL
            todo[count, 0], todo[count, 1] = body[n], start
            count += 1
            if _was_seen(t[14], t[15], size, 0, start):  # it was complete before this item began to wait
                todo[count, 0], todo[count, 1] = 0, k
                count += 1
    return _intern(t, out, found, accepting)


@compiled
def _was_seen(keys, stamps, size, n, k):
    mask = keys.shape[0] - 1
    key = (np.int64(n) << 32) | np.int64(np.uint32(k))
    slot = _hash4(n, k, 1, 1) & mask
    while stamps[slot] == size[STAMP]:
        if keys[slot] == key:
            return True
        slot = (slot + 1) & mask
    return False


@compiled
def _intern(t, keys, count, accepting):
    """The configuration of these items, made where it is new. DEAD where there are none and the text may not end."""
    if count == 0 and not accepting:
        return DEAD
    node, cont, item, conf, first, hashes, size = t[0], t[2], t[3], t[4], t[5], t[12], t[13]
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:  # shell sort: nearly always a handful of items
        for i in range(gap, count):
            key = keys[i]
            j = i - gap
            while j >= 0 and keys[j] > key:
                keys[j + gap] = keys[j]
                j -= gap
            keys[j + gap] = key
        gap //= 3
    h = np.int64(accepting)
    for i in range(count):
        h = _hash4(h, keys[i] >> 32, keys[i] & 0xFFFFFFFF, i)
    mask = hashes.shape[0] - 1
    slot = h & mask
    while hashes[slot] > 0:
        c = hashes[slot]
        if conf[c, COUNT] == count and conf[c, ACCEPTING] == accepting:
            at, same = conf[c, ITEMS], True
            for i in range(count):
                if item[at + i, 0] != np.int32(keys[i] >> 32) or item[at + i, 1] != np.int32(keys[i] & 0xFFFFFFFF):
                    same = False
                    break
            if same:
                return c
        slot = (slot + 1) & mask
    c, at = size[N_CONFS], size[N_ITEMS]
    if c + 1 >= conf.shape[0] or at + count >= item.shape[0]:
        return FULL
    for w in range(4):
        first[c, w] = 0
    loop, classes, key = 0, 0, 0
    for i in range(count):
        n, k = np.int32(keys[i] >> 32), np.int32(keys[i] & 0xFFFFFFFF)
        item[at + i, 0], item[at + i, 1] = n, k
        if k != 0 and node[cont[k, 0], 0] == REPEAT and node[cont[k, 0], 4] > 0:
            leaf = node[cont[k, 0], 1]
            if leaf == n:
                loop, key = k, (node[cont[k, 0], 4] - 1) * 64
                classes += 1
            elif count == 1 and node[n, 0] == MACHINE and node[n, 1] == node[leaf, 1] and node[leaf, 0] == MACHINE:
                loop, key = k, (node[cont[k, 0], 4] - 1) * 64 + node[n, 2]
                classes += 1
        _first_bytes(t, n, first[c])
        if count == 1 and node[n, 0] == WORDS and node[n, 4] > 0 and t[9][node[n, 1] + WORDS_OTHER] >= 0:
            ints, record = t[9], node[n, 1]
            state = _other_state(t, record, node[n, 2], node[n, 4])
            if state >= 0 and ints[record + WORDS_CLASS] > 0:
                loop, key, classes = OPEN, (ints[record + WORDS_CLASS] - 1) * 64 + state, 1
            elif state >= 0 and node[ints[ints[record + WORDS_OTHER] + DFA_NODES] + state, 0] == SEQ:
                # the machine takes any string from here on: class 0, between two characters
                loop, key, classes = OPEN, 0, 1
    cells = 0
    for w in range(4):
        cells += _popcount(first[c, w])
    if cells == 0 and not accepting:
        return DEAD
    wide = cells > MANY
    cells = 256 if wide else cells
    if size[N_CELLS] + cells >= t[6].shape[0]:
        return FULL
    if classes == 1 and count > 1:  # is what the loop reads told apart from all the rest by one byte?
        own, rest = t[16][0], t[16][1]
        own[:] = 0
        rest[:] = 0
        for i in range(count):
            mine = item[at + i, 1] == loop and item[at + i, 0] == node[cont[loop, 0], 1]
            _first_bytes(t, item[at + i, 0], own if mine else rest)
        if (own[0] & rest[0]) | (own[1] & rest[1]) | (own[2] & rest[2]) | (own[3] & rest[3]):
            classes = 2
    conf[c, ITEMS], conf[c, COUNT], conf[c, CELLS] = at, count, size[N_CELLS]
    conf[c, ACCEPTING], conf[c, LOOP], conf[c, KEY] = accepting, loop if classes == 1 else 0, key
    conf[c, EXIT], conf[c, WIDE] = -1, wide
    size[N_CONFS], size[N_ITEMS], size[N_CELLS] = c + 1, at + count, size[N_CELLS] + cells
    hashes[slot] = c
    return c


@compiled
def start(t, root):
    """The configuration before the first byte of node `root`."""
    todo = t[19]
    todo[0, 0], todo[0, 1] = root, 0
    return _close(t, todo, 1)


@compiled
def exit_of(t, config):
    """What is behind the loop or the one machine that `config` stands in, as a configuration."""
    conf, cont, todo, node, size = t[4], t[2], t[19], t[0], t[13]
    if conf[config, EXIT] < 0 and conf[config, LOOP] == OPEN:
        n, k = t[3][conf[config, ITEMS], 0], t[3][conf[config, ITEMS], 1]
        behind = make_node(node, t[10], size, LAZY, t[9][node[n, 1] + WORDS_NUMBER], -1, 0, 0)
        if behind == FULL:
            return FULL
        if size[EARLEY] == 1:
            moved = _rebase(t, k, config, t[18])
            if moved == FULL:
                return FULL
            k = moved if moved >= 0 else k
        k = _push(cont, t[11], size, behind, k)
        if k == FULL:
            return FULL
        todo[0, 0], todo[0, 1] = node[t[9][node[n, 1] + WORDS_REST], 2], k
        out = _close(t, todo, 1)
        if out < 0:
            return out
        conf[config, EXIT] = out
    if conf[config, EXIT] < 0:
        rest = cont[conf[config, LOOP], 1] if conf[config, LOOP] else t[3][conf[config, ITEMS], 1]
        if t[13][EARLEY] == 1:
            moved = _rebase(t, rest, config, t[18])
            if moved == FULL:
                return FULL
            rest = moved if moved >= 0 else rest
        todo[0, 0], todo[0, 1] = 0, rest
        out = _close(t, todo, 1)
        if out < 0:
            return out
        conf[config, EXIT] = out
    return conf[config, EXIT]


@compiled
def loop_holds(t, config):
    """1 where one byte tells whether the text stays in the loop of `config`, also at its later characters; else 0, and
    `config` is marked as standing in no loop. Or a code.
    """
    conf, cont, node, first, own = t[4], t[2], t[0], t[5], t[16][0]
    if conf[config, LOOP] <= 0:
        return np.int64(conf[config, LOOP] == OPEN)
    if conf[config, EXIT] >= 0:
        return np.int64(1)  # looked at before
    out = exit_of(t, config)
    if out < 0:
        return np.int64(out)
    own[:] = 0
    _first_bytes(t, node[cont[conf[config, LOOP], 0], 1], own)
    for w in range(4):
        if own[w] & first[out, w]:  # a token may be past the loop's bound and still look as if it were inside
            conf[config, LOOP], conf[config, EXIT] = 0, -1
            return np.int64(0)
    return np.int64(1)


@compiled
def step(t, config, byte):
    """The configuration behind one more byte."""
    conf, first = t[4], t[5]
    if config <= 0 or _bit(first, config, byte) == 0:
        return DEAD
    cell = _cell_of(conf, first, config, byte)
    if t[6][cell] != 0:
        return max(t[6][cell], DEAD)
    node, _cont, item, sets, pool, ints, todo, size = t[0], t[2], t[3], t[7], t[8], t[9], t[19], t[13]
    earley = size[EARLEY] == 1
    count, last = 0, -1
    for at in range(conf[config, ITEMS], conf[config, ITEMS] + conf[config, COUNT]):
        n, k = item[at, 0], item[at, 1]
        kind = node[n, 0]
        after = -1
        if kind == TEXT:
            if pool[node[n, 1]] == byte:
                after = n + 1 if node[n, 1] + 1 < node[n, 2] else 0
        elif kind == MACHINE:
            record = node[n, 1]
            column = pool[ints[record + DFA_COLUMNS] + byte]
            state = ints[ints[record + DFA_DELTA] + node[n, 2] * ints[record + DFA_WIDTH] + column]
            if state >= 0:
                after = ints[record + DFA_NODES] + state
        elif kind == COUNTED:
            column = pool[ints[ints[node[n, 1] + COUNT_DFA] + DFA_COLUMNS] + byte]
            state, begun = _counted_step(t, n, column)
            if state >= 0:
                after = make_node(node, t[10], size, COUNTED, node[n, 1], state, begun, 0)
        elif kind == BYTES:
            if _bit(sets, node[n, 1], byte):
                after = 0
        elif kind == POSITION:
            if _bit(sets, node[n, 1], byte):
                for f in range(node[n, 2], node[n, 3]):
                    if count + 8 >= todo.shape[0]:
                        return OVERFLOW
                    todo[count, 0], todo[count, 1] = ints[f], 0
                    count += 1
                if node[n, 4]:
                    after = 0
        elif kind == WORDS:
            record, begin, end, depth = node[n, 1], node[n, 2], node[n, 3], node[n, 4]
            low, high = _words_range(t, record, begin, end, depth, byte)
            number, other = ints[record + WORDS_NUMBER], ints[record + WORDS_OTHER]
            table = ints[record + WORDS_TABLE] + 1
            if low < high and ints[table + low + 1] - ints[table + low] == depth + 1:
                if not _skipped(t, record, low):
                    after = make_node(node, t[10], size, LAZY, number, low, 0, 0)
            elif low < high:
                if other >= 0 or _any_left(t, record, low, high):
                    after = make_node(node, t[10], size, WORDS, record, low, high, depth + 1)
            elif other >= 0:
                state = _other_state(t, record, begin, depth)
                after, k = _other_step(t, record, state, depth, byte, k)
            if after == FULL:
                return FULL
        if after >= 0:
            if earley:
                moved = _rebase(t, k, config, t[18])
                if moved == FULL:
                    return FULL
                if moved >= 0:
                    k = moved
            if count + 8 >= todo.shape[0]:
                return OVERFLOW
            todo[count, 0], todo[count, 1] = after, k
            count += 1
            last = at
    only = -1 if count != 1 else last
    target = _close(t, todo, count)
    if target >= 0:
        t[6][cell] = target if target > 0 else -1
        if only >= 0 and conf[config, WIDE]:
            _same_step(t, config, only, byte, t[6][cell])
    return target


@compiled
def _same_step(t, config, only, byte, value):
    """Keep the successor for all bytes that item `only`, which alone read `byte`, does not tell from it."""
    node, item, conf, cells, sets, pool, ints, first = t[0], t[3], t[4], t[6], t[7], t[8], t[9], t[5]
    n, k = item[only, 0], item[only, 1]
    if conf[config, COUNT] > 1 and (conf[config, LOOP] != k or conf[config, KEY] & 63 or node[t[2][k, 0], 1] != n):
        return  # another item may read what this one reads
    base = conf[config, CELLS]
    if node[n, 0] == BYTES:
        for other in range(256):
            if _bit(sets, node[n, 1], other):
                cells[base + other] = value
    elif node[n, 0] == MACHINE or node[n, 0] == COUNTED:
        dfa = node[n, 1] if node[n, 0] == MACHINE else ints[node[n, 1] + COUNT_DFA]
        columns = ints[dfa + DFA_COLUMNS]
        for other in range(256):
            if pool[columns + other] == pool[columns + byte] and _bit(first, config, other):
                cells[base + other] = value


@compiled
def advance(t, config, data):
    """The configuration behind all bytes of `data`, uint8[n]."""
    for byte in data:
        config = step(t, config, byte)
        if config <= 0:
            return config
    return config


@compiled
def forced(t, config, out):
    """Write the bytes that alone are legal into `out`, uint8[limit]; returns (how many, configuration or code).

    Stops where several bytes are legal, where the text may end, or where `out` is full.
    """
    conf, first = t[4], t[5]
    count = 0
    while count < out.shape[0] and conf[config, ACCEPTING] == 0:
        byte = -1
        for w in range(4):
            word = first[config, w]
            if word == 0:
                continue
            if byte >= 0 or word & (word - np.uint64(1)):
                return count, config
            byte = w * 64 + _popcount(word - np.uint64(1))
        if byte < 0:
            return count, config
        target = step(t, config, byte)
        if target <= 0:
            return count, target if target < 0 else config
        out[count] = byte
        count += 1
        config = target
    return count, config


@compiled
def parts(t, config, out):
    """Split the items of `config` into configurations of their own, written to `out`: one for each that alone reads
    many bytes, one for all the others. Returns how many, or a code. What is legal in any part is legal in the whole.
    """
    item, conf, keys, first = t[3], t[4], t[17], t[16]
    count, narrow = 0, 0
    at, end = conf[config, ITEMS], conf[config, ITEMS] + conf[config, COUNT]
    for i in range(at, end):
        own = first[0]
        own[:] = 0
        _first_bytes(t, item[i, 0], own)
        if _popcount(own[0]) + _popcount(own[1]) + _popcount(own[2]) + _popcount(own[3]) > MANY:
            if count + 1 >= out.shape[0]:
                return OVERFLOW
            keys[0] = (np.int64(item[i, 0]) << 32) | np.int64(item[i, 1])
            out[count] = _intern(t, keys, 1, 0)
            if out[count] < 0:
                return FULL
            count += 1
        else:
            narrow += 1
    if narrow:
        narrow = 0
        for i in range(at, end):
            own = first[0]
            own[:] = 0
            _first_bytes(t, item[i, 0], own)
            if _popcount(own[0]) + _popcount(own[1]) + _popcount(own[2]) + _popcount(own[3]) <= MANY:
                keys[narrow] = (np.int64(item[i, 0]) << 32) | np.int64(item[i, 1])
                narrow += 1
        out[count] = _intern(t, keys, narrow, 0)
        if out[count] < 0:
            return FULL
        count += 1
    return count


@compiled
def explore(t, config, order, met):
    """Write every configuration that some text leads to from `config` into `order`, int32[limit]; how many, or a code.

    met: uint8[configurations], all zero. OVERFLOW where there are more than fit.
    """
    first = t[5]
    order[0] = config
    met[config] = 1
    count, at = 1, 0
    while at < count:
        here = order[at]
        for byte in range(256):
            if _bit(first, here, byte) == 0:
                continue
            target = step(t, here, byte)
            if target < 0:
                return target
            if target > 0 and met[target] == 0:
                if count >= order.shape[0]:
                    return OVERFLOW
                met[target] = 1
                order[count] = target
                count += 1
        at += 1
    return count
