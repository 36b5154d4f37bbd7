"""What becomes of every keyword of a schema, as rows a report or a person can read."""

from __future__ import annotations

from dataclasses import dataclass

from gdlib.grammar import formats as known_formats
from gdlib.grammar.schema import values
from gdlib.grammar.schema.document import TRUE, goal_of, path, subschemas
from gdlib.grammar.schema.errors import Refusal, SchemaError
from gdlib.grammar.schema.keywords import BESIDE, GROUP, NUMBER_KEYWORDS
from gdlib.grammar.schema.reading import Context

MAX_REFUSED = 100  # refusals behind which nothing more is looked at

NAMES = frozenset(("properties", "required", "patternProperties", "propertyNames", "dependentRequired"))
FIXED = frozenset(("enum", "const", "pattern", "format"))
NEGATING = frozenset(("not", "if", "oneOf"))
OTHER_NAMES = frozenset(("additionalProperties", "patternProperties", "unevaluatedProperties"))
COUNTED = "names that no schema lists are counted as often as they are written"
BROKEN = "where it must not hold, a name that no schema lists may break it and be written again"
NEEDS = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}


@dataclass(frozen=True)
class Row:
    """`keyword` of the schema at `path` is "enforced", an "annotation", "refused", or "narrowed" (values exactly, but
    not in every spelling). A note also says where the text may repeat a name that no schema lists, and what counts."""

    path: str
    keyword: str
    status: str
    note: str


def explain_goal(context: Context, root) -> list[Row]:
    """Rows for every schema that `root` leads to, and for what is refused all over it, not only first."""
    document = context.document
    refused: list[SchemaError] = []
    values.check(context, root, refused)
    look_below_refused(context, refused)
    if not refused and not values.nonempty(context, root):
        refused.append(SchemaError("#", "schema", "no JSON value satisfies it"))
    reasons = {(error.path or "#", error.keyword): error.reason for error in refused}
    negating = any(isinstance(schema, dict) and not NEGATING.isdisjoint(schema) for schema in document.schemas)
    rows = []
    for number, schema in enumerate(document.schemas):
        if isinstance(schema, dict) and document.places[number][1][:1] not in (("enum",), ("const",)):
            where = path(document, number)
            for keyword, value in schema.items():
                reason = reasons.pop((where, keyword), None)
                status, note = verdict(context, schema, keyword, value) if reason is None else ("refused", reason)
                if negating and status in ("enforced", "narrowed") and keyword in OTHER_NAMES and value:
                    note = f"{note}; {BROKEN}" if note else BROKEN
                rows.append(Row(where, keyword, status, note))
    return rows + [Row(where, keyword, "refused", reason) for (where, keyword), reason in reasons.items()]


def look_below_refused(context: Context, refused: list[SchemaError]) -> None:
    """Check what stands below schemas that could not be read as well, each subschema by itself."""
    document = context.document
    number = 0
    while number + 1 < len(document.schemas) and len(refused) < MAX_REFUSED:
        number += 1
        schema = document.schemas[number]
        if not isinstance(schema, dict) or number in context.read or -number in context.read:
            continue
        for keys, below in subschemas(schema):
            if keys[0] not in ("$defs", "definitions"):
                try:
                    goal = goal_of(document, below, number, *keys)
                except Refusal:
                    continue  # already among the refusals: the schema above could not be read
                if goal != TRUE and 0 not in goal and goal not in context.forms:
                    values.check(context, goal, refused)


def verdict(context: Context, schema: dict, keyword: str, value) -> tuple[str, str]:
    """Status and note of a keyword that is not refused."""
    document = context.document
    if document.ref_alone and "$ref" in schema and keyword != "$ref":
        return "annotation", "not read beside $ref in this dialect"
    if keyword in document.unknown:
        return "annotation", "not a keyword of this dialect"
    if keyword == "type":
        return "enforced", ""
    if keyword not in GROUP and keyword not in BESIDE:
        return "annotation", ""
    if keyword in NEEDS and NEEDS[keyword] not in schema:
        return "annotation", f"says nothing without {NEEDS[keyword]}"
    if keyword == "if" and "then" not in schema and "else" not in schema:
        return "annotation", "says nothing without then or else"
    if keyword == "additionalItems" and ("prefixItems" in schema or not isinstance(schema.get("items"), list)):
        return "annotation", "says nothing without a list under items"
    if keyword == "format" and context.formats != "assert":
        return "annotation", "formats are not asserted"
    if keyword == "format" and value not in known_formats.FORMATS:
        return "annotation", "a format nobody defined"
    if keyword in FIXED:
        return "narrowed", "strings in the spelling of json.dumps; numbers as plain decimals"
    if keyword in NUMBER_KEYWORDS:
        return "narrowed", "plain decimals; exponents only below 1e-4 and from 1e16 on, where no bound cuts them"
    if keyword in NAMES:
        return "narrowed", "member names in the spelling of json.dumps, listed names once each"
    least = {"minProperties": 2, "maxProperties": 1}.get(keyword)
    if least is not None and isinstance(value, int | float) and value >= least:
        return "enforced", COUNTED
    return "enforced", ""
