"""The loops over whole machines, compiled: two machines side by side, and what is left once dead states are gone.

Plain Python takes a microsecond for each state and column, and a schema with a few patterns has a hundred thousand.
"""

from __future__ import annotations

import numba
import numpy as np

compiled = numba.njit(cache=True, nogil=True)


@compiled
def _slot(keys, key):
    """Where `key` stands in a hash table, or the free slot (-1) where it belongs."""
    mask = len(keys) - 1
    at = (key ^ (key >> 17)) * 0x9E3779B1 & mask
    while keys[at] >= 0 and keys[at] != key:
        at = (at + 1) & mask
    return at


@compiled
def longer(array, used):
    """A copy with room for twice as much."""
    made = np.empty(2 * max(used, len(array)) + 2, array.dtype)
    for i in range(min(used + 1, len(array))):
        made[i] = array[i]
    return made


@compiled
def resized(rows, used, room):
    """A copy with room for so many rows."""
    made = np.empty((room, rows.shape[1]), rows.dtype)
    for i in range(used):
        for j in range(rows.shape[1]):
            made[i, j] = rows[i, j]
    return made


@compiled
def common_columns(many):
    """Columns that keep apart what any of uint8[machines, 256] keeps apart, and one byte of each."""
    columns, heads = np.zeros(256, np.uint8), np.zeros(256, np.int64)
    width = 1
    for machine in range(len(many)):
        own = 1
        for byte in range(256):
            own = max(own, many[machine, byte] + 1)
        number = np.full(width * own, -1, np.int32)
        width = 0
        for byte in range(256):
            both = columns[byte] * own + many[machine, byte]
            if number[both] < 0:
                number[both], heads[width] = width, byte
                width += 1
            columns[byte] = number[both]
    return columns, heads[:width]


@compiled
def side_by_side(columns_a, delta_a, columns_b, delta_b, need_a, need_b, max_states):
    """All pairs of states that one text leads to, first come first: (columns, pairs, delta), without rows if too many.

    A state of -1 is a machine that has stopped; `need_*` ends the text there.
    """
    width_b = delta_b.shape[1]
    number = np.full(delta_a.shape[1] * width_b, -1, np.int32)
    columns, heads = np.empty(256, np.uint8), np.empty(256, np.int32)
    width = 0
    for byte in range(256):
        both = columns_a[byte] * width_b + columns_b[byte]
        if number[both] < 0:
            number[both], heads[width] = width, byte
            width += 1
        columns[byte] = number[both]
    room = 32
    pairs, delta = np.empty((room, 2), np.int32), np.empty((room, width), np.int32)
    keys, places = np.full(4 * room, -1, np.int64), np.empty(4 * room, np.int32)
    count, width_key = 1, len(delta_b) + 1
    pairs[0, 0], pairs[0, 1] = 0 if len(delta_a) else -1, 0 if len(delta_b) else -1
    first = (pairs[0, 0] + np.int64(1)) * width_key + pairs[0, 1] + 1
    at = _slot(keys, first)
    keys[at], places[at] = first, 0
    done = 0
    while done < count:
        if count > max_states:
            return columns, pairs[:0], delta[:0]
        if count + width > room:
            room = 2 * room + width
            pairs, delta = resized(pairs, count, room), resized(delta, done, room)
            size = len(keys)
            while size < 3 * room:
                size *= 2
            keys, places = np.full(size, -1, np.int64), np.empty(size, np.int32)
            for i in range(count):
                key = (pairs[i, 0] + np.int64(1)) * width_key + pairs[i, 1] + 1
                at = _slot(keys, key)
                keys[at], places[at] = key, i
        x, y = pairs[done, 0], pairs[done, 1]
        for column in range(width):
            byte = heads[column]
            to_x = delta_a[x, columns_a[byte]] if x >= 0 else np.int32(-1)
            to_y = delta_b[y, columns_b[byte]] if y >= 0 else np.int32(-1)
            if (to_x < 0 and (need_a or to_y < 0)) or (to_y < 0 and need_b):
                delta[done, column] = -1
                continue
            key = (to_x + np.int64(1)) * width_key + to_y + 1
            at = _slot(keys, key)
            if keys[at] < 0:
                keys[at], places[at] = key, count
                pairs[count, 0], pairs[count, 1] = to_x, to_y
                count += 1
            delta[done, column] = places[at]
        done += 1
    return columns, pairs[:count], delta[:count]


@compiled
def living(delta, accepting):
    """Which states can reach an accepting one."""
    states, width = delta.shape
    begins = np.zeros(states + 1, np.int64)
    for state in range(states):
        for column in range(width):
            if delta[state, column] >= 0:
                begins[delta[state, column] + 1] += 1
    for state in range(states):
        begins[state + 1] += begins[state]
    sources, free = np.empty(begins[states], np.int32), begins[:states].copy()
    for state in range(states):
        for column in range(width):
            there = delta[state, column]
            if there >= 0:
                sources[free[there]] = state
                free[there] += 1
    alive, todo, left = accepting.copy(), np.empty(states, np.int32), 0
    for state in range(states):
        if accepting[state]:
            todo[left] = state
            left += 1
    while left:
        left -= 1
        state = todo[left]
        for at in range(begins[state], begins[state + 1]):
            if not alive[sources[at]]:
                alive[sources[at]] = True
                todo[left] = sources[at]
                left += 1
    return alive


@compiled
def trimmed(columns, delta, accepting):
    """The machine without dead states, and with bytes that nothing tells apart in one column."""
    alive = living(delta, accepting)
    states, width = delta.shape
    number, count = np.full(states, -1, np.int32), 0
    for state in range(states):
        if alive[state]:
            number[state] = count
            count += 1
    if not states or not alive[0]:
        return np.zeros(256, np.uint8), np.empty((0, 1), np.int32), np.empty(0, np.bool_)
    same_as, merged = np.empty(width, np.uint8), 0
    made = np.empty((width, count), np.int32)  # column by column, to compare them
    for column in range(width):
        for state in range(states):
            if alive[state]:
                there = delta[state, column]
                made[merged, number[state]] = number[there] if there >= 0 else -1
        same = merged
        for other in range(merged):
            equal = True
            for state in range(count):
                if made[other, state] != made[merged, state]:
                    equal = False
                    break
            if equal:
                same = other
                break
        same_as[column] = same
        if same == merged:
            merged += 1
    packed = np.empty(256, np.uint8)
    for byte in range(256):
        packed[byte] = same_as[columns[byte]]
    ends = np.empty(count, np.bool_)
    for state in range(states):
        if alive[state]:
            ends[number[state]] = accepting[state]
    return packed, np.ascontiguousarray(made[:merged].T), ends


@compiled
def useful_counts(delta, accepting, starts, low, top, endless):
    """bool[counts, states]: whether, after so many characters, an accepted text of low to top characters can follow.

    `starts`: the byte read there begins a character; only such states accept. `endless`: the last count stands for all
    greater ones, and `low` is `top`.
    """
    states, width = delta.shape
    useful = np.zeros((top + 1, states), np.bool_)
    count = top
    if endless:
        useful[top] = living(delta, accepting)
        count -= 1
    while count >= 0:
        row = useful[count]
        for state in range(states):
            if not starts[state]:
                continue
            row[state] = accepting[state] and count >= low
            for column in range(width):
                there = delta[state, column]
                if row[state] or count == top:
                    break
                row[state] = there >= 0 and useful[count + 1, there]
        changed = True
        while changed:
            changed = False
            for state in range(states):
                if starts[state] or row[state]:
                    continue
                for column in range(width):
                    there = delta[state, column]
                    if there >= 0 and row[there]:
                        row[state] = changed = True
                        break
        last = count
        if count < top and (count + 1 >= low) == (count >= low):
            steady = True
            for state in range(states):
                if row[state] != useful[count + 1, state]:
                    steady = False
                    break
            if steady:  # then nothing changes any more until the lower bound comes in
                last = low if count >= low else 0
                for fewer in range(last, count):
                    useful[fewer] = row
        count = last - 1
    return useful


@compiled
def determinise(delta, ends, first_row, first_item, lists, begins, follow, last, start, max_states, max_work):
    """The sets of items that one text leads to, as states: (delta, accepting), without states if it takes too much.

    delta, ends: the rows of all leaves, one leaf behind the other, each counting its rows from 0; whether it may end
    there. Item `first_item[i] + k` is occurrence i, whose leaf starts at `first_row[i]`, in its row k; the one behind
    all of them is the end of the text. What may follow occurrence i, with k = lists[i]: the occurrences in
    `follow[begins[k] : begins[k + 1]]`, and the end where `last[i]`. `start`: the items at the start.
    """
    count_items, width = first_item[-1] + 1, delta.shape[1]
    end = count_items - 1
    goes_on = np.zeros(len(delta), np.bool_)
    for row in range(len(delta)):
        for column in range(width):
            goes_on[row] |= delta[row, column] >= 0
    occurrence = np.empty(count_items, np.int32)
    for i in range(len(first_item) - 1):
        for item in range(first_item[i], first_item[i + 1]):
            occurrence[item] = i
    marked, listed, stamp = np.zeros(count_items, np.int64), np.zeros(len(begins), np.int64), 1
    found = np.empty(count_items, np.int32)
    pool, places = np.empty(4 * count_items + 64, np.int32), np.empty(33, np.int64)
    hashes, table = np.empty(32, np.int64), np.full(128, -1, np.int32)
    rows = np.empty((32, width), np.int32)
    states, done, work = 0, 0, np.int64(0)
    size = len(start)
    for i in range(size):
        found[i] = start[i]
    places[0] = 0
    state, column = -1, 0
    while True:
        # number the set in `found`, whose items are marked; the first one is the start
        if size == 0:
            number = -1
        else:
            mixed = np.int64(size)
            for i in range(size):
                one = (found[i] + np.int64(1)) * np.int64(0x9E3779B97F4A7C1)
                mixed += one ^ (one >> 29)
            mask = len(table) - 1
            at = (mixed ^ (mixed >> 31)) & mask
            number = -1
            while table[at] >= 0:
                other = table[at]
                if hashes[other] == mixed and places[other + 1] - places[other] == size:
                    same = state >= 0
                    for i in range(places[other], places[other + 1]):
                        if not same or marked[pool[i]] != stamp:
                            same = False
                            break
                    if same:
                        number = other
                        break
                at = (at + 1) & mask
            if number < 0:
                number = states
                if states + 1 >= len(rows):
                    rows = resized(rows, states, 2 * len(rows))
                    hashes, places = longer(hashes, states), longer(places, states + 1)
                if places[states] + size > len(pool):
                    pool = longer(pool, places[states] + size)
                for i in range(size):
                    pool[places[states] + i] = found[i]
                places[states + 1] = places[states] + size
                hashes[states], table[at] = mixed, states
                states += 1
                if 3 * states > len(table):
                    table = np.full(4 * len(table), -1, np.int32)
                    for i in range(states):
                        at = (hashes[i] ^ (hashes[i] >> 31)) & (len(table) - 1)
                        while table[at] >= 0:
                            at = (at + 1) & (len(table) - 1)
                        table[at] = i
        if state >= 0:
            rows[state, column] = number
            column += 1
        if state < 0 or column == width:
            state, column = done, 0
            done += 1
            if states > max_states or work > max_work:
                return rows[:0], np.zeros(0, np.bool_)
            if state == states:
                break
        # the items behind `column`
        stamp += 1
        size = 0
        for i in range(places[state], places[state + 1]):
            item = pool[i]
            if item == end:
                continue
            at_leaf = occurrence[item]
            inner = delta[first_row[at_leaf] + item - first_item[at_leaf], column]
            if inner < 0:
                continue
            work += 1
            row, target = first_row[at_leaf] + inner, first_item[at_leaf] + inner
            if goes_on[row] and marked[target] != stamp:
                marked[target], found[size] = stamp, target
                size += 1
            if ends[row]:
                if last[at_leaf] and marked[end] != stamp:
                    marked[end], found[size] = stamp, end
                    size += 1
                k = lists[at_leaf]
                if listed[k] == stamp:
                    continue
                listed[k] = stamp
                for j in range(begins[k], begins[k + 1]):
                    target = first_item[follow[j]]
                    if marked[target] != stamp:
                        marked[target], found[size] = stamp, target
                        size += 1
    accepting = np.zeros(states, np.bool_)
    for state in range(states):
        for i in range(places[state], places[state + 1]):
            accepting[state] |= pool[i] == end
    return rows[:states], accepting


@compiled
def minimal(delta, accepting):
    """(delta, accepting) of the smallest machine of the same language (Hopcroft), in breadth-first order.

    Every state must be reached, and reach an accepting one.
    """
    states, width = delta.shape
    begins = np.zeros(width * states + 1, np.int64)  # of the states that a column leads from, by column and target
    for state in range(states):
        for column in range(width):
            if delta[state, column] >= 0:
                begins[column * states + delta[state, column] + 1] += 1
    for at in range(width * states):
        begins[at + 1] += begins[at]
    sources, free = np.empty(begins[-1], np.int32), begins.copy()
    for state in range(states):
        for column in range(width):
            if delta[state, column] >= 0:
                at = column * states + delta[state, column]
                sources[free[at]] = state
                free[at] += 1
    # block b holds order[first[b] : past[b]], the states met of late in front
    order, place, block = np.empty(states, np.int32), np.empty(states, np.int32), np.empty(states, np.int32)
    first, past, met = np.zeros(states + 1, np.int32), np.zeros(states + 1, np.int32), np.zeros(states + 1, np.int32)
    blocks, filled = 0, 0
    for flag in (True, False):
        first[blocks] = filled
        for state in range(states):
            if accepting[state] == flag:
                order[filled], place[state], block[state] = state, filled, blocks
                filled += 1
        past[blocks] = filled
        blocks += filled > first[blocks]
    waits = np.zeros(states + 1, np.bool_)
    waiting, left = np.empty(states + 1, np.int32), blocks
    for b in range(blocks):
        waiting[b], waits[b] = b, True
    splitter, touched = np.empty(states, np.int32), np.empty(states, np.int32)
    while left:
        left -= 1
        chosen = waiting[left]
        waits[chosen] = False
        size = past[chosen] - first[chosen]
        for i in range(size):
            splitter[i] = order[first[chosen] + i]
        for column in range(width):
            count = 0
            for i in range(size):
                at = column * states + splitter[i]
                for k in range(begins[at], begins[at + 1]):
                    state = sources[k]
                    b = block[state]
                    if met[b] == 0:
                        touched[count] = b
                        count += 1
                    front = first[b] + met[b]
                    met[b] += 1
                    other = order[front]
                    order[place[state]], place[other] = other, place[state]
                    order[front], place[state] = state, front
            for i in range(count):
                b = touched[i]
                middle = first[b] + met[b]
                met[b] = 0
                if middle == past[b]:
                    continue
                if middle - first[b] <= past[b] - middle:  # the smaller part is the new block
                    first[blocks], past[blocks], first[b] = first[b], middle, middle
                else:
                    first[blocks], past[blocks], past[b] = middle, past[b], middle
                for k in range(first[blocks], past[blocks]):
                    block[order[k]] = blocks
                waiting[left], waits[blocks] = blocks, True  # where b waits too, both halves now do
                left += 1
                blocks += 1
    number, heads = np.full(blocks, -1, np.int32), np.empty(blocks, np.int32)
    made, ends = np.empty((blocks, width), np.int32), np.empty(blocks, np.bool_)
    number[block[0]], heads[0], count = 0, 0, 1
    for i in range(blocks):
        ends[i] = accepting[heads[i]]
        for column in range(width):
            there = delta[heads[i], column]
            if there >= 0 and number[block[there]] < 0:
                number[block[there]], heads[count] = count, there
                count += 1
            made[i, column] = number[block[there]] if there >= 0 else -1
    return made, ends


@compiled
def count_texts(delta, accepting, each, limit):
    """How many texts the machine has, or limit + 1 for all greater numbers; `each`: the bytes of each column.

    Every state must reach an accepting one.
    """
    states, width = delta.shape
    found = np.full(states, -1, np.int64)  # -1: not met, -2: under way
    stack, nexts = np.empty(states, np.int32), np.zeros(states, np.int32)
    stack[0], depth = 0, 1
    while depth:
        state = stack[depth - 1]
        found[state] = -2
        column = nexts[state]
        nexts[state] += 1
        if column < width:
            there = delta[state, column]
            if there >= 0 and found[there] == -2:
                return limit + 1  # round and round
            if there >= 0 and found[there] == -1:
                stack[depth] = there
                depth += 1
            continue
        depth -= 1
        count = np.int64(accepting[state])
        for column in range(width):
            if delta[state, column] >= 0:
                count = min(count + each[column] * found[delta[state, column]], limit + 1)
        found[state] = count
    return found[0]
