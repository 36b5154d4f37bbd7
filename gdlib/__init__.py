"""gdlib: decode text under a grammar in every way worth comparing, and measure what it costs.

Names are loaded on first use, so that tools which only read parameter files or tables never pay for torch or numba.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOME = {
    "Grammar": "gdlib.grammar",
    "Vocabulary": "gdlib.tokens.vocabulary",
    "Matcher": "gdlib.tokens.matcher",
    "Generation": "gdlib.decoding",
    "GrammarLogitsProcessor": "gdlib.decoding.processor",
    "generate": "gdlib.decoding.generate",
    "Drafted": "gdlib.decoding.drafted",
}
__all__ = ["Drafted", "Generation", "Grammar", "GrammarLogitsProcessor", "Matcher", "Vocabulary", "generate"]


def __getattr__(name: str):
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'gdlib' has no attribute {name!r}")
