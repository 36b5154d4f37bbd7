"""Arrays as text: repetition where all items are alike, states where places, `contains` or uniqueness matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from gdlib.grammar.nodes import Alt, Lazy, Node, Repeat, Seq, Words, WordTable, literal
from gdlib.grammar.schema.atoms import Arrays, admits_number, item_goal
from gdlib.grammar.schema.document import TRUE, Goal, goal_not
from gdlib.grammar.schema.errors import Refusal
from gdlib.grammar.schema.reading import Context, form
from gdlib.grammar.schema.scalars import FALSE_TEXT, NULL, TRUE_TEXT, number_spellings, spell

MAX_STATES = 5000  # of one array under contains, or with unique items at fixed places
MAX_VALUES = 1000  # different values that unique items may have

OPEN, CLOSE = literal("["), literal("]")
Known = Callable[[Goal], bool]  # whether a goal has a value
State = tuple[int, tuple[int, ...]]


def has_array(context: Context, atom: Arrays, known: Known) -> bool:
    """Whether the atom has an array, given which goals have a value. Refused: what cannot be enforced exactly."""
    if not atom.contains and not atom.unique:
        if not atom.low:
            return True
        return all([known(g) for g in atom.prefix[: atom.low]]) and (atom.low <= len(atom.prefix) or known(atom.rest))
    if atom.contains:
        if is_unique(atom):
            raise Refusal("uniqueItems", "not enforced together with contains; leave one of them out")
        return bool(counting(context, atom, known))
    high = most(atom, known)
    if high is not None and atom.low > high:
        return False
    if not is_unique(atom) or (high is not None and high < 2):
        return True
    return bool(distinct(context, atom, known).alive(0, 0))


def is_unique(atom: Arrays) -> bool:
    return atom.unique and (atom.high is None or atom.high > 1)


def most(atom: Arrays, known: Known) -> int | None:
    """The greatest number of items, in view of places nothing can stand at."""
    for i, goal in enumerate(atom.prefix[: atom.high]):
        if not known(goal):
            return i
    if (atom.high is None or atom.high > len(atom.prefix)) and not known(atom.rest):
        return len(atom.prefix)
    return atom.high


def array_goals(context: Context, atom: Arrays) -> list[Goal]:
    """Every goal that an item of the atom may have to meet."""
    found = [*atom.prefix, atom.rest]
    if atom.contains:
        found += [goal for edges in explored(context, atom).values() for goal, _ in edges]
    return found


def array_node(context: Context, atom: Arrays, key: tuple, known: Known, value: Callable[[Goal], Node]) -> Node:
    """The text of the atom's arrays behind the opening bracket; `value` gives the text of an item."""
    spacing = context.spacing
    if atom.contains:
        return counted_items(context, atom, key, known, value)
    high = most(atom, known)
    if is_unique(atom) and (high is None or high > 1):
        return unique_items(context, atom, key, known)
    end = Seq((spacing.pad, CLOSE))

    def repeated(i: int) -> Node:
        # i > 0 items of the prefix are written
        if high == i:
            return end
        item = Seq((spacing.pad, spacing.comma, value(atom.rest)))
        return Seq((Repeat(item, max(atom.low - i, 0), None if high is None else high - i), end))

    def behind(i: int) -> Node:
        if i >= len(atom.prefix) or high == i:
            return repeated(i)
        more = Seq((spacing.comma, value(atom.prefix[i]), Lazy((*key, i + 1), lambda: behind(i + 1))))
        return Seq((spacing.pad, Alt((CLOSE, more)) if i >= atom.low else more))

    if high == 0:
        return Seq((spacing.pad, CLOSE))
    first = Seq(
        (value(item_goal(atom, 0)), behind(1) if atom.prefix else rest_of_list(atom, high, spacing, value, end))
    )
    return Seq((spacing.pad, first if atom.low else Alt((CLOSE, first))))


def rest_of_list(atom: Arrays, high: int | None, spacing, value: Callable[[Goal], Node], end: Node) -> Node:
    item = Seq((spacing.pad, spacing.comma, value(atom.rest)))
    return Seq((Repeat(item, max(atom.low - 1, 0), None if high is None else high - 1), end))


# contains


def edges(context: Context, atom: Arrays, state: State, top: int) -> list[tuple[Goal, State]]:
    """What the next item may be, and the state behind it; a state is (items, counts of each contains), saturated."""
    index, counts = state
    if atom.high is not None and index >= atom.high:
        return []
    choices = []
    for c, count in zip(atom.contains, counts, strict=True):
        if index < c.start or (c.high is None and count >= c.low):
            choices.append(((TRUE, count),))
        elif c.high is None:
            choices.append(((c.goal, count + 1), (TRUE, count)))
        else:
            inside = ((c.goal, count + 1),) if count < c.high else ()
            choices.append((*inside, (goal_not(context.document, c.goal, 1), count)))
    base = item_goal(atom, index)
    behind = min(index + 1, top)
    return [
        (base.union(*(g for g, _ in chosen)), (behind, tuple(n for _, n in chosen))) for chosen in product(*choices)
    ]


def explored(context: Context, atom: Arrays) -> dict[State, list[tuple[Goal, State]]]:
    """All states of an array under contains, with what leads on from each."""
    found = context.machines.get(id(atom))
    if found is None:
        top = max(len(atom.prefix), atom.low, atom.high or 0, *(c.start for c in atom.contains))
        start = (0, (0,) * len(atom.contains))
        states: dict[State, list] = {start: []}
        work = [start]
        while work:
            state = work.pop()
            states[state] = edges(context, atom, state, top)
            for _, behind in states[state]:
                if behind not in states:
                    states[behind] = []
                    work.append(behind)
            if len(states) > MAX_STATES:
                raise Refusal("contains", f"its counts and those of items need over {MAX_STATES} states; lower them")
        found = context.machines[id(atom)] = (atom, states)
    return found[1]


def complete(atom: Arrays, state: State) -> bool:
    index, counts = state
    return index >= atom.low and all(n >= c.low for n, c in zip(counts, atom.contains, strict=True))


def counting(context: Context, atom: Arrays, known: Known) -> dict[State, list[tuple[Goal, State]]]:
    """The states from which an array can be completed; empty where the first one is not among them."""
    states = explored(context, atom)
    before: dict[State, list[State]] = {}
    for state, found in states.items():
        for goal, behind in found:
            if known(goal):
                before.setdefault(behind, []).append(state)
    alive = {s for s in states if complete(atom, s)}
    work = list(alive)
    while work:
        for state in before.get(work.pop(), ()):
            if state not in alive:
                alive.add(state)
                work.append(state)
    if (0, (0,) * len(atom.contains)) not in alive:
        return {}
    return {s: [(g, b) for g, b in states[s] if b in alive and known(g)] for s in alive}


def counted_items(context: Context, atom: Arrays, key: tuple, known: Known, value: Callable[[Goal], Node]) -> Node:
    states = counting(context, atom, known)
    spacing = context.spacing

    def items(state: State) -> list[Node]:
        return [Seq((value(g), Lazy((*key, b), lambda b=b: behind(b)))) for g, b in states[state]]

    def behind(state: State) -> Node:
        more = items(state)
        choices = [Seq((spacing.comma, Alt(tuple(more))))] if more else []
        if complete(atom, state):
            choices.append(CLOSE)
        return Seq((spacing.pad, Alt(tuple(choices))))

    start = (0, (0,) * len(atom.contains))
    choices = items(start) + ([CLOSE] if complete(atom, start) else [])
    return Seq((spacing.pad, Alt(tuple(choices))))


# uniqueItems


@dataclass(eq=False)
class Distinct:
    """Arrays of different values out of a finite set. A state is (items written, bit set of values used)."""

    atom: Arrays
    values: list  # the strings first, in the order of `table`
    table: WordTable | None
    places: list[int]  # bit set of the values at each place of the prefix, then of all places behind it
    high: int | None
    memo: dict[tuple[int, int], bool]

    def allowed(self, index: int, used: int) -> int:
        """The values that may stand next, so that the array can still be completed."""
        if self.high is not None and index >= self.high:
            return 0
        found = self.places[min(index, len(self.places) - 1)] & ~used
        if index + 1 >= self.atom.low:
            return found
        return sum(b for b in bits(found) if self.alive(index + 1, used | b))

    def alive(self, index: int, used: int) -> bool:
        """Whether the array can be completed."""
        if index >= self.atom.low:
            return True
        if index >= len(self.places) - 1:
            return (self.places[-1] & ~used).bit_count() >= self.atom.low - index
        found = self.memo.get((index, used))
        if found is None:
            if len(self.memo) > MAX_STATES:
                raise Refusal("uniqueItems", f"with prefixItems it needs over {MAX_STATES} states; simplify it")
            options = self.places[index] & ~used
            found = self.memo[index, used] = any(self.alive(index + 1, used | b) for b in bits(options))
        return found


def bits(mask: int) -> list[int]:
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest)
        mask ^= lowest
    return found


def distinct(context: Context, atom: Arrays, known: Known) -> Distinct:
    """How unique items are told apart. Refused: items with infinitely many values, which would need memory."""
    high = most(atom, known)
    goals = [*atom.prefix[:20], atom.rest]
    if len(atom.prefix) > 20:
        raise Refusal("uniqueItems", "with more than 20 prefixItems it is not enforced")
    if high is not None and high <= len(atom.prefix):
        goals = goals[:high] or goals[:1]
    domains = [finite_values(context, goal) for goal in goals]
    everything = sorted({v for d in domains for v in d if isinstance(v, str)}, key=spell)
    table = WordTable(tuple(map(spell, everything))) if everything else None
    everything += list(dict.fromkeys(v for d in domains for v in d if not isinstance(v, str)))
    place = {v: 1 << i for i, v in enumerate(everything)}
    return Distinct(atom, everything, table, [sum(place[v] for v in d) for d in domains], high, {})


def finite_values(context: Context, goal: Goal) -> list:
    """All values of a goal: strings, Fractions, and ("constant", value) for null, true and false."""
    found = form(context, goal)
    values: set = {("constant", b) for b in found.booleans} | ({("constant", None)} if found.null else set())
    endless = bool(found.arrays or found.objects)
    for atom in found.strings:
        if atom.only is None:
            endless = True
        else:
            values |= atom.only
    for atom in found.numbers:
        if atom.only is not None:
            values |= atom.only
        elif atom.integer and atom.low is not None and atom.high is not None and atom.high - atom.low <= MAX_VALUES:
            whole = range(-int(-atom.low // 1), int(atom.high // 1) + 1)
            values |= {Fraction(v) for v in whole if admits_number(atom, Fraction(v))}
        else:
            endless = True
    if endless or len(values) > MAX_VALUES:
        raise Refusal(
            "uniqueItems",
            f"enforced only where items have at most {MAX_VALUES} values (enum, const, booleans, small integer ranges) "
            "or maxItems is 1; leave it out and check afterwards",
        )
    return sorted(values, key=str)


def unique_items(context: Context, atom: Arrays, key: tuple, known: Known) -> Node:
    rule = distinct(context, atom, known)
    spacing = context.spacing
    strings = len(rule.table.texts) if rule.table else 0

    def items(index: int, used: int) -> Node | None:
        def then(i: int) -> Node:
            return behind(index + 1, used | 1 << i)

        free = rule.allowed(index, used)
        choices: list[Node] = []
        if free & ((1 << strings) - 1):
            choices.append(Words(rule.table, then, ~free & ((1 << strings) - 1)))
        for i in range(strings, len(rule.values)):
            if free >> i & 1:
                choices.append(Seq((constant(rule.values[i]), then(i))))
        return Alt(tuple(choices)) if choices else None

    def behind(index: int, used: int) -> Node:
        return Lazy((*key, index, used), lambda: ending(index, used))

    def ending(index: int, used: int) -> Node:
        more = items(index, used)
        choices = [Seq((spacing.comma, more))] if more else []
        if index >= atom.low:
            choices.append(CLOSE)
        return Seq((spacing.pad, Alt(tuple(choices))))

    first = items(0, 0)
    return Seq((spacing.pad, Alt(((CLOSE,) if not atom.low else ()) + ((first,) if first else ()))))


def constant(value) -> Node:
    if isinstance(value, Fraction):
        return Alt(tuple(number_spellings(value)))
    return NULL if value[1] is None else TRUE_TEXT if value[1] else FALSE_TEXT
