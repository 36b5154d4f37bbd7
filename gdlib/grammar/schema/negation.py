"""What a normal form does not allow, again as a normal form.

Not being a conjunction of constraints is a union of breaking each of them; for members and items that no keyword
lists, breaking a rule means that at least one of them does (`Some`, `Contains`).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from gdlib.grammar.schema.atoms import (
    ANY,
    BOTH,
    FREE_ARRAY,
    FREE_NUMBER,
    FREE_OBJECT,
    FREE_STRING,
    INTEGER,
    NONE,
    Arrays,
    Contains,
    Form,
    Numbers,
    Objects,
    Some,
    Strings,
    meet_arrays,
    meet_numbers,
    meet_objects,
    meet_strings,
    member_goal,
    product,
)
from gdlib.grammar.schema.document import FALSE, TRUE, Goal
from gdlib.grammar.schema.errors import Refusal

Apart = Callable[[list[Goal]], bool]  # whether no two of the goals share a value


def negate_numbers(atom: Numbers, _opposite) -> list[Numbers]:
    if atom.only is not None:
        return [Numbers(excluded=atom.only)]
    found = []
    if atom.low is not None:
        found.append(Numbers(high=atom.low, high_open=not atom.low_open))
    if atom.high is not None:
        found.append(Numbers(low=atom.high, low_open=not atom.high_open))
    for step in atom.multiples | ({Fraction(1)} if atom.integer else set()):
        found.append(Numbers(no_multiples=frozenset((step,))))
    for step in atom.no_multiples:
        found.append(INTEGER if step == 1 else Numbers(multiples=frozenset((step,))))
    if atom.excluded:
        found.append(Numbers(only=atom.excluded))
    return found


def negate_strings(atom: Strings, _opposite) -> list[Strings]:
    if atom.only is not None:
        return [Strings(excluded=atom.only)]
    found = [Strings(high=atom.low - 1)] if atom.low else []
    if atom.high is not None:
        found.append(Strings(low=atom.high + 1))
    found += [Strings(avoided=frozenset((p,))) for p in sorted(atom.patterns)]
    found += [Strings(patterns=frozenset((p,))) for p in sorted(atom.avoided)]
    if atom.excluded:
        found.append(Strings(only=atom.excluded))
    return found


def negate_arrays(atom: Arrays, opposite: Callable[[Goal], Goal]) -> list[Arrays]:
    if atom.unique and (atom.high is None or atom.high > 1):
        raise Refusal("uniqueItems", "its negation (two equal items) is not regular; leave it out of not, if and oneOf")
    found = [Arrays(high=atom.low - 1)] if atom.low else []
    if atom.high is not None:
        found.append(Arrays(low=atom.high + 1))
    for i, goal in enumerate(atom.prefix):
        if goal:
            found.append(Arrays(prefix=(TRUE,) * i + (opposite(goal),), low=i + 1))
    if 0 in atom.rest:
        found.append(Arrays(low=len(atom.prefix) + 1))
    elif atom.rest:
        found.append(Arrays(contains=(Contains(len(atom.prefix), opposite(atom.rest), 1, None),)))
    for c in atom.contains:
        if c.low:
            found.append(Arrays(contains=(Contains(c.start, c.goal, 0, c.low - 1),)))
        if c.high is not None:
            found.append(Arrays(contains=(Contains(c.start, c.goal, c.high + 1, None),)))
    return found


def negate_objects(atom: Objects, opposite: Callable[[Goal], Goal]) -> list[Objects]:
    # a required member is missing or wrong: at most, it is there and wrong
    found = [Objects(members={n: opposite(member_goal(atom, n))}) for n in sorted(atom.required)]
    if atom.low:
        found.append(Objects(high=atom.low - 1))
    if atom.high is not None:
        found.append(Objects(low=atom.high + 1))
    for name, goal in atom.members.items():
        if goal and name not in atom.required:
            found.append(Objects(members={name: opposite(goal)}, required=frozenset((name,))))
    listed = frozenset(atom.members)
    for patterns, otherwise in atom.groups:
        found += [Objects(some=(Some(opposite(g), (p,), (), listed),)) for p, g in patterns if g]
        if otherwise:
            avoided = tuple(p for p, _ in patterns)
            found.append(Objects(some=(Some(opposite(otherwise), (), avoided, listed),)))
    if atom.names:
        found.append(Objects(some=(Some(TRUE, names=opposite(atom.names)),)))
    for trigger, needs in atom.dependents:
        found += [Objects(members={n: FALSE}, required=frozenset((trigger,))) for n in sorted(needs - {trigger})]
    for some in atom.some:
        found.append(never(some, opposite(some.goal)))
    return found


def never(some: Some, goal: Goal) -> Objects:
    """Every member whose name fits `some` meets `goal`."""
    members = {n: TRUE for n in some.excluded}
    if not some.patterns and not some.names:
        return Objects(members=members, groups=((tuple((p, TRUE) for p in some.avoided), goal),))
    if len(some.patterns) == 1 and not some.avoided and not some.names:
        return Objects(members=members, groups=((((some.patterns[0], goal),), TRUE),))
    if some.names and goal == FALSE and not (some.patterns or some.avoided or some.excluded):
        # no name may meet `names`: all names meet the opposite, which `names` was built as
        return Objects(names=frozenset(-n for n in some.names)) if len(some.names) == 1 else refuse_names()
    return refuse_names()


def refuse_names():
    raise Refusal("not", "a doubly negated condition on member names is not enforced; write it without not")


# the types with atoms: what is free, how two atoms meet, how one is negated
KINDS = {
    "numbers": (FREE_NUMBER, meet_numbers, negate_numbers),
    "strings": (FREE_STRING, meet_strings, negate_strings),
    "arrays": (FREE_ARRAY, meet_arrays, negate_arrays),
    "objects": (FREE_OBJECT, meet_objects, negate_objects),
}


def negate(form: Form, opposite: Callable[[Goal], Goal], apart: Apart) -> Form:
    """What the form does not allow; `opposite` negates the goal of a member or an item, `apart` tells goals apart."""
    if form is ANY:
        return NONE
    if form is NONE:
        return ANY

    return Form(not form.null, BOTH - form.booleans, *(negate_part(form, kind, opposite, apart) for kind in KINDS))


def negate_part(form: Form, kind: str, opposite: Callable[[Goal], Goal], apart: Apart) -> tuple:
    """The atoms of one of KINDS that the form does not allow."""
    free, join, split = KINDS[kind]
    left = (free,)
    atoms = getattr(form, kind)
    if kind == "objects" and len(atoms) > 1 and (name := telling(atoms, apart)) is not None:
        return negate_told_apart(atoms, name, opposite)
    for atom in atoms:
        left = product(left, tuple(split(atom, opposite)), join)
    return left


def telling(atoms: tuple[Objects, ...], apart: Apart) -> str | None:
    """A member that all atoms require and whose value tells which of them an object can meet."""
    for name in sorted(frozenset.intersection(*(a.required for a in atoms))):
        goals = [a.members.get(name) for a in atoms]
        if all(goals) and apart(goals):
            return name
    return None


def negate_told_apart(atoms: tuple[Objects, ...], name: str, opposite: Callable[[Goal], Goal]) -> tuple:
    """What no atom allows, where `name` tells them apart: a value of that member which none of them has, or the value
    that one has and something else in it broken. As many ways as the atoms have together, not as their product."""
    found = [Objects(members={name: frozenset().union(*(opposite(a.members[name]) for a in atoms))})]
    for atom in atoms:
        own = Objects(members={name: atom.members[name]}, required=frozenset((name,)))
        another = {name: opposite(atom.members[name])}
        for way in negate_objects(atom, opposite):
            if way.members != another and (both := meet_objects(own, way)) is not None:
                found.append(both)
    return tuple(found)
