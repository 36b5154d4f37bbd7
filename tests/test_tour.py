"""The tour: what it says of a place is what the engine says, its widgets answer, and bad input is one clear line."""

import html
import re
from itertools import pairwise

import nbformat
import pytest
from nbclient import NotebookClient

from gdlib.bench import sweep
from gdlib.grammar import Grammar
from gdlib.report import tour, tour_panel, tour_writing
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

NOTEBOOK = sweep.root() / "notebooks" / "tour.ipynb"
SCHEMA = """{"type": "object", "properties": {"name": {"type": "string"}, "on": {"type": "boolean"}},
"required": ["name", "on"], "additionalProperties": false}"""
TEXT = '{"name":"Zoë \U0001f600","on":true}'
NAME = "tiny-moe"


def seen(text=TEXT, kind="schema", grammar=SCHEMA, prompt="", spacing="compact"):
    return tour.look(tour.read_grammar(kind, grammar, spacing), tour.vocabulary(NAME), text, prompt, NAME)


def words(page):
    """What is read of some HTML."""
    return " ".join(html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.S)).split())


def test_a_look_splits_the_text_at_its_tokens_and_marks_what_is_forced():
    read = seen()
    assert read.whole and not read.wrong and read.read == len(TEXT.encode())
    assert [read.text[a:b] for a, b in pairwise(read.borders)] == [read.vocab.tokens[i] for i in read.ids]
    forced = bytes(byte for byte, flag in zip(read.text, read.forced, strict=True) if flag)
    assert forced == b'{"name":"' + b',"on":' + b"rue}"


@pytest.mark.parametrize("at", range(len(TEXT.encode()) + 1))
def test_a_place_says_what_the_matcher_says(at):
    """At every byte, also inside of tokens and of characters."""
    read = seen()
    here = tour.place(read, at)
    matcher = Matcher(read.grammar, read.vocab)
    assert all(matcher.accept(token) for token in here.ids)
    assert read.vocab.decode(here.ids) == read.text[:at]
    assert here.forced == matcher.forced_bytes() and here.stop == matcher.can_stop()
    legal = matcher.allowed_ids().tolist()
    assert here.legal == len(legal) and set(here.sample) <= set(legal)
    assert here.drafts == matcher.forced_tokens(here.ids, 48)
    written = read.vocab.decode([*here.drafts, *here.held])
    assert here.forced.startswith(written) and bool(here.why) == (read.vocab.decode(here.drafts) != here.forced)
    for guess in tour.guesses(read, here):
        assert len(guess.ids) >= guess.agreed
        assert read.text[at:].startswith(read.vocab.decode(guess.ids[: guess.agreed]))


def test_what_is_held_back_is_held_back_for_a_reason_that_holds():
    """The key's end may be swallowed: `orderId` is one token and begins with the forced `order`."""
    vocab = Vocabulary([*(bytes([b]) for b in range(128)), b"order", b"orderId", b""], [130])
    read = tour.look(Grammar.from_gbnf('root ::= "order" ("Id" | "Name")'), vocab, "orderName")
    here = tour.place(read, 0)
    assert (here.forced, here.drafts) == (b"order", []) and vocab.decode(here.held) == b"order"
    assert "‘orderId’" in here.why and "takes ‘order’ and more" in here.why
    moved = tour.place(seen('{"name":"x","on":true}'), 2)
    assert moved.held and re.search("where ‘.*’ follows, the tokenizer writes|is legal", moved.why)


def test_drafts_copy_the_text_before_and_are_held_against_the_text():
    before = '{"name":"Ann","on":true}\n'
    read = seen('{"name":"Ann","on":false}', prompt=before)
    ways = [guess for guess in tour.guesses(read, tour.place(read, 0)) if guess.source == "ngram"]
    assert not ways  # nothing of two tokens stood before in the same way
    copied = [guess for guess in tour.guesses(read, tour.place(read, read.borders[2])) if guess.source == "ngram"]
    assert copied and 0 < copied[0].agreed < len(copied[0].ids)


@pytest.mark.parametrize(
    ("kind", "grammar", "said"),
    [
        ("schema", '{"type": ', "line 1"),
        ("schema", '{"type": "strang"}', "JSON Schema at #"),
        ("schema", "[" * 100_000, "schema"),
        ("schema", "", "no grammar yet"),
        ("schema", "false", "no JSON value"),
        ("gbnf", 'root ::= root "a"', "admits no text"),
        ("gbnf", "root ::= rest", "gbnf, line 1, column 10"),
        ("regex", "(a", "regex '(a': offset 0"),
    ],
)
def test_a_bad_grammar_is_one_line(kind, grammar, said):
    with pytest.raises(tour.TourError) as caught:
        tour.read_grammar(kind, grammar)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_text_that_leaves_the_grammar_is_read_up_to_there():
    read = seen('{"name":"x","no":true}')
    assert read.read == 13 and not read.whole
    assert "leaves the grammar at byte 13: ‘n’ may not come behind" in read.wrong and "‘o’" in read.wrong
    assert "no" in words(tour.text_html(read, 0)) and tour.place(read, 13).open == [ord("o")]
    assert seen('{"name": "x"}').read == 8 and seen('{"name": "x","on": true}', spacing="any").whole
    assert "‘0’ may not begin a text; what may is ‘a’." in seen("0", "regex", "a").wrong
    assert "only the end may" in seen("aa", "regex", "a").wrong
    with pytest.raises(ValueError, match="place 14"):
        tour.place(read, 14)


def test_a_byte_that_no_token_writes_is_named():
    vocab = Vocabulary([b"a", b"b", b""], [2])
    read = tour.look(tour.read_grammar("regex", "[a-cé]*"), vocab, "abéa", name="ab only")
    assert (read.read, read.ids) == (2, [0, 1]) and "No token of ab only writes" in read.wrong
    assert words(tour.place_html(read, tour.place(read, 2)))


def test_texts_empty_long_hostile():
    empty = seen("")
    assert "empty" in tour.summary(empty) and tour.place(empty, 0).forced == b'{"name":"'
    with pytest.raises(tour.TourError, match=r"4,097 bytes"):
        seen("x" * 4097)
    nasty = seen("</style><script>alert(1)</script>&\x00\ud800", "regex", r"[\s\S]*")
    page = tour.place_html(nasty, tour.place(nasty, 0)) + tour.steps(nasty).data + tour.summary(nasty)
    assert "<script" not in page and "&lt;" in page and "leaves the grammar at byte 36: ‘\\xa0’" in nasty.wrong


def test_the_table_has_a_row_a_token_and_one_for_the_end():
    page = tour.steps(seen()).data
    assert page.count("<tr>") == 1 + len(seen().ids) + 1 and "Nothing could be read" in tour.steps(None).data


def test_the_panel_follows_its_controls():
    made = tour_panel.panel("schema", SCHEMA, TEXT, "", NAME, place=2)
    assert made.place.max == len(made.read.ids) and made.place.value == 2
    first = made.view.value
    made.place.value = 3
    assert made.view.value != first
    at = made.at
    made.unit.value = "byte"
    assert made.place.value == made.at == at and made.place.max == len(TEXT.encode())
    made.unit.value = "token"
    assert made.place.value == 3
    made.grammar.value = "{"
    assert "✗ schema, line 1" in words(made.said.value) and made.view.value == "" and made.read is None
    made.place.value = 1  # moving goes on to be harmless
    made.kind.value = "regex"
    made.grammar.value = "[a-z]+"
    made.text.value = "abc"
    assert "3 bytes" in words(made.said.value) and made.spacing.disabled
    made.text.value = "ab1"
    assert "leaves the grammar at byte 2" in words(made.said.value) and made.place.value <= made.place.max
    made.text.value = ""
    assert "empty" in made.said.value
    assert "text/html" in made._repr_mimebundle_() and words(made.plain())


def test_every_control_says_what_it_is():
    made = tour_panel.panel("schema", SCHEMA, TEXT, "", NAME)
    for name in ("kind", "spacing", "grammar", "prompt", "text", "vocabulary", "unit", "place"):
        assert getattr(made, name).description


def test_a_vocabulary_that_cannot_be_had_is_one_line():
    made = tour_panel.panel("regex", "a*", "aa", "", "./no-such-folder")
    assert "✗ model './no-such-folder'" in words(made.said.value) and made.read is None
    made.vocabulary.value = NAME
    assert made.read is not None
    with pytest.raises(ValueError, match="kind 'xml'"):
        tour_panel.panel("xml", "a", "a")


def test_the_default_vocabulary_needs_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path))
    assert tour.vocabularies() == [NAME]
    (tmp_path / "smollm2-135m-instruct-b179c9523d0e").mkdir()
    assert tour.vocabularies()[0] == "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def done():
    grammar = tour.read_grammar("schema", SCHEMA)
    return tour_writing.write(grammar, 'One line of JSON: {"name":"Ann","on":true}\n', max_tokens=24)


def test_forwards_add_up_to_the_generation(done):
    generation, forwards = done.generation, done.forwards
    assert [token for one in forwards for token, _ in one.tokens] == generation.ids
    assert [one.number for one in forwards] == list(range(1, generation.report["forwards"] + 1))
    assert sum(len(one.refused) for one in forwards) == len(generation.rejected)
    accepted = sum(source != "model" for one in forwards for _, source in one.tokens)
    assert accepted == generation.report["accepted"] > 0
    for one, following in pairwise(forwards):
        assert one.before + len(one.tokens) == following.before
        assert f"Forward {one.number} " in words(tour_writing.forward_html(done, one.number))
    assert tour_writing.table(done).data.count("<tr>") == 1 + len(forwards)
    assert "Nothing was written" in tour_writing.table(None).data


def test_the_writer_follows_its_controls():
    looking = tour_panel.panel("schema", SCHEMA, TEXT, "A: ", NAME)
    made = tour_panel.writer(looking, NAME, ["grammar"], max_tokens=16, draft_cap=8)
    assert "tiny-moe wrote" in words(made.said.value) and made.forward.value == 2
    shown = made.view.value
    made.forward.value = 1
    assert "read the prompt" in made.view.value != shown
    looking.grammar.value = "{"
    assert "press Write" in made.said.value
    made.go.click()
    assert "✗ schema, line 1" in words(made.said.value) and made.done is None and not made.go.disabled
    looking.kind.value, looking.grammar.value, looking.prompt.value = "regex", "[a-f]{4}", ""
    made.go.click()
    assert "prompt is empty" in made.said.value
    looking.prompt.value = "A: "
    made.go.click()
    assert re.fullmatch("[a-f]{4}", made.done.generation.text)


PLAY = """
looking.place.value = 3
there = looking.view.value
looking.place.value = 4
moved = looking.view.value != there
looking.grammar.value = '{"enum": ["new", "next"]}'
left = looking.said.value
looking.text.value = '"next"'
edited = looking.said.value
looking.grammar.value = '{"enum": ['
bad = looking.said.value
looking.grammar.value = '{"enum": ["new", "next"]}'
writing.go.click()
written = writing.done.generation.text
print(repr((moved, left, edited, bad, written)))
"""


def test_the_notebook_runs_and_its_widgets_answer_in_the_kernel():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(PLAY))
    where = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    *cells, played = [cell for cell in notebook.cells if cell.cell_type == "code"]
    bundles = [output["data"] for cell in cells for output in cell.outputs if "data" in output]
    views = [data for data in bundles if "application/vnd.jupyter.widget-view+json" in data]
    assert len(views) == 2 and all("gd-tour" in data["text/html"] for data in bundles)
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
    moved, left, edited, bad, written = eval(played.outputs[-1]["text"])
    assert moved and "leaves the grammar at byte 0" in left and "a whole sentence" in edited
    assert "✗ schema, line 1" in bad and written in ('"new"', '"next"')
