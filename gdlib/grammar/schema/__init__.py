"""JSON Schema to grammars: the texts of exactly the JSON values that a schema accepts.

Exact or refused: whatever a schema says is either enforced on every text or refused with its place, never widened.
Keywords nobody defined, and those that only describe, are annotations; `explain` tells which keyword is which.
"""

from __future__ import annotations

import gc

from gdlib.grammar.nodes import Grammar, GrammarError
from gdlib.grammar.schema import values
from gdlib.grammar.schema.document import goal_of, open_document, shown
from gdlib.grammar.schema.errors import Refusal, SchemaError
from gdlib.grammar.schema.explain import Row, explain_goal
from gdlib.grammar.schema.reading import Context
from gdlib.grammar.schema.scalars import spacing_of

__all__ = ["Row", "SchemaError", "explain", "from_json_schema"]


def from_json_schema(schema: dict | bool, *, whitespace="any", order="any", formats="assert") -> Grammar:
    """The grammar of the JSON texts whose value the schema accepts.

    whitespace: "any" (wherever JSON allows it inside the value), "compact" (none), or a pair of exact separators such
    as (", ", ": "). order: "any", or "schema" for members in the order of `properties`, other names last. formats:
    "assert" enforces known formats, "annotate" ignores them. Member names, and strings under enum, const, pattern or
    format, come in the spelling of json.dumps; numbers under a bound come without exponent.

    Raises SchemaError, with path, keyword and reason, for what is malformed, satisfied by no value, or not enforced.
    """
    collecting = gc.isenabled()
    gc.disable()  # many small objects at once, none of them garbage: looking for any would take longer than all else
    try:
        context, root = opened(schema, whitespace, order, formats)
        values.check(context, root)
        if not values.nonempty(context, root):
            raise SchemaError("", "schema", "no JSON value satisfies it; look for keywords that contradict each other")
        node = values.value_node(context, root)
    finally:
        if collecting:
            gc.enable()
    options = {"whitespace": whitespace, "order": order, "formats": formats}
    return Grammar(node, rows=lambda: explain(schema, **options))


def explain(schema: dict | bool, *, whitespace="any", order="any", formats="assert") -> list[Row]:
    """What becomes of every keyword, under the options of `from_json_schema`; all refusals, not only the first.

    The schema compiles exactly if no row is "refused".
    """
    try:
        context, root = opened(schema, whitespace, order, formats)
    except SchemaError as error:
        return [Row(error.path or "#", error.keyword, "refused", error.reason)]
    return explain_goal(context, root)


def opened(schema: dict | bool, whitespace, order: str, formats: str):
    """A fresh context for the schema, and the goal of its root."""
    if order not in ("any", "schema"):
        raise GrammarError(f'order: want "any" or "schema", got {order!r}')
    if formats not in ("assert", "annotate"):
        raise GrammarError(f'formats: want "assert" or "annotate", got {formats!r}')
    if not isinstance(schema, dict | bool):
        raise SchemaError("", "schema", f"want an object or a boolean, got {shown(schema)}")
    spacing = spacing_of(whitespace)
    try:
        hooks = {"disjoint": values.disjoint, "prune": values.prune, "apart": values.all_apart}
        context = Context(open_document(schema), formats, order, spacing, **hooks)
        return context, goal_of(context.document, schema, 0)
    except Refusal as refusal:
        raise SchemaError("", refusal.keyword, refusal.reason) from None
