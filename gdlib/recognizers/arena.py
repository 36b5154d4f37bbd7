"""The memory in which machines grow: nodes are lowered into it, configurations are made in it.

Arrays are allocated once at their full size, which costs nothing until a page is touched, so compiled code never has
to stop to make one larger. One arena serves every grammar of the process: what two grammars have in common is one set
of nodes and, where their futures agree, one set of configurations and masks. When it runs out, new grammars start in
a fresh one and the old one goes when its last matcher does.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from gdlib.grammar.analysis import nullable
from gdlib.grammar.nodes import (
    ANY_CHARACTER,
    EMPTY,
    Alt,
    ByteClass,
    Character,
    Counted,
    Dfa,
    Grammar,
    GrammarError,
    Lazy,
    Literal,
    Node,
    Ref,
    Repeat,
    Seq,
    Words,
    WordTable,
)
from gdlib.grammar.regular import character_dfa, dfa, minimize
from gdlib.recognizers import machine as m

DEEP = 60  # nodes nested deeper than this are lowered when they are reached


class LimitError(GrammarError):
    """A text or grammar that needs more than the limits allow; the message names the limit and the rule."""


class ArenaFull(Exception):
    """No room is left; the caller starts afresh in another arena."""


_SPARE: dict[tuple, list] = {}  # memory of arenas that are gone


def _memory(scale: float, max_items: int) -> tuple[np.ndarray, ...]:
    """The arrays of an arena, touched once: a page fault costs more than making a configuration."""

    def room(n: int) -> int:
        return max(256, int(n * scale))

    def power(n: int) -> int:
        return 1 << (room(n) - 1).bit_length()

    i32, met = np.int32, 1 << (4 * max_items).bit_length()
    tables = (
        np.zeros((room(1 << 16), 5), i32),  # 0 node
        np.zeros(room(1 << 16), i32),  # 1 body
        np.zeros((room(1 << 17), 2), i32),  # 2 cont
        np.zeros((room(1 << 18), 2), i32),  # 3 item
        np.zeros((room(1 << 16), 8), i32),  # 4 conf
        np.zeros((room(1 << 16), 4), np.uint64),  # 5 first
        np.zeros(room(1 << 23), i32),  # 6 cell
        np.zeros((room(1 << 16), 4), np.uint64),  # 7 sets
        np.zeros(room(1 << 24), np.uint8),  # 8 pool
        np.zeros(room(1 << 21), i32),  # 9 ints
        np.zeros(power(1 << 17), i32),  # 10 hash of nodes
        np.zeros(power(1 << 18), i32),  # 11 hash of stacks
        np.zeros(power(1 << 17), i32),  # 12 hash of configurations
        np.zeros(16, np.int64),  # 13 size
        np.zeros(met, np.int64),  # 14 keys met in this closure
        np.zeros(met, np.int64),  # 15 the closure in which they were met
        np.zeros((3, 4), np.uint64),  # 16 scratch of _intern, and of the mask walk
        np.zeros(max_items + 16, np.int64),  # 17 items found
        np.zeros(max_items + 16, i32),  # 18 scratch of _rebase
        np.zeros((max_items + 16, 2), i32),  # 19 items to do
    )
    for index, array in enumerate(tables):
        # what is filled from the front needs no more than a beginning: its pages come one after another
        array[: len(array) if index not in (6, 8, 9) else len(array) // 8] = 0
    return tables


def _spare_memory(scale: float, max_items: int) -> tuple[np.ndarray, ...] | None:
    """The arrays of an arena that is gone, as good as new."""
    spare = _SPARE.get((scale, max_items))
    if not spare:
        return None
    tables = spare.pop()
    tables[1][: tables[13][m.N_NODES]] = 0
    tables[6][: tables[13][m.N_CELLS]] = 0
    for index in (10, 11, 12, 13, 15):
        tables[index].fill(0)
    return tables


class Arena:
    """Nodes, stacks and configurations of any number of grammars; see machine.py for the arrays.

    `scale` multiplies all capacities (1.0: about 20 MB at first and 80 MB when full); `max_items` bounds the work of
    one byte.
    """

    def __init__(self, earley: bool = False, scale: float = 1.0, max_items: int = 30_000):
        self.scale = scale
        self.tables = _spare_memory(scale, max_items) or _memory(scale, max_items)
        weakref.finalize(self, _SPARE.setdefault((scale, max_items), []).append, self.tables)
        self.node, self.body, self.sets, self.pool, self.ints = (self.tables[i] for i in (0, 1, 7, 8, 9))
        self.conf, self.first, self.cont = self.tables[4], self.tables[5], self.tables[2]
        self.size = self.tables[13]
        self.size[[m.N_NODES, m.N_CONTS, m.N_CONFS]] = 1  # number 0 is "none" of each
        self.node[0] = m.NOTHING
        self.cont[0] = 0
        self.size[m.LIMIT] = max_items
        self.size[m.EARLEY] = earley
        self.n_sets = self.n_pool = self.n_ints = 0
        self.lock = threading.RLock()  # compiled code releases the interpreter's
        self.known: dict[int, int] = {}  # id of a front end's node or grammar -> ours, where no rule is named
        self.kept: list[object] = []  # so that no id is used twice
        self.lazies: list[tuple[Callable[[], Node], _Scope]] = []
        self.lazy_names: list[str] = []
        self.words: list[tuple[Words, _Scope]] = []
        self.by_key: dict[object, int] = {}
        self.dfas: dict[int, Dfa] = {}  # by record
        self.set_numbers: dict[bytes, int] = {}
        self.character: dict[int, int] = {}  # leaf that reads one character -> the number of its class

    def full(self) -> float:
        """The share of the arena that is in use, of the array that is fullest."""
        used = (
            self.size[m.N_NODES] / len(self.node),
            self.size[m.N_CONTS] / len(self.cont),
            self.size[m.N_ITEMS] / len(self.tables[3]),
            self.size[m.N_CONFS] / len(self.conf),
            self.size[m.N_CELLS] / len(self.tables[6]),
            self.n_sets / len(self.sets),
            self.n_pool / len(self.pool),
            self.n_ints / len(self.ints),
        )
        return float(max(used))

    # nodes

    def root(self, grammar: Grammar) -> int:
        """The node of a grammar's root; asked again for the same grammar, the same node."""
        with self.lock:
            number = self.known.get(id(grammar))
            if number is None:
                scope = _Scope(grammar.rules, {} if grammar.rules else self.known)
                number = self.known[id(grammar)] = self.lower(grammar.root, scope)
                self.kept.append(grammar)
            return number

    def lower(self, node: Node, scope: _Scope, depth: int = 0) -> int:
        """The number of a front end's node."""
        number = scope.known.get(id(node))
        if number is None:
            if depth > DEEP:
                return self._lazy(lambda: node, scope, "a deeply nested part")
            number = _LOWER[type(node)](self, node, scope, depth + 1)
            scope.known[id(node)] = number
            self.kept.append(node)
        return number

    def expand(self) -> None:
        """Build the Lazy node that compiled code asked for."""
        n = int(self.size[m.AT])
        number, index = int(self.node[n, 1]), int(self.node[n, 2])
        if number >= 0:
            words, scope = self.words[number]
            node = words.then(index)
        else:
            make, scope = self.lazies[index]
            node = make()
        # A body of 0 means "not built"; a node whose body is the empty text is one that repeats nothing.
        self.body[n] = self.lower(node, scope) or self._make(m.REPEAT, 0, 0, 0)

    def name_of(self, n: int) -> str:
        """The rule behind a Lazy node, for messages."""
        if n <= 0 or self.node[n, 0] != m.LAZY:
            return "the root"
        if self.node[n, 1] >= 0:
            return "a list of words"
        return self.lazy_names[int(self.node[n, 2])]

    def _make(self, kind: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> int:
        number = m.make_node(self.node, self.tables[10], self.size, kind, a, b, c, d)
        if number == m.FULL:
            raise ArenaFull
        return number

    def _row(self, count: int, kind: int) -> int:
        """`count` fresh nodes side by side, not interned."""
        at = int(self.size[m.N_NODES])
        if at + count + 1 >= len(self.node):
            raise ArenaFull
        self.size[m.N_NODES] = at + count
        self.node[at : at + count, 0] = kind
        return at

    def _add_ints(self, values) -> int:
        at = self.n_ints
        if at + len(values) >= len(self.ints):
            raise ArenaFull
        self.ints[at : at + len(values)] = values
        self.n_ints += len(values)
        return at

    def _add_bytes(self, raw) -> int:
        at = self.n_pool
        if at + len(raw) >= len(self.pool):
            raise ArenaFull
        self.pool[at : at + len(raw)] = np.frombuffer(raw, np.uint8) if isinstance(raw, bytes) else raw
        self.n_pool += len(raw)
        return at

    def add_set(self, words: np.ndarray) -> int:
        """The number of a byte set, uint64[4]."""
        key = words.tobytes()
        number = self.set_numbers.get(key)
        if number is None:
            if self.n_sets + 1 >= len(self.sets):
                raise ArenaFull
            number = self.set_numbers[key] = self.n_sets
            self.sets[number] = words
            self.n_sets += 1
        return number

    def _lazy(self, make: Callable[[], Node], scope: _Scope, name: str) -> int:
        self.lazies.append((make, scope))
        self.lazy_names.append(name)
        return self._make(m.LAZY, -1, len(self.lazies) - 1)

    def _byte_class(self, node: ByteClass, scope, depth) -> int:
        words = byte_set(node.allowed)
        number = self._make(m.BYTES, self.add_set(words))
        self.character.setdefault(number, class_number(words.tobytes()))
        return number

    def _literal(self, node: Literal, scope, depth) -> int:
        if not node.text:
            return 0
        number = self.by_key.get(node.text)
        if number is None:
            size = len(node.text)
            at, number = self._add_bytes(node.text), self._row(size, m.TEXT)
            rows = self.node[number : number + size]
            rows[:, 1] = np.arange(at, at + size)
            rows[:, 2:] = 0
            rows[:, 2] = at + size
            self.by_key[node.text] = number
        return number

    def _character(self, node: Character, scope, depth) -> int:
        if node.style == "utf8" and len(node.ranges) and node.ranges[-1][1] < 0x80:
            return self.lower(ByteClass(frozenset(b for lo, hi in node.ranges for b in range(lo, hi + 1))), scope)
        number = self.by_key.get(node)
        if number is None:
            dfa = character_dfa(node.ranges, node.style)
            number = self.by_key[node] = self._dfa(dfa, scope, depth)
            if len(dfa.delta) <= 64:  # more states than a KEY has room for, and nobody walks such a class long
                self.character[number] = class_number(node)
        return number

    def dfa_record(self, dfa: Dfa) -> int:
        """The record of a machine: its tables, its first bytes by state, its nodes."""
        record = self.by_key.get(id(dfa))
        if record is None:
            content = (dfa.delta.tobytes(), dfa.columns.tobytes(), dfa.accepting.tobytes())
            record = self.by_key[id(dfa)] = self.by_key.get(content)
            self.kept.append(dfa)
        if record is None:
            states, width = dfa.delta.shape
            alive = np.take(dfa.delta, dfa.columns, axis=1) >= 0  # [states, 256]
            sets = np.packbits(alive, axis=1, bitorder="little").view(np.uint64)
            numbers = np.arange(states)
            if states > 64:  # most states of a large machine read what others read
                sets, numbers = np.unique(sets, axis=0, return_inverse=True)
            if self.n_sets + len(sets) >= len(self.sets):
                raise ArenaFull
            self.sets[self.n_sets : self.n_sets + len(sets)] = sets
            which = self._add_ints(self.n_sets + numbers.ravel())
            self.n_sets += len(sets)
            nodes = self._row(states, m.MACHINE)
            delta, columns = self._add_ints(dfa.delta.ravel()), self._add_bytes(dfa.columns)
            accepting = self._add_bytes(dfa.accepting.view(np.uint8))
            record = self._add_ints([delta, columns, width, accepting, which, nodes, states])
            rows = self.node[nodes : nodes + states]
            rows[:, 1], rows[:, 2], rows[:, 3:] = record, np.arange(states), 0
            for state in rest_states(dfa):
                rows[state] = m.SEQ, *self.string_rest(), 0, 0
            self.by_key[id(dfa)] = self.by_key[content] = record
            self.dfas[record] = dfa
        return record

    def string_rest(self) -> tuple[int, int]:
        """The two nodes of "any characters, then the quote", canonically spelled."""
        scope = _Scope({}, self.known)
        return self.lower(_ANY_REST.parts[0], scope), self.lower(_ANY_REST.parts[1], scope)

    def _dfa(self, node: Dfa, scope, depth) -> int:
        if not len(node.delta):
            return self._make(m.CHOICE, 0, 0)
        return int(self.ints[self.dfa_record(node) + m.DFA_NODES])

    def _counted(self, node: Counted, scope, depth) -> int:
        counts, states = node.useful.shape
        if not states or not node.useful[0, 0]:
            return self._make(m.CHOICE, 0, 0)
        dfa = self.dfa_record(node.machine)
        starts = self._add_bytes(node.starts.view(np.uint8))
        useful = self._add_bytes(node.useful.view(np.uint8).ravel())
        record = self._add_ints([dfa, starts, useful, counts - 1, node.low, int(node.saturated)])
        return self._make(m.COUNTED, record)

    def zone_dfa(self, record: int, count: int) -> Dfa:
        """The machine of a Counted as it is at this count, and at all counts of the same zone."""
        inner, _, useful, _, low, _ = self.ints[record : record + 6].tolist()
        dfa = self.dfas[inner]
        states = len(dfa.delta)
        alive = self.pool[useful + count * states : useful + (count + 1) * states].astype(bool)
        delta = np.where((dfa.delta >= 0) & alive[dfa.delta], dfa.delta, -1)
        return Dfa(dfa.columns, delta, dfa.accepting & (count >= low))

    def zones(self, record: int, reach: int) -> np.ndarray:
        """int32[counts]: counts with the same number allow the same next `reach` characters; -1 are alone."""
        dfa, _, useful, top, low, saturated = self.ints[record : record + 6].tolist()
        states = int(self.ints[dfa + m.DFA_STATES])
        rows = self.pool[useful : useful + (top + 1) * states].reshape(top + 1, states)
        changes = np.zeros(top + 1, np.int64)
        changes[1:] = (rows[1:] != rows[:-1]).any(axis=1) | (np.arange(1, top + 1) == low)
        number = np.cumsum(changes)
        last = np.minimum(np.arange(top + 1) + reach, top)
        alone = number[last] != number
        if not saturated:
            alone |= np.arange(top + 1) + reach > top
        return np.where(alone, -1, number).astype(np.int32)

    def _seq(self, node: Seq, scope, depth) -> int:
        parts = [self.lower(part, scope, depth) for part in node.parts]
        number = 0
        for part in reversed(parts):
            number = part if number == 0 else number if part == 0 else self._make(m.SEQ, part, number)
        return number

    def _alt(self, node: Alt, scope, depth) -> int:
        if len(node.choices) >= 8 and all(type(c) is Literal and c.text for c in node.choices):
            return self._word_list(sorted({c.text for c in node.choices}), scope, depth)
        choices = list(dict.fromkeys(self.lower(choice, scope, depth) for choice in node.choices))
        return self._choice(choices)

    def _choice(self, choices: list[int]) -> int:
        if len(choices) == 1:
            return choices[0]
        at = self._add_ints(choices)
        return self._make(m.CHOICE, at, at + len(choices))

    def _word_list(self, texts: list[bytes], scope, depth) -> int:
        """Many literals, sorted, as a table in which none begins another, with what is longer behind it."""
        heads: list[bytes] = []
        longer: dict[int, list[bytes]] = {}
        for text in texts:
            if heads and text.startswith(heads[-1]):
                longer.setdefault(len(heads) - 1, []).append(text[len(heads[-1]) :])
            else:
                heads.append(text)

        def then(index: int) -> Node:
            rest = longer.get(index)
            if rest is None:
                return EMPTY
            key = (_Scope, tuple(rest))
            return Alt((EMPTY, Lazy(key, lambda: Alt(tuple(Literal(r) for r in rest)))))

        return self.lower(Words(WordTable(tuple(heads)), then), scope, depth)

    def _repeat(self, node: Repeat, scope, depth) -> int:
        body, low, high = node.node, node.low, -1 if node.high is None else node.high
        while type(body) is Repeat and body.low == 0:  # (x{0,k}){l,h} is x{0,k*h}
            high = 0 if 0 in (high, body.high) else -1 if body.high is None or high < 0 else body.high * high
            low, body = 0, body.node
        if high > 0x7FFFFFFE or low > 0x7FFFFFFE:
            raise LimitError(f"repetition {{{low},{high}}}: counts go up to 2147483646; leave the bound out instead")
        number = self.lower(body, scope, depth)
        if number == 0 or high == 0:
            return 0
        if low and self._empty(body, scope):  # then fewer times is as many times and some of them nothing
            low = 0
        return self._make(m.REPEAT, number, low, high, 1 + self.character.get(number, -1))

    def _empty(self, node: Node, scope: _Scope) -> bool:
        """True where the node is known to allow the empty text."""
        kind = type(node)
        if kind is Seq:
            return all(self._empty(part, scope) for part in node.parts)
        if kind is Alt:
            return any(self._empty(choice, scope) for choice in node.choices)
        if kind is Repeat:
            return node.low == 0 or self._empty(node.node, scope)
        if kind is Dfa:
            return bool(len(node.accepting) and node.accepting[0])
        if kind is Ref:
            return node.name in scope.nullable()
        return kind is Literal and not node.text

    def _ref(self, node: Ref, scope: _Scope, depth) -> int:
        number = scope.numbers.get(node.name)
        if number is None:
            if node.name not in scope.rules:
                raise GrammarError(f"rule {node.name!r} is not defined")
            number = self._lazy(lambda: scope.rules[node.name], scope, node.name)
            scope.numbers[node.name] = number
        return number

    def _lazy_node(self, node: Lazy, scope, depth) -> int:
        key = (Lazy, node.key)
        number = self.by_key.get(key)
        if number is None:
            number = self.by_key[key] = self._lazy(node.make, scope, str(node.key)[:80])
        return number

    def _words(self, node: Words, scope, depth) -> int:
        table = self.by_key.get(id(node.table))
        if table is None:
            texts = node.table.texts
            at = self._add_bytes(b"".join(texts))
            bounds = at + np.cumsum([0, *map(len, texts)])
            table = self.by_key[id(node.table)] = self._add_ints([len(texts), *bounds])
            self.kept.append(node.table)
        skip = -1
        if node.skip:
            words = -(-len(node.table.texts) // 32)
            skip = self._add_ints(np.frombuffer(node.skip.to_bytes(words * 4, "little"), np.int32))
        other, quoted = -1, 0
        if isinstance(node.other, Character):
            start = self.lower(node.other, scope)
            other, quoted = int(self.node[start, 1]), 1 + self.character[start]
        elif node.other is not None and len(node.other.delta):
            other = self.dfa_record(node.other)
        rest = 0
        if other >= 0:
            character = node.other if quoted else Character(ANY_CHARACTER, "json")
            rest = self.lower(Seq((Repeat(character, 0, None), Literal(b'"'))), scope)
        self.words.append((node, scope))
        record = self._add_ints([table, skip, other, len(self.words) - 1, quoted, rest])
        if not node.table.texts:
            if other < 0:
                return self._make(m.CHOICE, 0, 0)
            behind = self._make(m.LAZY, len(self.words) - 1, -1)
            if quoted:
                return self._make(m.SEQ, self.lower(Literal(b'"'), scope), self._make(m.SEQ, rest, behind))
            return self._make(m.SEQ, int(self.ints[other + m.DFA_NODES]), behind)
        return self._make(m.WORDS, record, 0, len(node.table.texts), 0)


_ANY_REST = Seq((Repeat(Character(ANY_CHARACTER, "json"), 0, None), Literal(b'"')))


@lru_cache(maxsize=1)
def _rest_machine() -> Dfa:
    return minimize(dfa(_ANY_REST))


def rest_states(machine: Dfa) -> list[int]:
    """The states behind which any characters may follow up to the closing quote, and nothing else.

    Machines of names that some pattern does not match end up in such a state, and there the stored masks of strings
    apply. Found by following the machine and "any string" side by side.
    """
    delta, columns, accepting = machine.delta, machine.columns, machine.accepting
    letter, quote = columns[ord("a")], columns[ord('"')]
    looping = np.flatnonzero((delta[:, letter] == np.arange(len(delta))) & (delta[:, quote] >= 0))
    if not len(looping):
        return []
    want = _rest_machine()
    pairs = sorted(set(zip(columns.tolist(), want.columns.tolist(), strict=True)))
    mine, theirs = (np.array(c) for c in zip(*pairs, strict=True))
    found = []
    for state in looping.tolist():
        seen, work = {(state, 0)}, [(state, 0)]
        for a, b in work:  # grows while it is walked
            if accepting[a] != want.accepting[b]:
                break
            targets = list(zip(delta[a, mine].tolist(), want.delta[b, theirs].tolist(), strict=True))
            if any((x < 0) != (y < 0) for x, y in targets):
                break
            fresh = set(targets) - seen - {(-1, -1)}
            seen |= fresh
            work.extend(fresh)
            if len(seen) > 64:
                break
        else:
            found.append(state)
    return found


class _Scope:
    """The rules that a grammar's Refs name, and the nodes that they and all that may hold them have got."""

    def __init__(self, rules: Mapping[str, Node], known: dict[int, int]):
        self.rules = rules
        self.known = known
        self._nullable: set[str] | None = None
        self.numbers: dict[str, int] = {}

    def nullable(self) -> set[str]:
        if self._nullable is None:
            self._nullable = nullable(Grammar(Seq(()), self.rules))
        return self._nullable


# The characters of strings come first, so that they have a number whatever else there is.
_CLASSES: dict[Character | bytes, int] = {
    Character(ANY_CHARACTER, s): i for i, s in enumerate(("json", "json_any", "utf8"))
}
MAX_CLASSES = 4096


def class_number(what: Character | bytes) -> int:
    """The process-wide number of a class of characters (a Character, or a byte set's bytes), -1 when they run out."""
    number = _CLASSES.get(what)
    if number is None:
        number = -1 if len(_CLASSES) >= MAX_CLASSES else len(_CLASSES)
        if number >= 0:
            _CLASSES[what] = number
    return number


def class_of(number: int) -> Character | bytes:
    """The class with this number."""
    return next(what for what, n in _CLASSES.items() if n == number)


def byte_set(allowed) -> np.ndarray:
    """uint64[4]: one bit a byte."""
    bits = np.zeros(256, np.uint8)
    bits[list(allowed)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint64)


_LOWER = {
    ByteClass: Arena._byte_class,
    Literal: Arena._literal,
    Character: Arena._character,
    Dfa: Arena._dfa,
    Counted: Arena._counted,
    Seq: Arena._seq,
    Alt: Arena._alt,
    Repeat: Arena._repeat,
    Ref: Arena._ref,
    Lazy: Arena._lazy_node,
    Words: Arena._words,
}
