"""python -m gdlib: what it prints, and that bad input is one line on stderr and exit status 2."""

import errno
import io
import json
import logging
import os
import re
import subprocess
import sys

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gdlib import Grammar
from gdlib.__main__ import FORCED, PLAIN, _quiet_transformers, main, report_lines, show_forced
from gdlib.bench.drafting import forced_bytes, grammar_file, workloads
from gdlib.models.hf import load_tokenizer

ORDERS = r"""root ::= order ("\n" order)*
order ::= "{\"order\":" [0-9]+ ",\"paid\":" ("true" | "false") "}"
"""
PROMPT = '{"order":1,"paid":true}\n{"order":2,"paid":false}\n'
CONTEXT = 96
NO_MODEL = "/no/such/folder"  # whoever looks for it says so


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a tiny random model behind SmolLM2's tokenizer."""
    tokenizer = load_tokenizer()
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=CONTEXT,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )
    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def orders(tmp_path):
    path = tmp_path / "orders.gbnf"
    path.write_text(ORDERS)
    return str(path)


def said(capsys, *arguments) -> str:
    """Standard output of a call that goes well."""
    assert main(list(arguments)) == 0
    out, err = capsys.readouterr()
    assert not err
    return out


def generated(capsys, *arguments) -> dict:
    out = said(capsys, "generate", "--json", *arguments)
    assert out.endswith("}\n") and out.count("\n") == 1
    return json.loads(out)


def test_json_is_one_object_on_one_line_and_drafts_change_nothing(capsys, model, orders):
    common = ("--model", model, "--prompt", PROMPT, "--grammar", orders, "--max-tokens", "24")
    drafted = generated(capsys, *common, "--gate", "all")
    plain = generated(capsys, *common, "--sources", "none")
    assert list(drafted) == ["ids", "text", "report"]
    assert drafted["ids"] == plain["ids"] and drafted["text"] == plain["text"]
    report = drafted["report"]
    assert {"tokens", "forwards", "tokens_per_forward", "tokens_per_s", "sources"} <= set(report)
    assert set(report["sources"]) == {"grammar", "ngram", "branches"}
    assert all(set(count) == {"proposed", "accepted"} for count in report["sources"].values())
    assert sum(count["proposed"] for count in report["sources"].values()) > 0
    assert report["tokens"] == len(drafted["ids"]) and plain["report"]["sources"] == {}


def test_constrained_drafts_save_forwards_and_the_text_conforms(capsys, model, orders):
    common = ("--model", model, "--prompt", "Orders:\n", "--grammar", orders, "--constrain", "--max-tokens", "40")
    drafted = generated(capsys, *common, "--gate", "all")
    plain = generated(capsys, *common, "--sources", "none")
    assert drafted["ids"] == plain["ids"]
    assert drafted["text"].startswith('{"order":')
    assert drafted["report"]["forwards"] < plain["report"]["forwards"]


def test_a_schema_and_a_regex_constrain_too(capsys, model, tmp_path):
    schema = tmp_path / "s.json"
    schema.write_text(json.dumps({"type": "object", "properties": {"a": {"enum": ["b", "ccc"]}}, "required": ["a"],
                                  "additionalProperties": False}))  # fmt: skip
    common = ("--model", model, "--prompt", "x", "--constrain", "--max-tokens", "40")
    assert generated(capsys, *common, "--schema", str(schema))["text"] in ('{"a":"b"}', '{"a":"ccc"}')
    spaced = generated(capsys, *common, "--schema", str(schema), "--whitespace", "spaced")
    assert spaced["text"] in ('{"a": "b"}', '{"a": "ccc"}')
    assert re.fullmatch("(ab|cd){3}", generated(capsys, *common, "--regex", "(ab|cd){3}")["text"])


def test_the_stream_is_the_text_and_ends_with_a_line_for_every_source(capsys, model, orders):
    common = ("--model", model, "--prompt", PROMPT, "--grammar", orders, "--max-tokens", "30")
    text = generated(capsys, *common, "--sources", "grammar,ngram", "--temperature", "1", "--seed", "5")["text"]
    out = said(capsys, "generate", *common, "--sources", "grammar,ngram", "--temperature", "1", "--seed", "5")
    assert out.startswith(text)
    lines = out.splitlines()[-3:]
    assert re.fullmatch(r"grammar: (\d+% acceptance \(\d+/\d+ forced drafts\)|no forced drafts tried .*)", lines[0])
    assert re.fullmatch(r"ngram: (\d+% acceptance \(\d+/\d+ drafts\)|no drafts tried .*)", lines[1])
    assert re.fullmatch(r"\d+ tokens, \d+ forwards, \d+\.\d\d tokens per forward, [\d.]+ tok/s", lines[2])


def test_experts_on_disk_change_no_text_and_are_counted(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path))
    prompt = workloads(["ndjson"])[0].prompts[0]
    common = ("--model", "tiny-moe", "--prompt", prompt, "--grammar", str(grammar_file("ndjson")), "--max-tokens", "24")
    resident = generated(capsys, *common, "--sources", "none")
    slow = ("--slots", "8", "--pin", "1MB", "--disk-bandwidth", "1GB/s", "--disk-latency", "100us", "--gate", "bytes")
    streamed = generated(capsys, *common, *slow, "--sources", "grammar,ngram,mtp,branches")
    assert streamed["ids"] == resident["ids"] and "experts" not in resident["report"]
    use = streamed["report"]["experts"]
    assert use["loads"] > 0 and use["miss_bytes"] == use["loads"] * use["expert_bytes"]
    last = said(capsys, "generate", *common, "--capacity", "4MB", "--policy", "lfru", "--sources", "none").splitlines()
    assert re.fullmatch(
        r"experts: \d+% hits, \d+ loads?, [\d.]+ MB read \([\d.]+ kB a token\), 0.00 MB of it for refused drafts alone",
        last[-1],
    )


def test_a_trace_is_the_text_as_a_record_and_as_a_page(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path))
    prompt = workloads(["ndjson"])[0].prompts[0]
    common = ("--model", "tiny-moe", "--prompt", prompt, "--grammar", str(grammar_file("ndjson")), "--max-tokens", "16")
    common += ("--sources", "grammar,ngram,mtp,branches", "--gate", "all")
    record, page = tmp_path / "a.json", tmp_path / "a.html"
    page.write_text("something that was here before")
    made = generated(capsys, *common, "--slots", "8", "--trace", str(record))
    told, report = json.loads(record.read_text()), made["report"]
    assert "".join(token[0] for token in told["tokens"]) == made["text"] and len(told["forced"]) == report["tokens"]
    assert {token[1] for token in told["tokens"]} >= {"model", "mtp"}
    behind = [forward for forward in told["experts"] if forward["forward"] > 1]  # the report leaves out the prompt's
    assert sum(forward["loads"] for forward in behind) == report["experts"]["loads"]
    assert len(told["experts"]) == report["forwards"]
    said(capsys, "generate", *common, "--trace", str(page))
    shown = page.read_text()
    assert shown.startswith("<!doctype html>") and shown.count('role="option"') == report["tokens"]
    assert "src=" not in shown and "http" not in shown and "experts of the forward" not in shown
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["a.html", "a.json"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none/a.html", r"there is no folder .*none; make it first"),
        ("folder.html", r"that is a folder; name a file"),
        ("a.txt", r"want a name that ends with \.html \(a page\) or \.json \(the record\)"),
        ("s.json", r"--schema reads that file; name another"),
        ("pipe.json", r"that is no plain file"),
        ("mine.json", r"may not be written here"),
    ],
)
def test_traces_that_cannot_be_written_show_before_the_model_loads(capsys, monkeypatch, tmp_path, name, expected):
    (tmp_path / "folder.html").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "mine.json").write_text("{}")
    (tmp_path / "s.json").write_text('{"type": "null"}')
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("mine.json") and may(path, mode))
    err = wrong(capsys, "generate", "--model", NO_MODEL, "--prompt", "x", "--schema", str(tmp_path / "s.json"),
                "--trace", str(tmp_path / name))  # fmt: skip
    assert re.search(expected, err) and err.startswith(f"error: --trace {tmp_path / name}: ")
    assert (tmp_path / "s.json").read_text() == '{"type": "null"}'


def test_a_disk_that_is_full_loses_no_text_and_no_older_trace(capsys, monkeypatch, model, tmp_path):
    path = tmp_path / "a.json"
    path.write_text("before")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(os, "fsync", full)
    assert main(["generate", "--model", model, "--prompt", "Hi", "--max-tokens", "3", "--trace", str(path)]) == 2
    out, err = capsys.readouterr()
    assert "3 tokens" in out and err.startswith("error: ") and "No space left" in err and str(path) in err
    assert path.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_what_the_tokenizer_or_the_folder_refuses_shows_before_the_weights_load(capsys, monkeypatch, model):
    monkeypatch.setattr("gdlib.models.hf.load", lambda *_, **__: pytest.fail("the weights were read"))
    err = wrong(capsys, "generate", "--model", "tiny-moe", "--prompt", "x", "--chat")
    assert "--chat: the model's tokenizer has no chat form" in err
    err = wrong(capsys, "generate", "--model", model, "--prompt", "x", "--sources", "mtp")
    assert f"--sources: {model} has no multi-token head" in err


def test_a_model_without_experts_cannot_be_streamed(capsys, model):
    assert "not a mixture of experts" in wrong(capsys, "generate", "--model", model, "--prompt", "x", "--slots", "4")


def test_nothing_drafted_is_said_and_no_share():
    report = {"tokens": 3, "forwards": 3, "tokens_per_forward": 1.0, "tokens_per_s": 9.0}
    counts = {"grammar": {"proposed": 0, "accepted": 0}, "ngram": {"proposed": 8, "accepted": 7}}
    assert report_lines({**report, "sources": counts})[:2] == [
        "grammar: no forced drafts tried (nothing to propose, or the gate found it would not pay)",
        "ngram: 88% acceptance (7/8 drafts)",
    ]


def test_one_is_no_plural():
    report = {"tokens": 1, "forwards": 1, "tokens_per_forward": 1.0, "tokens_per_s": 9.0}
    assert report_lines(report) == ["1 token, 1 forward, 1.00 tokens per forward, 9.0 tok/s"]


def test_a_prompt_from_a_file_and_as_a_chat(capsys, model, tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text(PROMPT)
    common = ("--model", model, "--max-tokens", "4")
    from_file = generated(capsys, *common, "--prompt-file", str(path))
    assert from_file["ids"] == generated(capsys, *common, "--prompt", PROMPT)["ids"]
    assert generated(capsys, *common, "--prompt", "Hi", "--chat")["report"]["tokens"] == 4


def test_forced_shows_spans_tokens_and_shares(capsys, model, orders):
    out = said(capsys, "forced", "--grammar", orders, "--model", model, "--text", '{"order":12,"paid":true}')
    spans, shares = out.splitlines()
    assert spans.replace("\u2502", "") == '{["order":]12,["paid":]t[rue}]'
    assert re.fullmatch(r"forced: 19 of 24 bytes \(79\.2%\), \d+ of \d+ tokens \(\d+\.\d%\)", shares)


def test_forced_reads_standard_input(model, orders):
    command = [sys.executable, "-m", "gdlib", "forced", "--grammar", orders, "--model", model]
    done = subprocess.run(command, input='né {"order":7', capture_output=True, encoding="utf-8")
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.splitlines()[0].replace("\u2502", "") == 'né {["order":]7'


@pytest.mark.parametrize(("typed", "size"), [(b"abc\n", 3), (b"abc\n\n", 4), (b"abc", 3)])
def test_forced_drops_the_newline_that_echo_adds(capsys, monkeypatch, model, typed, size):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
    out = said(capsys, "forced", "--regex", "abc[\n ]?", "--model", model)
    assert f"forced: 2 of {size} bytes" in out and "leaves" not in out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"order":1', None),
        ('{"order":1,"paid":true}\n{"order":2,"paid":false}', None),
        ('{"order":x', "leaves the grammar at byte 9 (b'x')"),
        ("é", "leaves the grammar at byte 0 (b'\\xc3')"),
        ('so: {"order":1', "leaves the grammar at byte 0 (b's'), begins it anew at byte 4"),
        ('{"order":1}\n{"order":2', "leaves the grammar at byte 10 (b'}'), begins it anew at byte 12"),
        ('{"order":{"order":2', "leaves the grammar at byte 9 (b'{'), begins it anew at byte 9"),
    ],
)
def test_forced_says_where_a_text_leaves_the_grammar(capsys, model, orders, text, expected):
    out = said(capsys, "forced", "--grammar", orders, "--model", model, "--text", text)
    shares = r"forced: \d+ of \d+ bytes \(.*\), \d+ of \d+ tokens? \(.*\)"
    shown = out.splitlines()[text.count("\n") + 1 :]
    assert re.fullmatch(shares, shown[0]) and shown[1:] == ([expected] if expected else [])


def test_help_of_forced_says_what_it_shows(capsys):
    with pytest.raises(SystemExit):
        main(["forced", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "first byte of a sentence counts as open" in shown and "drafts wait for the text to begin one" in shown
    assert "standard input, less one newline at its end" in shown


def test_forced_spans_in_colour_and_plain():
    grammar = Grammar.from_gbnf('root ::= "aé" [0-9] "bc"')
    pieces = ["aé".encode(), b"5b", b"c"]
    flags = forced_bytes(grammar, pieces)
    assert show_forced(pieces, flags, colour=False) == "a[é]\u25025[b\u2502c]"
    assert show_forced(pieces, flags, colour=True) == f"a{FORCED}é{PLAIN}\u25025{FORCED}b\u2502c{PLAIN}"


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colour_only_in_a_terminal_that_wants_it(capsys, monkeypatch, model, orders, terminal, no_color, coloured):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("NO_COLOR", no_color)
    out = said(capsys, "forced", "--grammar", orders, "--model", model, "--text", '{"order":1')
    assert (FORCED in out) == coloured


def test_mask_says_what_may_come_next(capsys, model, orders):
    common = ("mask", "--grammar", orders, "--model", model, "--text")
    out = said(capsys, *common, '{"order":5,"paid":')
    assert "the text may not end here" in out and "'true'" in out and "'false'" in out
    out = said(capsys, *common, '{"order":5,"paid":true}')
    assert "the text may end here" in out and "eos" in out
    out = said(capsys, *common, '{"order":5,"pa')
    assert "forced: 4 bytes 'id\":'" in out


@pytest.mark.parametrize(
    ("regex", "text", "expected"),
    [
        ("[ab]c", "", None),
        ("ab(c|d)", "a", r"forced: 1 byte 'b', held back: a longer token may swallow them"),
        ("http(s|:)", "", r"forced: 4 bytes 'http', held back: a longer token may swallow them"),
        ("[éè]", "", r"forced: 1 byte '\\xc3', held back: no whole character is forced"),
        ("ab", "", r"forced: 2 bytes 'ab', drafted as 1 token ab"),
        ("ab", "ab", None),
    ],
)
def test_mask_says_what_is_forced_and_why_it_is_no_draft(capsys, model, regex, text, expected):
    out = said(capsys, "mask", "--regex", regex, "--model", model, "--text", text)
    shown = [line for line in out.splitlines() if line.startswith("forced")]
    assert len(shown) == bool(expected) and (not expected or re.fullmatch(expected, shown[0]))


def wrong(capsys, *arguments) -> str:
    """The one line on stderr of a call that is refused."""
    try:
        status = main(list(arguments))
    except SystemExit as left:
        status = left.code
    out, err = capsys.readouterr()
    assert status == 2 and not out
    assert err.startswith("error: ") and err.endswith("\n") and err.count("\n") == 1 and "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("content", "option", "expected"),
    [
        (None, "--grammar", r"the\.file: No such file"),
        (b'root ::= "a"\nb ::= ) "c"', "--grammar", r"the\.file: line 2, column 7"),
        (b'b ::= "c"', "--grammar", r"the\.file: .*root"),
        (b"root ::= \xff", "--grammar", r"the\.file: not UTF-8 \(byte 0xff at 9\)"),
        (b"", "--grammar", r"the\.file: "),
        (None, "--schema", r"the\.file: No such file"),
        (b'{"type":\n oops}', "--schema", r"the\.file: line 2, column 2: not JSON"),
        (b'{"properties": {"a": {"type": "tuple"}}}', "--schema", r"the\.file: .*#/properties/a.*type"),
        (b"[" * 100_000, "--schema", r"the\.file: "),
    ],
)
@pytest.mark.parametrize("command", ["generate", "forced", "mask"])
def test_grammar_files_that_are_wrong(capsys, tmp_path, command, content, option, expected):
    path = tmp_path / "the.file"
    if content is not None:
        path.write_bytes(content)
    text = "--prompt" if command == "generate" else "--text"
    assert re.search(expected, wrong(capsys, command, option, str(path), text, "x"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--draft-cap", "0"], r"--draft-cap 0: want 1 to 48"),
        (["--draft-cap", "49"], r"--draft-cap 49: want 1 to 48"),
        (["--draft-cap", "many"], r"--draft-cap: invalid int value: 'many'"),
        (["--sources", "grammar,tarot"], r"--sources: .*'tarot'; there is grammar, ngram, mtp, branches"),
        (["--sources", "ngram,ngram"], r"--sources: 'ngram' is given twice"),
        (["--sources", "grammar"], r"--sources: 'grammar' reads a grammar, and none was given"),
        (["--constrain"], r"--constrain needs a grammar: give --grammar, --schema or --regex"),
        (["--temperature", "-1"], r"--temperature -1.0: want 0"),
        (["--temperature", "nan"], r"--temperature nan: want 0"),
        (["--top-p", "0"], r"--top-p 0.0: want more than 0, at most 1"),
        (["--top-p", "1.5"], r"--top-p 1.5: want more than 0, at most 1"),
        (["--top-k", "-1"], r"--top-k -1: want 0"),
        (["--seed", str(2**64)], r"--seed 18446744073709551616: "),
        (["--max-tokens", "0"], r"--max-tokens 0: at least 1"),
        (["--gate", "luck"], r"--gate: invalid choice: 'luck'"),
        (["--regex", "(a"], r"--regex: "),
        (["--regex", "a\udcff"], r"--regex: not UTF-8 \(byte 0xff at 1\)"),
        (["--device", "cuda:99"], r"--device: no 'cuda:99' here"),
        (["--device", "abacus"], r"--device: no 'abacus' here"),
        (["--device", "meta"], r"--device: no 'meta' here"),
        (["--prompt-file", "x"], r"not allowed with argument --prompt"),
        (["--slots", "-1"], r"--slots -1: want 0 or more"),
        (["--slots", "3", "--capacity", "4MB"], r"--slots and --capacity say the same twice"),
        (["--capacity", "3 parsecs"], r"--capacity '3 parsecs': want bytes, such as 64MB"),
        (["--pin", "-4MB"], r"--pin '-4MB': want bytes|--pin: expected one argument"),
        (["--pin", "much"], r"--pin 'much': want bytes, such as 4MB"),
        (["--disk-bandwidth", "fast"], r"--disk-bandwidth 'fast': want bytes a second, such as 1GB/s"),
        (["--disk-bandwidth", "0"], r"--disk-bandwidth 0: such a disk reads nothing"),
        (["--disk-latency", "3 weeks"], r"--disk-latency '3 weeks': want a time"),
        (["--policy", "fifo"], r"--policy: invalid choice: 'fifo'"),
        (["--gate", "bytes"], r"--gate bytes counts experts read from disk: give --slots"),
    ],
)
def test_arguments_that_are_wrong_show_before_the_model_loads(capsys, arguments, expected):
    err = wrong(capsys, "generate", "--model", NO_MODEL, "--prompt", "x", *arguments)
    assert re.search(expected, err) and "folder" not in err


@pytest.mark.parametrize("command", ["generate", "forced", "mask"])
def test_arguments_that_are_not_utf8(capsys, command):
    option = "--prompt" if command == "generate" else "--text"
    err = wrong(capsys, command, "--model", NO_MODEL, "--regex", "a", option, "é\udce9t")
    assert err == f"error: {option}: not UTF-8 (byte 0xe9 at 2)\n"


def test_bytes_of_the_command_line_that_are_not_utf8():
    command = [sys.executable, "-m", "gdlib", "forced", "--regex", "a", "--text", b"a\xff"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 2 and done.stderr == "error: --text: not UTF-8 (byte 0xff at 1)\n"


def test_standard_input_that_is_not_utf8(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    err = wrong(capsys, "forced", "--regex", "a", "--model", NO_MODEL)
    assert err == "error: standard input: not UTF-8 (byte 0xff at 0)\n"


def test_masks_that_cannot_be_had_show_before_the_model_loads(capsys):
    common = ("mask", "--model", NO_MODEL)
    assert "--show -1: want 0 or more" in wrong(capsys, *common, "--regex", "a", "--show", "-1")
    assert "--regex: the grammar admits no text at all" in wrong(capsys, *common, "--regex", "(?!a)a")


def test_the_hub_does_not_log_its_retries():
    hub = logging.getLogger("huggingface_hub")
    before = hub.level
    try:
        hub.setLevel(logging.WARNING)
        _quiet_transformers()
        assert not logging.getLogger("huggingface_hub.utils._http").isEnabledFor(logging.WARNING)
    finally:
        hub.setLevel(before)


def test_prompts_that_do_not_fit(capsys, model, tmp_path):
    long = "word " * (CONTEXT + 4)
    assert f"context of {CONTEXT}" in wrong(capsys, "generate", "--model", model, "--prompt", long)
    assert "prompt is empty" in wrong(capsys, "generate", "--model", NO_MODEL, "--prompt", "")
    assert "No such file" in wrong(capsys, "generate", "--model", model, "--prompt-file", str(tmp_path / "none"))
    assert "required" in wrong(capsys, "generate", "--model", model)


def test_models_that_are_not_there(capsys):
    assert "no such folder" in wrong(capsys, "generate", "--model", "/no/such/folder", "--prompt", "x")


def test_a_text_that_does_not_conform_has_no_mask(capsys, model, orders):
    err = wrong(capsys, "mask", "--grammar", orders, "--model", model, "--text", '{"order":x')
    assert "byte 9 (b'x') may not come behind '{\"order\":'" in err


def test_no_grammar_and_no_text(capsys, orders):
    assert "required" in wrong(capsys, "forced", "--text", "x")
    assert "the text is empty" in wrong(capsys, "forced", "--grammar", orders, "--text", "")


def test_no_traceback_from_the_command_line(tmp_path):
    command = [sys.executable, "-m", "gdlib", "generate", "--grammar", str(tmp_path / "none"), "--prompt", "x"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1


def test_a_schema_that_an_editor_marked_and_a_number_too_long_to_read(tmp_path, capsys):
    path = tmp_path / "schema.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"enum": ["new"]}')
    assert main(["forced", "--schema", str(path), "--text", '"new"', "--model", "tiny-moe"]) == 0
    path.write_text(f'{{"const": {"9" * 6000}}}')
    assert main(["forced", "--schema", str(path), "--text", "9", "--model", "tiny-moe"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path}: ") and "digits" in said and "sys." not in said
