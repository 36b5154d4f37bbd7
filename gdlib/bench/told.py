"""A generation told token by token, as one text that a table can hold and the trace explorer shows.

What a loop notes on its way (whose a token was, in which forward, which rows were refused) is put beside what the
grammar says of the same text: how many bytes of a token it left no choice, and how many tokens it would have allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from gdlib.bench.drafting import forced_bytes
from gdlib.decoding import Generation
from gdlib.decoding.expert_use import PROMPT
from gdlib.grammar import Grammar
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

OUTSIDE = -1  # a token before which the text was not inside the grammar


def tell(
    generation: Generation,
    vocab: Vocabulary,
    prompt_ids: Sequence[int] = (),
    grammar: Grammar | None = None,
    experts: Sequence[dict] = (),
    constrained: bool = False,
) -> str:
    """JSON of a Generation that was made with trace=True.

    {"tokens": [[text, source or "model", forward]], "rejected": [[text, source, forward, index in the text]]}, and
    with a grammar, a list entry a token: "bytes" (its length), "forced" (of them, those the grammar left no choice),
    "legal" (tokens of the vocabulary that the grammar allowed in its place, -1 outside the grammar), and "vocabulary"
    (its size); with experts, "experts": what `note_experts` collected, one dict a forward. constrained: the grammar
    was the text's own from its first byte on, and not one to guess by that a prompt may have begun.
    """

    def text(token: int) -> str:
        return vocab.decode([token]).decode(errors="replace")

    told: dict = {
        "tokens": [[text(token), *rest] for token, *rest in generation.trace],
        "rejected": [[text(token), *rest] for token, *rest in generation.rejected],
    }
    if grammar is not None:
        before = () if constrained else prompt_ids
        pieces = [vocab.decode([token]) for token in (*before, *generation.ids)]
        told["bytes"] = [len(piece) for piece in pieces[len(before) :]]
        told["forced"] = [int(flags.sum()) for flags in forced_bytes(grammar, pieces, constrained)[len(before) :]]
        told["legal"] = legal_counts(grammar, vocab, pieces, constrained)[len(before) :]
        told["vocabulary"] = len(vocab)
    if experts:
        told["experts"] = list(experts)
    return json.dumps(told)


def legal_counts(grammar: Grammar, vocab: Vocabulary, pieces: Sequence[bytes], inside: bool = False) -> list[int]:
    """For every piece of a text, how many tokens the grammar allows where it begins; OUTSIDE where it has no say.

    The text is followed byte by byte, as `drafting.forced_bytes` follows it, so a piece may begin and end anywhere in
    the grammar. A vocabulary without a token for some byte of the text cannot stand there: OUTSIDE from that byte on,
    until the text begins anew.
    """
    matcher = Matcher(grammar, vocab)
    out = []
    for piece in pieces:
        out.append(len(matcher.allowed_ids()) if inside else OUTSIDE)
        inside = inside and bool(piece)  # a special token ends what was being said
        for byte in piece:
            token = vocab.first_ids.get(bytes([byte]), -1)
            inside = inside and matcher.accept(token)
            if not inside:
                matcher.reset()
                inside = matcher.accept(token)
    return out


def note_experts(into: list[dict]) -> Callable[[object, list[str], list[bool]], None]:
    """For `generate(on_forward=...)`: one dict a forward that read a model with its experts on disk.

    forward (1 is the prompt's), distinct (experts that its rows asked for, summed over layers), loads (of them read
    from disk), miss_bytes (of these).
    """

    def note(log, sources: list[str], kept: list[bool]) -> None:
        # the first forward is the prompt's, and leaves no log where the prompt was in the cache
        forward = 1 if sources[0] == PROMPT else into[-1]["forward"] + 1 if into else 2
        into.append(
            {
                "forward": forward,
                "distinct": sum(len({int(e) for e in layer.reshape(-1)}) for layer in log.selected),
                "loads": int(log.loads),
                "miss_bytes": int(log.miss_bytes),
            }
        )

    return note
