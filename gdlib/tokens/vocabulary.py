"""The bytes of every token, and the trie over them that mask walks follow.

A tokenizer's strings are not its bytes: byte-level BPE writes a space as `Ġ`, byte-fallback writes the byte 0x0A as
`<0x0A>`. Everything downstream works on bytes, so the translation is done once, here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np


class VocabularyError(ValueError):
    """A tokenizer or token list that cannot be used; the message says which token and why."""


class Trie:
    """The non-empty tokens as a tree in flat arrays, nodes in depth-first order.

    byte: uint8[N], the byte on the edge into the node; depth: int32[N], 1 for children of the root;
    skip: int32[N], the first node after the node's subtree; token: int32[N], the first token that ends here or -1;
    same: int32[V], the next token with the very same bytes or -1.
    """

    def __init__(self, tokens: Sequence[bytes]):
        order = sorted((t, i) for i, t in enumerate(tokens) if t)
        self.same = np.full(len(tokens), -1, dtype=np.int32)
        byte: list[int] = []
        depth: list[int] = []
        token: list[int] = []
        previous, last = b"", -1
        for text, index in order:
            if text == previous:
                self.same[last] = index
                last = index
                continue
            shared = 0
            for a, b in zip(previous, text, strict=False):
                if a != b:
                    break
                shared += 1
            for position in range(shared, len(text)):
                byte.append(text[position])
                depth.append(position + 1)
                token.append(-1)
            token[-1] = index
            previous, last = text, index
        self.byte = np.array(byte, dtype=np.uint8)
        self.depth = np.array(depth, dtype=np.int32)
        self.token = np.array(token, dtype=np.int32)
        self.skip = np.empty(len(byte), dtype=np.int32)
        open_nodes: list[int] = []
        for node, level in enumerate(depth):
            while len(open_nodes) >= level:
                self.skip[open_nodes.pop()] = node
            open_nodes.append(node)
        for node in open_nodes:
            self.skip[node] = len(byte)
        self.height = int(self.depth.max(initial=0))


class Vocabulary:
    """tokens: the bytes of token 0, 1, ... with b"" for special tokens and holes; eos_ids: the ids that end a text."""

    def __init__(self, tokens: Sequence[bytes], eos_ids: Sequence[int]):
        self.tokens = [bytes(t) for t in tokens]
        self.eos_ids = tuple(int(i) for i in eos_ids)
        if not any(self.tokens):
            raise VocabularyError("the vocabulary has no token with bytes")
        for i in self.eos_ids:
            if not 0 <= i < len(self.tokens):
                raise VocabularyError(f"eos id {i} is outside the vocabulary of {len(self.tokens)} tokens")

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def trie(self) -> Trie:
        # The eos ends a text; it is never written as bytes of one, whatever its bytes say.
        return Trie([b"" if i in self.eos_ids else t for i, t in enumerate(self.tokens)])

    def decode(self, ids: Sequence[int]) -> bytes:
        """The bytes of the ids; one past the vocabulary's end (a padded head has such) stands for none."""
        size = len(self.tokens)
        return b"".join([self.tokens[i] for i in ids if i < size])

    @classmethod
    def from_characters(cls, characters: str) -> Vocabulary:
        """One token a character, in the order given, and an eos behind them."""
        return cls([c.encode() for c in characters] + [b""], [len(characters)])

    @classmethod
    def from_hf(cls, tokenizer) -> Vocabulary:
        """From a transformers fast tokenizer, byte-level BPE or byte-fallback.

        Special tokens and ids that the tokenizer leaves unused get no bytes. Raises VocabularyError for a tokenizer
        of another kind, or one without an eos.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise VocabularyError(f"{type(tokenizer).__name__} is not a fast tokenizer; gdlib needs its token bytes")
        entries = backend.get_vocab(with_added_tokens=True)
        added = backend.get_added_tokens_decoder()
        decoder = backend.decoder.__getstate__().decode() if backend.decoder is not None else ""
        if '"ByteLevel"' in decoder:
            alphabet = _byte_level_alphabet()
        elif '"ByteFallback"' in decoder or any(re.fullmatch(r"<0x[0-9A-F]{2}>", t) for t in entries):
            alphabet = None
        else:
            raise VocabularyError(f"{type(tokenizer).__name__} is neither byte-level BPE nor byte-fallback")
        tokens = [b""] * (max(entries.values()) + 1)
        for name, index in entries.items():
            if index in added:
                tokens[index] = b"" if added[index].special else added[index].content.encode()
            elif alphabet is None:
                match = re.fullmatch(r"<0x([0-9A-F]{2})>", name)
                tokens[index] = bytes([int(match[1], 16)]) if match else name.replace("\u2581", " ").encode()
            else:
                try:
                    tokens[index] = bytes(alphabet[c] for c in name)
                except KeyError as missing:
                    raise VocabularyError(f"token {index} {name!r} has {missing}, no byte of byte-level BPE") from None
        if tokenizer.eos_token_id is None:
            raise VocabularyError("the tokenizer declares no eos token; build Vocabulary(tokens, eos_ids) by hand")
        return cls(tokens, [tokenizer.eos_token_id])


def _byte_level_alphabet() -> dict[str, int]:
    """Character -> byte of GPT-2's byte-level BPE: printable bytes stand for themselves, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(b): b for b in printable}
    for offset, byte in enumerate(b for b in range(256) if b not in printable):
        alphabet[chr(0x100 + offset)] = byte
    return alphabet
