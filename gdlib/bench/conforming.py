"""Does a model write the records of the workloads? Whole lines of JSON in its greedy texts, against the grammar."""

from __future__ import annotations

from collections.abc import Sequence

from gdlib.bench.drafting import Workload
from gdlib.decoding.speculative import speculative
from gdlib.drafts.gate import AllRows
from gdlib.drafts.mtp import MTPSource
from gdlib.grammar import Grammar
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

WORKLOADS = ("ndjson", "ndjson-spaced-tolerant", "calls", "nested", "long-text", "prose-tail", "prose")
_BYTES = Vocabulary([bytes([b]) for b in range(256)] + [b""], [256])


def admitted(grammar: Grammar, lines: Sequence[bytes]) -> list[bool]:
    """For each line (without its end), whether it is a sentence of the grammar."""
    matcher = Matcher(grammar, _BYTES)
    out = []
    for line in lines:
        matcher.reset()
        out.append(all(matcher.accept(byte) for byte in line) and matcher.can_stop())
    return out


def records(prompt: bytes, text: bytes) -> list[bytes]:
    """The lines of JSON that a text ends behind its prompt, from their beginning, which may stand in the prompt."""
    whole = prompt + text
    begin = prompt.rfind(b"\n") + 1
    return [line for line in whole[begin:].split(b"\n")[:-1] if line.startswith(b"{")]


def conforming(model, tokenizer, vocab: Vocabulary, workload: Workload, prompts: int, max_tokens: int) -> dict:
    """Of the greedy continuations of the workload's first prompts: lines, conforming, tokens, forwards and mtp.

    model: a gdlib.models.mtp.MTPModel, whose head drafts (all its guesses are verified, so the text is the model's
    own). lines: whole lines of JSON; conforming: those that the grammar admits; mtp: accepted over proposed guesses.
    """
    lines, tokens, forwards, proposed, accepted = [], 0, 0, 0, 0
    for index in range(min(prompts, len(workload.prompts))):
        ids = workload.prompt_ids(tokenizer, index)
        out = speculative(model, ids, [MTPSource(model)], vocab.eos_ids, max_tokens, gate=AllRows())
        lines += records(vocab.decode(ids), vocab.decode(out.ids))
        tokens, forwards = tokens + out.report["tokens"], forwards + out.report["forwards"]
        proposed += out.report["sources"]["mtp"]["proposed"]
        accepted += out.report["sources"]["mtp"]["accepted"]
    return {
        "lines": len(lines),
        "conforming": sum(admitted(workload.grammar, lines)),
        "tokens": tokens,
        "forwards": forwards,
        "mtp": accepted / max(proposed, 1),
    }
