"""The keywords of each JSON type, and the values of enum and const: from their JSON to atoms.

Malformed values are refused here, with the keyword; the place is added by whoever knows it.
"""

from __future__ import annotations

from fractions import Fraction

from gdlib.grammar import formats as known_formats
from gdlib.grammar import numbers
from gdlib.grammar.nodes import GrammarError
from gdlib.grammar.schema import atoms as at
from gdlib.grammar.schema import names
from gdlib.grammar.schema.document import FALSE, TRUE, Document, Goal, goal_of, shown
from gdlib.grammar.schema.errors import Refusal

MAX_COUNT = 2**53  # the greatest count that every JSON reader understands

NUMBER_KEYWORDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
STRING_KEYWORDS = frozenset(("minLength", "maxLength", "pattern", "format"))
ARRAY_KEYWORDS = frozenset(
    ("items", "additionalItems", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains")
)
OBJECT_KEYWORDS = frozenset(
    ("properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties")
    + ("propertyNames", "dependentRequired")
)
IN_PLACE = frozenset(
    ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "enum", "const")
    + ("dependentSchemas", "dependencies")
)
UNEVALUATED = frozenset(("unevaluatedProperties", "unevaluatedItems"))
BESIDE = frozenset(("then", "else", "minContains", "maxContains"))  # read together with their neighbour
GROUP = {
    **dict.fromkeys(NUMBER_KEYWORDS, 0),
    **dict.fromkeys(STRING_KEYWORDS, 1),
    **dict.fromkeys(ARRAY_KEYWORDS, 2),
    **dict.fromkeys(OBJECT_KEYWORDS, 3),
    **dict.fromkeys(IN_PLACE, 4),
    **dict.fromkeys(UNEVALUATED, 5),
}
TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))


def exact(value, keyword: str) -> Fraction:
    """A number of the schema, exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refusal(keyword, f"want a number, got {shown(value)}")
    try:
        return numbers.exact(value)
    except GrammarError as error:
        raise Refusal(keyword, str(error)) from None


def values_form(document: Document, number: int, values: list, keyword: str) -> at.Form:
    """Exactly these values."""
    if not values:
        raise Refusal(keyword, "an empty list allows no value at all")
    null, booleans, found_numbers, strings, arrays, objects = False, set(), set(), set(), [], []
    for i, value in enumerate(values):
        keys = (keyword, i) if keyword == "enum" else (keyword,)
        if isinstance(value, str):
            strings.add(text_of(value, keyword))
        elif value is None:
            null = True
        elif isinstance(value, bool):
            booleans.add(value)
        elif isinstance(value, int | float):
            found_numbers.add(exact(value, keyword))
        elif isinstance(value, list):
            goals = tuple(value_goal(document, number, v, *keys, j) for j, v in enumerate(value))
            arrays.append(at.Arrays(goals, FALSE, len(goals), len(goals)))
        elif isinstance(value, dict):
            members = {text_of(k, keyword): value_goal(document, number, v, *keys, k) for k, v in value.items()}
            objects.append(at.Objects(members, (((), FALSE),), required=frozenset(members)))
        else:
            raise Refusal(keyword, f"{shown(value)} is no JSON value")
    if len(arrays) > at.MAX_ATOMS or len(objects) > at.MAX_ATOMS:
        raise at.too_many()
    return at.Form(
        null,
        frozenset(booleans),
        (at.Numbers(only=frozenset(found_numbers)),) if found_numbers else (),
        (at.Strings(only=frozenset(strings)),) if strings else (),
        tuple(arrays),
        tuple(objects),
    )


def value_goal(document: Document, number: int, value, *keys) -> Goal:
    """The goal of exactly this value, as a schema nobody wrote."""
    return goal_of(document, {"const": value}, number, *keys)


def text_of(value, keyword: str) -> str:
    if not isinstance(value, str):
        raise Refusal(keyword, f"want a string, got {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refusal(keyword, f"{shown(value)} holds half a surrogate pair, which no UTF-8 text can") from None
    return value


def count_of(value, keyword: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf") or value % 1:
        raise Refusal(keyword, f"want a count (an integer, 0 or more), got {shown(value)}")
    if value > MAX_COUNT:
        raise Refusal(keyword, f"want at most {MAX_COUNT}, got {shown(value)}; leave it out for no bound")
    return int(value)


def names_of(value, keyword: str) -> list[str]:
    if not isinstance(value, list) or not all([isinstance(n, str) for n in value]):
        raise Refusal(keyword, f"want a list of member names, got {shown(value)}")
    return [n if n.isascii() else text_of(n, keyword) for n in value]


def object_of(value, keyword: str) -> dict:
    if not isinstance(value, dict):
        raise Refusal(keyword, f"want an object, got {shown(value)}")
    return value


# Numbers and strings


def read_numbers(keywords: dict | None, integers: bool) -> tuple[at.Numbers, ...]:
    if keywords is None:
        return (at.INTEGER if integers else at.FREE_NUMBER,)
    low = high = None
    low_open = high_open = False
    multiples: frozenset[Fraction] = frozenset()
    for keyword, value in keywords.items():
        if isinstance(value, bool) and keyword in ("exclusiveMinimum", "exclusiveMaximum"):
            continue  # draft 4: says how minimum or maximum is meant
        bound = exact(value, keyword)
        if keyword == "multipleOf":
            if bound <= 0:
                raise Refusal(keyword, f"want a number above 0, got {shown(value)}")
            multiples = frozenset((bound,))
        elif keyword in ("minimum", "exclusiveMinimum"):
            is_open = keyword != "minimum" or keywords.get("exclusiveMinimum") is True
            if low is None or (bound, is_open) > (low, low_open):
                low, low_open = bound, is_open
        else:
            is_open = keyword != "maximum" or keywords.get("exclusiveMaximum") is True
            if high is None or (-bound, is_open) > (-high, high_open):
                high, high_open = bound, is_open
    if low is not None and high is not None and (low > high or (low == high and (low_open or high_open))):
        return ()
    return (at.Numbers(low, high, low_open, high_open, integers, multiples),)


def read_strings(keywords: dict | None, asserted: bool) -> tuple[at.Strings, ...]:
    if keywords is None:
        return (at.FREE_STRING,)
    low, high, patterns = 0, None, set()
    for keyword, value in keywords.items():
        if keyword == "minLength":
            low = max(low, count_of(value, keyword))
        elif keyword == "maxLength":
            found = count_of(value, keyword)
            high = found if high is None else min(high, found)
        elif keyword == "pattern":
            patterns.add(pattern_of(value, keyword))
        else:
            if not isinstance(value, str):
                raise Refusal(keyword, f"want a string, got {shown(value)}")
            if not asserted:
                continue
            if value in known_formats.REFUSED:
                raise Refusal(keyword, f"{value!r} is not enforced: {known_formats.REFUSED[value]}; or use annotate")
            if value in known_formats.FORMATS:
                patterns.add(known_formats.FORMATS[value])
                most = known_formats.MAX_LENGTH.get(value)
                if most is not None:
                    high = most if high is None else min(high, most)
    if high is not None and low > high:
        return ()
    return (at.Strings(low, high, frozenset(patterns)),)


def pattern_of(value, keyword: str) -> str:
    """A pattern, parsed once so that what is not regular is refused here."""
    if not isinstance(value, str):
        raise Refusal(keyword, f"want a regular expression, got {shown(value)}")
    try:
        names.body(value)
    except GrammarError as error:
        raise Refusal(keyword, str(error)) from None
    return value


# Arrays and objects


def read_arrays(document: Document, number: int, keywords: dict | None, schema: dict, track: bool) -> tuple:
    if keywords is None:
        return (at.FREE_ARRAY,)
    prefix, rest, done, contains, done_goals = (), TRUE, 0, (), ()
    first, rest_of = keywords.get("prefixItems"), "items"
    if first is None and isinstance(keywords.get("items"), list):
        first, rest_of = keywords["items"], "additionalItems"
    if first is not None:
        keyword = "prefixItems" if rest_of == "items" else "items"
        if not isinstance(first, list):
            raise Refusal(keyword, f"want a list of schemas, got {shown(first)}")
        prefix = tuple(goal_of(document, below, number, keyword, i) for i, below in enumerate(first))
        done = len(prefix)
    if rest_of in keywords:
        rest, done = goal_of(document, keywords[rest_of], number, rest_of), None
    low = count_of(keywords["minItems"], "minItems") if "minItems" in keywords else 0
    high = count_of(keywords["maxItems"], "maxItems") if "maxItems" in keywords else None
    unique = keywords.get("uniqueItems", False)
    if not isinstance(unique, bool):
        raise Refusal("uniqueItems", f"want true or false, got {shown(unique)}")
    if "contains" in keywords:
        goal = goal_of(document, keywords["contains"], number, "contains")
        least = count_of(schema.get("minContains", 1), "minContains")
        most = count_of(schema["maxContains"], "maxContains") if "maxContains" in schema else None
        if track:
            done_goals = (goal,)
        if least or most is not None:
            contains = (at.Contains(0, goal, least, most),)
        if most is not None and least > most:
            return ()
    if high is not None and low > high:
        return ()
    return (at.Arrays(prefix, rest, low, high, contains, unique, done, done_goals),)


def read_objects(document: Document, number: int, keywords: dict | None, track: bool) -> tuple[at.Objects, ...]:
    if keywords is None:
        return (at.FREE_OBJECT,)
    members: dict[str, Goal] = {}
    listed = object_of(keywords.get("properties", {}), "properties")
    for name, below in listed.items():
        if not name.isascii():
            text_of(name, "properties")
        members[name] = goal_of(document, below, number, "properties", name)
    otherwise = TRUE
    if "additionalProperties" in keywords:
        otherwise = goal_of(document, keywords["additionalProperties"], number, "additionalProperties")
    patterns: tuple = ()
    if "patternProperties" in keywords:
        patterns = tuple(
            (pattern_of(p, "patternProperties"), goal_of(document, below, number, "patternProperties", p))
            for p, below in object_of(keywords["patternProperties"], "patternProperties").items()
        )
        for name, goal in members.items():
            members[name] = goal.union(*(g for p, g in patterns if names.matches(p, name)))
    required = frozenset(names_of(keywords["required"], "required")) if "required" in keywords else frozenset()
    low = count_of(keywords["minProperties"], "minProperties") if "minProperties" in keywords else 0
    high = count_of(keywords["maxProperties"], "maxProperties") if "maxProperties" in keywords else None
    dependents: tuple = ()
    if "dependentRequired" in keywords:
        dependents = tuple(
            (text_of(name, "dependentRequired"), frozenset(names_of(needs, "dependentRequired")))
            for name, needs in object_of(keywords["dependentRequired"], "dependentRequired").items()
        )
    if high is not None and (low > high or len(required) > high):
        return ()
    if any([0 in members.get(name, TRUE) for name in required]):
        return ()
    found = at.Objects(members, low=low, high=high, required=required, dependents=dependents)
    if patterns or otherwise:
        found.groups = ((patterns, otherwise),)
    if "propertyNames" in keywords:
        found.names = goal_of(document, keywords["propertyNames"], number, "propertyNames")
    if track:
        found.done_names = frozenset(listed)
        found.done_patterns = frozenset(p for p, _ in patterns)
        found.done = "additionalProperties" in keywords
    return (found,)
