"""Where a text stands in a grammar, when it stands in it at all.

A draft source follows texts that nobody promised would conform: a preamble first, prose between two records, a space
where the grammar has none. So the walk begins at the first byte that the root admits, ends at a byte that does not
conform, and begins again at the next that the root admits, which may be that very byte. (Lazy arming and tolerance of
desync, as colibri's grammar drafts have them.)

What the text did at a configuration is counted. Records of one grammar meet the same configurations again and again,
so the counts say which of the ways on is likely, and the tokens that the grammar leaves open are told apart by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gdlib.drafts.bounded import RESERVE, BoundedRecognizer, Spent
from gdlib.grammar.nodes import Grammar
from gdlib.recognizers import next_arena
from gdlib.recognizers.arena import Arena, ArenaFull, LimitError
from gdlib.tokens.canonical import LOOK_BACK, MAX_KEPT, TOKEN_BYTES, Span, span_store
from gdlib.tokens.vocabulary import Vocabulary

OUTSIDE = 0  # the state of a text that stands in no sentence of the grammar
TAIL = LOOK_BACK + 3  # tokens that the encoding of a continuation may look at
SPAN_TOKENS = 48  # a draft is never longer
PIECES = (64, 256, (SPAN_TOKENS + 4) * TOKEN_BYTES)  # forced bytes that are looked at, as long as tokens are wanted
RISK = 0.1  # a token that is replaced more often than this is no draft
PRIOR = 2  # sightings that the share of bytes is worth
SEEN_ENOUGH = 8  # visits of a configuration after which a way never taken there is no longer proposed
UNSEEN, UNSEEN_SPACE = 0.5, 0.1  # sightings that a way is worth before it was seen; white space is seldom varied
MAX_FAILURES = 16  # refusals of the grammar engine after which a text is walked no further
MAX_PROMPT = 8192  # tokens of a prompt that are walked


class Walker:
    """One text's walk. `state` and `tail` (the last few tokens) belong to what was committed.

    The grammar engine's refusals never leave it: a text or grammar past a limit ends the walk, `failure` says why.
    """

    def __init__(self, grammar: Grammar, vocab: Vocabulary):
        """Raises GrammarError for a grammar that no recognizer can read."""
        self.grammar, self.vocab = grammar, vocab
        self.failure = ""
        try:
            self._open(BoundedRecognizer(grammar))
        except LimitError:
            self._open(BoundedRecognizer(grammar, "earley"))
        self.begin(())

    def _open(self, recognizer: BoundedRecognizer) -> None:
        self.recognizer = recognizer
        self.spans = span_store(self.vocab, recognizer.arena)
        self._steps: dict[tuple[int, int], tuple[int, tuple]] = {}
        self._choices: dict[int, tuple] = {}
        self._begins = frozenset(np.flatnonzero(recognizer.first_bytes(recognizer.start)).tolist())
        self.counts: dict[int, dict[int, int]] = {}  # configuration -> byte -> how often
        self.taken: dict[int, dict[int, int]] = {}  # configuration -> token -> how often
        self.state = OUTSIDE

    def begin(self, prompt_ids: Sequence[int]) -> None:
        """Start a text; the prompt is walked too, since it may end inside a sentence, or show some."""
        self.state, self.tail, self.counts, self.taken = OUTSIDE, [], {}, {}
        self.failures, self.recognizer.allowance = 0, RESERVE
        self.commit(prompt_ids[-MAX_PROMPT:])

    def arm(self) -> None:
        """Start the walk here and now: the text that follows is known to be one of the grammar."""
        self.state = self.recognizer.start

    def commit(self, ids: Sequence[int]) -> None:
        self.recognizer.earn(len(ids))
        for token in ids:
            if self.state:
                taken = self.taken.setdefault(self.state, {})
                taken[token] = taken.get(token, 0) + 1
            self.state, seen = self._steps.get((self.state, token)) or self._read_on(token)
            for config, byte in seen:
                count = self.counts.setdefault(config, {})
                count[byte] = count.get(byte, 0) + 1
        self.tail = [*self.tail, *ids][-TAIL:]

    def _read_on(self, token: int) -> tuple[int, tuple]:
        """`_step` of the text itself, which may cost more than a look ahead; where it may not, the walk is over."""
        self.recognizer.floor = -RESERVE
        found = self.tried(lambda: self._step(self.state, token), (OUTSIDE, ()))
        self.recognizer.floor = 0
        return found

    def after(self, ahead: Sequence[int]) -> tuple[int, list[int]]:
        """The state and the last few tokens behind `ahead`, which is not committed."""
        state = self.tried(lambda: self.along(self.state, ahead), OUTSIDE) if ahead else self.state
        return state, [*self.tail, *ahead][-TAIL:]

    # What follows looks ahead, and raises what the grammar engine does: a caller that went on behind a refusal would
    # hold configurations of an arena that is no longer read. `tried` is around all of it.

    def along(self, state: int, ids: Sequence[int]) -> int:
        """The state behind these tokens."""
        for token in ids:
            state = self._step(state, token)[0]
        return state

    def _step(self, state: int, token: int) -> tuple[int, tuple]:
        """The state behind one more token, and the (configuration, byte) pairs where another byte was possible."""
        key = (state, token)
        found = self._steps.get(key)
        if found is None:
            found = self._read(state, token)
            if len(self._steps) >= MAX_KEPT:
                self._steps.clear()
            self._steps[key] = found
        return found

    def _read(self, state: int, token: int) -> tuple[int, tuple]:
        recognizer, written = self.recognizer, self.vocab.written
        text = written[token] if 0 <= token < len(written) else b""
        if not text or (not state and self._begins.isdisjoint(text)):  # a special token ends what was being said
            return OUTSIDE, ()
        seen = []
        for byte in text:
            before, state = state, recognizer.step(state, byte) if state else OUTSIDE
            if state and self.is_open(before):
                seen.append((before, byte))
            if not state and byte in self._begins:
                state = recognizer.step(recognizer.start, byte)
        return state, tuple(seen)

    def is_open(self, config: int) -> bool:
        """True where the grammar leaves more than one way on, the end counted as one."""
        return self._open_bytes(config) + self.recognizer.accepting(config) > 1

    def _open_bytes(self, config: int) -> int:
        return sum(int(word).bit_count() for word in self.recognizer.arena.first[config])

    def span(self, config: int, tail: Sequence[int], before: bytes = b"", enough: int = SPAN_TOKENS) -> Span:
        """What is forced at `config`, also past the end of a sentence where one byte alone leads on.

        Looked at piece by piece, until `enough` tokens are settled or the allowance is spent.
        """
        span = None
        for most in PIECES:
            try:
                further = self.spans.span(self.recognizer, config, tail, SPAN_TOKENS, True, before, most)
            except Spent:
                if span is None:
                    raise
                return span
            span = further
            if not span.cut or len(span.tokens) >= enough:
                break
        return span

    def likely(self, state: int, span: Span) -> tuple[int, ...]:
        """The tokens of the span at `state`, and those of its tail that other tokens seldom replace.

        How seldom is estimated from the tokens that the text had at that configuration before, and from how many of the
        bytes that may follow lead to other tokens.
        """
        path = span.tokens
        for token, risk in zip(span.tail, span.risks, strict=True):
            here = self.along(state, path)
            seen = self.taken.get(here, {})
            others = sum(seen.values()) - seen.get(token, 0)
            prior = len(risk) / max(1, self._open_bytes(span.end))
            if others + PRIOR * prior > RISK * (others + seen.get(token, 0) + PRIOR):
                break
            path = (*path, token)
        return path

    def share(self, state: int, token: int, before: float) -> float:
        """How often the text goes on with this token at `state`: estimated as `before`, corrected by what it did."""
        seen = self.taken.get(state, {})
        return (seen.get(token, 0) + PRIOR * before) / (sum(seen.values()) + PRIOR)

    def ways(self, config: int, most: int) -> tuple[bool, list[tuple[int, int, float]]]:
        """The bytes that lead on from `config`, as (byte, configuration behind it, share of them), likeliest first.

        The first value is True where they are only the ways out of something open (a string's characters, digits), of
        which there are more than `most`.
        """
        key = (config, most)
        found = self._choices.get(key)
        if found is None:
            found = self._choices[key] = self._ways(config, most)
        is_loop, choices = found
        seen = self.counts.get(config, {})
        if sum(seen.values()) >= SEEN_ENOUGH:
            choices = [c for c in choices if c[0] in seen]
        weight = [seen.get(byte, 0) + (UNSEEN_SPACE if byte in b" \t\n\r" else UNSEEN) for byte, _ in choices]
        total = sum(weight)
        share = [(byte, behind, w / total) for (byte, behind), w in zip(choices, weight, strict=True)]
        return is_loop, sorted(share, key=lambda c: -c[2])[:most]

    def _ways(self, config: int, most: int) -> tuple[bool, list[tuple[int, int]]]:
        step = self.recognizer.step
        legal = np.flatnonzero(self.recognizer.first_bytes(config)).tolist()
        behind = {byte: step(config, byte) for byte in legal}
        if len(legal) <= most:
            return False, list(behind.items())
        groups: dict[int, list[int]] = {}
        for byte, target in behind.items():
            groups.setdefault(target, []).append(byte)
        inside = max(groups, key=lambda target: len(groups[target]))
        if len(groups[inside]) <= 2:
            return False, list(behind.items())
        out = []
        for target, group in groups.items():
            if target in (config, inside) or len(group) > 2 or group[0] >= 0x80:
                continue
            onward = np.flatnonzero(self.recognizer.first_bytes(target)).tolist()
            back = sum(step(target, byte) in (config, inside) for byte in onward)
            if back * 2 <= len(onward):  # else an escape, which leads back inside
                out += [(byte, target) for byte in group]
        return True, out

    def tried(self, work: Callable, otherwise):
        """`work()`, or `otherwise` where the grammar engine refuses; then the walk is over, and may begin again.

        Where no more than the allowance is spent, `otherwise` alone.
        """
        if self.failures >= MAX_FAILURES:
            return otherwise
        try:
            return work()
        except Spent:
            return otherwise
        except ArenaFull:
            self._reopen(self.recognizer.kind, lambda: next_arena(self.recognizer.arena, False))
        except LimitError as error:
            self.failure = str(error)
            if self.recognizer.kind == "pda":
                self._reopen("earley", lambda: None)
        except Exception as error:  # whatever it is, a draft that cannot be had costs no more than the draft
            self.failure = f"{type(error).__name__}: {error}"
        self.failures += 1
        self.state = OUTSIDE
        return otherwise

    def _reopen(self, kind: str, arena: Callable[[], Arena | None]) -> None:
        left = self.recognizer.allowance
        try:
            self._open(BoundedRecognizer(self.grammar, kind, arena()))
            self.recognizer.allowance = left
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"


class WalkSource:
    """What the sources that read a grammar share: a walk. armed: the text is of the grammar from its first byte."""

    def __init__(self, grammar: Grammar, vocab: Vocabulary, armed: bool = False):
        self.walker, self.armed = Walker(grammar, vocab), armed

    def begin(self, prompt_ids: Sequence[int]) -> None:
        self.walker.begin(prompt_ids)
        if self.armed:
            self.walker.arm()

    def commit(self, ids: Sequence[int]) -> None:
        self.walker.commit(ids)

    def propose(self, ahead: Sequence[int], room: int) -> list[Sequence[int]]:
        """The source's `_paths` behind `ahead`; none where the text stands outside the grammar."""
        if room <= 0 or not (ahead or self.walker.state):
            return []
        state, tail = self.walker.after(ahead)
        if state == OUTSIDE:
            return []
        return self.walker.tried(lambda: self._paths(state, tail, room), [])

    def _paths(self, state: int, tail: list[int], room: int) -> list[Sequence[int]]:
        raise NotImplementedError
