"""How a schema is refused: inside the compiler by keyword and reason, outside with the place as well."""

from __future__ import annotations

from gdlib.grammar.nodes import GrammarError


class SchemaError(GrammarError):
    """A schema that is not enforced: `path` (JSON pointer), `keyword`, `reason`."""

    def __init__(self, path: str, keyword: str, reason: str):
        where = path if len(path) <= 300 else path[:200] + "..." + path[-80:]
        super().__init__(f"JSON Schema at {where or '#'}: {keyword}: {reason}")
        self.path, self.keyword, self.reason = path, keyword, reason


class Refusal(Exception):
    """A keyword that cannot be read or enforced, before the place is known; always turned into a SchemaError."""

    def __init__(self, keyword: str, reason: str):
        super().__init__(f"{keyword}: {reason}")
        self.keyword, self.reason = keyword, reason


class Blocked(Exception):
    """The meaning of a schema was asked for while it is being worked out."""
