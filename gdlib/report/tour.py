"""What the tour notebook shows of a text under a grammar: at each place, what is forced, legal and drafted.

A grammar is judged by bytes and a model writes tokens, and most surprises lie between the two. So every place of a text
can be looked at, between tokens or inside of one: plain data first (`look`, `place`), then HTML that also stands where
no widgets are. tour_panel.py puts controls in front of it.
"""

from __future__ import annotations

import html
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise, takewhile

import numpy as np
from IPython.display import HTML

from gdlib.decoding.generate import draft_sources
from gdlib.drafts import MAX_DRAFT
from gdlib.grammar import Grammar, GrammarError
from gdlib.models import hf, published
from gdlib.models.wheels import cache_dir
from gdlib.report.drafts import SOURCE_COLOURS
from gdlib.tokens.canonical import longest_match, tokenize_after, whole_characters
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

KINDS = ("schema", "gbnf", "regex")
SPACINGS = {"compact": "compact", "spaced": (", ", ": "), "any": "any"}  # of texts of a schema
SOURCES = ("grammar", "branches", "ngram")  # those that need no model
MAX_TEXT = 4096  # bytes that a page of chips can still be read with
MOST_STEPS = 300  # rows of the table of all places: each reads the text from its start
SAMPLE = 24  # legal tokens that are shown
RUN = 400  # forced bytes that are looked at
ENDINGS = 256  # short tokens that are tried behind a forced run, to show what they would do to it
STEPS = ("byte", "the text goes on with", "forced bytes", "legal tokens", "share", "drafts", "held back")
BYTES = Vocabulary([bytes([b]) for b in range(256)] + [b""], [256])

STYLE = """<style>
.gd-tour {font-size: 14px; line-height: 1.7; color: var(--jp-content-font-color1, inherit); max-width: 62rem}
.gd-tour .chip {font-family: var(--jp-code-font-family, monospace); white-space: pre-wrap; overflow-wrap: anywhere;
  border: 1px solid rgba(128,128,128,.55); border-radius: 3px; padding: 0 2px; margin: 0 1px; display: inline-block;
  line-height: 1.35; vertical-align: baseline}
.gd-tour .text {font-size: 15px; margin: 4px 0 8px; padding: 8px; border: 1px solid rgba(128,128,128,.35)}
.gd-tour .forced {background: rgba(0,158,115,.22); box-shadow: inset 0 -2px 0 #009e73; font-weight: 600}
.gd-tour .ahead {opacity: .72}
.gd-tour .outside {text-decoration: line-through; opacity: .7}
.gd-tour .here {border-left: 3px solid #d55e00; margin: 0 1px 0 2px; padding: 2px 0}
.gd-tour .held {border-style: dashed; opacity: .8}
.gd-tour .refused {border-style: dashed; text-decoration: line-through}
.gd-tour .took {font-size: 12px; color: var(--jp-content-font-color2, inherit)}
.gd-tour .wrong {color: var(--jp-error-color0, #a80000); font-weight: 600}
.gd-tour .bar {display: inline-block; width: 10rem; height: .7em; border: 1px solid rgba(128,128,128,.6)}
.gd-tour .bar span {display: block; height: 100%; background: #0072b2; min-width: 1px}
.gd-tour table {border-collapse: collapse; font-size: 13px}
.gd-tour th, .gd-tour td {text-align: left !important; vertical-align: top; padding: 2px 10px 2px 0; border: 0}
.gd-tour .number {text-align: right !important}
.gd-tour th {font-weight: 600; white-space: nowrap}
.gd-tour thead th {border-bottom: 1px solid rgba(128,128,128,.6)}
.gd-tour .facts > tbody > tr > td {width: 100%}
</style>"""


class TourError(ValueError):
    """Something in what the reader pasted; the message is one line, and all that is shown."""


@dataclass(frozen=True)
class Look:
    """A text, read once under a grammar and in the tokens of a vocabulary.

    text: all of it; read: its bytes that conform and that the vocabulary can write; ids: the tokens of these, as the
    tokenizer writes them behind prompt_ids; forced: for each of these bytes, whether the grammar left no other. wrong:
    why `read` ends before the text does, "" where it does not. whole: the bytes read are a sentence of the grammar.
    """

    grammar: Grammar
    vocab: Vocabulary
    name: str
    text: bytes
    prompt_ids: list[int]
    read: int
    ids: list[int]
    forced: list[bool]
    wrong: str
    whole: bool

    @property
    def borders(self) -> list[int]:
        """Bytes before each token, and behind the last one: the places of the walk by tokens."""
        return [0, *accumulate(len(self.vocab.tokens[token]) for token in self.ids)]


@dataclass(frozen=True)
class Place:
    """What the grammar says at one place of a text.

    at: bytes before it, ids: the same in tokens; next: what the text goes on with; open: the bytes that may come next,
    and stop: whether the text may end; forced: the bytes from here on that leave no choice. legal: how many tokens may
    come next, sample: some of them. drafts: the forced bytes in the model's tokens as far as they are settled, held:
    the tokens behind those, why: what keeps them back.
    """

    at: int
    ids: list[int]
    next: bytes
    open: list[int]
    stop: bool
    forced: bytes
    legal: int
    sample: list[int]
    drafts: list[int]
    held: list[int]
    why: str


@dataclass(frozen=True)
class Guess:
    """A draft that a source proposes: ids, and how many of the first ones the text really goes on with."""

    source: str
    ids: list[int]
    agreed: int


def vocabularies() -> list[str]:
    """The vocabularies that can be had here and now, without a network: the default one first."""
    cached = [hf.SMOLLM2] if (cache_dir() / f"{hf.SMOLLM2}-{hf._GGUF_SHA256[:12]}").is_dir() else []
    files = {
        name: cache_dir() / f"{name}-{source.file_sha256[:12]}" / source.file.rsplit("/", 1)[-1]
        for name, source in published.SOURCES.items()
    }
    return [*cached, hf.TINY_MOE, *(name for name, path in files.items() if path.is_file())]


@lru_cache(maxsize=4)
def vocabulary(name: str) -> Vocabulary:
    """`llama3`, `tekken`, or that of a model's tokenizer. Raises ModelError, VocabularyError."""
    if name in published.SOURCES:
        return published.published_vocabulary(name)[0]
    return Vocabulary.from_hf(hf.load_tokenizer(name))


def read_grammar(kind: str, text: str, spacing: str = "compact") -> Grammar:
    """The grammar of a pasted JSON Schema, GBNF text or regex. TourError, in one line, where it is none.

    spacing: of texts of a schema: compact, spaced (behind : and ,) or any. Members come in the schema's order.
    """
    if kind not in KINDS or spacing not in SPACINGS:
        raise TourError(f"kind {kind!r}, spacing {spacing!r}: want one of {', '.join(KINDS)} and {', '.join(SPACINGS)}")
    if not text.strip() and kind != "regex":
        raise TourError("no grammar yet: paste one")
    try:
        if kind == "gbnf":
            grammar = Grammar.from_gbnf(text)
        elif kind == "regex":
            grammar = Grammar.from_regex(text)
        else:
            grammar = Grammar.from_json_schema(json.loads(text), whitespace=SPACINGS[spacing], order="schema")
        empty = not len(Matcher(grammar, BYTES).allowed_ids())
    except json.JSONDecodeError as error:
        raise TourError(f"schema, line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from error
    except RecursionError as error:
        raise TourError(f"the {kind} is nested too deeply to be read") from error
    except ValueError as error:  # GrammarError is one, and so is a number of more digits than Python reads
        named = "gbnf, " if kind == "gbnf" else ""  # the others name themselves
        raise TourError(f"{named}{_one_line(error)}") from error
    if empty:
        raise TourError("the grammar admits no text at all")
    return grammar


def look(grammar: Grammar, vocab: Vocabulary, text: str, prompt: str = "", name: str = "the vocabulary") -> Look:
    """Read a text from the grammar's start. prompt: what stands before it, for the tokenizer and for n-grams.

    A text that leaves the grammar, or that no tokens write, is read as far as it goes. TourError where it is too long.
    """
    data = text.encode(errors="surrogatepass")
    if len(data) > MAX_TEXT:
        raise TourError(f"the text has {len(data):,} bytes, and the tour shows {MAX_TEXT:,}: paste less of it")
    matcher, forced, wrong = Matcher(grammar, BYTES), [], ""
    try:
        for at, byte in enumerate(data):
            only = matcher.only_token()
            if not matcher.accept(byte):
                where = f"come behind {_last(data[:at])}" if at else "begin a text"
                wrong = f"The text leaves the grammar at byte {at}: {_first(data[at:])} may not {where}; "
                wrong += f"{_what_may(matcher)}."
                break
            forced.append(only >= 0)
    except GrammarError as error:
        raise TourError(f"the text asks too much of the grammar: {_one_line(error)}") from error
    read = len(forced)
    prompt_ids = written(vocab, (), prompt.encode(errors="surrogatepass"))
    ids = written(vocab, prompt_ids, data[:read])
    reach = len(vocab.decode(ids))
    if reach < read:
        wrong = f"No token of {name} writes {_first(data[reach:])} at byte {reach}: a model of it cannot go on here."
        matcher.rollback(read - reach)
    return Look(grammar, vocab, name, data, prompt_ids, reach, ids, forced[:reach], wrong, matcher.can_stop())


def written(vocab: Vocabulary, context_ids: Sequence[int], data: bytes) -> list[int]:
    """The tokenizer's own tokens of `data`, and single bytes for a character cut in two; they end where none fits."""
    ids = tokenize_after(vocab, context_ids, data)
    return ids + longest_match(vocab, data[len(vocab.decode(ids)) :])


def place(seen: Look, at: int) -> Place:
    """What can be said behind the first `at` bytes, `guesses` apart. ValueError where the text was not read so far."""
    if not 0 <= at <= seen.read:
        raise ValueError(f"place {at}: the text was read to byte {seen.read}")
    vocab, head, rest = seen.vocab, seen.text[:at], seen.text[at : seen.read]
    by_bytes = Matcher(seen.grammar, BYTES)
    for byte in head:
        by_bytes.accept(byte)
    borders = seen.borders
    index = bisect_right(borders, at) - 1
    between = borders[index] == at
    ids = seen.ids[:index] if between else written(vocab, seen.prompt_ids, head)
    matcher = Matcher(seen.grammar, vocab)
    for token in ids:
        matcher.accept(token)
    legal = matcher.allowed_ids()
    context, forced = [*seen.prompt_ids, *ids], by_bytes.forced_bytes(RUN)
    drafts = matcher.forced_tokens(context, MAX_DRAFT)
    held, why = held_back(matcher, context, forced, drafts)
    return Place(
        at,
        list(ids),
        (vocab.tokens[seen.ids[index]] if between and index < len(seen.ids) else rest[:1]),
        [int(byte) for byte in by_bytes.allowed_ids() if byte < 256],
        by_bytes.can_stop(),
        forced,
        len(legal),
        sample(legal),
        drafts,
        held,
        why,
    )


def sample(legal: np.ndarray, most: int = SAMPLE) -> list[int]:
    """At most `most` of the ids, evenly spread."""
    if len(legal) <= most:
        return legal.tolist()
    return legal[np.linspace(0, len(legal) - 1, most).astype(int)].tolist()


def held_back(matcher: Matcher, context: Sequence[int], forced: bytes, drafts: Sequence[int]) -> tuple[list[int], str]:
    """The tokens of the forced bytes that are no drafts, and why not, "" where all of them are."""
    vocab = matcher.vocab
    done = len(vocab.decode(drafts))
    if done == len(forced):
        return [], ""
    held = tokenize_after(vocab, context, forced)[len(drafts) :]
    if len(drafts) == MAX_DRAFT or len(forced) == RUN:
        return held, "the run goes on; a draft ends somewhere"
    if not held:
        cut = "no whole character is forced" if not whole_characters(forced[done:]) else "no token writes them"
        return [], cut
    behind = matcher.copy()
    for token in drafts:
        behind.accept(token)
    rest, at = forced[done:], 0
    for token in held:
        swallower = _longer(behind, rest[at:])
        if swallower is not None:
            longer, short = _quoted(vocab.tokens[swallower]), _quoted(rest[at:])
            if at == 0:
                return held, f"{longer} is legal here too, one token that takes {short} and more"
            return held, f"{longer} is legal behind it, and takes {short} and more: the border before may move with it"
        at += len(vocab.tokens[token])
        if not behind.accept(token):
            break
    return held, _moved(behind, context, forced, [*drafts, *held])


def _moved(matcher: Matcher, context: Sequence[int], forced: bytes, ids: list[int]) -> str:
    """What may follow the forced bytes so that the tokenizer cuts them otherwise. The matcher stands behind them."""
    vocab = matcher.vocab
    endings = {vocab.tokens[token] for token in matcher.allowed_ids()} - {b""}
    marks_first = sorted(endings, key=lambda e: (len(e), e[:1].isalnum() or e[0] >= 0x80, e))
    for ending in marks_first[:ENDINGS]:
        other = tokenize_after(vocab, context, forced + ending)
        if other[: len(ids)] != ids:
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(other, ids, strict=False)))
            instead = _quoted(vocab.decode(other[same : same + 1]))
            return f"where {_quoted(ending)} follows, the tokenizer writes {instead} there"
    return "with what may follow, the tokenizer may cut them otherwise"


def _longer(matcher: Matcher, rest: bytes) -> int | None:
    """A legal token that begins with `rest` and is longer, the shortest there is."""
    ordered = matcher.vocab.ordered
    legal, found = set(matcher.allowed_ids().tolist()), []
    at = bisect_right(ordered, rest)
    while at < len(ordered) and ordered[at].startswith(rest):
        token = matcher.vocab.first_ids[ordered[at]]
        if token in legal:
            found.append(token)
        at += 1
    return min(found, key=lambda token: len(matcher.vocab.tokens[token]), default=None)


def guesses(seen: Look, here: Place, room: int = 12) -> list[Guess]:
    """What each source proposes at a place, at most `room` tokens a way, and how far the text goes along."""
    found, rest = [], seen.text[here.at : seen.read]
    for source in draft_sources(SOURCES, seen.grammar, seen.vocab, armed=True):
        source.begin(seen.prompt_ids)
        source.commit(here.ids)
        for way in source.propose((), room):
            agreed, at = 0, 0
            for token in way:
                text = b"" if token in seen.vocab.eos_ids else seen.vocab.tokens[token]
                if not rest.startswith(text, at) or (not text and at < len(rest)):
                    break
                agreed, at = agreed + 1, at + len(text)
            found.append(Guess(source.name, list(way), agreed))
    return found


# How it looks. Everything that came from outside goes through `_shown`, which escapes it.


def summary(seen: Look) -> str:
    """One line of HTML on the whole text: how long, how much of it forced, and what is wrong with it."""
    count, size = sum(seen.forced), len(seen.text)
    if not size:
        return _status("The text is empty: the place is before its first token, where anything may begin.")
    ends = "a whole sentence of the grammar" if seen.whole else "the beginning of one; the grammar wants more"
    line = f"{_counted(size, 'byte')} in {_counted(len(seen.ids), 'token')} of {seen.name} ({len(seen.vocab):,} tokens)"
    line += f"; the grammar forces {count} of them ({100 * count / size:.0f}%)"
    if seen.wrong:
        return _status(f"{seen.wrong} The steps go so far.", wrong=True)
    return _status(f"{line}. The text is {ends}.")


def _status(line: str, wrong: bool = False) -> str:
    mark = "✗ " if wrong else ""
    return f'<div class="gd-tour"><p role="status"{" class=wrong" if wrong else ""}>{mark}{html.escape(line)}</p></div>'


def refusal(error: Exception) -> str:
    """One line of HTML for what could not be done."""
    return STYLE + _status(_one_line(error), wrong=True)


def text_html(seen: Look, at: int) -> str:
    """The text as chips of tokens, forced bytes marked, and where we stand in it."""
    parts, borders = [], seen.borders
    mark = '<span class="here" role="img" aria-label="the place"></span>'
    for begin, end in pairwise(borders):
        if begin == at:
            parts.append(mark)
        inner, start = [], begin
        for index in range(begin + 1, end + 1):
            if index in (end, at) or seen.forced[index] != seen.forced[start]:
                kind = "forced" if seen.forced[start] else ""
                inner.append(f'<span class="{kind}">{_shown(seen.text[start:index])}</span>')
                inner.append(mark if index == at and index < end else "")
                start = index
        parts.append(f'<span class="chip{" ahead" if begin >= at else ""}">{"".join(inner)}</span>')
    if at == borders[-1]:
        parts.append(mark)
    if seen.read < len(seen.text):
        parts.append(f'<span class="chip outside">{_shown(seen.text[seen.read :])}</span>')
    return f'<div class="text">{"".join(parts)}</div>'


def place_html(seen: Look, here: Place) -> str:
    """One place as HTML: the text with the place in it, and what is forced, legal and drafted there."""
    total, vocab, proposed = len(seen.vocab), seen.vocab, guesses(seen, here)
    end = "the text may end here" if here.stop else "the text may not end here"
    if here.forced:
        forced = f"{_chip(here.forced, 'forced')} {_counted(len(here.forced), 'byte')} without a choice"
    elif not here.open:
        forced = "nothing: the sentence is complete, and nothing may follow"
    else:
        some = "".join(_chip(bytes([byte])) for byte in here.open[:SAMPLE])
        more = " …" if len(here.open) > SAMPLE else ""
        forced = f"nothing: {_counted(len(here.open), 'byte')} may come next: {some}{more}"
    share = here.legal / total
    legal = (
        f'<span class="bar" aria-hidden="true"><span style="width:{100 * share:.1f}%"></span></span> '
        f"{here.legal:,} of {total:,} tokens ({_percent(share)}){', among them' if here.legal > SAMPLE else ':'} "
        + "".join(_token(vocab, token) for token in here.sample)
    )
    drafts = "".join(_token(vocab, token, "forced") for token in here.drafts) or "none"
    if here.held or here.why:
        held = "".join(_token(vocab, token, "held") for token in here.held)
        drafts += f"<br>held back: {held} <span class=took>{html.escape(here.why)}</span>"
    rows = {
        "The text goes on with": _chip(here.next) if here.next else "nothing: it ends here",
        "Forced bytes": f"{forced}; {end}",
        "The mask": legal,
        "Forced tokens": drafts,
        **{f"Drafts: {name}": _guesses_html(seen, proposed, name) for name in SOURCES},
    }
    body = "".join(f"<tr><th scope=row>{head}</th><td>{cell}</td></tr>" for head, cell in rows.items())
    where = f"behind byte {here.at} of {len(seen.text)}"
    return (
        f'{STYLE}<div class="gd-tour">{text_html(seen, here.at)}'
        f'<table class="facts"><caption class="took" style="text-align:left">{where}</caption><tbody>{body}</tbody>'
        "</table></div>"
    )


def _guesses_html(seen: Look, proposed: Sequence[Guess], name: str) -> str:
    colour, lines = SOURCE_COLOURS[name], []
    for guess in (guess for guess in proposed if guess.source == name):
        chips = "".join(
            _token(seen.vocab, token, "" if index < guess.agreed else "held", colour if index < guess.agreed else "")
            for index, token in enumerate(guess.ids)
        )
        lines.append(f"{chips} <span class=took>the text takes {guess.agreed} of {len(guess.ids)}</span>")
    return "<br>".join(lines) or "nothing to propose"


def steps(seen: Look | None) -> HTML:
    """Every place between tokens as one table: it stands where widgets do not, and prints. None: says why not."""
    if seen is None:
        return HTML(STYLE + _status("Nothing could be read, so there are no steps."))
    vocab, rows = seen.vocab, []
    for at in seen.borders[:MOST_STEPS]:
        here = place(seen, at)
        drafts = "".join(_token(vocab, token, "forced") for token in here.drafts)
        held = "".join(_token(vocab, token, "held") for token in here.held)
        forced = _chip(here.forced, "forced") if here.forced else ""
        share = _percent(here.legal / len(vocab))
        cells = (str(at), _chip(here.next) if here.next else "end", forced, f"{here.legal:,}", share, drafts, held)
        rows.append("".join(_cell(name, cell) for name, cell in zip(STEPS, cells, strict=True)))
    heads = "".join(_cell(name, name, "th scope=col") for name in STEPS)
    more = len(seen.borders) - len(rows)
    left = f"<p>{more:,} places more are left out here; the slider has them.</p>" if more else ""
    return HTML(
        f'{STYLE}<div class="gd-tour">{summary(seen)}<table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>{left}</div>"
    )


def _cell(column: str, content: str, tag: str = "td") -> str:
    number = " class=number" if column in ("byte", "legal tokens", "share") else ""
    return f"<{tag}{number}>{content}</{tag.split()[0]}>"


def _shown(data: bytes) -> str:
    """Bytes to be read on a page: whole characters as they are, others in hex, line ends and tabs as signs."""
    text = data.decode(errors="backslashreplace")
    text = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    return html.escape(text.replace("\n", "⏎").replace("\t", "⇥"))


def _chip(data: bytes, kind: str = "", colour: str = "") -> str:
    look_of = f' style="background:{colour}2e;border-color:{colour}"' if colour else ""
    spaces = _shown(data).replace(" ", "␣") if data != b"" else "∅"
    return f'<span class="chip {kind}"{look_of}>{spaces}</span>'


def _token(vocab: Vocabulary, token: int, kind: str = "", colour: str = "") -> str:
    if token in vocab.eos_ids:
        return _chip(b"", kind, colour).replace("∅", "end of text")
    return _chip(vocab.tokens[token] if token < len(vocab) else b"", kind, colour)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%" if share >= 0.001 or not share else "under 0.1%"


def _readable(data: bytes) -> str:
    text = data.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _quoted(data: bytes) -> str:
    return f"‘{_readable(data)}’"


def _first(data: bytes) -> str:
    """The first character, quoted; where the bytes begin with none, the first of them."""
    size = next((size for size in range(1, 5) if not data[:size].decode(errors="replace").startswith("\ufffd")), 1)
    return _quoted(data[:size])


def _last(data: bytes, characters: int = 12) -> str:
    """The end of what is behind us, quoted."""
    text = _readable(data)
    return f"‘{text}’" if len(text) <= characters else f"‘…{text[-characters:]}’"


def _what_may(matcher: Matcher) -> str:
    legal = [int(byte) for byte in matcher.allowed_ids() if byte < 256]
    end = " or the end" if matcher.can_stop() else ""
    if not legal:
        return "only the end may"
    some = " ".join(_quoted(bytes([byte])) for byte in legal[:8])
    return f"what may is {some}{' …' if len(legal) > 8 else ''}{end}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
