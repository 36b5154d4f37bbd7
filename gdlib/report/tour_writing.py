"""The second half of the tour: a real model writes under the grammar, and the reader steps forward by forward.

A forward reads the last token and some drafted ones; what of these the model would have written itself stays, and one
token more comes free. Here that is taken apart: whose each token was, and what was refused in its place.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from IPython.display import HTML

from gdlib.decoding import Generation
from gdlib.decoding.generate import generate
from gdlib.grammar import Grammar
from gdlib.models import hf
from gdlib.models.mtp import causal
from gdlib.report.drafts import SOURCE_COLOURS
from gdlib.report.tour import STYLE, TourError, _counted, _status, _token
from gdlib.report.trace import NAMES
from gdlib.tokens.vocabulary import Vocabulary

SOURCES = ("grammar", "ngram", "mtp", "branches")
GATE = "all"  # every draft is verified: what is shown is the same on every machine, which a measured cost is not


@dataclass(frozen=True)
class Forward:
    """One forward. number: from 1, the prompt's. before: tokens of the text before it. tokens: (id, source or "model")
    of those it gave; refused: (id, source, index in the text that it stood for) of drafts that were not kept."""

    number: int
    before: int
    tokens: list[tuple[int, str]]
    refused: list[tuple[int, str, int]]


@dataclass(frozen=True)
class Written:
    """A recorded generation, its forwards in order."""

    generation: Generation
    vocab: Vocabulary
    model: str
    forwards: list[Forward]


@lru_cache(maxsize=2)
def _loaded(name: str):
    from transformers.utils import logging

    logging.disable_progress_bar()
    transformer, tokenizer = hf.load(name)
    return causal(transformer), tokenizer, Vocabulary.from_hf(tokenizer)


def write(
    grammar: Grammar,
    prompt: str,
    model: str = hf.TINY_MOE,
    sources: Sequence[str] = SOURCES,
    max_tokens: int = 64,
    constrain: bool = True,
    draft_cap: int = 8,
) -> Written:
    """Let the model go on behind the prompt, greedily, every draft verified, at most draft_cap of them a forward.

    Raises TourError for a prompt without tokens, and what `gdlib.generate` and `hf.load` raise.
    """
    loaded, tokenizer, vocab = _loaded(model)
    prompt_ids = list(tokenizer(prompt)["input_ids"])
    if not prompt_ids:
        raise TourError("the prompt is empty: the model needs something to go on from")
    generation = generate(
        loaded,
        prompt_ids,
        vocab,
        grammar=grammar,
        drafts=list(sources),
        constrain=constrain,
        max_tokens=max_tokens,
        draft_cap=draft_cap,
        gate=GATE,
        trace=True,
    )
    return Written(generation, vocab, model, forwards(generation))


def forwards(generation: Generation) -> list[Forward]:
    """The forwards of a generation that was made with trace=True."""
    found, before = [], 0
    for number in range(1, generation.report["forwards"] + 1):
        tokens = [(token, source) for token, source, forward in generation.trace if forward == number]
        refused = [(token, source, at) for token, source, forward, at in generation.rejected if forward == number]
        found.append(Forward(number, before, tokens, refused))
        before += len(tokens)
    return found


def totals(done: Written) -> str:
    """One line of HTML on the whole generation."""
    report = done.generation.report
    sources = ", ".join(
        f"{NAMES[name]} {count['accepted']} of {count['proposed']}" for name, count in report["sources"].items()
    )
    line = f"{done.model} wrote {_counted(report['tokens'], 'token')} in {_counted(report['forwards'], 'forward')}, "
    line += f"{report['tokens_per_forward']:.2f} a forward. Drafts accepted, of those that had a chance: "
    line += f"{sources or 'there were none'}."
    return _status(line)


def forward_html(done: Written, number: int) -> str:
    """The text up to and with forward `number`, and what this forward made of its drafts."""
    one, vocab = done.forwards[number - 1], done.vocab
    earlier = [pair for forward in done.forwards[: number - 1] for pair in forward.tokens]
    text = "".join(_sourced(vocab, token, source, "ahead") for token, source in earlier)
    text += '<span class="here" role="img" aria-label="this forward begins"></span>'
    text += "".join(_sourced(vocab, token, source) for token, source in one.tokens)
    rows = []
    for index, (token, source) in enumerate(one.tokens):
        who = "the model's own choice" if source == "model" else f"drafted ({NAMES[source]}), and the model agreed"
        rows.append(
            f"<tr><td>{one.before + index + 1}</td><td>{_sourced(vocab, token, source)}</td><td>{who}</td>"
            f"<td>{_refused(vocab, one, one.before + index)}</td></tr>"
        )
    beyond = [row for row in one.refused if row[2] >= one.before + len(one.tokens)]
    if beyond:
        rows.append(f"<tr><td></td><td></td><td>drafted further on, in vain</td><td>{_chips(vocab, beyond)}</td></tr>")
    heads = "".join(f"<th scope=col>{head}</th>" for head in ("token", "", "whose it is", "refused in its place"))
    return (
        f'{STYLE}<div class="gd-tour"><div class="text">{text}</div><p>{html.escape(sentence(one))}</p>'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def sentence(one: Forward) -> str:
    """What a forward did, in words."""
    if one.number == 1:
        return "Forward 1 read the prompt and gave the first token; there was nothing to draft from yet."
    accepted = [source for _, source in one.tokens if source != "model"]
    own = len(one.tokens) - len(accepted)
    drafted = len(accepted) + len(one.refused)
    if not drafted:
        return f"Forward {one.number}: nothing was proposed, so it gave one token, as plain decoding does."
    by = ", ".join(f"{NAMES[name]} {accepted.count(name)}" for name in dict.fromkeys(accepted))
    kept = f"{len(accepted)} kept ({by})" if accepted else "none kept"
    more = "and one token came free" if own else "and the text was over before one came free"
    return (
        f"Forward {one.number} read the last token and {_counted(drafted, 'drafted one')}: {kept}, "
        f"{len(one.refused)} refused, {more}. {_counted(len(one.tokens), 'token')} in one forward."
    )


def table(done: Written | None) -> HTML:
    """Every forward as one table: it stands where widgets do not, and prints. None: says why not."""
    if done is None:
        return HTML(STYLE + _status("Nothing was written, so there are no forwards."))
    rows = []
    for one in done.forwards:
        gave = "".join(_sourced(done.vocab, token, source) for token, source in one.tokens)
        by = [source for _, source, _ in one.refused]
        refused = ", ".join(f"{NAMES[name]} {by.count(name)}" for name in dict.fromkeys(by)) or "none"
        rows.append(f"<tr><td class=number>{one.number}</td><td>{gave}</td><td>{refused}</td></tr>")
    heads = "".join(f"<th scope=col>{head}</th>" for head in ("forward", "tokens it gave", "drafts it refused"))
    return HTML(
        f'{STYLE}<div class="gd-tour">{totals(done)}<p>{legend()}</p><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def legend() -> str:
    """The colours of the sources, as HTML."""
    return "Proposed by: " + " ".join(
        f'<span class="chip" style="{_style(source)}">{name}</span>'
        for source, name in NAMES.items()
        if source != "random"
    )


def _refused(vocab: Vocabulary, one: Forward, index: int) -> str:
    return _chips(vocab, [row for row in one.refused if row[2] == index])


def _chips(vocab: Vocabulary, rows: Sequence[tuple[int, str, int]]) -> str:
    return " ".join(
        f"{_token(vocab, token, 'refused', SOURCE_COLOURS[source])}<span class=took>{NAMES[source]}</span>"
        for token, source, _ in rows
    )


def _sourced(vocab: Vocabulary, token: int, source: str, kind: str = "") -> str:
    colour = "" if source == "model" else SOURCE_COLOURS[source]
    return _token(vocab, token, kind, colour).replace("<span ", f'<span title="{html.escape(NAMES[source])}" ', 1)


def _style(source: str) -> str:
    return "" if source == "model" else f"background:{SOURCE_COLOURS[source]}2e;border-color:{SOURCE_COLOURS[source]}"
