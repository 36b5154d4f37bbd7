"""A slow recogniser that follows the definition of every node, as the independent judge of faster ones.

For each node and place in the text it collects the places where the node may end; whoever asked is told of every new
end. Asking twice costs nothing, so left recursion, empty repeats and any depth need no special care.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gdlib.grammar.nodes import Alt, ByteClass, Character, Counted, Dfa, Grammar, Lazy, Literal, Ref, Repeat, Seq, Words
from gdlib.grammar.regular import character_dfa, dfa


def accepts(grammar: Grammar, data: bytes) -> bool:
    """Whether the grammar describes the whole text."""
    return read(grammar, data)[0]


def alive(grammar: Grammar, data: bytes) -> bool:
    """Whether some text of the grammar begins with `data` (where every node can be completed)."""
    accepted, more = read(grammar, data)
    return accepted or more


@lru_cache
def machine_of(node: Character | Counted | Dfa) -> Counted | Dfa:
    return character_dfa(node.ranges, node.style) if isinstance(node, Character) else node


@lru_cache
def quoted(node: Character | Dfa) -> Dfa:
    """The `other` of a Words node: a character stands for all strings of it in quotes."""
    return node if isinstance(node, Dfa) else dfa(Seq((Literal(b'"'), Repeat(node, 0, None), Literal(b'"'))))


def read(grammar: Grammar, data: bytes) -> tuple[bool, bool]:
    """(accepted, a byte more is wanted behind the whole text)."""
    size = len(data)
    asked: dict[tuple, tuple[set[int], list[Callable]]] = {}  # (node, start) -> ends so far, who wants to know
    made: dict = {}  # what Lazy and Words built, so that every node stays the same object
    seen: set[tuple] = set()
    work: list[tuple] = []
    wanted = False

    def ask(node, start: int, then: Callable[[int], None]) -> None:
        """Call `then(end)` for every place where `node`, begun at `start`, may end."""
        key = (id(node), start)
        if key not in asked:
            asked[key] = (set(), [])
            work.append((node, start))
        ends, listeners = asked[key]
        listeners.append(then)
        for end in list(ends):
            then(end)

    def found(node, start: int, end: int) -> None:
        ends, listeners = asked[id(node), start]
        if end not in ends:
            ends.add(end)
            for then in list(listeners):
                work.append((then, end))

    def walk(machine: Dfa, start: int):
        """Every end of a text of the machine."""
        nonlocal wanted
        counted = machine if isinstance(machine, Counted) else None
        machine = machine if counted is None else counted.machine
        state, count = 0 if len(machine.accepting) else -1, 0
        for place in range(start, size + 1):
            if state < 0 or (counted and not counted.useful[count, state]):
                return
            if machine.accepting[state] and not (counted and count < counted.low):
                yield place
            if place == size:
                wanted |= bool((machine.delta[state] >= 0).any())
                return
            if counted and counted.starts[state]:
                count += 1
                if count == len(counted.useful):
                    if not counted.saturated:
                        return
                    count -= 1
            state = int(machine.delta[state, machine.columns[data[place]]])

    def text(literal: bytes, start: int) -> bool:
        nonlocal wanted
        wanted |= size - start < len(literal) and literal.startswith(data[start:])
        return data.startswith(literal, start)

    def part(node: Seq, start: int, index: int, place: int) -> None:
        if (id(node), start, index, place) in seen:
            return
        seen.add((id(node), start, index, place))
        if index == len(node.parts):
            found(node, start, place)
        else:
            ask(node.parts[index], place, lambda end: part(node, start, index + 1, end))

    def repeat(node: Repeat, start: int, count: int, place: int) -> None:
        count = min(count, node.low) if node.high is None else count
        if (id(node), start, count, place) in seen:
            return
        seen.add((id(node), start, count, place))
        if count >= node.low:
            found(node, start, place)
        if node.high is None or count < node.high:

            def again(end: int) -> None:
                # an empty round may be taken as often as it likes
                empty = end == place
                repeat(node, start, max(count + 1, node.low) if empty else count + 1, end)

            ask(node.node, place, again)

    def behind_word(node: Words, start: int, index: int, end: int) -> None:
        if (id(node), index) not in made:
            made[id(node), index] = (node.then(index), node)
        ask(made[id(node), index][0], end, lambda last: found(node, start, last))

    def step(node, start: int) -> None:
        nonlocal wanted
        if isinstance(node, Literal):
            if text(node.text, start):
                found(node, start, start + len(node.text))
        elif isinstance(node, ByteClass):
            wanted |= start == size
            if start < size and data[start] in node.allowed:
                found(node, start, start + 1)
        elif isinstance(node, Character | Counted | Dfa):
            for end in walk(machine_of(node), start):
                found(node, start, end)
        elif isinstance(node, Seq):
            part(node, start, 0, start)
        elif isinstance(node, Repeat):
            repeat(node, start, 0, start)
        elif isinstance(node, Words):
            for index, word in enumerate(node.table.texts):
                if not node.skip >> index & 1 and text(word, start):
                    behind_word(node, start, index, start + len(word))
            for end in walk(quoted(node.other), start) if node.other is not None else ():
                if data[start:end] not in node.table.texts:
                    behind_word(node, start, -1, end)
        elif isinstance(node, Alt):
            for choice in node.choices:
                ask(choice, start, lambda end: found(node, start, end))
        elif isinstance(node, Ref):
            ask(grammar.rules[node.name], start, lambda end: found(node, start, end))
        else:
            assert isinstance(node, Lazy)
            if node.key not in made:
                made[node.key] = node.make()
            ask(made[node.key], start, lambda end: found(node, start, end))

    ends: list[int] = []
    ask(grammar.root, 0, ends.append)
    while work:
        first, second = work.pop()
        if callable(first):
            first(second)
        else:
            step(first, second)
    return size in ends, wanted
