"""The reference pages: gdlib's functions and classes from their source, and what becomes of a grammar's parts.

The source is read and not imported, so that a book can be built without loading torch for it. `api` is put into the
page of the interface while Sphinx reads it (see scripts.py), so it has headings, and search finds it.
"""

from __future__ import annotations

import ast
import copy
from pathlib import Path

import pandas as pd

from gdlib.grammar import Grammar, GrammarError

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "grammar",
    "recognizers",
    "tokens",
    "models",
    "drafts",
    "decoding",
    "bench",
    "report",
)  # as the house stands
HERE = "%api-of-gdlib%"  # stands in the page where `api` goes

# keyword or group of them -> the smallest schema that shows what becomes of it
SCHEMAS = {
    "type": {"type": ["integer", "null"]},
    "enum, const": {"enum": [1, "a", None], "const": 1},
    "properties, required, additionalProperties": {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "patternProperties, propertyNames": {
        "patternProperties": {"^a": {"type": "integer"}},
        "propertyNames": {"maxLength": 3},
    },
    "minProperties, maxProperties": {"minProperties": 1, "maxProperties": 3},
    "dependentRequired, dependentSchemas": {
        "dependentRequired": {"a": ["b"]},
        "dependentSchemas": {"a": {"required": ["c"]}},
    },
    "items, prefixItems": {"type": "array", "prefixItems": [True, {"type": "null"}], "items": False},
    "minItems, maxItems": {"type": "array", "minItems": 1, "maxItems": 4},
    "contains, minContains, maxContains": {"type": "array", "contains": {"type": "integer"}, "minContains": 2},
    "uniqueItems": {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True},
    "uniqueItems, of anything": {"type": "array", "uniqueItems": True},
    "minLength, maxLength": {"type": "string", "minLength": 2, "maxLength": 5},
    "pattern": {"type": "string", "pattern": "^[a-z]+$"},
    "pattern, with a backreference": {"pattern": "(a)\\1"},
    "format": {"type": "string", "format": "date-time"},
    "format, not regular": {"type": "string", "format": "regex"},
    "minimum, maximum": {"type": "number", "minimum": 1.5, "maximum": 20},
    "multipleOf": {"type": "integer", "multipleOf": 3},
    "allOf, anyOf, oneOf": {
        "allOf": [{"type": "integer"}],
        "anyOf": [{"minimum": 3}, {"maximum": 1}],
        "oneOf": [{"minimum": 0}],
    },
    "not, if, then, else": {"not": {"const": 1}, "if": {"type": "string"}, "then": {"maxLength": 3}},
    "$ref, $defs": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}},
    "$ref, to another document": {"$ref": "other.json#/a"},
    "unevaluatedProperties": {
        "anyOf": [{"properties": {"a": True}}, {"properties": {"b": True}}],
        "unevaluatedProperties": False,
    },
    "title, description, default, examples": {"type": "integer", "title": "t", "description": "d", "default": 1},
}

# what -> (an example, what it means)
GBNF = (
    ("a rule", 'root ::= "yes" | "no"', "a name, ::= and its ways; root is where a text begins"),
    ("a literal", 'root ::= "a\\n\\x41\\u00e9"', "text, with the usual escapes and x, u and U"),
    ("a class", "root ::= [a-z0-9_]", "one character of these"),
    ("a class of others", "root ::= [^\\n]", "one character of all others"),
    ("any character", "root ::= .", "one character, whichever"),
    ("a group", 'root ::= ("a" | "b") "c"', "ways on inside a sequence"),
    ("repetition", "root ::= [0-9]+ [a-z]* [!]?", "once or more, any number of times, at most once"),
    ("counted repetition", "root ::= [0-9]{2} [a-z]{1,3} [x]{2,}", "so many times, between, at least"),
    ("recursion", 'root ::= "(" root ")" | ""', "a rule inside itself, wherever it stands"),
    ("left recursion", 'root ::= root "a" | "b"', "at the left end as well"),
    ("a comment", 'root ::= "a" # a comment', "to the end of the line"),
    ("at most, without a least", 'root ::= "a"{,3}', "write {0,3}"),
    ("a token of one vocabulary", "root ::= <think>", "write its text"),
    ("no root", 'start ::= "a"', "give the rule to start from the name root"),
    ("a reversed range", "root ::= [z-a]", "write the smaller one first"),
)  # fmt: skip


def schema_table() -> pd.DataFrame:
    """What becomes of every keyword of SCHEMAS: `explain` where it is enforced, the refusal where it is not."""
    rows = []
    for keywords, schema in SCHEMAS.items():
        named = {part.strip() for part in keywords.split(",")}
        try:
            told = [row for row in Grammar.from_json_schema(schema).explain() if row.keyword in named]
        except GrammarError as error:
            rows.append({"keyword": keywords, "becomes": "refused", "note": str(error).split(": ", 1)[-1]})
            continue
        for status in dict.fromkeys(row.status for row in told):
            of_status = [row for row in told if row.status == status]
            rows.append(
                {
                    "keyword": ", ".join(dict.fromkeys(row.keyword for row in of_status)),
                    "becomes": status,
                    "note": "; ".join(dict.fromkeys(row.note for row in of_status if row.note)) or "–",
                }
            )
    return pd.DataFrame(rows)


def gbnf_table() -> pd.DataFrame:
    """Every construct of GBNF with an example, and whether the reader takes it or what it says."""
    rows = []
    for what, example, meaning in GBNF:
        try:
            Grammar.from_gbnf(example)
            said = "read"
        except GrammarError as error:
            said = f"refused: {error}"
        rows.append({"what": what, "example": example, "meaning": meaning, "read?": said})
    return pd.DataFrame(rows)


def api() -> str:
    """Markdown: a heading a package and module, and each public function and class as it stands in the source."""
    parts = []
    for package in PACKAGES:
        parts.append(f"## gdlib.{package}\n")
        for path in sorted((ROOT / package).rglob("*.py")):
            parts += _module(path)
    return "\n".join(parts)


def _module(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    public = [
        one for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef) and not one.name.startswith("_")
    ]
    told = [text for text in map(_declared, public) if text]
    name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    about = ast.get_docstring(tree)
    if not told and not about:
        return []
    heading = [f"### {name}\n"] if name.count(".") > 1 else []
    return [*heading, *([f"~~~text\n{about}\n~~~\n"] if about else []), *(f"~~~python\n{text}\n~~~\n" for text in told)]


def _declared(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Signature and docstring; of a class its public methods too. "" for what has no docstring."""
    if not ast.get_docstring(node):
        return ""
    if isinstance(node, ast.FunctionDef):
        return _without_body(node)
    shown = copy.copy(node)
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
    told = [
        one for one in methods if one.name == "__init__" or (not one.name.startswith("_") and ast.get_docstring(one))
    ]
    shown.body = [node.body[0], *fields, *(ast.parse(_without_body(one)).body[0] for one in told)]
    return ast.unparse(ast.fix_missing_locations(shown))


def _without_body(node: ast.FunctionDef) -> str:
    shown = copy.copy(node)
    shown.body = [node.body[0]] if ast.get_docstring(node) else [ast.Expr(ast.Constant(...))]
    return ast.unparse(ast.fix_missing_locations(shown))
