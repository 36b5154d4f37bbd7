"""What may be written. A grammar knows bytes, never tokens and never torch."""

from gdlib.grammar.nodes import Grammar, GrammarError

__all__ = ["Grammar", "GrammarError"]
