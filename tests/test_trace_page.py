"""What a trace tells of a text, and the page that shows it: nothing left out, nothing that becomes markup."""

import json

import numpy as np
import pytest

from gdlib import Grammar, Vocabulary
from gdlib.bench import drafting, told
from gdlib.decoding import Generation
from gdlib.report import trace

RECORDS = Grammar.from_gbnf(r'root ::= r ("\n" r)* "\n"?' + "\n" + r'r ::= "{\"id\":" [0-9]+ "}"')
TOKENS = [bytes([b]) for b in range(256)] + [b"", b'{"', b'id":', b"12"]
EOS, OPEN, KEY, TWELVE = 256, 257, 258, 259


@pytest.fixture(scope="module")
def vocab():
    return Vocabulary(TOKENS, [EOS])


def generation():
    ids = [OPEN, KEY, TWELVE, ord("}"), EOS]
    found = [(OPEN, "model", 1), (KEY, "grammar", 2), (TWELVE, "ngram", 2), (ord("}"), "model", 2), (EOS, "model", 3)]
    return Generation(ids, "eos", trace=found, rejected=[(ord("7"), "branches", 2, 2), (ord("9"), "ngram", 3, 4)])


def test_a_trace_tells_forced_bytes_and_masks(vocab):
    read = json.loads(told.tell(generation(), vocab, list(b'{"id":1}\n'), RECORDS))
    assert [token[0] for token in read["tokens"]] == ['{"', 'id":', "12", "}", ""]
    assert read["bytes"] == [2, 4, 2, 1, 0] and read["vocabulary"] == len(TOKENS)
    # behind the first record a { or the end of the text: of one byte alone, so it counts; then the key; digits are free
    assert read["forced"] == [2, 4, 0, 0, 0]
    assert read["legal"][1] == 2 and read["legal"][2] == 11 and read["legal"][3] == 12  # i or id":, digits or 12, and }
    assert read["legal"][4] == 2  # a new line, or the end
    plain = json.loads(told.tell(generation(), vocab))
    assert set(plain) == {"tokens", "rejected"}


def test_a_constrained_text_begins_in_the_grammar_whatever_its_prompt_was(vocab):
    for prompt in (b"", b'such as {"id":'):
        read = json.loads(told.tell(generation(), vocab, list(prompt), RECORDS, constrained=True))
        assert read["forced"] == [2, 4, 0, 0, 0] and read["legal"][:3] == [2, 2, 11]  # { or {", then as ever


def test_masks_are_those_of_the_matcher_and_none_outside_the_grammar(vocab):
    pieces = [b"So: ", b'{"', b'id":', b"12", b"}", b" and"]
    counts = told.legal_counts(RECORDS, vocab, pieces)
    from gdlib import Matcher

    matcher = Matcher(RECORDS, vocab)
    assert counts[:2] == [told.OUTSIDE, told.OUTSIDE]
    for count, token in zip(counts[2:], (OPEN, KEY, TWELVE, ord("}")), strict=True):
        assert matcher.accept(token)
        assert count == len(matcher.allowed_ids())
    flags = drafting.forced_bytes(RECORDS, pieces)
    assert [int(f.sum()) for f in flags] == [0, 1, 4, 0, 0, 0]


def test_experts_are_noted_by_forward():
    class Log:
        selected = (np.array([[0, 1], [1, 2]]), np.array([[5, 6], [5, 6]]))
        loads, miss_bytes = 3, 3000

    into = []
    note = told.note_experts(into)
    note(Log, ["prompt", "prompt"], [True, True])
    note(Log, ["text", "grammar"], [True, False])
    assert into[1] == {"forward": 2, "distinct": 5, "loads": 3, "miss_bytes": 3000}
    kept = []
    told.note_experts(kept)(Log, ["text"], [True])
    assert kept[0]["forward"] == 2  # the prompt was in the cache and took no forward


def test_a_page_of_its_own_shows_every_token_and_no_markup(vocab, tmp_path):
    record = json.loads(told.tell(generation(), vocab, list(b'{"id":1}\n'), RECORDS))
    record["tokens"][0][0] = "</script><b>"
    record["experts"] = [{"forward": 2, "distinct": 5, "loads": 3, "miss_bytes": 3_000_000}]
    path, page = tmp_path / "a.json", tmp_path / "a.html"
    path.write_text(json.dumps(record))
    assert trace.main([str(path), str(page)]) == 0
    shown = page.read_text()
    assert (
        shown.count('role="option"') == 5 and "<b>" not in shown and "5 asked for, 3 read from disk (3.00 MB)" in shown
    )
    assert shown.count("</script>") == 2  # the record and the script itself, and not the token
    notes = trace.notes(record, 2)
    assert notes["refused in its place"] == "'7' (branch)" and notes["bytes forced"] == "0 of 2"
    assert notes["mask"] == f"11 of {len(TOKENS)} tokens are legal"
    assert "src=" not in shown and "http" not in shown.replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("no", "JSON|Expecting"),
        ({"rejected": []}, "tokens"),
        ({"tokens": [], "rejected": []}, "no tokens"),
        ({"tokens": [["a", "magic", 1]], "rejected": []}, "token 'a'"),
        ({"tokens": [["a", "model", 1]], "rejected": [], "forced": [1, 2]}, "one entry a token"),
    ],
)
def test_a_record_that_is_none_is_named(record, said, tmp_path, capsys):
    text = record if isinstance(record, str) else json.dumps(record)
    with pytest.raises(ValueError, match=r"recording 'x' is not what gdlib\.bench\.told writes"):
        trace.standalone([trace.Recording("x", "X", text)], "T")
    (tmp_path / "x.json").write_text(text)
    assert trace.main([str(tmp_path / "x.json"), str(tmp_path / "x.html")]) == 1
    assert "error: recording" in capsys.readouterr().err and not (tmp_path / "x.html").exists()


def test_nothing_recorded_is_said():
    assert "No generation was recorded in this profile" in trace.explorer([], "x", "Some texts.").data
