"""Other people's engines beside ours, behind one small protocol, so that one loop measures all of them.

An engine here compiles a grammar, then at each token writes a mask and takes the token. The mask is what decides
whether a token may come: it is what a server would go by. Engines are optional; one whose package is missing is left
out by name.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from gdlib.tokens.bitmask import bitmask_words
from gdlib.tokens.vocabulary import Vocabulary

Encode = Callable[[str], list[int]]
WHITESPACE = r"[ \t\n\r]*"  # what JSON allows between tokens; gdlib, llguidance and xgrammar allow it by themselves
FRONTS = ("json_schema", "gbnf", "regex")


class Engine(Protocol):
    """`row`, int32[ceil(V / 32)], is what `mask` writes; `fronts` are the kinds of grammar that `compile` reads."""

    row: np.ndarray
    fronts: tuple[str, ...]

    def compile(self, text: str, front: str = "json_schema") -> None:
        """Take up a grammar; any exception is a refusal."""

    def reset(self) -> None:
        """Begin a text."""

    def mask(self) -> None:
        """Write the mask of the next token into `row`."""

    def commit(self, token_id: int) -> None:
        """Take a token that the last mask allows."""


class Gdlib:
    fronts = FRONTS

    def __init__(self, vocab: Vocabulary, encode: Encode):
        self.vocab = vocab
        self.row = np.zeros(bitmask_words(len(vocab)), np.int32)

    def compile(self, text: str, front: str = "json_schema") -> None:
        from gdlib.grammar import Grammar
        from gdlib.tokens.matcher import Matcher

        if front == "json_schema":
            grammar = Grammar.from_json_schema(json.loads(text))
        else:
            grammar = Grammar.from_gbnf(text) if front == "gbnf" else Grammar.from_regex(text)
        self.matcher = Matcher(grammar, self.vocab)

    def reset(self) -> None:
        self.matcher.reset()

    def mask(self) -> None:
        self.matcher.fill_mask(self.row)

    def commit(self, token_id: int) -> None:
        self.matcher.accept(token_id)


class LLGuidance:
    fronts = FRONTS

    def __init__(self, vocab: Vocabulary, encode: Encode):
        import llguidance
        import llguidance.numpy

        self._ll, self._fill = llguidance, llguidance.numpy.fill_next_token_bitmask
        wrapped = llguidance.TokenizerWrapper(_Tokens(vocab, encode))
        self._tokenizer = llguidance.LLTokenizer(wrapped, n_vocab=len(vocab))
        self._rows = llguidance.numpy.allocate_token_bitmask(1, len(vocab))
        self.row = self._rows[0]

    def compile(self, text: str, front: str = "json_schema") -> None:
        if front == "json_schema":
            grammar = self._ll.LLMatcher.grammar_from_json_schema(text)
        else:
            grammar = self._ll.grammar_from(front, text)
        self._fresh = self._ll.LLMatcher(self._tokenizer, grammar, log_level=0)
        if self._fresh.is_error():
            raise ValueError(self._fresh.get_error())
        self.reset()

    def reset(self) -> None:
        self._matcher = self._fresh.deep_copy()

    def mask(self) -> None:
        self._fill(self._matcher, self._rows, 0)

    def commit(self, token_id: int) -> None:
        self._matcher.consume_token(token_id)


class _Tokens:
    """What llguidance's TokenizerWrapper wants to know of a vocabulary.

    Where a text is forced, its masks allow the tokens that `encode` would write it in and no others.
    """

    def __init__(self, vocab: Vocabulary, encode: Encode):
        self.eos_token_id, self.bos_token_id = vocab.eos_ids[0], None
        self.tokens = vocab.tokens
        self.special_token_ids = [i for i, token in enumerate(vocab.tokens) if not token]
        self._encode = encode

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise TypeError("encodes text, not bytes")
        return self._encode(text)


class XGrammar:
    """Masks are made at compile time or, with `on_first_use`, when a text first needs them; no cache, one thread."""

    fronts = FRONTS

    def __init__(self, vocab: Vocabulary, encode: Encode, on_first_use: bool = False):
        import xgrammar

        self._xgr = xgrammar
        info = xgrammar.TokenizerInfo(
            vocab.tokens,
            vocab_type=xgrammar.VocabType.RAW,
            vocab_size=len(vocab),
            stop_token_ids=list(vocab.eos_ids),
        )
        self._compiler = xgrammar.GrammarCompiler(
            info, max_threads=1, cache_enabled=False, enable_dynamic_compilation=on_first_use
        )
        self._rows = xgrammar.allocate_token_bitmask(1, len(vocab))
        self.row = self._rows.numpy()[0]

    def compile(self, text: str, front: str = "json_schema") -> None:
        if front == "json_schema":
            # Not strict: strict mode closes every object that the schema leaves open.
            grammar = self._compiler.compile_json_schema(text, any_whitespace=True, strict_mode=False)
        elif front == "gbnf":
            grammar = self._compiler.compile_grammar(text)
        else:
            grammar = self._compiler.compile_regex(text)
        self._matcher = self._xgr.GrammarMatcher(grammar)

    def reset(self) -> None:
        self._matcher.reset()

    def mask(self) -> None:
        # It says so, and leaves the row alone, where every token may come.
        if not self._matcher.fill_next_token_bitmask(self._rows):
            self.row.fill(-1)

    def commit(self, token_id: int) -> None:
        self._matcher.accept_token(token_id)


class OutlinesCore:
    fronts = ("json_schema", "regex")

    def __init__(self, vocab: Vocabulary, encode: Encode):
        import outlines_core
        from outlines_core import json_schema

        self._oc, self._regex_of = outlines_core, json_schema.build_regex_from_schema
        ids: dict[bytes, list[int]] = {}
        for index, token in enumerate(vocab.tokens):
            if token:
                ids.setdefault(token, []).append(index)
        self._vocab = outlines_core.Vocabulary(vocab.eos_ids[0], ids)
        self.row = np.zeros(bitmask_words(len(vocab)), np.int32)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.row))

    def compile(self, text: str, front: str = "json_schema") -> None:
        pattern = self._regex_of(text, whitespace_pattern=WHITESPACE) if front == "json_schema" else text
        self._guide = self._oc.Guide(self._oc.Index(pattern, self._vocab))

    def reset(self) -> None:
        self._guide.reset()

    def mask(self) -> None:
        self._guide.write_mask_into(self._address, self.row.size, 4)

    def commit(self, token_id: int) -> None:
        self._guide.advance(token_id, return_tokens=False)


def _xgrammar_on_first_use(vocab: Vocabulary, encode: Encode) -> Engine:
    return XGrammar(vocab, encode, on_first_use=True)


# arm -> its package, and what makes the engine
ENGINES = {
    "gdlib": ("gdlib", Gdlib),
    "llguidance": ("llguidance", LLGuidance),
    "xgrammar, on first use": ("xgrammar", _xgrammar_on_first_use),
    "xgrammar, at compile time": ("xgrammar", XGrammar),
    "outlines-core": ("outlines-core", OutlinesCore),
}


def open_engines(arms: Sequence[str], vocab: Vocabulary, encode: Encode) -> tuple[dict[str, Engine], dict[str, str]]:
    """arm -> engine for those that are installed, and arm -> why not for the others.

    `encode` writes a text in the tokens of `vocab`.

    ValueError, naming what there is, for an arm that is not one of ENGINES.
    """
    engines, missing = {}, {}
    for arm in arms:
        if arm not in ENGINES:
            raise ValueError(f"engine {arm!r}: there is {', '.join(map(repr, ENGINES))}")
        package, make = ENGINES[arm]
        try:
            engines[arm] = make(vocab, encode)
        except ImportError as error:
            missing[arm] = f"{package} is not installed ({error}): pip install {package}, or leave the arm out"
    return engines, missing


def version(arm: str) -> str:
    """The version of the arm's package, "none" where it is not installed."""
    try:
        return importlib.metadata.version(ENGINES[arm][0])
    except importlib.metadata.PackageNotFoundError:
        return "none"


def refusal(engine: Engine, text: str, front: str = "json_schema") -> str:
    """Compile; "" where that went well, else the engine's reason in one line."""
    try:
        engine.compile(text, front)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return (lines[0] if lines else type(error).__name__)[:200]
    return ""


def allows(engine: Engine, token_id: int) -> bool:
    """Whether the last mask has the token."""
    return bool(int(engine.row[token_id >> 5]) >> (token_id & 31) & 1)


def takes(engine: Engine, ids: Sequence[int], eos_id: int) -> bool:
    """Whether the compiled grammar takes the whole text, token by token, and lets it end there."""
    engine.reset()
    for token_id in ids:
        engine.mask()
        if not allows(engine, token_id):
            return False
        engine.commit(token_id)
    engine.mask()
    return allows(engine, eos_id)
