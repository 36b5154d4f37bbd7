"""Which goals have a value at all, and every goal as text.

The pass over a whole schema (`check`) runs before any text is read: all that could be refused is refused there, so that
a recogniser that expands the grammar later never meets an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import count

from gdlib.grammar.nodes import Alt, Lazy, Node, Repeat, Seq
from gdlib.grammar.schema import arrays, objects, scalars
from gdlib.grammar.schema import atoms as at
from gdlib.grammar.schema.document import FALSE, TRUE, Goal, path
from gdlib.grammar.schema.errors import Blocked, Refusal, SchemaError
from gdlib.grammar.schema.members import has_object, object_goals
from gdlib.grammar.schema.reading import Context, form
from gdlib.grammar.schema.scalars import Spacing

MAX_GOALS = 100_000  # different conjunctions of subschemas in one schema
MAX_PROBED = 500  # goals looked at for one proof that something has no value, and how many such proofs in each other
MAX_PROBES = 4
MAX_PRUNED = 6  # schemas in one goal that is looked at when alternatives are weeded out
serial = count(1)  # of the arrays and objects that are built lazily, in all schemas


def holds(context: Context, found: at.Form, known) -> bool:
    """Whether a form has a value, given which goals have one."""
    if found.null or found.booleans:
        return True
    return (
        any(scalars.has_string(a) for a in found.strings)
        or any(scalars.has_number(a) for a in found.numbers)
        or any(arrays.has_array(context, a, known) for a in found.arrays)
        or any(has_object(context, a, known) for a in found.objects)
    )


def has_value(context: Context, found: at.Form, goal: Goal | None = None) -> bool:
    """Whether some finite JSON value satisfies the form: the least solution over all goals it leads to.

    A goal whose meaning is just being worked out counts as having a value; then only `False` is a proof. What is proven
    is kept, for `goal` as well, which is the one that the form belongs to.
    """
    inhabited = context.inhabited
    status: dict[Goal, bool] = {}
    asked: list[Goal] = []  # the keys of status, growing while goals are looked at
    guessed = False

    def known(goal: Goal) -> bool:
        if not goal:
            return True
        sure = inhabited.get(goal)
        if sure is not None:
            return sure
        if goal not in status:
            status[goal] = False
            asked.append(goal)
        return status[goal]

    def look(goal: Goal) -> bool:
        nonlocal guessed
        try:
            status[goal] = holds(context, form(context, goal), known)
        except Blocked:
            status[goal] = guessed = True
        return status[goal]

    looked = 0
    while not holds(context, found, known):
        changed = looked < len(asked)
        while looked < len(asked):
            look(asked[looked])
            looked += 1
            if context.probing and looked > MAX_PROBED:
                raise Blocked
        for below in reversed(asked):
            changed |= not status[below] and look(below)
        if not changed:
            # what is not proven by now has no value
            if not guessed:
                inhabited.update(status)
            if goal is not None:
                inhabited[goal] = False
            return False
    if not guessed:
        inhabited.update({below: True for below, proven in status.items() if proven})
        if goal is not None:
            inhabited[goal] = True
    return True


def nonempty(context: Context, goal: Goal) -> bool:
    """Whether some finite JSON value satisfies the goal."""
    if not goal:
        return True
    found = context.inhabited.get(goal)
    if found is None:
        meaning = form(context, goal)
        found = meaning is not at.NONE if meaning in at.WITHOUT_PARTS else has_value(context, meaning)
        context.inhabited[goal] = found
    return found


def certainly_empty(context: Context, make: Callable[[], at.Form], goal: Goal | None = None) -> bool:
    """Whether the form (of `goal`) is certain to have no value, as far as can be said while others are worked out."""
    if context.probing == MAX_PROBES:
        raise Blocked
    active, blocked = context.active, context.blocked
    context.active, context.blocked = {}, blocked | active.keys()
    context.probing += 1
    try:
        return not has_value(context, make(), goal)
    except (Refusal, Blocked):
        return False
    finally:
        context.active, context.blocked = active, blocked
        context.probing -= 1


def disjoint(context: Context, left: at.Form, right: at.Form) -> bool:
    """Whether certainly no value satisfies both forms."""
    if told_apart(context, left, right):
        return True
    return certainly_empty(context, lambda: at.meet(left, right))


def told_apart(context: Context, left: at.Form, right: at.Form) -> bool:
    """The frequent case: both hold objects only, and a required member has other fixed values in each."""
    for form_ in (left, right):
        if form_.null or form_.booleans or form_.numbers or form_.strings or form_.arrays or len(form_.objects) > 4:
            return False
    return all([apart(context, a, b) for a in left.objects for b in right.objects])


def apart(context: Context, a: at.Objects, b: at.Objects) -> bool:
    """Whether a member that both require has other fixed values in each."""
    for name in a.required & b.required:
        first, second = a.members.get(name), b.members.get(name)
        if first and second:
            values, others = fixed(context, first), fixed(context, second)
            if values is not None and others is not None and values.isdisjoint(others):
                return True
    return False


def all_apart(context: Context, goals: list[Goal]) -> bool:
    """Whether each goal allows a few values, and no two of them the same."""
    values = [fixed(context, goal) for goal in goals]
    return all(v is not None for v in values) and sum(map(len, values)) == len(frozenset().union(*values))


def fixed(context: Context, goal: Goal) -> frozenset | None:
    """The values a goal allows, where they are a few strings, numbers and constants; None where they are not known."""
    if goal in context.fixed:
        return context.fixed[goal]
    if goal not in context.forms and certainly_empty(context, lambda: form(context, goal), goal):
        return frozenset()
    found = context.forms.get(goal)
    if found is None:
        return None
    values = context.fixed[goal] = fixed_values(found)
    return values


def fixed_values(found: at.Form) -> frozenset | None:
    if found.arrays or found.objects or any(a.only is None for a in (*found.strings, *found.numbers)):
        return None
    constants = {("constant", b) for b in found.booleans} | ({("constant", None)} if found.null else set())
    return frozenset(constants).union(*(a.only for a in (*found.strings, *found.numbers)))


def clash(context: Context, goal: Goal) -> bool:
    """Whether no value is among the few that each schema of the goal allows, as far as they allow just a few."""
    common = None
    for number in goal:
        values = fixed(context, context.document.goals[number]) if number > 0 else None
        if values is not None:
            common = values if common is None else common & values
    return common is not None and not common


def prune(context: Context, found: at.Form) -> at.Form:
    """The form without alternatives that a required member makes impossible, where they have become many."""
    if len(found.objects) < 4 or context.probing:
        return found
    impossible: dict[Goal, bool] = {}

    def is_impossible(goal: Goal) -> bool:
        if len(goal) < 2 or len(goal) > MAX_PRUNED:
            return 0 in goal
        if goal not in impossible:
            sure = context.inhabited.get(goal)
            if sure is None and clash(context, goal):
                sure = context.inhabited[goal] = False
            if sure is None:
                sure = not certainly_empty(context, lambda: form(context, goal), goal)
            impossible[goal] = not sure
        return impossible[goal]

    kept = tuple(o for o in found.objects if not any(is_impossible(at.member_goal(o, n)) for n in o.required))
    return found if len(kept) == len(found.objects) else replace(found, objects=kept)


def check(context: Context, root: Goal, refused: list[SchemaError] | None = None) -> None:
    """Visit every goal the root leads to; raises the first SchemaError, or collects all in `refused`."""
    work, seen = [root], {root, TRUE, FALSE}
    while work:
        goal = work.pop()
        try:
            below = goals_below(context, goal)
            if len(seen) > MAX_GOALS:
                raise SchemaError(place(context, goal), "schema", f"over {MAX_GOALS} conjunctions of subschemas")
        except SchemaError as error:
            if refused is None:
                raise
            refused.append(error)
            if len(seen) > MAX_GOALS:
                return
            continue
        for more in below:
            if more not in seen:
                seen.add(more)
                work.append(more)


def goals_below(context: Context, goal: Goal) -> list[Goal]:
    """The goals one step below `goal`; refuses what cannot be enforced at it."""
    found = form(context, goal)
    if found in at.WITHOUT_PARTS:
        return []
    below: list[Goal] = []
    try:
        for text in found.strings:
            scalars.has_string(text)
        for number in found.numbers:
            if number.multiples or number.no_multiples:
                scalars.has_number(number)
        for array in found.arrays:
            if array.contains or array.unique:
                arrays.has_array(context, array, lambda _: True)
                below += arrays.array_goals(context, array)
            elif array is not at.FREE_ARRAY:
                below += array.prefix
                below.append(array.rest)
        for members in found.objects:
            if members is not at.FREE_OBJECT:
                below += object_goals(context, members)
    except Refusal as refusal:
        raise SchemaError(place(context, goal), refusal.keyword, refusal.reason) from None
    return below


def place(context: Context, goal: Goal) -> str:
    return path(context.document, max(map(abs, goal), default=1))


# Text


def value_node(context: Context, goal: Goal) -> Node:
    """The text of the values of a goal that has one."""
    found = context.nodes.get(goal)
    if found is None:
        found = context.nodes[goal] = build(context, goal)
    return found


def build(context: Context, goal: Goal) -> Node:
    found = form(context, goal)
    if found is at.ANY:
        return any_value(context.spacing)
    choices: list[Node] = []
    if found.null:
        choices.append(scalars.NULL)
    choices += [scalars.TRUE_TEXT if b else scalars.FALSE_TEXT for b in sorted(found.booleans)]
    choices += [n for a in found.strings if (n := scalars.string_node(a)) is not None]
    choices += [n for a in found.numbers if (n := scalars.number_node(a)) is not None]
    known = lambda g: nonempty(context, g)  # noqa: E731
    value = lambda g: value_node(context, g)  # noqa: E731
    for array in found.arrays:
        if array is at.FREE_ARRAY:
            choices.append(free_array(context.spacing))
        elif arrays.has_array(context, array, known):
            key = ("array", next(serial))
            make = lambda array=array, key=key: arrays.array_node(context, array, key, known, value)  # noqa: E731
            choices.append(Seq((arrays.OPEN, Lazy(key, make))))
    for members in found.objects:
        if members is at.FREE_OBJECT:
            choices.append(free_object(context.spacing))
        elif has_object(context, members, known):
            key = ("object", next(serial))
            make = lambda members=members, key=key: objects.object_node(context, members, key, known, value)  # noqa: E731
            choices.append(Seq((objects.OPEN, Lazy(key, make))))
    return choices[0] if len(choices) == 1 else Alt(tuple(choices))


@lru_cache(maxsize=64)
def any_value(spacing: Spacing) -> Node:
    """Every JSON value."""

    def make() -> Node:
        scalar = (scalars.STRING, scalars.NUMBER, scalars.TRUE_TEXT, scalars.FALSE_TEXT, scalars.NULL)
        return Alt((*scalar, free_object(spacing), free_array(spacing)))

    return Lazy(("json value", id(spacing)), make)


@lru_cache(maxsize=64)
def free_object(spacing: Spacing) -> Node:
    member = Seq((scalars.STRING, spacing.colon, any_value(spacing)))
    return bracketed(objects.OPEN, member, objects.CLOSE, spacing)


@lru_cache(maxsize=64)
def free_array(spacing: Spacing) -> Node:
    return bracketed(arrays.OPEN, any_value(spacing), arrays.CLOSE, spacing)


def bracketed(first: Node, item: Node, last: Node, spacing: Spacing) -> Node:
    more = Repeat(Seq((spacing.pad, spacing.comma, item)), 0, None)
    return Seq((first, spacing.pad, Alt((last, Seq((item, more, spacing.pad, last))))))
