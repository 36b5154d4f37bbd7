"""The parts of one schema document: numbered subschemas, their places, and what their references point at.

Everything further on speaks of *goals*: a goal is a frozenset of signed node numbers that must all hold, `-n` meaning
that schema n must not hold. `TRUE` is the empty goal; a goal that contains 0 holds for nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urldefrag, urljoin

from gdlib.grammar.schema.errors import Refusal

Goal = frozenset[int]
TRUE: Goal = frozenset()
FALSE: Goal = frozenset((0,))

ONE = ("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
ONE += ("unevaluatedItems", "unevaluatedProperties", "contentSchema")
LIST = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
MAP = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
MAX_KEYS = 400  # of a place in an error message

# keywords by the draft that brought them; older dialects do not know them
NEWER = {
    "6": "const contains propertyNames",
    "7": "if then else",
    "2019": "dependentRequired dependentSchemas minContains maxContains unevaluatedItems unevaluatedProperties",
    "2020": "prefixItems $dynamicRef",
}


@dataclass(frozen=True)
class Virtual:
    """A schema nobody wrote: every goal (`every`) or at least one goal holds."""

    goals: tuple[Goal, ...]
    every: bool


@dataclass(eq=False)
class Document:
    """One schema document; node numbers start at 1, and each node has a place and a base URI."""

    root: dict | bool
    schemas: list = field(default_factory=lambda: [False])
    places: list = field(default_factory=lambda: [(0, ())])  # (number of the node above, keys below it)
    bases: list[str] = field(default_factory=lambda: [""])
    number: dict[int, int] = field(default_factory=dict)  # id of the dict -> node
    goals: list[Goal] = field(default_factory=lambda: [FALSE])
    virtual: dict[Virtual, int] = field(default_factory=dict)
    resources: dict[str, dict | bool] = field(default_factory=dict)  # base URI -> its root schema
    anchors: dict[tuple[str, str], tuple[dict, bool]] = field(default_factory=dict)  # -> (schema, dynamic)
    where: dict[int, tuple] = field(default_factory=dict)  # id of a schema -> keys from the root (once scanned)
    scanned: bool = False
    old_id: bool = False  # draft 4 and older: `id` instead of `$id`
    ref_alone: bool = False  # draft 7 and older: what stands beside $ref is not read
    unknown: frozenset[str] = frozenset()  # keywords that came after the document's dialect


def open_document(schema: dict | bool) -> Document:
    """The document of a schema; the dialect comes from its `$schema` (2020-12 when there is none)."""
    document = Document(schema)
    document.resources[""] = schema
    dialect = schema.get("$schema") if isinstance(schema, dict) else None
    if dialect is None:
        return document
    if not isinstance(dialect, str) or "json-schema.org/" not in dialect:
        raise Refusal("$schema", f"{shown(dialect)} is no published draft; leave it out for 2020-12, or name a draft")
    found = re.search(r"draft-0(\d)|draft/(\d{4})", dialect)
    year = "2020" if found is None else found[1] or found[2]
    document.old_id = year <= "4" and len(year) == 1
    document.ref_alone = len(year) == 1
    document.unknown = frozenset(
        keyword for since, keywords in NEWER.items() if since.rjust(4) > year.rjust(4) for keyword in keywords.split()
    )
    return document


def base_below(document: Document, base: str, schema: dict) -> str:
    """The base URI inside `schema`, which stands where `base` is in force."""
    own = schema.get("id" if document.old_id else "$id")
    if not isinstance(own, str) or own.startswith("#") or (document.ref_alone and "$ref" in schema):
        return base
    base = urldefrag(join(base, own))[0]
    document.resources.setdefault(base, schema)
    return base


def join(base: str, reference: str) -> str:
    try:
        # urljoin knows no urn: bases; a fragment or a whole URI needs no base
        return base + reference if reference.startswith("#") else urljoin(base, reference)
    except ValueError as error:
        raise Refusal("$ref", f"{reference!r} is no URI reference: {error}") from None


def goal_of(document: Document, schema, above: int, *keys) -> Goal:
    """The goal that a subschema stands for; `keys` lead to it from node `above`."""
    if schema is True:
        return TRUE
    if schema is False:
        return FALSE
    found = document.number.get(id(schema))
    if found is not None:
        return document.goals[found]
    if not isinstance(schema, dict):
        where = "/".join(map(str, keys[1:]))
        raise Refusal(
            str(keys[0]), f"{where and where + ': '}want a schema (an object or a boolean), got {shown(schema)}"
        )
    base = document.bases[above]
    if "$id" in schema or "id" in schema:
        base = base_below(document, base, schema)
    return document.goals[add_node(document, schema, base, above, keys)]


def add_node(document: Document, schema, base: str, above: int, keys: tuple) -> int:
    number = len(document.schemas)
    if isinstance(schema, dict):
        document.number[id(schema)] = number
    document.schemas.append(schema)
    document.places.append((above, keys))
    document.bases.append(base)
    document.goals.append(frozenset((number,)))
    return number


def goal_any(document: Document, goals: tuple[Goal, ...], above: int) -> Goal:
    """The goal that holds where one of `goals` does."""
    if TRUE in goals:
        return TRUE
    goals = tuple(g for g in goals if 0 not in g)
    if len(goals) < 2:
        return goals[0] if goals else FALSE
    return frozenset((virtual(document, Virtual(goals, False), above),))


def goal_not(document: Document, goal: Goal, above: int) -> Goal:
    """The goal that holds where `goal` does not."""
    if not goal:
        return FALSE
    if 0 in goal:
        return TRUE
    if len(goal) == 1:
        return frozenset(-n for n in goal)
    return frozenset((-virtual(document, Virtual((goal,), True), above),))


def virtual(document: Document, schema: Virtual, above: int) -> int:
    number = document.virtual.get(schema)
    if number is None:
        number = document.virtual[schema] = add_node(document, schema, document.bases[above], above, ())
    return number


def path(document: Document, number: int) -> str:
    """The JSON pointer (as a URI fragment) of a node; of a place absurdly deep, only its end."""
    keys: list[str] = []
    number = abs(number)
    while number > 1 and len(keys) < MAX_KEYS:
        number, below = document.places[number]
        keys += [str(k).replace("~", "~0").replace("/", "~1") for k in reversed(below)]
    return ("#" if number < 2 else "#/...") + "".join("/" + k for k in reversed(keys))


def shown(value, limit: int = 60) -> str:
    """A value as an error message quotes it: short, whatever its depth or size."""
    if isinstance(value, dict | list):
        return f"an {'object' if isinstance(value, dict) else 'array'} of {len(value)}"
    try:
        text = repr(value)
    except ValueError:  # an integer too long to print
        text = "a very long integer"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def refer(document: Document, number: int, reference, keyword: str) -> Goal:
    """The goal that `reference`, found in node `number`, points at. Refused: other documents, broken pointers."""
    if not isinstance(reference, str):
        raise Refusal(keyword, f"want a string, got {shown(reference)}")
    base, _, fragment = (document.bases[number] + reference if reference[:1] == "#" else "").partition("#")
    if reference[:1] != "#":
        base, fragment = urldefrag(join(document.bases[number], reference))
    if base not in document.resources:
        scan(document)
    if base not in document.resources:
        raise Refusal(
            keyword,
            f"{shown(reference)} points out of this document; put what it names into $defs and refer to it there",
        )
    fragment = unquote(fragment)
    if fragment and not fragment.startswith("/"):
        scan(document)
        if (base, fragment) not in document.anchors:
            raise Refusal(keyword, f"{shown(reference)}: no such anchor in this document")
        return goal_at(document, document.anchors[base, fragment][0], base, ())
    return follow(document, base, fragment, reference, keyword)


def follow(document: Document, base: str, pointer: str, reference: str, keyword: str) -> Goal:
    """The goal at a JSON pointer below the resource `base`."""
    schema = document.resources[base]
    keys = document.where.get(id(schema), ())
    for key in pointer.split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict) and key in schema:
            schema = schema[key]
        elif isinstance(schema, list) and key.isascii() and key.isdigit() and int(key) < len(schema):
            schema = schema[int(key)]
        else:
            raise Refusal(keyword, f"{shown(reference)}: no {shown(key)} there in this document")
        keys += (key,)
        if isinstance(schema, dict) and ("$id" in schema or "id" in schema):
            base = base_below(document, base, schema)
    if not isinstance(schema, dict | bool):
        raise Refusal(keyword, f"{shown(reference)} points at {shown(schema)}, which is no schema")
    return goal_at(document, schema, base, keys)


def goal_at(document: Document, schema: dict | bool, base: str, keys: tuple) -> Goal:
    """The goal of a schema that a reference found; `base` is in force inside it, `keys` lead to it from the root."""
    if isinstance(schema, bool):
        return FALSE if schema is False else TRUE
    number = document.number.get(id(schema))
    if number is None:
        number = add_node(document, schema, base, 1, document.where.get(id(schema), keys))
    return document.goals[number]


def scan(document: Document) -> None:
    """Find every identifier and anchor of the document, in places where a schema stands."""
    if document.scanned:
        return
    document.scanned = True
    work = [(document.root, "", ())]
    while work:
        schema, base, keys = work.pop()
        if not isinstance(schema, dict):
            continue
        base = base_below(document, base, schema)
        document.where[id(schema)] = keys
        own = schema.get("$id", schema.get("id"))
        if isinstance(own, str):
            # `id` under a dialect that spells it `$id`, and `#name` identifiers, still name their schema
            target, name = urldefrag(join(base, own))
            if name and not name.startswith("/"):
                document.anchors.setdefault((target, name), (schema, False))
            else:
                document.resources.setdefault(target, schema)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                document.anchors[base, schema[keyword]] = (schema, keyword == "$dynamicAnchor")
        work += [(below, base, keys + more) for more, below in subschemas(schema)]


def subschemas(schema: dict) -> list[tuple[tuple, object]]:
    """(keys, subschema) of every place right below `schema` where the vocabulary puts one."""
    found = []
    for keyword, value in schema.items():
        if isinstance(value, list) and keyword in LIST:
            found += [((keyword, i), below) for i, below in enumerate(value)]
        elif isinstance(value, dict) and keyword in MAP:
            found += [((keyword, name), below) for name, below in value.items() if isinstance(below, dict | bool)]
        elif keyword in ONE:
            found.append(((keyword,), value))
    return found


def refer_dynamic(document: Document, number: int, reference, keyword: str) -> Goal:
    """A dynamic reference, where only one schema could be meant; refused where the caller's scope would decide."""
    scan(document)
    if keyword == "$recursiveRef":
        if len({id(r) for r in document.resources.values()}) > 1:
            raise Refusal(keyword, "several schemas with an identifier; refer to one of them by $ref")
        return refer(document, number, reference, keyword)
    name = reference.partition("#")[2] if isinstance(reference, str) else ""
    if len([1 for (_, anchor), (_, dynamic) in document.anchors.items() if anchor == name and dynamic]) > 1:
        raise Refusal(keyword, f"several schemas have $dynamicAnchor {shown(name)}; refer to one of them by $ref")
    return refer(document, number, reference, keyword)
