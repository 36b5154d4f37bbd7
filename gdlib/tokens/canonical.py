"""Forced bytes are not forced tokens: how a text goes on in the tokens that the tokenizer itself would write.

Encoded on its own, a piece of text comes out otherwise than in its place: the piece before may swallow its first
bytes, and what follows its last. So it is encoded with a few tokens of what stands before it, and of its end that much
is held back as a longer token could still take. (The rule of llguidance's `fast_forward.md`.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from gdlib.recognizers import Recognizer
from gdlib.recognizers.arena import Arena
from gdlib.tokens.vocabulary import Vocabulary

LOOK_BACK = 2  # tokens before the text that are encoded with it
TOKEN_BYTES = 16  # bytes of forced text that are looked at for each token asked for
ENDINGS = 32  # longer tokens whose effect on the end of a text is looked at
MAX_KEPT = 50_000  # entries of a cache before it starts afresh


def tokenize_after(vocab: Vocabulary, context_ids: Sequence[int], text: bytes, look_back: int = LOOK_BACK) -> list[int]:
    """The tokens of `text` in the tokenizer's own way, behind `context_ids`.

    The last `look_back` tokens of the context are encoded along. Where that gives no border at the context's end (the
    context was written otherwise than the tokenizer would), `text` is encoded from there alone. The bytes of the answer
    are a prefix of `text`: what follows no whole character is left out, and so is what no token writes.
    """
    return encode_behind(vocab, written_before(vocab, context_ids, look_back), text)[0]


def encode_behind(vocab: Vocabulary, left: bytes, text: bytes) -> tuple[list[int], bool]:
    """The tokens of `text` behind `left`, and whether the tokenizer would have put a border between them."""
    ids = _behind(vocab, left, text)
    if ids is not None:
        return ids, True
    head = 0  # bytes that end a character of the context
    while head < len(text) and 0x80 <= text[head] < 0xC0:
        head += 1
    start = longest_match(vocab, text[:head])
    if len(vocab.decode(start)) == head:
        for neutral in (b"", b"\n"):  # behind a line's end no tokenizer adds a space of its own
            rest = _behind(vocab, neutral, text[head:])
            if rest is not None:
                return start + rest, False
    return longest_match(vocab, text), False


def _behind(vocab: Vocabulary, left: bytes, text: bytes) -> list[int] | None:
    """The tokens of `text` in the encoding of `left` and `text`, None where there is no border between them."""
    found = _encode(vocab, left + text)
    if found is None:
        return None
    ids, at = found
    index = 0
    while at < len(left) and index < len(ids):
        at += len(vocab.written[ids[index]])
        index += 1
    return ids[index:] if at == len(left) else None


def longest_match(vocab: Vocabulary, text: bytes) -> list[int]:
    """The longest token that fits, again and again; stops where none does."""
    ids, at, known = [], 0, vocab.first_ids
    while at < len(text):
        size = min(vocab.longest, len(text) - at)
        while size and text[at : at + size] not in known:
            size -= 1
        if not size:
            break
        ids.append(known[text[at : at + size]])
        at += size
    return ids


def written_before(vocab: Vocabulary, context_ids: Sequence[int], look_back: int = LOOK_BACK) -> bytes:
    """What the last `look_back` tokens write, from a whole character on; a special token cuts it."""
    left, written = b"", vocab.written
    for index in range(1, min(len(context_ids), look_back + 3) + 1):
        if index > look_back and not (left and 0x80 <= left[0] < 0xC0):
            break
        token = context_ids[-index]
        if not 0 <= token < len(written) or not written[token]:
            break
        left = written[token] + left
    start = 0
    while start < len(left) and 0x80 <= left[start] < 0xC0:
        start += 1
    return left[start:]


def _encode(vocab: Vocabulary, data: bytes) -> tuple[list[int], int] | None:
    """The tokenizer's ids for `data` without an incomplete last character, and where in `data` they begin.

    That is 0, or -1 where the tokenizer writes a space in front of every text. None where it does not write these very
    bytes: what is not UTF-8, special tokens spelled out, normalised characters.
    """
    if vocab.encode is None:
        ids = longest_match(vocab, data)
        return (ids, 0) if vocab.decode(ids) == data else None
    try:
        text = data[: whole_characters(data)].decode()
    except UnicodeDecodeError:
        return None
    ids = vocab.encode(text) if text else []
    written = vocab.written
    back = b"".join([written[i] if i < len(written) else b"" for i in ids])
    if back == text.encode():
        return ids, 0
    if back == b" " + text.encode():
        return (ids[1:], 0) if written[ids[0]] == b" " else (ids, -1)
    return None


def whole_characters(data: bytes) -> int:
    """How many of the bytes there are before an incomplete UTF-8 character at the end."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2
            return len(data) - back if needs > back else len(data)
        if byte < 0x80:
            break
    return len(data)


@dataclass(frozen=True)
class Span:
    """What the grammar forces from one configuration on.

    text: the forced bytes; end: the configuration behind them. tokens: those that the tokenizer would write whatever
    follows; tail: those after them, which other tokens may replace. risks: for each of `tail`, the bytes behind the
    text with which that may happen. natural: whether the tokenizer would have put a border where the context ends;
    where not, whoever wrote the context meant something else. cut: more may be forced than was looked at.
    """

    text: bytes
    end: int
    tokens: tuple[int, ...]
    tail: tuple[int, ...]
    risks: tuple[frozenset[int], ...]
    natural: bool
    cut: bool = False


class Spans:
    """Spans of one vocabulary and one arena, kept: each depends on a configuration and on the last few tokens only."""

    def __init__(self, vocab: Vocabulary):
        self.vocab = vocab
        self._runs: dict[tuple, tuple[bytes, int]] = {}
        self._spans: dict[tuple, Span] = {}
        self._longer: dict[tuple, frozenset[int]] = {}
        self._moved: dict[tuple, tuple[tuple[int, int], ...]] = {}

    def run(self, recognizer: Recognizer, config: int, limit: int, through_end: bool) -> tuple[bytes, int]:
        """`recognizer.forced`, kept."""
        key = (config, limit, through_end)
        found = self._runs.get(key)
        if found is None:
            found = recognizer.forced(config, limit, through_end)
            _room(self._runs)[key] = found
        return found

    def span(
        self,
        recognizer: Recognizer,
        config: int,
        context_ids: Sequence[int],
        limit: int,
        through_end: bool = False,
        before: bytes = b"",
        most: int = 0,
    ) -> Span:
        """The span at `config`, of at most `limit` tokens.

        before: bytes that stand between the context and `config` and are not yet written in tokens. most: forced bytes
        that are looked at (0: what the tokens may take).
        """
        most = most or (limit + 4) * TOKEN_BYTES
        run, end = self.run(recognizer, config, most, through_end)
        text = before + run
        if not text:
            return Span(text, end, (), (), (), True)
        left, cut = written_before(self.vocab, context_ids), len(run) == most
        key = (end, text, limit, left, cut)
        span = self._spans.get(key)
        if span is None:
            ids, natural = encode_behind(self.vocab, left, text)
            if cut:
                ids = ids[: _count(self.vocab, ids, len(text) - 2 * TOKEN_BYTES)]
            elif len(self.vocab.decode(ids)) < len(text):  # of a character cut in two more may be in the last token
                ids = ids[:-1]
            ids = tuple(ids[:limit])
            risks = self._risks(recognizer, end, text, ids)
            kept = len(ids) - len(risks)
            span = Span(text, end, ids[:kept], ids[kept:], risks, natural, cut)
            _room(self._spans)[key] = span
        return span

    def _risks(self, recognizer: Recognizer, end: int, text: bytes, ids: Sequence[int]) -> tuple[frozenset[int], ...]:
        """From the first token on that may come out otherwise: the bytes behind `text` with which it may."""
        at, risk, risks = 0, frozenset(), []
        moved = self.moved(recognizer, end, text)
        for token in ids:
            if len(text) - at < self.vocab.longest:
                risk |= self.longer(recognizer, end, text[at:])
            at += len(self.vocab.written[token])
            risk |= frozenset(byte for border, byte in moved if border < at)
            if risk:
                risks.append(risk)
        return tuple(risks)

    def longer(self, recognizer: Recognizer, end: int, rest: bytes) -> frozenset[int]:
        """The bytes behind `rest` in legal tokens that begin with `rest` and are longer."""
        key = (end, rest)
        found = self._longer.get(key)
        if found is None:
            ordered, at = self.vocab.ordered, bisect_right(self.vocab.ordered, rest)
            some = at < len(ordered) and ordered[at].startswith(rest)
            legal = recognizer.first_bytes(end).nonzero()[0].tolist() if some else ()
            found = frozenset(b for b in legal if any(legal_endings(recognizer, self.vocab, end, rest, b)))
            _room(self._longer)[key] = found
        return found

    def moved(self, recognizer: Recognizer, end: int, text: bytes) -> tuple[tuple[int, int], ...]:
        """(border, byte): with this byte behind `text` it may come out as other tokens from this border on.

        A merge that crosses the end from inside of a token moves the border before it as well: `ab` + `c` may come out
        as `a`, `bc`. Looked at are up to ENDINGS tokens that cross the end, shortest first.
        """
        key = (end, text)
        found = self._moved.get(key)
        if found is None:
            borders, moved, endings = _borders(self.vocab, text), set(), set()
            for at in range(max(1, len(text) - self.vocab.longest + 1), len(text)):
                if at not in borders:  # at a border the longer token itself is the risk
                    for byte in self.longer(recognizer, end, text[at:]):
                        endings.update(islice(legal_endings(recognizer, self.vocab, end, text[at:], byte), 2))
            for ending in sorted(endings, key=lambda e: (len(e), e))[:ENDINGS]:
                settled = 0
                for mine, other in zip(borders, _borders(self.vocab, text + ending), strict=False):
                    if mine != other:
                        moved.add((settled, ending[0]))
                        break
                    settled = mine
            found = self._moved[key] = tuple(sorted(moved))
            if len(self._moved) > MAX_KEPT:
                self._moved.clear()
        return found


def legal_endings(recognizer: Recognizer, vocab: Vocabulary, end: int, rest: bytes, byte: int) -> Iterator[bytes]:
    """What tokens that begin with `rest` and `byte` write behind `rest`, where the grammar allows it at `end`."""
    ordered, start = vocab.ordered, rest + bytes([byte])
    at = bisect_left(ordered, start)
    while at < len(ordered) and ordered[at].startswith(start):
        if recognizer.advance(end, ordered[at][len(rest) :]):
            yield ordered[at][len(rest) :]
        at += 1


def span_store(vocab: Vocabulary, arena: Arena) -> Spans:
    """The spans that all matchers and walkers of this vocabulary and arena share."""
    store = vocab.spans.get(arena)
    if store is None:
        store = vocab.spans[arena] = Spans(vocab)
    return store


def _borders(vocab: Vocabulary, text: bytes) -> list[int]:
    """Where the tokens of `text` end, encoded on its own."""
    return list(accumulate(len(vocab.written[token]) for token in tokenize_after(vocab, (), text)))


def _count(vocab: Vocabulary, ids: Sequence[int], size: int) -> int:
    """How many of the tokens end within `size` bytes."""
    return sum(border <= size for border in accumulate(len(vocab.written[token]) for token in ids))


def _room(cache: dict) -> dict:
    if len(cache) >= MAX_KEPT:
        cache.clear()
    return cache
