"""python -m gdlib: decode under a grammar with drafts, and look at what a grammar forces and allows.

generate streams a text and says which drafts were accepted, forced shows the forced spans of a text, mask what may
come next, and fetch gets the default model and vocabulary, so that later runs need no network. What is wrong with the
input is one line on stderr and exit status 2.
"""

from __future__ import annotations

import argparse
import codecs
import json
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

SMOLLM2 = "smollm2-135m-instruct"
FORCED, PLAIN = "\x1b[1;32m", "\x1b[0m"  # terminal colours: bold green, and back
BORDER = "\u2502"  # between two tokens


class InputError(ValueError):
    """Something in the command line or a file it names; the message is all that is shown."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        _check_utf8(options)
        return options.run(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read us has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if not isinstance(error, _expected()):
            raise
        print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2


def _check_utf8(options) -> None:
    """InputError where an argument held bytes that are no UTF-8; Python hands them on as surrogates."""
    for name in ("prompt", "text", "regex"):
        value = getattr(options, name, None) or ""
        try:
            value.encode()
        except UnicodeEncodeError as error:
            byte, at = ord(value[error.start]) - 0xDC00, len(value[: error.start].encode())
            raise InputError(f"--{name}: not UTF-8 (byte {byte:#04x} at {at})") from error


def _expected() -> tuple[type[Exception], ...]:
    """What stands for bad input. ValueErrors are ours: of grammars, schemas, drafts, limits."""
    if "gdlib.models.hf" not in sys.modules:
        return (ValueError, OSError)
    from gdlib.decoding import DecodingError
    from gdlib.models.hf import ModelError

    return (ValueError, OSError, ModelError, DecodingError)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m gdlib", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)

    command = commands.add_parser("generate", help="decode with drafts, under a grammar or none")
    command.set_defaults(run=generate)
    _grammar_options(command, required=False)
    prompt = command.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", help="the text to continue (or, with --chat, what to ask)")
    prompt.add_argument("--prompt-file", metavar="FILE", help="the same from a file, - for standard input")
    command.add_argument("--chat", action="store_true", help="ask in the chat form of the model's tokenizer")
    command.add_argument(
        "--model", default=SMOLLM2, help="tiny-moe, a folder, a .gguf file or a hub id (default: %(default)s)"
    )
    command.add_argument("--device", default="cpu", help="where the model runs (default: %(default)s)")
    command.add_argument("--max-tokens", type=int, default=256, metavar="N")
    command.add_argument(
        "--constrain", action="store_true", help="the output must conform (default: grammar only drafts)"
    )
    command.add_argument(
        "--sources", metavar="A,B", help="draft sources, first wins: grammar, ngram, branches, mtp, or none"
    )
    command.add_argument("--draft-cap", type=int, default=24, metavar="N", help="drafted rows a forward, 1 to 48")
    command.add_argument(
        "--gate",
        choices=("cost", "bytes", "all", "colibri", "rearming"),
        default="cost",
        help="which drafts pay: by time, by bytes of experts on disk, all, colibri's 50%% rule, the same re-arming",
    )
    command.add_argument("--linear", action="store_true", help="one source a forward and no tree, as colibri does")
    command.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    command.add_argument("--top-k", type=int, default=0, metavar="K", help="0 is all (default)")
    command.add_argument("--top-p", type=float, default=1.0, metavar="P", help="1 is all (default)")
    command.add_argument("--seed", type=int, default=0, help="of the sampler (default: 0)")
    command.add_argument("--json", action="store_true", help="one JSON object on one line instead of text and report")
    command.add_argument(
        "--trace",
        metavar="FILE",
        help="write the text token by token too, over what is there: a page to open (.html) or the record (.json)",
    )
    _store_options(command)

    command = commands.add_parser(
        "forced",
        help="show the forced spans of a text under a grammar",
        description="Show the bytes of a text that the grammar leaves no choice but, and its tokens. The first byte of "
        "a sentence counts as open even where the grammar admits no other: drafts wait for the text to begin one.",
    )
    command.set_defaults(run=forced)
    _grammar_options(command, required=True)
    command.add_argument("--text", help="the text (default: standard input, less one newline at its end)")
    command.add_argument("--model", default=SMOLLM2, help="whose tokens to show (default: %(default)s)")

    command = commands.add_parser("mask", help="show what may come next behind a text")
    command.set_defaults(run=mask)
    _grammar_options(command, required=True)
    command.add_argument("--text", default="", help="what was written so far (default: nothing)")
    command.add_argument("--model", default=SMOLLM2, help="whose tokens to show (default: %(default)s)")
    command.add_argument("--show", type=int, default=20, metavar="N", help="tokens to list (default: 20)")

    command = commands.add_parser("fetch", help="fetch the default model (98 MB) and vocabulary, and check them")
    command.set_defaults(run=fetch)
    return parser


def _store_options(command: argparse.ArgumentParser) -> None:
    store = command.add_argument_group(
        "experts on disk", "any of these streams the experts of a mixture of experts from its file, as they are needed"
    )
    store.add_argument("--slots", type=int, metavar="N", help="experts a layer that stay in memory (default: all)")
    store.add_argument("--capacity", metavar="SIZE", help="the same as bytes for all layers, such as 64MB")
    store.add_argument("--pin", metavar="SIZE", help="bytes of the most used experts that never leave, such as 4MB")
    store.add_argument("--policy", choices=("lru", "lfru"), help="which expert leaves its slot (default: lru)")
    store.add_argument("--disk-bandwidth", metavar="RATE", help="emulate a disk no quicker than this, such as 1GB/s")
    store.add_argument("--disk-latency", metavar="TIME", help="and this before each read, such as 100us")


def _grammar_options(command: argparse.ArgumentParser, required: bool) -> None:
    one = command.add_mutually_exclusive_group(required=required)
    one.add_argument("--grammar", metavar="FILE", help="a GBNF file")
    one.add_argument("--schema", metavar="FILE", help="a JSON Schema file")
    one.add_argument("--regex", help="a regular expression")
    command.add_argument(
        "--whitespace",
        choices=("compact", "spaced", "any"),
        default="compact",
        help="in texts of a schema: none, one space behind : and , or any (default: compact)",
    )
    command.add_argument(
        "--order", choices=("schema", "any"), default="schema", help="of a schema's members (default: as it lists them)"
    )


def _grammar(options):
    """The Grammar that was asked for, or None. InputError names the file and the place in it."""
    from gdlib.grammar import Grammar, GrammarError

    if options.regex is not None:
        try:
            return Grammar.from_regex(options.regex)
        except GrammarError as error:
            raise InputError(f"--regex: {error}") from error
    path = options.grammar or options.schema
    if path is None:
        return None
    text = _read(path)
    try:
        if options.grammar:
            return Grammar.from_gbnf(text)
        spacing = (", ", ": ") if options.whitespace == "spaced" else options.whitespace
        return Grammar.from_json_schema(json.loads(text), whitespace=spacing, order=options.order)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from error
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply to be read") from error
    except ValueError as error:  # GrammarError is one, and so is a number of more digits than Python reads
        raise InputError(f"{path}: {str(error).split('; use')[0]}") from error


def _read(path: str) -> str:
    named = "standard input" if path == "-" else path
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode()
        return Path(path).read_bytes().decode().removeprefix("\ufeff")  # which some editors put before a text
    except OSError as error:
        raise InputError(f"{named}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{named}: not UTF-8 (byte {error.object[error.start]:#04x} at {error.start})") from error


def _quiet_transformers() -> None:
    """No progress bars, and no log of the hub's retries: what fails is said once, by the error."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    hub_logging.set_verbosity_error()
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _check_generate(options) -> None:
    """InputError for options out of range or that do not fit together, as far as that shows without a model."""
    from gdlib.drafts import MAX_DRAFT

    if options.constrain and not _has_grammar(options):
        raise InputError("--constrain needs a grammar: give --grammar, --schema or --regex")
    for fits, flag, value, wanted in (
        (options.max_tokens >= 1, "--max-tokens", options.max_tokens, "at least 1"),
        (1 <= options.draft_cap <= MAX_DRAFT, "--draft-cap", options.draft_cap, f"want 1 to {MAX_DRAFT}"),
        (0 <= options.temperature < float("inf"), "--temperature", options.temperature, "want 0 (greedy) or more"),
        (options.top_k >= 0, "--top-k", options.top_k, "want 0 (all tokens) or how many to keep"),
        (0 < options.top_p <= 1, "--top-p", options.top_p, "want more than 0, at most 1 (all tokens)"),
        (-(2**63) <= options.seed < 2**64, "--seed", options.seed, "want a number of 64 bits"),
    ):
        if not fits:
            raise InputError(f"{flag} {value}: {wanted}")
    if options.trace is not None:
        _check_trace(options)


def _check_trace(options) -> None:
    """InputError where --trace names no file that can be written, or one that this call reads."""
    path, said = Path(options.trace), f"--trace {options.trace}"
    if path.suffix not in (".html", ".json"):
        raise InputError(f"{said}: want a name that ends with .html (a page) or .json (the record)")
    if not path.parent.is_dir():
        raise InputError(f"{said}: there is no folder {path.parent}; make it first, or name another")
    if path.exists() and not path.is_file():
        raise InputError(f"{said}: that is {'a folder' if path.is_dir() else 'no plain file'}; name a file")
    for flag in ("grammar", "schema", "prompt_file"):
        read = getattr(options, flag)
        if read is not None and path.exists() and Path(read).exists() and path.samefile(read):
            raise InputError(f"{said}: --{flag.replace('_', '-')} reads that file; name another")
    if not os.access(path.resolve().parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise InputError(f"{said}: may not be written here; name a file in a folder of your own")


_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def _quantity(flag: str, text: str | None, units: dict[str, float], wanted: str) -> float | None:
    """A number with a unit; None where there is no text. InputError where it is no such thing."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*", text)
    if not found or found[2].lower() not in units:
        raise InputError(f"{flag} {text!r}: want {wanted}")
    value = float(found[1]) * units[found[2].lower()]
    if value > 2**60:
        raise InputError(f"{flag}: that is more than there is; want {wanted}")
    return value


def _store(options) -> dict | None:
    """What --slots and its like ask for, as options of gdlib.models.moe.stream; None where none of them is given."""
    names = ("slots", "capacity", "pin", "policy", "disk_bandwidth", "disk_latency")
    if all(getattr(options, name) is None for name in names):
        return None
    if options.slots is not None and options.slots < 0:
        raise InputError(f"--slots {options.slots}: want 0 or more")
    if options.slots is not None and options.capacity is not None:
        raise InputError("--slots and --capacity say the same twice: give one")
    capacity = _quantity("--capacity", options.capacity, _SIZES, "bytes, such as 64MB")
    pin = _quantity("--pin", options.pin, _SIZES, "bytes, such as 4MB")
    rate = (options.disk_bandwidth or "").strip().removesuffix("/s") or options.disk_bandwidth
    bandwidth = _quantity("--disk-bandwidth", rate, _SIZES, "bytes a second, such as 1GB/s")
    latency = _quantity("--disk-latency", options.disk_latency, _TIMES, "a time, such as 100us or 0.1ms")
    if bandwidth == 0:
        raise InputError("--disk-bandwidth 0: such a disk reads nothing")
    if (latency or 0) > 60:
        raise InputError(f"--disk-latency {options.disk_latency}: want a minute at most for each read")
    given = {"slots": options.slots, "capacity_bytes": None if capacity is None else int(capacity)}
    given |= {"pin_bytes": int(pin or 0), "policy": options.policy or "lru"}
    if bandwidth or latency:
        from gdlib.models.slow_disk import Disk

        given["disk"] = Disk(bandwidth=bandwidth or float("inf"), latency=latency or 0.0)
    return given


def _has_grammar(options) -> bool:
    return any(given is not None for given in (options.grammar, options.schema, options.regex))


def _sources(options) -> list[str]:
    """The names in --sources. InputError for one that there is not, that comes twice, or that lacks its grammar."""
    from gdlib.drafts import SOURCES

    names = [name.strip() for name in options.sources.split(",") if name.strip()]
    names = [] if names == ["none"] else names
    for name in names:
        if name not in SOURCES:
            raise InputError(f"--sources: no draft source {name!r}; there is {', '.join(SOURCES)}, or none")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--sources: {name!r} is given twice")
        if name in ("grammar", "branches") and not _has_grammar(options):
            raise InputError(f"--sources: {name!r} reads a grammar, and none was given")
    return names


def _device(name: str):
    """The torch device that --device names. InputError where it is not here."""
    import torch

    from gdlib.models import pick_device

    try:
        device = pick_device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        count = torch.cuda.device_count()
        raise InputError(f"--device: no {name!r} here (CUDA devices: {count}); want auto, cpu, cuda or cuda:N")
    return device


def generate(options) -> int:
    _check_generate(options)
    given = {} if options.sources is None else {"drafts": _sources(options)}
    prompt = options.prompt if options.prompt is not None else _read(options.prompt_file)
    if not prompt:
        raise InputError("the prompt is empty: give --prompt or --prompt-file a text to continue")
    store = _store(options)
    if options.gate == "bytes" and store is None:
        raise InputError("--gate bytes counts experts read from disk: give --slots or another of its options")
    grammar = _grammar(options)
    device = _device(options.device)

    from gdlib.bench.told import note_experts, tell
    from gdlib.decoding.generate import generate
    from gdlib.models.hf import load, load_tokenizer
    from gdlib.models.mtp import causal
    from gdlib.tokens.vocabulary import Vocabulary

    _quiet_transformers()
    tokenizer = load_tokenizer(options.model)  # what it refuses is said before the weights are read
    prompt_ids = _prompt_ids(tokenizer, prompt, options.chat)
    if "mtp" in given.get("drafts", ()):
        _check_head(options.model)
    if store is None:
        transformer, _ = load(options.model, device)
    else:
        from gdlib.models.moe import stream

        transformer, _ = stream(options.model, device=device, **store)
    vocab = Vocabulary.from_hf(tokenizer)
    experts: list[dict] = []
    stream = _Stream(vocab)
    generation = generate(
        causal(transformer),
        prompt_ids,
        vocab,
        grammar=grammar,
        constrain=options.constrain,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        max_tokens=options.max_tokens,
        seed=options.seed,
        draft_cap=options.draft_cap,
        gate=options.gate,
        linear=options.linear,
        on_tokens=None if options.json else stream.write,
        on_forward=note_experts(experts) if options.trace else None,
        trace=options.trace is not None,
        **given,
    )
    if options.json:
        print(json.dumps({"ids": generation.ids, "text": generation.text, "report": generation.report}))
    else:
        stream.finish()
        print("\n".join(report_lines(generation.report)), flush=True)
    if options.trace:
        _write_trace(options, tell(generation, vocab, prompt_ids, grammar, experts, options.constrain))
    return 0


def _check_head(name: str) -> None:
    """InputError where the model's folder has no multi-token head."""
    from gdlib.models.hf import HEAD_FILE, folder

    path = folder(name)
    if path is not None and not (path / HEAD_FILE).is_file():
        raise InputError(f"--sources: {name} has no multi-token head (no {HEAD_FILE} in {path}); leave out 'mtp'")


def _write_trace(options, told: str) -> None:
    """Write what `told.tell` tells to the file of --trace, whole or not at all: as it is, or as a page."""
    from gdlib.bench.record import write

    if options.trace.endswith(".html"):
        from gdlib.report.trace import Recording, standalone

        told = standalone([Recording("text", options.model, told)], f"Token by token: {options.model}")
    write(Path(options.trace).resolve(), told.encode())


def _prompt_ids(tokenizer, prompt: str, chat: bool) -> list[int]:
    if chat:
        from gdlib.models.hf import chat_ids

        if not tokenizer.chat_template:
            raise InputError("--chat: the model's tokenizer has no chat form; leave it out")
        return chat_ids(tokenizer, [{"role": "user", "content": prompt}])
    ids = list(tokenizer(prompt)["input_ids"])
    if not ids:
        raise InputError("the prompt is empty: no token of the model writes it")
    return ids


class _Stream:
    """Writes tokens to standard output as they come, whole characters only."""

    def __init__(self, vocab):
        self.vocab, self.decoder, self.last = vocab, codecs.getincrementaldecoder("utf-8")("replace"), "\n"

    def write(self, ids: list[int]) -> None:
        self._show(self.decoder.decode(self.vocab.decode(ids)))

    def finish(self) -> None:
        self._show(self.decoder.decode(b"", final=True))
        self._show("" if self.last == "\n" else "\n")

    def _show(self, text: str) -> None:
        if text:
            self.last = text[-1]
            _write(text)


def _write(text: str) -> None:
    """To standard output, whatever its encoding: what that has no sign for becomes a question mark."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def report_lines(report: dict) -> list[str]:
    """colibri's line for every source, then forwards, tokens a forward and a second, and what experts on disk cost."""
    lines = []
    for name, count in report.get("sources", {}).items():
        proposed, accepted = count["proposed"], count["accepted"]
        drafts = "forced drafts" if name == "grammar" else "drafts"
        said = f"no {drafts} tried (nothing to propose, or the gate found it would not pay)"
        if proposed:
            said = f"{100 * accepted / proposed:.0f}% acceptance ({accepted}/{proposed} {drafts})"
        lines.append(f"{name}: {said}")
    tokens, forwards = report["tokens"], report["forwards"]
    each, speed = report["tokens_per_forward"], report["tokens_per_s"]
    counts = f"{_counted(tokens, 'token')}, {_counted(forwards, 'forward')}"
    lines.append(f"{counts}, {each:.2f} tokens per forward, {speed:.1f} tok/s")
    if use := report.get("experts"):
        served = sum(use["hits"].values())
        share = f"{100 * served / use['distinct']:.0f}% hits" if use["distinct"] else "none asked for"
        pinned = f" ({use['hits']['pinned']} pinned)" if use["hits"]["pinned"] else ""
        read = f"{use['miss_bytes'] / 1e6:.2f} MB read ({use['miss_bytes'] / max(tokens, 1) / 1e3:.1f} kB a token)"
        refused = f"{use['rejected_bytes'] / 1e6:.2f} MB of it for refused drafts alone"
        lines.append(f"experts: {share}{pinned}, {_counted(use['loads'], 'load')}, {read}, {refused}")
    return lines


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _vocabulary(name: str):
    from gdlib.models.hf import load_tokenizer
    from gdlib.tokens.vocabulary import Vocabulary

    _quiet_transformers()
    return Vocabulary.from_hf(load_tokenizer(name))


def forced(options) -> int:
    grammar = _grammar(options)
    text = options.text if options.text is not None else _read("-").removesuffix("\n")  # echo ends with one
    if not text:
        raise InputError("the text is empty: give --text or write to standard input")
    from gdlib.bench.drafting import forced_bytes
    from gdlib.tokens.canonical import tokenize_after

    vocab = _vocabulary(options.model)
    pieces = [vocab.decode([token]) for token in tokenize_after(vocab, (), text.encode())]
    rest = text.encode()[sum(map(len, pieces)) :]  # what no token writes
    flags = forced_bytes(grammar, [*pieces, rest] if rest else pieces)
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    _write(show_forced([*pieces, rest] if rest else pieces, flags, colour) + "\n")
    whole, count = [bool(f.all()) for f in flags[: len(pieces)]], sum(int(f.sum()) for f in flags)
    size = len(text.encode())
    tokens = f"{sum(whole)} of {_counted(len(whole), 'token')} ({100 * sum(whole) / max(len(whole), 1):.1f}%)"
    print(f"forced: {count} of {_counted(size, 'byte')} ({100 * count / size:.1f}%), {tokens}")
    left = _leaves(grammar, text.encode())
    if left:
        print(left)
    return 0


def _leaves(grammar, text: bytes) -> str:
    """Where the text, read from the grammar's start, first does not conform, and begins anew; "" where it conforms."""
    by_bytes = _byte_matcher(grammar)
    leaves = next((at for at, byte in enumerate(text) if not by_bytes.accept(byte)), None)
    if leaves is None:
        return ""
    by_bytes.reset()
    back = next((at for at in range(leaves, len(text)) if by_bytes.accept(text[at])), None)
    found = f"leaves the grammar at byte {leaves} ({text[leaves : leaves + 1]!r})"
    return found if back is None else f"{found}, begins it anew at byte {back}"


def _byte_matcher(grammar):
    """A Matcher whose tokens are the 256 bytes, in order, and an eos."""
    from gdlib.tokens.matcher import Matcher
    from gdlib.tokens.vocabulary import Vocabulary

    return Matcher(grammar, Vocabulary([bytes([b]) for b in range(256)] + [b""], [256]))


def show_forced(pieces: list[bytes], flags, colour: bool) -> str:
    """The tokens with a border between them; forced spans in green, or in plain [brackets]."""
    opening, closing = (FORCED, PLAIN) if colour else ("[", "]")
    out, inside = bytearray(), False
    for index, (piece, flag) in enumerate(zip(pieces, flags, strict=True)):
        # a border goes inside a span where the span goes on, and no character is cut by it
        if index and (not piece or not 0x80 <= piece[0] < 0xC0):
            if inside and not flag[:1].all():
                out += closing.encode()
                inside = False
            out += BORDER.encode()
        for byte, is_forced in zip(piece, flag.tolist(), strict=True):
            if is_forced != inside and not 0x80 <= byte < 0xC0:
                out += (opening if is_forced else closing).encode()
                inside = is_forced
            out.append(byte)
    return (bytes(out) + (closing.encode() if inside else b"")).decode(errors="replace")


def mask(options) -> int:
    if options.show < 0:
        raise InputError(f"--show {options.show}: want 0 or more")
    grammar = _grammar(options)
    from gdlib.tokens.canonical import tokenize_after
    from gdlib.tokens.matcher import Matcher

    written = options.text.encode()
    by_bytes = _byte_matcher(grammar)
    if not len(by_bytes.allowed_ids()):
        raise InputError(f"{options.grammar or options.schema or '--regex'}: the grammar admits no text at all")
    for at, byte in enumerate(written):
        if not by_bytes.accept(byte):
            before = written[:at].decode(errors="replace")
            raise InputError(f"--text: byte {at} ({bytes([byte])!r}) may not come behind {before[-40:]!r}")
    vocab = _vocabulary(options.model)
    ids = tokenize_after(vocab, (), written)
    if vocab.decode(ids) != written:
        raise InputError(f"--text: {written!r} cannot be written in the tokens of {options.model}")
    matcher = Matcher(grammar, vocab)
    for token in ids:
        if not matcher.accept(token):
            raise AssertionError(f"token {token}: its bytes are legal, and the token is not")
    allowed = matcher.allowed_ids().tolist()
    print(
        f"allowed: {len(allowed)} of {len(vocab)} tokens; the text may {'' if matcher.can_stop() else 'not '}end here"
    )
    for token in allowed[: options.show]:
        print(f"{token:>7}  {'eos' if token in vocab.eos_ids else ascii(vocab.tokens[token])[1:]}")
    if len(allowed) > options.show:
        print(f"    ...  {len(allowed) - options.show} more")
    span = matcher.forced_bytes(limit=256)
    if span:
        drafts = _drafted(vocab, ids, span, matcher.forced_tokens(ids))
        _write(f"forced: {_counted(len(span), 'byte')} {ascii(span)[1:]}, {drafts}\n")
    return 0


def _drafted(vocab, ids: list[int], span: bytes, drafts: list[int]) -> str:
    """The tokens that forced bytes are drafted as, or why there is none."""
    from gdlib.tokens.canonical import tokenize_after, whole_characters

    if drafts:
        shown = BORDER.join(vocab.decode([token]).decode(errors="replace") for token in drafts)
        return f"drafted as {_counted(len(drafts), 'token')} {shown}".rstrip()
    if tokenize_after(vocab, ids, span):
        return "held back: a longer token may swallow them"
    return "held back: no token writes them" if whole_characters(span) else "held back: no whole character is forced"


def fetch(options) -> int:
    from gdlib.models import hf, published

    try:
        folder = hf.fetch_smollm2()
        vocabulary = published.fetch_vocabulary("llama3")
    except (hf.ModelError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{hf.SMOLLM2} is in {folder}, Llama 3's vocabulary in {vocabulary}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
