"""Regular languages over bytes: a tree becomes a deterministic machine, and machines combine.

A pattern beside a length, two patterns on one name, a name that no pattern takes: all of them are boolean operations,
and those are simple only on deterministic machines. Everything here runs before the first mask, so the common case (a
short pattern over few classes) takes well below a millisecond; loops over whole machines are compiled, see tables.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate

import numpy as np

from gdlib.grammar.nodes import (
    ANY_CHARACTER,
    Alt,
    ByteClass,
    Character,
    Dfa,
    GrammarError,
    Literal,
    Node,
    Ranges,
    Repeat,
    Seq,
)
from gdlib.grammar.tables import common_columns, count_texts, determinise, minimal, side_by_side, trimmed

MAX_STATES = 20_000
_WORK_PER_STATE = 40  # steps a machine may cost for each state it may have: bounds the time, not only the result


# ---------------------------------------------------------------------------------------------- ranges of code points


def union_ranges(*many: Iterable[tuple[int, int]]) -> Ranges:
    """All code points of all arguments, in normal form; surrogates, which no text holds, are left out."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pair for ranges in many for pair in ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return intersect_ranges(tuple(merged), ANY_CHARACTER)


def intersect_ranges(a: Ranges, b: Ranges) -> Ranges:
    """The code points in both `a` and `b`, each in normal form."""
    found, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            found.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def complement_ranges(ranges: Ranges) -> Ranges:
    """Every character that is not in `ranges`."""
    found, next_low = [], 0
    for low, high in ranges:
        if next_low < low:
            found.append((next_low, low - 1))
        next_low = high + 1
    found.append((next_low, 0x10FFFF))
    return intersect_ranges(tuple(found), ANY_CHARACTER) if next_low <= 0x10FFFF else union_ranges(found[:-1])


# ------------------------------------------------------------------------------------------- one character as machine

# One table for each byte of a spelling: the entry at `digit` holds the bytes that may stand for it. A table of 2**n
# entries takes the next n bits of the number.
_TAIL = tuple(bytes([0x80 | d]) for d in range(64))
_UTF8 = (
    ((0x00, 0x7F), (tuple(bytes([d]) for d in range(128)),)),
    ((0x80, 0x7FF), (tuple(bytes([0xC0 | d]) for d in range(32)), _TAIL)),
    ((0x800, 0xFFFF), (tuple(bytes([0xE0 | d]) for d in range(16)), _TAIL, _TAIL)),
    ((0x10000, 0x10FFFF), (tuple(bytes([0xF0 | d]) for d in range(8)), _TAIL, _TAIL, _TAIL)),
)
_HEX_LOWER = tuple(bytes([c]) for c in b"0123456789abcdef")
_HEX = tuple(h if h.isdigit() else h + h.upper() for h in _HEX_LOWER)
_HIGH_SURROGATE = ((b"8", b"9", b"aA", b"bB"), _HEX, _HEX)  # behind \uD
_LOW_SURROGATE = ((b"\\",), (b"u",), (b"dD",), (b"cC", b"dD", b"eE", b"fF"), _HEX, _HEX)
_SHORT = {0x08: b"b", 0x09: b"t", 0x0A: b"n", 0x0C: b"f", 0x0D: b"r", 0x22: b'"', 0x5C: b"\\"}
_RAW = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF))
_AS_IS = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E))  # one byte in every style but "json_any"
_NAMELESS = ((0x00, 0x07), (0x0B, 0x0B), (0x0E, 0x1F))  # must be escaped, and has no short escape


@lru_cache(maxsize=1024)
def character_dfa(ranges: Ranges, style: str = "utf8") -> Dfa:
    """One character out of `ranges` as `style` spells it (see `Character`); no ranges give a machine without states."""
    if style not in ("utf8", "json", "json_any"):
        raise GrammarError(f"character style {style!r}: want 'utf8', 'json' or 'json_any'")
    ranges = union_ranges(ranges)
    if (
        ranges
        and ranges[-1][1] < 0x80
        and (style == "utf8" or (style == "json" and intersect_ranges(ranges, _AS_IS) == ranges))
    ):
        return _one_byte([code for low, high in ranges for code in range(low, high + 1)])
    trie: list[dict[int, int]] = [{}]  # node 0 is the end of the character
    known: dict = {}

    def node(edges: dict[int, int]) -> int:
        number = known.setdefault(tuple(sorted(edges.items())), len(trie))
        if number == len(trie):
            trie.append(edges)
        return number

    def spread(numbers: Ranges, tables: tuple) -> dict[int, int]:
        """The edges that read a number out of `numbers`, digit by digit."""
        shift = sum(len(table).bit_length() - 1 for table in tables[1:])
        inner = defaultdict(list)
        for low, high in numbers:
            for digit in range(low >> shift, (high >> shift) + 1):
                base = digit << shift
                inner[digit].append((max(low - base, 0), min(high - base, (1 << shift) - 1)))
        edges = {}
        for digit, rest in inner.items():
            child = 0
            if len(tables) > 1:
                key = (tuple(rest), len(tables), id(tables[1]))
                if key not in known:
                    known[key] = node(spread(key[0], tables[1:]))
                child = known[key]
            edges.update(dict.fromkeys(tables[0][digit], child))
        return edges

    root: dict[int, int] = {}
    raw = ranges if style == "utf8" else intersect_ranges(ranges, _RAW)
    for span, tables in _UTF8:
        if inside := intersect_ranges(raw, (span,)):
            root.update(spread(inside, tables))
    if style != "utf8":
        short = {byte[0]: 0 for code, byte in _SHORT.items() if intersect_ranges(ranges, ((code, code),))}
        if style == "json":
            long = spread(intersect_ranges(ranges, _NAMELESS), (_HEX_LOWER,) * 4)
        else:
            if intersect_ranges(ranges, ((0x2F, 0x2F),)):
                short[ord("/")] = 0
            long = spread(intersect_ranges(ranges, ((0, 0xFFFF),)), (_HEX,) * 4)
            if beyond := intersect_ranges(ranges, ((0x10000, 0x10FFFF),)):
                halves = spread(tuple((a - 0x10000, b - 0x10000) for a, b in beyond), _HIGH_SURROGATE + _LOW_SURROGATE)
                behind_d = node(halves | (trie[long[ord("d")]] if ord("d") in long else {}))
                long.update(dict.fromkeys(b"dD", behind_d))
        if long:
            short[ord("u")] = node(long)
        if short:
            root[ord("\\")] = node(short)
    if not root:
        return NOTHING
    trie.append(root)
    trie.reverse()  # the root comes first, the end last
    delta = np.full((len(trie), 256), -1, np.int32)
    for row, edges in zip(delta, trie, strict=True):
        row[list(edges)] = [len(trie) - 1 - child for child in edges.values()]
    return Dfa(*trimmed(np.arange(256, dtype=np.uint8), delta, np.array([not edges for edges in trie])))


def _one_byte(allowed: Iterable[int]) -> Dfa:
    columns = np.zeros(256, np.uint8)
    columns[list(allowed)] = 1
    if columns.all():  # no byte is left for column 0
        return Dfa(columns - 1, np.array([[1], [-1]], np.int32), np.array([False, True]))
    return Dfa(columns, np.array([[-1, 1], [-1, -1]], np.int32), np.array([False, True]))


# ----------------------------------------------------------------------------------------------------- from a tree


@dataclass(frozen=True, eq=False)
class Ahead:
    """Reads nothing: all that follows, up to the end of the text, must be in `machine`. Only `dfa` knows it.

    `style` is how the characters of the text are spelled.
    """

    machine: Dfa
    style: str


@dataclass(frozen=True, eq=False)
class Behind:
    """Reads nothing: all that stands before, from the start of the text, must be in `machine`. Only `dfa` knows it."""

    machine: Dfa


@dataclass
class _Fragment:
    """Occurrences of leaves in a tree, and which may follow which; a set of occurrences is the bits of an int."""

    leaves: list[int]  # the number of each occurrence's leaf
    follow: list[int]
    first: int
    last: int
    nullable: bool


def dfa(node: Node, max_states: int = MAX_STATES, before: bytes = b"") -> Dfa:
    """The machine of a tree of byte classes, literals, characters, machines, sequences, choices and repetitions.

    Counts are unrolled. `before` is what Behind leaves see in front of the text. GrammarError for a Ref, Lazy or Words,
    and for a tree that needs more than `max_states` states.
    """
    counts: list[tuple[int, int | None]] = []
    leaves: dict[Node | Ahead | Behind, int] = {}
    fragment = _fragment(node, leaves, max_states, counts)
    if fragment is None:
        return NOTHING
    machines = [_leaf_machine(leaf) for leaf in leaves]
    columns, heads = _common_columns(machines)
    if any(isinstance(leaf, Ahead | Behind) for leaf in leaves):
        made = _determinise_looking(fragment, list(leaves), list(map(_rows, machines)), heads, max_states, before)
        if made is not None:
            return minimize(_trimmed(columns, *made))
    else:
        delta, accepting = _determinise(fragment, machines, heads, max_states)
        if len(delta):
            return Dfa(columns, delta, accepting)
    raise _too_many(max_states, counts)


def _machine(columns: np.ndarray, rows: list[list[int]], accepting: list[bool]) -> Dfa:
    return Dfa(columns, np.array(rows, np.int32).reshape(len(rows), -1), np.array(accepting, bool))


def _too_many(max_states: int, counts: list) -> GrammarError:
    worst = max(counts, key=lambda c: c[1] or c[0], default=None)
    named = "" if worst is None else f"; its largest count is {{{worst[0]},{'' if worst[1] is None else worst[1]}}}"
    return GrammarError(
        f"regular expression too large: as one machine it takes more than {max_states} states{named}. "
        "Lower the count, or drop what forces one machine (a lookaround, a length or a second pattern beside it)"
    )


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _fragment(root: Node, leaves: dict, max_states: int, counts: list) -> _Fragment | None:
    """Follow sets of a tree, each part worked out once; None is the language without texts. Numbers the leaves."""
    done: dict[int, _Fragment | None] = {}
    budget = [_WORK_PER_STATE * max_states]
    stack = [root]
    while stack:
        node = stack[-1]
        if id(node) in done:
            stack.pop()
            continue
        if isinstance(node, Seq):
            inner = node.parts
        elif isinstance(node, Alt):
            inner = node.choices
        elif isinstance(node, Repeat):
            inner = (node.node,)
        else:
            if isinstance(node, Literal) and len(node.text) > max_states:
                raise _too_many(max_states, counts)
            done[id(node)] = _leaf_fragment(node, leaves)
            continue
        todo = [child for child in inner if id(child) not in done]
        if todo:
            stack.extend(todo)
            continue
        parts = [done[id(child)] for child in inner]
        if isinstance(node, Repeat):
            counts.append((node.low, node.high))
            made = _repeated(parts[0], node.low, node.high, max_states, budget)
        elif isinstance(node, Alt):
            made = _chosen([part for part in parts if part is not None])
        else:
            made = None if None in parts else _joined(parts, budget)
        if budget[0] < 0 or (made is not None and len(made.leaves) > max_states):
            raise _too_many(max_states, counts)
        done[id(node)] = made
    return done[id(root)]


def _leaf_fragment(node: Node, leaves: dict) -> _Fragment | None:
    nullable = False
    if isinstance(node, Literal):
        if not node.text:
            return _Fragment([], [], 0, 0, True)
    elif isinstance(node, Dfa):
        if is_empty(node):
            return None
        nullable = bool(node.accepting[0])
        if nullable and (node.delta < 0).all():
            return _Fragment([], [], 0, 0, True)
    elif isinstance(node, Character):
        if is_empty(character_dfa(node.ranges, node.style)):
            return None
    elif not isinstance(node, ByteClass | Ahead | Behind):
        raise GrammarError(
            f"{type(node).__name__} inside a regular expression: it has no machine of its own; "
            "put the rule's regular content here, or keep this part out of the regular operation"
        )
    return _Fragment([leaves.setdefault(node, len(leaves))], [0], 1, 1, nullable)


def _joined(parts: list[_Fragment], budget: list[int]) -> _Fragment:
    made = _Fragment([], [], 0, 0, True)
    for part in parts:
        _append(made, part, budget)
        if made.nullable:
            made.first |= part.first << (len(made.leaves) - len(part.leaves))
        made.last = part.last << (len(made.leaves) - len(part.leaves)) | (made.last if part.nullable else 0)
        made.nullable = made.nullable and part.nullable
    return made


def _append(made: _Fragment, part: _Fragment, budget: list[int]) -> None:
    """Put `part` behind `made` and link the ends of `made` to its starts; first, last and nullable stay."""
    offset = len(made.leaves)
    made.leaves += part.leaves
    made.follow += [mask << offset for mask in part.follow]
    first = part.first << offset
    if first:
        ends = list(_bits(made.last))
        budget[0] -= len(ends)
        if budget[0] >= 0:
            for end in ends:
                made.follow[end] |= first


def _chosen(parts: list[_Fragment]) -> _Fragment | None:
    if not parts:
        return None
    made = _Fragment([], [], 0, 0, False)
    for part in parts:
        offset = len(made.leaves)
        made.leaves += part.leaves
        made.follow += [mask << offset for mask in part.follow]
        made.first |= part.first << offset
        made.last |= part.last << offset
        made.nullable = made.nullable or part.nullable
    return made


def _repeated(part: _Fragment | None, low: int, high: int | None, max_states: int, budget: list) -> _Fragment | None:
    copies = max(low, 1) if high is None else high
    if part is None or not part.leaves or copies == 0:
        return _Fragment([], [], 0, 0, True) if low == 0 or part is not None else None
    if len(part.leaves) * copies > max_states:
        count = f"{{{low},{'' if high is None else high}}}"
        raise GrammarError(
            f"repetition {count}: unrolled, it takes more than {max_states} states. Lower the count, or drop what "
            "forces one machine (a lookaround, a length or a second pattern beside it)"
        )
    if part.nullable:
        low = 0  # an empty round counts, so no round is needed
    made = _Fragment([], [], part.first, 0, low == 0)
    ends = 0
    for count in range(1, copies + 1):
        offset = len(made.leaves)
        _append(made, part, budget)
        if budget[0] < 0:
            break
        made.last = part.last << offset
        if count >= low:
            ends |= made.last
    if high is None:
        for end in _bits(made.last):
            made.follow[end] |= part.first << offset
    made.last = ends
    return made


def _leaf_machine(leaf) -> Dfa:
    if isinstance(leaf, Literal):
        used = {byte: i for i, byte in enumerate(dict.fromkeys(leaf.text), 1)}
        columns = np.zeros(256, np.uint8)
        delta = np.full((len(leaf.text) + 1, min(len(used) + 1, 256)), -1, np.int32)
        for i, byte in enumerate(leaf.text):
            columns[byte] = used[byte] % 256  # a literal of all 256 bytes has no byte left for column 0
            delta[i, columns[byte]] = i + 1
        return Dfa(columns, delta, np.arange(len(delta)) == len(leaf.text))
    if isinstance(leaf, ByteClass):
        return _one_byte(leaf.allowed)
    if isinstance(leaf, Character):
        return character_dfa(leaf.ranges, leaf.style)
    return leaf.machine if isinstance(leaf, Ahead | Behind) else leaf


@lru_cache(maxsize=1024)
def _character_rows(ranges: Ranges, style: str) -> tuple[bytes, list[list[int]], list[bool]]:
    return _rows(character_dfa(ranges, style))


def _rows(d: Dfa) -> tuple[bytes, list[list[int]], list[bool]]:
    return d.columns.tobytes(), d.delta.tolist(), d.accepting.tolist()


def _common_columns(machines: list[Dfa]) -> tuple[np.ndarray, np.ndarray]:
    """Columns that keep apart what any of the machines keeps apart, and one byte of each."""
    return common_columns(np.array([d.columns for d in machines], np.uint8).reshape(-1, 256))


def _determinise(fragment: _Fragment, machines: list[Dfa], heads: np.ndarray, max_states: int):
    """(delta, accepting); no states where it takes too much. A state is a set of occurrences, each with the state of
    its leaf."""
    leaves, sizes = fragment.leaves, [len(d.delta) for d in machines]
    rows = list(accumulate(sizes, initial=0))
    items = list(accumulate([sizes[leaf] for leaf in leaves], initial=0))
    delta, ends = np.empty((rows[-1], len(heads)), np.int32), np.empty(rows[-1], bool)
    for at, d in zip(rows, machines, strict=False):
        delta[at : at + len(d.delta)] = d.delta[:, d.columns[heads]]
        ends[at : at + len(d.delta)] = d.accepting
    begins, follow, lists, known = [0], [], [], {}
    for mask in fragment.follow:
        if mask not in known:  # many are equal
            known[mask] = len(known)
            follow += _bits(mask)
            begins.append(len(follow))
        lists.append(known[mask])
    last = np.zeros(len(leaves), bool)
    last[list(_bits(fragment.last))] = True
    start = [items[i] for i in _bits(fragment.first)] + [items[-1]] * fragment.nullable
    return determinise(
        delta,
        ends,
        np.array([rows[leaf] for leaf in leaves], np.int64),
        np.array(items, np.int64),
        np.array(lists, np.int64),
        np.array(begins, np.int64),
        np.array(follow, np.int32),
        last,
        np.array(start, np.int32),
        max_states,
        _WORK_PER_STATE * max_states,
    )


def _moves(table: tuple, heads: np.ndarray) -> list[list[tuple[int, bool, bool, list[int]]]]:
    """For each state of a leaf: (next state, whether it has moves, whether it accepts, the common columns there)."""
    columns, rows, accepting = table
    own = [columns[head] for head in heads.tolist()]
    goes_on = [max(row, default=-1) >= 0 for row in rows]
    made = []
    for row in rows:
        into: dict[int, list[int]] = {}
        for i, column in enumerate(own):
            if (there := row[column]) >= 0:
                into.setdefault(there, []).append(i)
        made.append([(there, goes_on[there], accepting[there], where) for there, where in into.items()])
    return made


def _determinise_looking(fragment, looks: list, tables: list, heads: np.ndarray, max_states: int, before: bytes):
    """As `_determinise`, for a tree with Ahead and Behind leaves.

    An item also holds its duties, the (Ahead, state) whose machines the rest of the text must please; a state also
    holds where every Behind machine is, since that depends on the text alone.
    """
    backs = [leaf for leaf, look in enumerate(looks) if isinstance(look, Behind)]
    done = {leaf: _universal(look.machine, look.style) for leaf, look in enumerate(looks) if isinstance(look, Ahead)}
    follow, last, leaves = fragment.follow, set(_bits(fragment.last)), fragment.leaves
    moves = [_moves(table, heads) for table in tables]
    step = [[{column: there for there, _, _, where in row for column in where} for row in rows] for rows in moves]

    @cache
    def later(duties: frozenset, column: int) -> frozenset | None:
        """The duties one byte on, or None where one cannot be met any more."""
        moved = [(leaf, step[leaf][state].get(column, -1)) for leaf, state in duties]
        if any(state < 0 for _, state in moved):
            return None
        return frozenset((leaf, state) for leaf, state in moved if state not in done[leaf])

    @cache
    def farther(back: tuple[int, ...], column: int) -> tuple[int, ...]:
        pairs = zip(backs, back, strict=True)
        return tuple(-1 if state < 0 else step[leaf][state].get(column, -1) for leaf, state in pairs)

    @cache
    def arrive(at: int, duties: frozenset, back: tuple[int, ...]) -> set:
        """The items reached behind occurrence `at` (-1: at the start), through all leaves that read nothing."""
        found, seen, todo = set(), set(), [(at, duties)]
        while todo:
            at, duties = todo.pop()
            if at in last or (at < 0 and fragment.nullable):
                found.add((-1, 0, duties))
            for there in _bits(follow[at] if at >= 0 else fragment.first):
                leaf, more = leaves[there], duties
                if leaf in backs:
                    state = back[backs.index(leaf)]
                    if state < 0 or not tables[leaf][2][state]:
                        continue
                elif leaf in done:
                    if not tables[leaf][1]:
                        continue
                    if 0 not in done[leaf]:
                        more = duties | {(leaf, 0)}
                else:
                    found.add((there, 0, duties))
                    continue
                if (there, more) not in seen:
                    seen.add((there, more))
                    todo.append((there, more))
        return found

    def accepts(items) -> bool:
        return any(at < 0 and all(tables[leaf][2][s] for leaf, s in duties) for at, _, duties in items)

    back = tuple(_walk(looks[leaf].machine, before) for leaf in backs)
    start = (frozenset(arrive(-1, frozenset(), back)), back)
    index, order, rows, work = {start: 0}, [start], [], 0
    for items, back in order:
        out = defaultdict(set)
        for at, inner, duties in items:
            if at < 0:
                continue
            for target, stays, ends, columns in moves[leaves[at]][inner]:
                for column in columns:
                    rest = later(duties, column)
                    if rest is not None and stays:
                        out[column].add((at, target, rest))
                    if rest is not None and ends:
                        out[column] |= arrive(at, rest, farther(back, column))
        row = [-1] * len(heads)
        for column, found in out.items():
            key = (frozenset(found), farther(back, column))
            work += len(found)
            if found and key not in index:
                index[key] = len(order)
                order.append(key)
            row[column] = index.get(key, -1)
        rows.append(row)
        if len(order) > max_states or work > _WORK_PER_STATE * max_states:
            return None
    return rows, [accepts(items) for items, _ in order]


def _universal(d: Dfa, style: str) -> set[int]:
    """States from which every run of whole characters is accepted: a duty that got there is done."""
    columns, rows, accepting = _rows(d)
    unit_columns, unit_rows, unit_accepting = _character_rows(ANY_CHARACTER, style)
    _, heads = _common_columns([d, character_dfa(ANY_CHARACTER, style)])
    pairs = [(columns[head], unit_columns[head]) for head in heads]
    found = set()
    for state in range(len(rows)):
        seen, todo = {(state, 0)}, [(state, 0)]
        good = accepting[state]
        while todo and good:
            here, unit = todo.pop()
            for column, unit_column in pairs:
                unit_next, there = unit_rows[unit][unit_column], rows[here][column]
                if unit_next < 0:
                    continue
                if there < 0 or (unit_accepting[unit_next] and not accepting[there]):
                    good = False
                    break
                key = (there, 0 if unit_accepting[unit_next] else unit_next)
                if key not in seen:
                    seen.add(key)
                    todo.append(key)
        if good:
            found.add(state)
    return found


# ------------------------------------------------------------------------------------------------ boolean operations


def _walk(d: Dfa, text: bytes) -> int:
    """The state after `text`, or -1."""
    state = 0 if len(d.delta) else -1
    for byte in text:
        if state < 0:
            break
        state = int(d.delta[state, d.columns[byte]])
    return state


def is_empty(d: Dfa) -> bool:
    """Whether the language has no text at all."""
    return len(d.delta) == 0


def contains(d: Dfa, text: bytes) -> bool:
    """Whether exactly `text` is in the language."""
    state = _walk(d, text)
    return state >= 0 and bool(d.accepting[state])


def intersect(a: Dfa, b: Dfa, max_states: int = MAX_STATES) -> Dfa:
    """The texts of both."""
    columns, of_a, of_b, delta = _product(a, b, True, True, max_states)
    return _alive(columns, delta, of_a & of_b)


def union(a: Dfa, b: Dfa, max_states: int = MAX_STATES) -> Dfa:
    """The texts of either."""
    columns, of_a, of_b, delta = _product(a, b, False, False, max_states)
    return _alive(columns, delta, of_a | of_b)


def difference(a: Dfa, b: Dfa, max_states: int = MAX_STATES) -> Dfa:
    """The texts of `a` that are not in `b`."""
    columns, of_a, of_b, delta = _product(a, b, True, False, max_states)
    return _alive(columns, delta, of_a & ~of_b)


def _product(a: Dfa, b: Dfa, need_a: bool, need_b: bool, max_states: int):
    """Both machines side by side; `need_*` says which must still be alive for a text to go on. Returns the columns,
    for each state whether each machine accepts, and where it leads."""
    columns, pairs, delta = side_by_side(a.columns, a.delta, b.columns, b.delta, need_a, need_b, max_states)
    if not len(pairs):
        raise _too_many(max_states, [])
    return columns, _accepts(a, pairs[:, 0]), _accepts(b, pairs[:, 1]), delta


def _accepts(d: Dfa, states: np.ndarray) -> np.ndarray:
    """Whether the machine accepts in each of the states; -1 is one that has stopped."""
    return (states >= 0) & d.accepting[states] if len(d.accepting) else np.zeros(len(states), bool)


def _alive(columns: np.ndarray, delta: np.ndarray, accepting: np.ndarray) -> Dfa:
    """The machine without the states that cannot reach an end; all are taken to be reachable."""
    columns, delta, accepting = trimmed(columns, delta, accepting)
    return Dfa(columns, delta, accepting) if len(delta) else NOTHING


def counted(d: Dfa, low: int, high: int | None, unit: str, max_states: int = MAX_STATES) -> Dfa:
    """The texts of `d` of `low` to `high` whole characters (`high=None`: no bound), each spelled in style `unit`."""
    if low < 0 or (high is not None and high < low):
        return NOTHING
    columns_d, rows_d, accepting_d = _rows(d)
    columns_u, rows_u, accepting_u = _character_rows(ANY_CHARACTER, unit)
    columns, heads = _common_columns([d, character_dfa(ANY_CHARACTER, unit)])
    pairs = [(columns_d[head], columns_u[head]) for head in heads]
    top = low if high is None else high
    index, order, rows = {(0, 0, 0): 0}, [(0, 0, 0)] if rows_d else [], []
    for state, inner, count in order:
        row = []
        for i, j in pairs:
            there, unit_next = rows_d[state][i], rows_u[inner][j]
            if there < 0 or unit_next < 0 or (count == high and inner == 0):
                row.append(-1)
                continue
            key = (there, unit_next, count)
            if accepting_u[unit_next]:
                key = (there, 0, min(count + 1, top))
            number = index.get(key)
            if number is None:
                number = index[key] = len(order)
                order.append(key)
            row.append(number)
        rows.append(row)
        if len(order) > max_states:
            raise _too_many(max_states, [(low, high)])
    return _trimmed(columns, rows, [accepting_d[s] and inner == 0 and count >= low for s, inner, count in order])


def words(d: Dfa, limit: int) -> list[bytes] | None:
    """All texts, sorted, where there are at most `limit`; else None."""
    if is_empty(d):
        return []
    if count_texts(d.delta, d.accepting, np.bincount(d.columns, minlength=d.delta.shape[1]), limit) > limit:
        return None

    @cache
    def steps(state: int) -> list[tuple[bytes, int]]:
        to = d.delta[state, d.columns]
        return [(bytes([byte]), int(to[byte])) for byte in np.flatnonzero(to >= 0).tolist()]

    found, level = [], [(b"", 0)]
    while level:
        found += [text for text, state in level if d.accepting[state]]
        level = [(text + byte, there) for text, state in level for byte, there in steps(state)]
    return sorted(found)


# ------------------------------------------------------------------------------------------------ tidying a machine


def _trimmed(columns: np.ndarray, rows: list[list[int]], accepting: list[bool]) -> Dfa:
    """The machine of these rows without the states that cannot reach an end; all are taken to be reachable."""
    if not rows:
        return NOTHING
    machine = _machine(columns, rows, accepting)
    return _alive(machine.columns, machine.delta, machine.accepting)


def minimize(d: Dfa) -> Dfa:
    """The smallest machine of the same language (Hopcroft), its states in breadth-first order."""
    if is_empty(d):
        return NOTHING
    return Dfa(*trimmed(d.columns, *minimal(d.delta, d.accepting)))


NOTHING = Dfa(np.zeros(256, np.uint8), np.zeros((0, 1), np.int32), np.zeros(0, bool))
