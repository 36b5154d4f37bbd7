"""Objects as text: a state is the set of listed names already written, so members come in any order, each once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

from gdlib.grammar.nodes import Alt, Dfa, Lazy, Node, Repeat, Seq, Words, WordTable, literal
from gdlib.grammar.schema.atoms import Objects
from gdlib.grammar.schema.document import Goal
from gdlib.grammar.schema.members import Cell, Known, cells, is_simple, settled
from gdlib.grammar.schema.reading import Context
from gdlib.grammar.schema.scalars import ANY_NAME, STRING, Spacing, spell

OPEN, CLOSE = literal("{"), literal("}")
Value = Callable[[Goal], Node]
State = tuple[int, int, int, int]  # names seen, members counted, `some` served, names passed (order="schema")
START: State = (0, 0, 0, 0)


@dataclass(eq=False)
class Plan:
    """All that the states of one object share. Bit i of a set of names stands for `table.texts[i]`."""

    key: tuple  # of the object among all that are built lazily
    spacing: Spacing
    value: Value
    table: WordTable | None
    goals: list[Goal]
    rank: list[int]  # place of each name in the order the schema lists them
    required: int
    usable: int  # names that may stand, with a value that exists
    dependents: list[tuple[int, int]]
    others: list[Cell]
    some: list[Goal]
    low: int
    high: int | None
    ordered: bool
    plain: bool  # the names seen are all that matters
    end: Node  # nothing but the closing brace
    behind: dict[State, Node]


def object_node(context: Context, atom: Objects, key: tuple, known: Known, value: Value) -> Node | None:
    """The text of the atom's objects behind the opening brace; None where there is none."""
    whole = [atom] if is_simple(atom) and atom.required <= atom.members.keys() else settled(context, atom)
    found = []
    for i, one in enumerate(whole):
        plan = plan_of(context, one, (*key, i), known, value)
        if not can_end(plan, START):
            continue
        if plan.table is None and not plan.some:
            found.append(map_node(plan))
        else:
            found.append(first(plan))
    return None if not found else found[0] if len(found) == 1 else Alt(tuple(found))


def plan_of(context: Context, atom: Objects, key: tuple, known: Known, value: Value) -> Plan:
    spelled = sorted([(spell(name), name) for name in atom.members])
    bit, goals, usable = {}, [], 0
    for i, (_, name) in enumerate(spelled):
        goal = atom.members[name]
        bit[name] = 1 << i
        goals.append(goal)
        if known(goal):
            usable |= 1 << i
    ordered = context.order == "schema"
    rank = {name: i for i, name in enumerate(atom.members)} if ordered else {}
    others = [cell for cell in cells(context, atom) if known(cell.goal)]
    if atom.some:  # a cell whose names serve a `some` only where the value exists
        others = [
            Cell(c.names, c.goal, tuple(i for i in c.serves if known(c.goal | atom.some[i].goal))) for c in others
        ]
    bounded = atom.low or atom.high is not None
    return Plan(
        key,
        context.spacing,
        value,
        WordTable(tuple([text for text, _ in spelled])) if spelled else None,
        goals,
        [rank[name] for _, name in spelled] if ordered else [],
        sum([bit[name] for name in atom.required]),
        usable,
        [(bit[trigger], sum([bit[n] for n in needs])) for trigger, needs in atom.dependents],
        others,
        [some.goal for some in atom.some],
        atom.low,
        atom.high,
        ordered,
        not (bounded or atom.some or atom.dependents or ordered or len(others) > 1),
        Seq((context.spacing.pad, CLOSE)),
        {},
    )


def wanted(plan: Plan, seen: int) -> int:
    """The names still to be written in any case."""
    need = seen | plan.required
    grown = bool(plan.dependents)
    while grown:
        grown = False
        for trigger, more in plan.dependents:
            if need & trigger and more & ~need:
                need |= more
                grown = True
    return need & ~seen


def passed(plan: Plan, place: int) -> int:
    """The names that the order rules out once `place` of them are passed."""
    return sum(1 << i for i, rank in enumerate(plan.rank) if rank < place) if place else 0


def can_end(plan: Plan, state: State) -> bool:
    """Whether the object can be completed from here."""
    seen, count, served, place = state
    need = wanted(plan, seen)
    left = plan.usable & ~seen & ~passed(plan, place)
    if need & ~left:
        return False
    needed = need.bit_count()
    unserved = [i for i in range(len(plan.some)) if not served >> i & 1]
    if any(all(i not in cell.serves for cell in plan.others) for i in unserved):
        return False
    if plan.high is not None and count + needed + bool(unserved) > plan.high:
        return False
    if count + needed >= plan.low or plan.others:
        return True
    possible = [b for b in range(left.bit_length()) if left >> b & 1 and not wanted(plan, seen | 1 << b) & ~left]
    return count + len(possible) >= plan.low


def is_complete(plan: Plan, state: State) -> bool:
    seen, count, served, _ = state
    return not wanted(plan, seen) and count >= plan.low and served == (1 << len(plan.some)) - 1


def counted(plan: Plan, count: int) -> int:
    """One member more, as far as the bounds care."""
    return min(count + 1, max(plan.low, 0 if plan.high is None else plan.high))


def name_written(plan: Plan, state: State, index: int) -> State:
    seen, count, served, place = state
    return seen | 1 << index, counted(plan, count), served, plan.rank[index] + 1 if plan.ordered else place


def other_written(plan: Plan, state: State, serving: int) -> State:
    seen, count, served, place = state
    return seen, counted(plan, count), served | serving, len(plan.rank) if plan.ordered else place


def offered(plan: Plan, state: State) -> int:
    """The listed names that may come next."""
    seen, count, _, place = state
    left = plan.usable & ~seen & ~passed(plan, place)
    if plan.high is None and not plan.dependents and not plan.ordered and (not plan.low or plan.others):
        return left
    if plan.high is not None and count >= plan.high:
        return 0
    return sum(
        1 << i for i in range(left.bit_length()) if left >> i & 1 and can_end(plan, name_written(plan, state, i))
    )


def members(plan: Plan, state: State) -> Node | None:
    """One member, then what follows it; None where no member may follow."""
    if plan.plain and plan.table is not None:
        return plain_members(plan, state[0])

    def then(index: int) -> Node:
        return written(plan, plan.goals[index], name_written(plan, state, index))

    names = offered(plan, state)
    cells = []
    full = plan.high is not None and state[1] >= plan.high
    for cell in plan.others if not full else ():
        tail = other_member(plan, cell, state)
        if tail is not None:
            cells.append((cell.names, tail))
    if plan.table is None:
        choices = [Seq((STRING if machine is None else machine, tail())) for machine, tail in cells]
        return None if not choices else choices[0] if len(choices) == 1 else Alt(tuple(choices))
    every = (1 << len(plan.goals)) - 1
    choices = [words(plan.table, then, every & ~names, *cells[0])] if cells else []
    choices += [words(plan.table, then, every, *cell) for cell in cells[1:]]
    if not cells and names:
        choices.append(Words(plan.table, then, every & ~names))
    return None if not choices else choices[0] if len(choices) == 1 else Alt(tuple(choices))


def plain_members(plan: Plan, seen: int) -> Node | None:
    """The same where the names seen are all that matters."""

    def then(index: int) -> Node:
        if index < 0:
            return written(plan, plan.others[0].goal, (seen, 0, 0, 0))
        return written(plan, plan.goals[index], (seen | 1 << index, 0, 0, 0))

    left = plan.usable & ~seen
    other = None
    if plan.others:
        names = plan.others[0].names
        other = ANY_NAME if names is None else names
    elif not left:
        return None
    return Words(plan.table, then, ((1 << len(plan.goals)) - 1) ^ left, other)


def words(table: WordTable, then: Callable[[int], Node], skip: int, machine: Dfa | None, tail) -> Words:
    """Names of the table, or names of the machine that are not in the table, with `tail()` behind those."""
    return Words(table, lambda i: tail() if i < 0 else then(i), skip, ANY_NAME if machine is None else machine)


def other_member(plan: Plan, cell: Cell, state: State):
    """What makes the rest behind an unlisted name of `cell`; None where it may not come here."""
    choices = []
    for size in range(len(cell.serves) + 1):
        for serving in combinations(cell.serves, size):
            behind = other_written(plan, state, sum(1 << i for i in serving))
            if can_end(plan, behind) and all(not state[2] >> i & 1 for i in serving):
                choices.append((cell.goal.union(*(plan.some[i] for i in serving)), behind))
    if not choices:
        return None

    def tail() -> Node:
        found = [written(plan, goal, behind) for goal, behind in choices]
        return found[0] if len(found) == 1 else Alt(tuple(found))

    return tail


def written(plan: Plan, goal: Goal, behind: State) -> Node:
    """What stands behind a member's name: colon, value, and all that follows."""
    following = plan.behind.get(behind)
    if following is None:
        following = plan.behind[behind] = Lazy((*plan.key, *behind), lambda: more_or_end(plan, behind))
    return Seq((plan.spacing.colon, plan.value(goal), following))


def more_or_end(plan: Plan, state: State) -> Node:
    """What may follow a member: a comma and another one, or the end."""
    more = members(plan, state)
    if more is None:
        return plan.end
    more = Seq((plan.spacing.comma, more))
    return Seq((plan.spacing.pad, Alt((more, CLOSE)) if is_complete(plan, state) else more))


def first(plan: Plan) -> Node:
    more = members(plan, START)
    if more is None:
        return plan.end
    return Seq((plan.spacing.pad, Alt((more, CLOSE)) if is_complete(plan, START) else more))


def map_node(plan: Plan) -> Node:
    """An object without listed names: the same kinds of members over and over, so counts need no states."""
    if plan.high == 0 or not plan.others:
        return plan.end
    spacing, low, high = plan.spacing, plan.low, plan.high
    kinds = [Seq((STRING if c.names is None else c.names, spacing.colon, plan.value(c.goal))) for c in plan.others]
    member = kinds[0] if len(kinds) == 1 else Alt(tuple(kinds))
    more = Repeat(Seq((spacing.pad, spacing.comma, member)), max(low - 1, 0), None if high is None else high - 1)
    full = Seq((member, more, spacing.pad, CLOSE))
    return Seq((spacing.pad, full if low else Alt((CLOSE, full))))
