"""The bytes of every token, and the trie over them that mask walks follow.

A tokenizer's strings are not its bytes: byte-level BPE writes a space as `Ġ`, byte-fallback writes the byte 0x0A as
`<0x0A>`. Everything downstream works on bytes, so the translation is done once, here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from weakref import WeakKeyDictionary

import numba
import numpy as np


class VocabularyError(ValueError):
    """A tokenizer or token list that cannot be used; the message says which token and why."""


class Trie:
    """The non-empty tokens as a tree in flat arrays, nodes in depth-first order.

    byte: uint8[N], the byte on the edge into the node; depth: int32[N], 1 for children of the root;
    skip: int32[N], the first node after the node's subtree; token: int32[N], the first token that ends here or -1;
    same: int32[V], the next token with the very same bytes or -1; child: int32[256], the root's child by byte or -1.
    """

    def __init__(self, tokens: Sequence[bytes]):
        order = sorted([i for i, t in enumerate(tokens) if t], key=tokens.__getitem__)
        data = np.frombuffer(b"".join([tokens[i] for i in order]), np.uint8)
        ends = np.cumsum([len(tokens[i]) for i in order], dtype=np.int64)
        self.same = np.full(len(tokens), -1, dtype=np.int32)
        self.child = np.full(256, -1, dtype=np.int32)
        arrays = [np.empty(len(data), kind) for kind in (np.uint8, np.int32, np.int32, np.int32)]
        count = _build_trie(data, ends, np.array(order, np.int32), *arrays, self.same, self.child)
        self.byte, self.depth, self.skip, self.token = (a[:count].copy() for a in arrays)
        self.height = int(self.depth.max(initial=0))


@numba.njit(cache=True)
def _build_trie(data, ends, order, byte, depth, skip, token, same, child):
    """Fill the arrays from tokens in sorted order (their bytes joined, where each ends, whose they are)."""
    count, begin, before, last = 0, 0, 0, -1
    path = np.empty(1 if len(ends) == 0 else len(data) + 1, np.int32)  # the open node of each depth
    level = 0
    for index in range(len(ends)):
        size, shared = ends[index] - begin, 0
        while shared < size and shared < begin - before and data[before + shared] == data[begin + shared]:
            shared += 1
        if index > 0 and shared == size and begin - before == size:
            same[last] = order[index]
            last = order[index]
        else:
            while level > shared:
                level -= 1
                skip[path[level]] = count
            for position in range(shared, size):
                byte[count], depth[count], token[count] = data[begin + position], position + 1, -1
                if position == 0:
                    child[data[begin]] = count
                path[level] = count
                level += 1
                count += 1
            last = order[index]
            token[count - 1] = last
        before, begin = begin, ends[index]
    while level > 0:
        level -= 1
        skip[path[level]] = count
    return count


class Vocabulary:
    """tokens: the bytes of token 0, 1, ... with b"" for special tokens and holes; eos_ids: the ids that end a text."""

    mask_bytes = 64 << 20  # how much room masks of this vocabulary may take in each arena; set it before matching

    def __init__(self, tokens: Sequence[bytes], eos_ids: Sequence[int]):
        self.spare_rows: list[np.ndarray] = []  # memory of masks that nobody holds any more
        self.stores: WeakKeyDictionary = WeakKeyDictionary()  # tokens/masks.py: arena -> masks of configurations
        self.spans: WeakKeyDictionary = WeakKeyDictionary()  # tokens/canonical.py: arena -> forced spans
        self.encode: Callable[[str], list[int]] | None = None  # a text in the tokenizer's own way, no special tokens
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
        return Trie(self.written)

    @cached_property
    def forest(self):
        """The trie with all that was learnt about it; see tokens/forest.py."""
        from gdlib.tokens.forest import Forest

        return Forest(self)

    @cached_property
    def written(self) -> list[bytes]:
        """What each token writes: its bytes, and nothing for an eos."""
        tokens = self.tokens.copy()
        for i in self.eos_ids:
            tokens[i] = b""
        return tokens

    @cached_property
    def first_ids(self) -> dict[bytes, int]:
        """The lowest id that writes these bytes."""
        return {text: i for i, text in reversed(list(enumerate(self.written))) if text}

    @cached_property
    def ordered(self) -> list[bytes]:
        """What tokens write, each once, in the order of bytes."""
        return sorted(self.first_ids)

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return max(map(len, self.first_ids), default=0)

    def decode(self, ids: Sequence[int]) -> bytes:
        """The bytes of the ids; one past the vocabulary's end (a padded head has such) stands for none."""
        size = len(self.tokens)
        return b"".join([self.tokens[i] for i in ids if i < size])

    @classmethod
    def from_tiktoken(cls, encoding, eos: str = "<|endoftext|>") -> Vocabulary:
        """From a tiktoken Encoding; `eos` names the special token that ends a text.

        Special tokens get no bytes. Raises VocabularyError where the encoding has no such token.
        """
        specials = {name: encoding.encode_single_token(name) for name in encoding.special_tokens_set}
        if eos not in specials:
            known = ", ".join(sorted(specials)) or "none"
            raise VocabularyError(f"encoding {encoding.name!r} has no special token {eos!r} (it has: {known[:300]})")
        tokens = [b""] * encoding.n_vocab
        for index in range(encoding.n_vocab):
            try:
                tokens[index] = encoding.decode_single_token_bytes(index)
            except KeyError:  # a hole
                continue
        for index in specials.values():
            tokens[index] = b""
        vocab = cls(tokens, [specials[eos]])
        vocab.encode = encoding.encode_ordinary
        return vocab

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
        vocab = cls(tokens, [tokenizer.eos_token_id])
        vocab.encode = lambda text: backend.encode(text, add_special_tokens=False).ids
        return vocab


def _byte_level_alphabet() -> dict[str, int]:
    """Character -> byte of GPT-2's byte-level BPE: printable bytes stand for themselves, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(b): b for b in printable}
    for offset, byte in enumerate(b for b in range(256) if b not in printable):
        alphabet[chr(0x100 + offset)] = byte
    return alphabet
