"""What a schema means: its own keywords met with every schema it applies in place, as one normal form.

A keyword that cannot be enforced exactly is refused, a keyword nobody defined is an annotation, and nothing is ever
dropped in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gdlib.grammar.schema import atoms as at
from gdlib.grammar.schema.document import (
    FALSE,
    TRUE,
    Document,
    Goal,
    Virtual,
    goal_any,
    goal_not,
    goal_of,
    path,
    refer,
    refer_dynamic,
    shown,
)
from gdlib.grammar.schema.errors import Blocked, Refusal, SchemaError
from gdlib.grammar.schema.keywords import (
    GROUP,
    TYPES,
    names_of,
    object_of,
    read_arrays,
    read_numbers,
    read_objects,
    read_strings,
    text_of,
    values_form,
)
from gdlib.grammar.schema.negation import KINDS, negate, negate_part

MAX_BRANCHES = 300  # of oneOf
MAX_NESTED = 60  # applicators inside each other without a step into a member or an item


@dataclass(eq=False)
class Context:
    """One compilation: the document, the options, and what is known about its goals so far."""

    document: Document
    formats: str = "assert"
    order: str = "any"
    spacing: object = None
    forms: dict[Goal, at.Form] = field(default_factory=dict)
    read: dict[int, at.Form] = field(default_factory=dict)  # by number, negative where `track` is on
    active: dict[int, None] = field(default_factory=dict)  # schemas whose meaning is being worked out
    blocked: frozenset[int] = frozenset()  # the same, further out
    probing: int = 0  # proofs under way that something has no value
    inhabited: dict[Goal, bool] = field(default_factory=dict)
    fixed: dict[Goal, frozenset | None] = field(default_factory=dict)  # the few values it allows, where they are few
    cells: dict[int, list] = field(default_factory=dict)
    machines: dict[int, object] = field(default_factory=dict)
    nodes: dict[Goal, object] = field(default_factory=dict)
    # set by the module that knows which goals have a value
    disjoint: object = None
    prune: object = None
    apart: object = None


def form(context: Context, goal: Goal) -> at.Form:
    """The normal form of a goal. Raises SchemaError with the place of what cannot be enforced."""
    found = context.forms.get(goal)
    if found is not None:
        return found
    if 0 in goal:
        found = at.NONE
    elif len(goal) == 1:
        (number,) = goal
        found = single(context, number, False) if number > 0 else signed(context, number, False)
    else:
        found = at.ANY
        # biggest number first: what is deeper is mostly smaller
        for number in sorted(goal):
            found = located(context, number, at.meet, found, signed(context, number, False))
            found = context.prune(context, found)
    context.forms[goal] = found
    return found


def located(context: Context, number: int, function, *arguments):
    """`function(*arguments)`; what it refuses becomes a SchemaError at node `number`."""
    try:
        return function(*arguments)
    except Refusal as refusal:
        raise SchemaError(path(context.document, number), refusal.keyword, refusal.reason) from None


def signed(context: Context, number: int, track: bool) -> at.Form:
    """The form of a schema, or of its negation where `number` is negative."""
    if number > 0:
        return single(context, number, track)
    inner = single(context, -number, False)
    opposite = lambda goal: goal_not(context.document, goal, -number)  # noqa: E731
    return located(context, -number, negate, inner, opposite, lambda goals: context.apart(context, goals))


def single(context: Context, number: int, track: bool) -> at.Form:
    """The form of schema `number`; `track` keeps what unevaluated* keywords of a schema around it must know."""
    key = -number if track else number
    found = context.read.get(key)
    if found is not None:
        return found
    schema = context.document.schemas[number]
    if isinstance(schema, dict) and (found := plain(schema)) is not None:
        context.read[key] = found
        return found
    if number in context.blocked:
        raise Blocked
    where = path
    if number in context.active:
        raise SchemaError(
            where(context.document, number), "$ref", "refers to itself without a step into a member or an item"
        )
    if len(context.active) + len(context.blocked) >= MAX_NESTED:
        raise SchemaError(where(context.document, number), "schema", f"more than {MAX_NESTED} schemas in one another")
    context.active[number] = None
    try:
        if isinstance(schema, Virtual):
            found = read_virtual(context, number, schema, track)
        else:
            found = read_schema(context, number, schema, track)
    except Refusal as refusal:
        raise SchemaError(where(context.document, number), refusal.keyword, refusal.reason) from None
    finally:
        del context.active[number]
    context.read[key] = found
    return found


def plain(schema: dict) -> at.Form | None:
    """The form of a schema without keywords but for one type, as most are; None for all others."""
    if not schema.keys().isdisjoint(GROUP):
        return None
    kind = schema.get("type", TYPES)
    return at.ANY if kind is TYPES else at.PLAIN.get(kind) if isinstance(kind, str) else None


def goal_form(context: Context, goal: Goal, track: bool) -> at.Form:
    if not track:
        return form(context, goal)
    found = at.ANY
    for number in goal:
        found = at.meet(found, signed(context, number, True) if number else at.NONE)
    return found


def read_virtual(context: Context, number: int, schema: Virtual, track: bool) -> at.Form:
    found = [goal_form(context, goal, track) for goal in schema.goals]
    if not schema.every:
        return at.union(found)
    both = found[0]
    for other in found[1:]:
        both = at.meet(both, other)
    return both


def read_schema(context: Context, number: int, schema: dict, track: bool) -> at.Form:
    """The form of one written schema: its own keywords by type, met with every schema applied in place."""
    groups: list[dict | None] = [None] * 6
    if context.document.ref_alone and "$ref" in schema:
        schema = {"$ref": schema["$ref"]}
    if context.document.unknown:
        schema = {k: v for k, v in schema.items() if k not in context.document.unknown}
    for keyword, value in schema.items():
        group = GROUP.get(keyword)
        if group is not None:
            if groups[group] is None:
                groups[group] = {}
            groups[group][keyword] = value
    if groups[5]:
        track = True
    types = schema.get("type", TYPES)
    if types is not TYPES:
        listed = (types,) if isinstance(types, str) else types
        if not isinstance(listed, list | tuple) or not all([isinstance(t, str) and t in TYPES for t in listed]):
            raise Refusal("type", f"want one of {', '.join(sorted(TYPES))} or a list of them, got {shown(types)}")
        if not listed:
            raise Refusal("type", "an empty list allows no value at all")
        types = listed
    elif groups[0] is groups[1] is groups[2] is groups[3]:
        return applied(context, number, schema, groups, at.ANY, track) if groups[4] or groups[5] else at.ANY
    integers = "integer" in types and "number" not in types
    own = at.Form(
        "null" in types,
        at.BOTH if "boolean" in types else frozenset(),
        read_numbers(groups[0], integers) if integers or "number" in types else (),
        read_strings(groups[1], context.formats == "assert") if "string" in types else (),
        read_arrays(context.document, number, groups[2], schema, track) if "array" in types else (),
        read_objects(context.document, number, groups[3], track) if "object" in types else (),
    )
    return applied(context, number, schema, groups, own, track) if groups[4] or groups[5] else own


def applied(context: Context, number: int, schema: dict, groups: list, own: at.Form, track: bool) -> at.Form:
    """`own` met with what $ref, allOf, anyOf, oneOf, not, if, enum, const and unevaluated* say."""
    document = context.document
    for keyword, value in (groups[4] or {}).items():
        if keyword == "$ref":
            own = at.meet(own, goal_form(context, followed(document, number, value), track))
        elif keyword in ("$dynamicRef", "$recursiveRef"):
            own = at.meet(own, goal_form(context, refer_dynamic(document, number, value, keyword), track))
        elif keyword == "enum":
            if not isinstance(value, list):
                raise Refusal("enum", f"want a list of values, got {shown(value)}")
            own = at.meet(own, values_form(document, number, value, keyword))
        elif keyword == "const":
            own = at.meet(own, values_form(document, number, [value], keyword))
        elif keyword == "not":
            goal = goal_not(document, goal_of(document, value, number, keyword), number)
            own = at.meet(own, form(context, goal))
        elif keyword in ("dependentSchemas", "dependencies"):
            own = at.meet(own, dependent(context, number, value, keyword, track))
        elif keyword == "if":
            own = at.meet(own, conditional(context, number, schema, track))
        else:
            goals = branches(document, number, value, keyword)
            if keyword == "allOf":
                for goal in goals:
                    own = context.prune(context, at.meet(own, goal_form(context, goal, track)))
            elif keyword == "anyOf":
                found = [goal_form(context, goal, track) for goal in goals]
                own = at.meet(own, any_tracked(found) if track else at.union(found))
            else:
                own = at.meet(own, exactly_one(context, number, goals, own, track))
    for keyword, value in (groups[5] or {}).items():
        goal = goal_of(document, value, number, keyword)
        if keyword == "unevaluatedProperties":
            found = [at.unevaluated_members(o, goal) for o in own.objects]
            own = replace(own, objects=tuple(o for o in found if o is not None))
        else:
            found = [at.unevaluated_items(a, goal, lambda goals: goal_any(document, goals, number)) for a in own.arrays]
            own = replace(own, arrays=tuple(a for a in found if a is not None))
    return own


def followed(document: Document, number: int, reference) -> Goal:
    """The goal that $ref leads to, through schemas that are nothing but a $ref."""
    passed = {number}
    while True:
        goal = refer(document, number, reference, "$ref")
        (number,) = goal or (0,)
        schema = document.schemas[number]
        if not isinstance(schema, dict) or schema.keys() != {"$ref"}:
            return goal
        if number in passed:
            raise Refusal("$ref", "leads back to itself without a step into a member or an item")
        passed.add(number)
        reference = schema["$ref"]


def branches(document: Document, number: int, value, keyword: str) -> list[Goal]:
    if not isinstance(value, list) or not value:
        raise Refusal(keyword, f"want a list of schemas, at least one, got {shown(value)}")
    return [goal_of(document, below, number, keyword, i) for i, below in enumerate(value)]


def any_tracked(forms: list[at.Form]) -> at.Form:
    """anyOf where it matters which branches hold: one alternative for every set of branches that do."""
    if len(forms) > 6:
        raise Refusal("anyOf", f"{len(forms)} branches beside unevaluated*; at most 6 are followed")
    found: list[at.Form] = []
    for one in forms:
        found += [at.meet(one, other) for other in found]
        found.append(one)
    return at.union(found, True)


def dependent(context: Context, number: int, value, keyword: str, track: bool) -> at.Form:
    """dependentSchemas and the older dependencies: without the member, or with it and what it asks for."""
    own = at.ANY
    for name, needs in object_of(value, keyword).items():
        having = at.Objects(required=frozenset((text_of(name, keyword),)))
        if keyword == "dependencies" and not isinstance(needs, dict | bool):
            needs = (needs,) if isinstance(needs, str) else names_of(needs, keyword)
            rule = (at.Objects(dependents=((name, frozenset(needs)),)),)
            own = at.meet(own, replace(at.ANY, objects=rule))
            continue
        goal = goal_of(context.document, needs, number, keyword, name)
        without = replace(at.ANY, objects=(at.Objects(members={name: FALSE}),))
        below = at.meet(at.Form(objects=(having,)), goal_form(context, goal, track))
        own = at.meet(own, at.union([without, below], track))
    return own


def conditional(context: Context, number: int, schema: dict, track: bool) -> at.Form:
    document = context.document
    test = goal_of(document, schema["if"], number, "if")
    found = []
    for keyword in ("then", "else"):
        below = goal_of(document, schema[keyword], number, keyword) if keyword in schema else TRUE
        holds = keyword == "then"
        side = goal_form(context, test, track) if holds else form(context, goal_not(document, test, number))
        found.append(at.meet(side, goal_form(context, below, track)))
    if not track and "then" not in schema and "else" not in schema:
        return at.ANY
    return at.union(found, track)


def exactly_one(context: Context, number: int, goals: list[Goal], own: at.Form, track: bool) -> at.Form:
    """oneOf, as far as `own` allows values at all: type by type, branches that share no value are a plain union; else
    each is met with the negation of those it shares values with."""
    if len(goals) > MAX_BRANCHES:
        raise Refusal("oneOf", f"{len(goals)} branches; at most {MAX_BRANCHES} are compared in pairs")
    forms = [goal_form(context, goal, track) for goal in goals]
    once = [b for b in (False, True) if sum(b in f.booleans for f in forms) == 1]
    parts = [exactly_one_of(context, number, kind, forms) if getattr(own, kind) else () for kind in KINDS]
    return at.Form(sum(f.null for f in forms) == 1, frozenset(once), *parts)


def exactly_one_of(context: Context, number: int, kind: str, forms: list[at.Form]) -> tuple:
    """The atoms of one kind that exactly one form allows."""
    having = [atoms for f in forms if (atoms := getattr(f, kind))]
    if len(having) < 2:
        return having[0] if having else ()
    parts = [at.Form(**{kind: atoms}) for atoms in having]
    overlaps: list[list[int]] = [[] for _ in parts]
    for j, other in enumerate(parts):
        for i in range(j):
            if not context.disjoint(context, parts[i], other):
                overlaps[i].append(j)
                overlaps[j].append(i)
    negated: dict[int, at.Form] = {}
    found = []
    for i, part in enumerate(parts):
        for j in overlaps[i]:
            if j not in negated:
                opposite = lambda goal: goal_not(context.document, goal, number)  # noqa: E731
                atoms = negate_part(parts[j], kind, opposite, lambda goals: context.apart(context, goals))
                negated[j] = at.Form(**{kind: atoms})
            part = context.prune(context, at.meet(part, negated[j]))
        found += getattr(part, kind)
    if len(found) > at.MAX_ATOMS:
        raise at.too_many()
    return tuple(found)
