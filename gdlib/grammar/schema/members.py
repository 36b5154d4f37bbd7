"""Which names an object may have and what each value must meet, worked out from its atom.

Names that the schema lists are few and told apart one by one. All other names fall into cells: languages of names for
which the same patterns fit, so that one goal holds for all of a cell.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from gdlib.grammar import regular
from gdlib.grammar.nodes import Dfa
from gdlib.grammar.schema import names
from gdlib.grammar.schema.atoms import Objects, Some, admits_string, matches, member_goal
from gdlib.grammar.schema.document import FALSE, TRUE, Goal
from gdlib.grammar.schema.errors import Refusal
from gdlib.grammar.schema.reading import Context, form
from gdlib.grammar.schema.scalars import built, spell, string_bodies

MAX_CELLS = 64  # languages of names that one object tells apart
MAX_LISTED = 64  # names of one finite cell that are told apart one by one

Known = Callable[[Goal], bool]


@dataclass(frozen=True)
class Cell:
    """Names no schema lists: their language (quotes included; None: every name), goal, and which `some` they serve."""

    names: Dfa | None
    goal: Goal
    serves: tuple[int, ...]


def is_simple(atom: Objects) -> bool:
    """Whether members, required and one group say everything, as in nearly every schema."""
    return not (
        atom.names or atom.some or atom.dependents or len(atom.groups) > 1 or (atom.groups and atom.groups[0][0])
    )


def settled(context: Context, atom: Objects) -> list[Objects]:
    """The atom with every name it speaks of in `members`, as a union of atoms whose `some` only other names serve."""
    found = context.cells.get(id(atom))
    if found is None:
        found = context.cells[id(atom)] = (atom, settle(context, atom))
    return found[1]


def settle(context: Context, atom: Objects) -> list[Objects]:
    spoken = set(atom.required)
    for trigger, needs in atom.dependents:
        spoken |= {trigger, *needs}
    for some in atom.some:
        spoken |= some.excluded
    members = dict(atom.members)
    for name in sorted(spoken - members.keys()):
        members[name] = member_goal(atom, name)
    if atom.names:
        for name in members:
            if not fits_names(context, atom.names, name):
                members[name] = FALSE
    if atom.dependents and atom.low and atom.high is not None:
        raise Refusal("dependentRequired", "not enforced together with minProperties and maxProperties; drop one")
    atom = replace(atom, members=members)
    if atom.low > 1:
        atom = list_finite_cells(context, atom)
    found = [replace(atom, some=()) if atom.some else atom]
    for some in atom.some:
        with_witness = []
        for one in found:
            for name, goal in one.members.items():
                if 0 not in (both := goal | some.goal) and fits(context, some, name):
                    more = {**one.members, name: both}
                    with_witness.append(replace(one, members=more, required=one.required | {name}))
            with_witness.append(replace(one, some=(*one.some, some)))
        found = with_witness
        if len(found) > 500:
            raise Refusal("not", f"{len(found)} ways for a member to break the rule, at most 500 are followed")
    if any(len(one.some) > 4 or (len(one.some) > 1 and one.high is not None) for one in found):
        raise Refusal("not", "too many rules that some member must break (more than one beside maxProperties, or 5)")
    return found


def list_finite_cells(context: Context, atom: Objects) -> Objects:
    """Names of small finite cells listed one by one, so that minProperties counts each of them once."""
    members = dict(atom.members)
    for cell in cells(context, atom):
        listed = None if cell.names is None else regular.words(cell.names, MAX_LISTED)
        for text in listed or ():
            members.setdefault(json.loads(text), cell.goal)
    return replace(atom, members=members)


def fits(context: Context, some: Some, name: str) -> bool:
    """Whether a member of this name may serve `some`."""
    return (
        name not in some.excluded
        and all(matches(p, name) for p in some.patterns)
        and not any(matches(p, name) for p in some.avoided)
        and fits_names(context, some.names, name)
    )


def fits_names(context: Context, goal: Goal, name: str) -> bool:
    return not goal or any(admits_string(s, name) for s in form(context, goal).strings)


def names_dfa(context: Context, goal: Goal) -> Dfa | None:
    """The bodies of the names a propertyNames goal allows; None: all of them."""
    if not goal:
        return None
    found: Dfa | None = None
    for atom in form(context, goal).strings:
        machine = string_bodies(atom)
        found = machine if found is None else built("propertyNames", regular.union, found, machine)
    return regular.difference(names.any_body_dfa(), names.any_body_dfa()) if found is None else found


def cells(context: Context, atom: Objects) -> list[Cell]:
    """The cells of names that `atom.members` does not list, save those without a name or with an impossible value."""
    if is_simple(atom):
        goal = atom.groups[0][1] if atom.groups else TRUE
        return [] if 0 in goal else [Cell(None, goal, ())]
    key = ("cells", id(atom))
    found = context.cells.get(key)
    if found is None:
        found = context.cells[key] = (atom, divide(context, atom))
    return found[1]


def divide(context: Context, atom: Objects) -> list[Cell]:
    tests: dict = {}  # pattern, or goal of names -> None
    for patterns, _ in atom.groups:
        tests.update(dict.fromkeys(p for p, _ in patterns))
    for some in atom.some:
        tests.update(dict.fromkeys((*some.patterns, *some.avoided)))
        if some.names:
            tests[some.names] = None
    parts: list[tuple[Dfa | None, frozenset]] = [(names_dfa(context, atom.names), frozenset())]
    asked: set = set()
    for test in tests:
        asked.add(test)
        split = []
        for machine, fitting in parts:
            inside = fitting | {test}
            if 0 not in cell_goal(atom, inside, asked):
                split.append((within(context, machine, test), inside))
            if 0 not in cell_goal(atom, fitting, asked):
                split.append((without(context, machine, test), fitting))
        parts = [(m, f) for m, f in split if m is None or not regular.is_empty(m)]
        if len(parts) > MAX_CELLS:
            raise Refusal("patternProperties", f"its patterns cut names into over {MAX_CELLS} kinds; use fewer")
    found = []
    spelled = {spell(n) for n in atom.members}
    for machine, fitting in parts:
        goal = cell_goal(atom, fitting, asked)
        if 0 in goal or (machine is not None and regular.is_empty(machine)):
            continue
        language = None if machine is None else quoted(machine)
        if language is not None and spelled:
            listed = regular.words(language, len(spelled))
            if listed is not None and spelled.issuperset(listed):
                continue
        serves = tuple(i for i, some in enumerate(atom.some) if serves_some(some, fitting))
        found.append(Cell(language, goal, serves))
    return found


def cell_goal(atom: Objects, fitting: frozenset, asked: set) -> Goal:
    """The goal of a name that fits exactly these patterns out of those asked; what is still open adds nothing."""
    goal = TRUE
    for patterns, otherwise in atom.groups:
        met = [g for p, g in patterns if p in fitting]
        if met:
            goal = goal.union(*met)
        elif all(p in asked for p, _ in patterns):
            goal |= otherwise
    return goal


def serves_some(some: Some, fitting: frozenset) -> bool:
    return (
        all(p in fitting for p in some.patterns)
        and not any(p in fitting for p in some.avoided)
        and (not some.names or some.names in fitting)
    )


def test_dfa(context: Context, test) -> Dfa:
    if isinstance(test, str):
        return built("patternProperties", names.body_dfa, test)
    found = names_dfa(context, test)
    return names.any_body_dfa() if found is None else found


def within(context: Context, machine: Dfa | None, test) -> Dfa:
    other = test_dfa(context, test)
    return other if machine is None else built("patternProperties", intersect, machine, other)


def without(context: Context, machine: Dfa | None, test) -> Dfa:
    own = names.any_body_dfa() if machine is None else machine
    return built("patternProperties", subtract, own, test_dfa(context, test))


# the same few patterns meet again and again in one schema; Dfa nodes are hashed by identity
intersect = lru_cache(maxsize=1024)(regular.intersect)
subtract = lru_cache(maxsize=1024)(regular.difference)
quoted = lru_cache(maxsize=1024)(names.quoted)


def closure(wanted: frozenset[str] | set[str], dependents: tuple) -> set[str]:
    """The names wanted and all that they require."""
    found = set(wanted)
    grown = True
    while grown:
        grown = False
        for trigger, needs in dependents:
            if trigger in found and not needs <= found:
                found |= needs
                grown = True
    return found


def has_object(context: Context, atom: Objects, known: Known) -> bool:
    """Whether the atom has an object, given which goals have a value."""
    if is_simple(atom) and not atom.low:
        # a list, so that all members are asked about at once
        return all([known(member_goal(atom, n)) for n in atom.required]) and (
            atom.high is None or len(atom.required) <= atom.high
        )
    return any(has_settled(context, one, known) for one in settled(context, atom))


def has_settled(context: Context, atom: Objects, known: Known) -> bool:
    wanted = closure(atom.required, atom.dependents)
    if atom.high is not None and len(wanted) + bool(atom.some) > atom.high:
        return False
    if not all([known(atom.members[n]) for n in wanted]):
        return False
    others = cells(context, atom) if atom.some or atom.low > len(wanted) else []
    for i, some in enumerate(atom.some):
        if not any(i in cell.serves and known(cell.goal | some.goal) for cell in others):
            return False
    if atom.low > len(wanted) and not any(known(cell.goal) for cell in others):
        usable = {n for n, g in atom.members.items() if known(g)}
        possible = [n for n in usable if closure({n}, atom.dependents) <= usable]
        return len(possible) >= atom.low
    return True


def object_goals(context: Context, atom: Objects) -> list[Goal]:
    """Every goal that a member of the atom may have to meet."""
    if is_simple(atom):
        found = list(atom.members.values())
        if atom.groups:
            found.append(atom.groups[0][1])
        found += [member_goal(atom, n) for n in atom.required if n not in atom.members]
        return found
    found = []
    for one in settled(context, atom):
        found += one.members.values()
        for cell in cells(context, one):
            found.append(cell.goal)
            found += [cell.goal | one.some[i].goal for i in cell.serves]
    return found
