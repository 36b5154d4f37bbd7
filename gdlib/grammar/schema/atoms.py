"""The normal form of a schema: for each JSON type a union of atoms, each a plain conjunction of constraints.

Conjunction, union and negation of whole schemas become `meet`, `union` and `negate` here, so that allOf, anyOf, not,
oneOf and if need no grammar machinery of their own. Members and items stay goals: they are expanded when reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from gdlib.grammar.schema.document import TRUE, Goal
from gdlib.grammar.schema.errors import Refusal
from gdlib.grammar.schema.names import matches

MAX_ATOMS = 2000  # alternatives of one type in one goal


@dataclass(slots=True, eq=False)
class Numbers:
    low: Fraction | None = None
    high: Fraction | None = None
    low_open: bool = False
    high_open: bool = False
    integer: bool = False
    multiples: frozenset[Fraction] = frozenset()
    no_multiples: frozenset[Fraction] = frozenset()
    only: frozenset[Fraction] | None = None
    excluded: frozenset[Fraction] = frozenset()


@dataclass(slots=True, eq=False)
class Strings:
    low: int = 0
    high: int | None = None
    patterns: frozenset[str] = frozenset()
    avoided: frozenset[str] = frozenset()  # patterns found nowhere in the string
    only: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class Contains:
    """From item `start` on, at least `low` and at most `high` items meet `goal`."""

    start: int
    goal: Goal
    low: int
    high: int | None


@dataclass(slots=True, eq=False)
class Arrays:
    prefix: tuple[Goal, ...] = ()
    rest: Goal = TRUE
    low: int = 0
    high: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False
    # what unevaluatedItems does not see: the first `done` items (None: all), and items that meet one of `done_goals`
    done: int | None = 0
    done_goals: tuple[Goal, ...] = ()


@dataclass(slots=True, eq=False)
class Some:
    """The value of at least one member meets `goal`, and its name fits: each pattern is found in it and no avoided one,
    it is not excluded, and it meets `names`."""

    goal: Goal
    patterns: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()
    excluded: frozenset[str] = frozenset()
    names: Goal = TRUE


Group = tuple[tuple[tuple[str, Goal], ...], Goal]  # (pattern, goal)..., and the goal of names no pattern fits


@dataclass(slots=True, eq=False)
class Objects:
    """`members` gives the whole goal of the names in it; for every other name all `groups` apply together."""

    members: dict[str, Goal] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    names: Goal = TRUE
    required: frozenset[str] = frozenset()
    low: int = 0
    high: int | None = None
    dependents: tuple[tuple[str, frozenset[str]], ...] = ()
    some: tuple[Some, ...] = ()
    # what unevaluatedProperties does not see
    done_names: frozenset[str] = frozenset()
    done_patterns: frozenset[str] = frozenset()
    done: bool = False


FREE_NUMBER, INTEGER, FREE_STRING, FREE_ARRAY, FREE_OBJECT = (
    Numbers(),
    Numbers(integer=True),
    Strings(),
    Arrays(),
    Objects(),
)
BOTH = frozenset((False, True))


@dataclass(slots=True, eq=False)
class Form:
    """A union of atoms for every JSON type."""

    null: bool = False
    booleans: frozenset[bool] = frozenset()
    numbers: tuple[Numbers, ...] = ()
    strings: tuple[Strings, ...] = ()
    arrays: tuple[Arrays, ...] = ()
    objects: tuple[Objects, ...] = ()


ANY = Form(True, BOTH, (FREE_NUMBER,), (FREE_STRING,), (FREE_ARRAY,), (FREE_OBJECT,))
NONE = Form()
PLAIN = {  # what a schema with a type and no other keyword means
    "null": Form(True),
    "boolean": Form(booleans=BOTH),
    "integer": Form(numbers=(INTEGER,)),
    "number": Form(numbers=(FREE_NUMBER,)),
    "string": Form(strings=(FREE_STRING,)),
    "array": Form(arrays=(FREE_ARRAY,)),
    "object": Form(objects=(FREE_OBJECT,)),
}
WITHOUT_PARTS = frozenset((ANY, NONE, *PLAIN.values()))  # nothing to check, and no members or items with goals


def meet(a: Form, b: Form) -> Form:
    """What both forms allow."""
    if a is ANY or b is NONE:
        return b
    if b is ANY or a is NONE:
        return a
    return Form(
        a.null and b.null,
        a.booleans & b.booleans,
        product(a.numbers, b.numbers, meet_numbers),
        product(a.strings, b.strings, meet_strings),
        product(a.arrays, b.arrays, meet_arrays),
        product(a.objects, b.objects, meet_objects),
    )


def product(left: tuple, right: tuple, join: Callable) -> tuple:
    if not left or not right:
        return ()
    if len(left) * len(right) > 20 * MAX_ATOMS:
        raise too_many()
    found = []
    for a in left:
        found += [both for b in right if (both := join(a, b)) is not None]
        if len(found) > MAX_ATOMS:
            raise too_many()
    return tuple(found)


def too_many() -> Refusal:
    return Refusal("schema", f"over {MAX_ATOMS} alternatives to combine; split or simplify it")


def union(forms: list[Form], apart: bool = False) -> Form:
    """What at least one form allows; `apart` keeps alternatives that differ only in what they have looked at."""
    if not apart and any(f is ANY for f in forms):
        return ANY
    if len(forms) == 1:
        return forms[0]
    return Form(
        any(f.null for f in forms),
        frozenset().union(*(f.booleans for f in forms)),
        gather([f.numbers for f in forms], FREE_NUMBER),
        gather([f.strings for f in forms], FREE_STRING),
        gather([f.arrays for f in forms], None),
        gather([f.objects for f in forms], None),
    )


def gather(atoms: list[tuple], free) -> tuple:
    found = tuple(dict.fromkeys(a for some in atoms for a in some))
    return (free,) if free in found else found


# Numbers


def meet_numbers(a: Numbers, b: Numbers) -> Numbers | None:
    if a is FREE_NUMBER or a is b:
        return b
    if b is FREE_NUMBER:
        return a
    low, low_open = a.low, a.low_open
    if low is None or (b.low is not None and (b.low, b.low_open) > (low, low_open)):
        low, low_open = b.low, b.low_open
    high, high_open = a.high, a.high_open
    if high is None or (b.high is not None and (-b.high, b.high_open) > (-high, high_open)):
        high, high_open = b.high, b.high_open
    only = a.only if b.only is None else b.only if a.only is None else a.only & b.only
    both = Numbers(
        low,
        high,
        low_open,
        high_open,
        a.integer or b.integer,
        a.multiples | b.multiples,
        a.no_multiples | b.no_multiples,
        only,
        a.excluded | b.excluded,
    )
    if only is not None:
        kept = frozenset(v for v in only if admits_number(both, v))
        return Numbers(only=kept) if kept else None
    if low is not None and high is not None and (low > high or (low == high and (low_open or high_open))):
        return None
    return both


def admits_number(atom: Numbers, value: Fraction) -> bool:
    """Whether the atom allows the number."""
    if atom.only is not None and value not in atom.only:
        return False
    if atom.low is not None and (value < atom.low or (atom.low_open and value == atom.low)):
        return False
    if atom.high is not None and (value > atom.high or (atom.high_open and value == atom.high)):
        return False
    if atom.integer and value.denominator != 1:
        return False
    if any((value / m).denominator != 1 for m in atom.multiples):
        return False
    return not any((value / m).denominator == 1 for m in atom.no_multiples) and value not in atom.excluded


# Strings


def meet_strings(a: Strings, b: Strings) -> Strings | None:
    if a is FREE_STRING or a is b:
        return b
    if b is FREE_STRING:
        return a
    high = a.high if b.high is None else b.high if a.high is None else min(a.high, b.high)
    only = a.only if b.only is None else b.only if a.only is None else a.only & b.only
    both = Strings(
        max(a.low, b.low), high, a.patterns | b.patterns, a.avoided | b.avoided, only, a.excluded | b.excluded
    )
    if only is not None:
        kept = frozenset(s for s in only if admits_string(both, s))
        return Strings(only=kept) if kept else None
    if (high is not None and both.low > high) or both.patterns & both.avoided:
        return None
    return both


def admits_string(atom: Strings, text: str) -> bool:
    """Whether the atom allows the string."""
    if atom.only is not None and text not in atom.only:
        return False
    if len(text) < atom.low or (atom.high is not None and len(text) > atom.high) or text in atom.excluded:
        return False
    return all(matches(p, text) for p in atom.patterns) and not any(matches(p, text) for p in atom.avoided)


# Arrays


def item_goal(atom: Arrays, index: int) -> Goal:
    """The goal of the item at `index` (contains aside)."""
    return atom.prefix[index] if index < len(atom.prefix) else atom.rest


def meet_arrays(a: Arrays, b: Arrays) -> Arrays | None:
    if a is FREE_ARRAY or a is b:
        return b
    if b is FREE_ARRAY:
        return a
    high = a.high if b.high is None else b.high if a.high is None else min(a.high, b.high)
    low = max(a.low, b.low)
    if high is not None and low > high:
        return None
    length = max(len(a.prefix), len(b.prefix))
    return Arrays(
        tuple(item_goal(a, i) | item_goal(b, i) for i in range(length)),
        a.rest | b.rest,
        low,
        high,
        a.contains + b.contains,
        a.unique or b.unique,
        None if a.done is None or b.done is None else max(a.done, b.done),
        a.done_goals + b.done_goals,
    )


# Objects


def group_goal(groups: tuple[Group, ...], name: str) -> Goal:
    """The goal of a member whose name no atom lists."""
    goal = TRUE
    for patterns, otherwise in groups:
        fitting = [g for p, g in patterns if matches(p, name)]
        goal = goal.union(*fitting) if fitting else goal | otherwise
    return goal


def member_goal(atom: Objects, name: str) -> Goal:
    """The goal of the member `name`."""
    goal = atom.members.get(name)
    return group_goal(atom.groups, name) if goal is None else goal


def meet_objects(a: Objects, b: Objects) -> Objects | None:
    if a is FREE_OBJECT or a is b:
        return b
    if b is FREE_OBJECT:
        return a
    high = a.high if b.high is None else b.high if a.high is None else min(a.high, b.high)
    required = a.required | b.required if b.required else a.required
    low = max(a.low, b.low)
    if high is not None and max(low, len(required)) > high:
        return None
    members = meet_members(a, b)
    for name in required:
        if 0 in members.get(name, TRUE):
            return None
    return Objects(
        members,
        a.groups + tuple([g for g in b.groups if g not in a.groups]) if b.groups else a.groups,
        both_goals(a.names, b.names),
        required,
        low,
        high,
        a.dependents + b.dependents,
        a.some + b.some,
        a.done_names | b.done_names if b.done_names else a.done_names,
        a.done_patterns | b.done_patterns if b.done_patterns else a.done_patterns,
        a.done or b.done,
    )


def meet_members(a: Objects, b: Objects) -> dict[str, Goal]:
    if not a.groups and len(a.members) < len(b.members):
        a, b = b, a
    if b.groups:
        return {n: both_goals(member_goal(a, n), member_goal(b, n)) for n in dict.fromkeys((*a.members, *b.members))}
    # b says nothing about names it does not list: only those it lists change
    members = a.members.copy()
    for name, goal in b.members.items():
        members[name] = both_goals(goal, member_goal(a, name)) if a.groups or name in members else goal
    return members


def both_goals(a: Goal, b: Goal) -> Goal:
    return a if not b or a is b else a | b if a else b


def unevaluated_members(atom: Objects, goal: Goal) -> Objects | None:
    """The atom with `goal` on every member that nothing has looked at yet; None where that leaves no object."""
    if atom.done:
        return atom
    rule = Objects(
        members={n: TRUE for n in atom.done_names},
        groups=((tuple((p, TRUE) for p in sorted(atom.done_patterns)), goal),),
        done=True,
    )
    return meet_objects(atom, rule)


def unevaluated_items(atom: Arrays, goal: Goal, either: Callable[[tuple[Goal, ...]], Goal]) -> Arrays | None:
    """The atom with `goal` on every item that nothing has looked at yet; `either` is the union of goals."""
    if atom.done is None:
        return atom
    rest = either((goal, *atom.done_goals))
    rule = Arrays(prefix=(TRUE,) * atom.done, rest=rest, done=None)
    return meet_arrays(atom, rule)
