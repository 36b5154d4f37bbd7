"""python -m gdlib: what it prints, and that bad input is one line on stderr and exit status 2."""

import json
import re
import subprocess
import sys

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gdlib import Grammar
from gdlib.__main__ import FORCED, PLAIN, main, report_lines, show_forced
from gdlib.bench.drafting import forced_bytes
from gdlib.models.hf import load_tokenizer

ORDERS = r"""root ::= order ("\n" order)*
order ::= "{\"order\":" [0-9]+ ",\"paid\":" ("true" | "false") "}"
"""
PROMPT = '{"order":1,"paid":true}\n{"order":2,"paid":false}\n'
CONTEXT = 96


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
    assert re.fullmatch(r"grammar: (\d+% acceptance|none) \(\d+/\d+ forced drafts\)", lines[0])
    assert re.fullmatch(r"ngram: (\d+% acceptance|none) \(\d+/\d+ drafts\)", lines[1])
    assert re.fullmatch(r"\d+ tokens, \d+ forwards, \d+\.\d\d tokens per forward, [\d.]+ tok/s", lines[2])


def test_nothing_drafted_is_none_and_no_share():
    report = {"tokens": 3, "forwards": 3, "tokens_per_forward": 1.0, "tokens_per_s": 9.0}
    counts = {"grammar": {"proposed": 0, "accepted": 0}, "ngram": {"proposed": 8, "accepted": 7}}
    assert report_lines({**report, "sources": counts})[:2] == [
        "grammar: none (0/0 forced drafts)",
        "ngram: 88% acceptance (7/8 drafts)",
    ]


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
        (["--draft-cap", "0"], r"draft_cap=0: want 1 to 48"),
        (["--draft-cap", "49"], r"draft_cap=49: want 1 to 48"),
        (["--draft-cap", "many"], r"--draft-cap: invalid int value: 'many'"),
        (["--sources", "grammar,tarot"], r"'tarot'; there is grammar, ngram, mtp, branches"),
        (["--sources", "ngram,ngram"], r"'ngram' is given twice"),
        (["--sources", "grammar"], r"'grammar' reads a grammar, and none was given"),
        (["--sources", "mtp"], r"LlamaForCausalLM has no multi-token head"),
        (["--constrain"], r"needs a grammar"),
        (["--temperature", "-1"], r"temperature"),
        (["--top-p", "0"], r"top_p"),
        (["--max-tokens", "0"], r"--max-tokens 0: at least 1"),
        (["--gate", "luck"], r"--gate: invalid choice: 'luck'"),
        (["--regex", "(a"], r"--regex: "),
        (["--device", "cuda:99"], r"--device: "),
        (["--prompt-file", "x"], r"not allowed with argument --prompt"),
    ],
)
def test_arguments_that_are_wrong(capsys, model, arguments, expected):
    assert re.search(expected, wrong(capsys, "generate", "--model", model, "--prompt", "x", *arguments))


def test_prompts_that_do_not_fit(capsys, model, tmp_path):
    long = "word " * (CONTEXT + 4)
    assert f"context of {CONTEXT}" in wrong(capsys, "generate", "--model", model, "--prompt", long)
    assert "prompt is empty" in wrong(capsys, "generate", "--model", model, "--prompt", "")
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
