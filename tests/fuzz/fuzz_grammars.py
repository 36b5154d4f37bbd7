"""A coverage-guided fuzz target for the grammar engine.

An input is one byte for the kind (g: GBNF, s: JSON Schema, r: regular expression), the grammar, a zero byte, a text.
Whatever the input: nothing is raised but GrammarError, masks are what `accept` takes, the recognisers agree with each
other and with tests/reference.py, and a compiled schema takes exactly the values a validator takes. See README.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import resource
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import FunctionType

import jsonschema_rs
import numpy as np

try:
    import atheris
except ImportError:  # inputs can still be replayed
    atheris = None

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import reference  # noqa: E402

from gdlib.grammar.nodes import Grammar, GrammarError  # noqa: E402
from gdlib.tokens.matcher import Matcher  # noqa: E402
from gdlib.tokens.vocabulary import Vocabulary  # noqa: E402

SLOW = 5.0  # seconds of processor time for one input
CHILD = 600  # seconds until a fresh process goes on with the corpus
MEMORY = 10 << 30
MAX_BYTES = 1500

SEEDS = [
    b'groot ::= "[" (root ("," root)*)? "]" | [a-z0-9]+\x00[a,[b2]]',
    b'groot ::= root "+" t | t\nt ::= "(" root ")" | [0-9]{1,3}\x00(1+22)+3',
    b'groot ::= e root "x" | "y"\ne ::= "" | "-"\x00--yxx',
    b'groot ::= ("a"? "b"){2,5} ("c" | "cd" | "cde")* "\\n"\x00abbcdc\n',
    b'groot ::= a | b # rules\na ::= b "x" |\n b ::= a | ""\x00xx',
    b'groot ::= "a" root "a" | "b" root "b" | "c"\x00abcba',
    b'groot ::= [^"\\\\\\x00-\\x1f]{2,} "\\"" . [\\u00e9-\\U0001F600]?\x00ab\xc3\xa9"x',
    b'groot ::= "\\"" [a-z]* "\\":" ("\\"" [^"]{0,4} "\\"" ","?)+\x00"ab":"c","d"',
    b'groot ::= ("if" | "in" | "int" | "a" | "ab" | "abc" | "b" | "ba" | "x") root?\x00inabx',
    b's{"type":"object","properties":{"a":{"type":"integer","minimum":3},"ab":{"const":"b"}},"required":["a"]}\x00{"a":4}',
    b's{"type":"array","items":{"type":"string","minLength":1,"maxLength":3},"minItems":1,"uniqueItems":true}\x00["a","b"]',
    b's{"anyOf":[{"type":"string","pattern":"^a+b?$"},{"enum":[1,"a",null,{"b":[true]}]}]}\x00"aab"',
    b's{"$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"}}},"$ref":"#/$defs/n"}\x00[[],[[]]]',
    b's{"allOf":[{"minProperties":1},{"patternProperties":{"^a":{"type":"number","multipleOf":0.5}},"additionalProperties":'
    b'false}]}\x00{"ab":1.5}',
    b's{"if":{"properties":{"a":{"const":1}}},"then":{"required":["b"]},"else":{"maxProperties":1}}\x00{"a":1,"b":2}',
    b's{"prefixItems":[{"type":"boolean"},{"not":{"type":"number"}}],"contains":{"const":0},"maxContains":2}\x00[true,"",0]',
    b's{"oneOf":[{"required":["a"]},{"required":["b"]}],"propertyNames":{"maxLength":2},"type":"object"}\x00{"a":0}',
    b's{"dependentRequired":{"a":["b"]},"unevaluatedProperties":{"type":"null"},"properties":{"a":{}}}\x00{"a":1,"b":null}',
    b"r^(a|b)*abb$\x00ababb",
    b"r[A-Z][a-z]{2,5}( \\d{1,3})?\x00Abc 12",
    b"r(?=.*a)(?!b)\\w{2,4}\x00cab",
    b"r(?:\\p{L}|[^\\s\\d]){1,3}\\b\x00\xc3\xa9x",
    b"r((a{0,3}b?){2}|c+?)*$\x00aabac",
]
WORDS = {
    "g": [
        '"',
        '" "',
        "root",
        "::=",
        "|",
        "(",
        ")",
        "*",
        "+",
        "?",
        "{2}",
        "{0,3}",
        "{1,}",
        "{1000000000}",
        "[a-c]",
        "[^a]",
    ]
    + ["\nx ::= ", " x ", " root ", '""', ' "a" ', ".", "\\n", "\\u00e9", "# ", "\n", '("a" | "")', "[a-z]*", '[^"]*'],
    "r": [
        "a",
        "b",
        "|",
        "(",
        ")",
        "(?:",
        "(?=",
        "(?!",
        "(?<=",
        "(?<!",
        "*",
        "+",
        "?",
        "{2}",
        "{0,3}",
        "{1,}",
        "[a-c]",
        "[^a]",
    ]
    + ["^", "$", "\\b", "\\B", "\\d", "\\w", "\\S", ".", "\\p{L}", "\\u{1F600}", "\\x41", "{1000000}", "(a|b)*", "é"],
}
KEYWORDS = {
    "type": [
        "null",
        "boolean",
        "integer",
        "number",
        "string",
        "array",
        "object",
        ["string", "null"],
        ["array", "object"],
    ],
    "const": [0, 1.0, "a", None, [1], {"a": 1}],
    "enum": [[1, "a"], [None, True, "ab", "abc"], [[], {}], [0.5, 10, 100]],
    "minimum": [-3, 0, 2, 2.5, 10],
    "maximum": [-1, 3, 2.5, 99],
    "exclusiveMinimum": [0, 1.5],
    "exclusiveMaximum": [3, 10],
    "multipleOf": [1, 2, 3, 0.5, 0.1],
    "minLength": [0, 1, 3],
    "maxLength": [0, 2, 4],
    "pattern": ["a", "^a", "b$", "^(a|b)*$", "^.{2}$", "[^a]", "^(?!a)", "\\d+"],
    "minItems": [0, 1, 2],
    "maxItems": [0, 1, 3],
    "uniqueItems": [True, False],
    "minContains": [0, 1, 2],
    "maxContains": [0, 1, 2],
    "minProperties": [0, 1, 2],
    "maxProperties": [0, 1, 2],
    "required": [["a"], ["a", "b"], ["ab"]],
    "dependentRequired": [{"a": ["b"]}, {"b": []}],
    "$ref": ["#", "#/$defs/a", "#/properties/a", "#/items"],
}
ASKS = ["items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"]
ASKS += ["unevaluatedProperties", "unevaluatedItems"]
LISTS, NAMED = (
    ["allOf", "anyOf", "oneOf", "prefixItems"],
    ["properties", "patternProperties", "dependentSchemas", "$defs"],
)
VALUES = [
    None,
    True,
    False,
    0,
    1,
    2,
    3,
    -1,
    10,
    100,
    0.5,
    2.5,
    1.0,
    -0.5,
    "",
    "a",
    "b",
    "ab",
    "ba",
    "abc",
    "é",
    'a"b',
    "1",
]
VALUES += [[], [0], [1, 1], [1, 2], ["a", "b"], [[]], [True, 0, None], {}, {"a": 1}, {"a": "b", "b": None}, {"ab": 2}]
VALUES += [{"b": {"a": []}}, {"a": 1, "b": 2, "ab": 3}, {"": 0}, [{"a": 1}, {"a": 1.0}]]

PIECES = [
    b"ab",
    b"abc",
    b"aa",
    b'a"',
    b'":',
    b'","',
    b'"}',
    b'"]',
    b'": ',
    b"[[",
    b'{"',
    b'{"a":',
    b"\xc3",
    b"\xa9",
    b"\xa9b",
]
PIECES += [
    b"00",
    b"1.",
    b", ",
    b"\n\n",
    b"true",
    b"nul",
    b"l,",
    b'b","a":"',
    b"\\u",
    b"00e9",
    b'\\"',
    b"in",
    b"nt",
    b"ab\\n",
]
VOCAB = Vocabulary([bytes([b]) for b in range(256)] + [*PIECES, b"a", b"", b"", b""], [257 + len(PIECES)])


class Finding(Exception):
    """An invariant that does not hold."""


def check(data: bytes) -> None:
    """Everything that must hold for one input. Raises Finding, or whatever the engine raises that it should not."""
    kind, _, rest = data[:1].decode("latin-1"), b"", data[1:]
    source, _, text = rest.partition(b"\x00")
    chance = random.Random(hashlib.sha256(data).digest())
    if kind == "g":
        try:
            grammar = Grammar.from_gbnf(source.decode(errors="surrogateescape"), bytes_only=chance.random() < 0.1)
        except GrammarError as refused:
            if not re.match(r"line \d+, column \d+: ", str(refused)):
                raise Finding(f"refused without a place: {refused}") from None
            return
    elif kind == "r":
        try:
            grammar = Grammar.from_regex(source.decode(errors="surrogateescape"))
        except GrammarError:
            return
    elif kind == "s":
        check_schema(source, text, chance)
        return
    else:
        return
    walk(grammar, text, chance, judged=len(source) < 200)


def check_schema(source: bytes, text: bytes, chance: random.Random) -> None:
    try:
        document = json.loads(source)
    except (ValueError, RecursionError):
        return
    options = {"order": "schema", "whitespace": "compact"} if chance.random() < 0.2 else {}
    try:
        grammar = Grammar.from_json_schema(document, formats="annotate", **options)
    except GrammarError:
        return
    try:
        judge = jsonschema_rs.Draft202012Validator(document)
    except (ValueError, jsonschema_rs.ReferencingError):  # the judge reads less than the engine does
        judge = None
    matcher = Matcher(grammar, VOCAB)
    values = chance.sample(VALUES, 12) + parts_of(document, chance)
    if judge and not options:
        for value in values:
            written = json.dumps(value, ensure_ascii=False)
            if re.search(r"\de", written) or "\\ud" in ascii(written):
                continue  # numbers come without exponent, and half a surrogate pair is no text
            want = judge.is_valid(value)
            if takes(matcher, written.encode()) != want:
                raise Finding(f"value {written[:80]}: the validator says {want}")
    for written in walk(grammar, text, chance, judged=False):
        if re.search(rb"\d{15}|[eE][+-]?\d{3}", written):
            continue  # past what the validator's numbers hold
        value = read_json(written)
        if judge and value is not ... and not judge.is_valid(value):
            raise Finding(f"text {written[:80]!r} is taken, but the validator refuses it")


def parts_of(schema, chance: random.Random) -> list:
    """Values that stand in the schema itself: constants, and anything else as a value."""
    found, work = [], [schema]
    while work and len(found) < 40:
        part = work.pop()
        found.append(part)
        work += part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
    return chance.sample(found, min(6, len(found)))


def read_json(written: bytes):
    """The value, or ... where a name comes twice or a number is not finite, which the two sides need not read alike."""
    twice = []

    def members(pairs):
        twice.append(len(dict(pairs)) < len(pairs))
        return dict(pairs)

    try:
        value = json.loads(written, object_pairs_hook=members)
    except ValueError as wrong:
        raise Finding(f"text {written[:80]!r} is taken, but is no JSON: {wrong}") from None
    return ... if any(twice) or "Infinity" in json.dumps(value) else value


def takes(matcher: Matcher, text: bytes) -> bool:
    matcher.reset()
    return all(map(matcher.accept, text)) and matcher.can_stop()


def walk(grammar: Grammar, text: bytes, chance: random.Random, judged: bool) -> list[bytes]:
    """Follow the text, and random ways; compare masks with accept and the recognisers with each other on the way.

    Returns the whole sentences that were met.
    """
    matchers = []
    for kind in ("auto", "fsm", "earley"):
        try:
            matchers.append(Matcher(grammar, VOCAB, kind))
        except GrammarError:
            if kind == "auto":
                return []
    first, met = matchers[0], []
    try:
        starts = [m.mask().copy() for m in matchers]
        for attempt in range(3):
            sofar, ids = b"", []
            for place in range(24):
                masks = [m.allowed_ids().tolist() for m in matchers]
                if any(mask != masks[0] for mask in masks):
                    different = [sorted(set(masks[0]) ^ set(mask))[:5] for mask in masks[1:]]
                    raise Finding(f"recognisers differ behind {sofar[:60]!r} at tokens {different}")
                if place % 4 == attempt:
                    taken = [i for i in range(len(VOCAB)) if first.copy().accept(i)]
                    if taken != masks[0]:
                        raise Finding(f"mask is not what is taken behind {sofar[:60]!r}: {set(taken) ^ set(masks[0])}")
                if first.can_stop():
                    met.append(sofar)
                if first.forced_bytes(8) and len(masks[0]) > 40:
                    raise Finding(f"one byte is forced, yet many tokens are legal behind {sofar[:60]!r}")
                legal = [i for i in masks[0] if i not in VOCAB.eos_ids]
                follow = text[place] if attempt == 0 and place < len(text) else None
                if not legal or (attempt == 0 and follow is None):
                    break
                token = follow if follow in legal else chance.choice(legal)
                if not all(m.accept(token) for m in matchers):
                    raise Finding(f"token {token} is in the mask behind {sofar[:60]!r} and is not taken")
                sofar += VOCAB.tokens[token]
                ids.append(token)
            if judged:
                judge(grammar, sofar, first, ids)
            for matcher, start in zip(matchers, starts, strict=True):
                back = chance.randint(0, len(ids))
                matcher.rollback(back)
                matcher.rollback(len(ids) - back)
                if not np.array_equal(matcher.mask(), start):
                    raise Finding("the start has another mask after all was taken back")
    except GrammarError as refused:
        if "open readings" not in str(refused) and "arena" not in str(refused) and "positions" not in str(refused):
            raise
    return met


def judge(grammar: Grammar, text: bytes, matcher: Matcher, ids: list[int]) -> None:
    """Compare the state of the matcher with a reading of the definition."""
    if len(text) > 14:
        return
    try:
        want = reference.accepts(grammar, text)
    except Slow:
        return  # the judge, not the engine
    except (KeyError, AttributeError):  # a node that the judge does not know
        return
    if want != matcher.can_stop():
        raise Finding(f"text {text!r}: the definition says {want}")


class Slow(Exception):
    """One input took too long."""


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """A new input from an old one: half the time by bytes, half by the words of its kind of grammar."""
    chance = random.Random(seed)
    kind = data[:1].decode("latin-1")
    if kind not in "gsr" or not kind or chance.random() < 0.3:
        data = atheris.Mutate(data, max_size)
        return data if data[:1] in (b"g", b"s", b"r") else chance.choice(b"gsr").to_bytes(1, "big") + data[1:]
    source, _, text = data[1:].partition(b"\x00")
    for _ in range(chance.randint(1, 3)):
        if kind == "s":
            try:
                source = json.dumps(other_schema(json.loads(source), chance), ensure_ascii=False).encode()
            except (ValueError, RecursionError):
                source = json.dumps(random_schema(chance, 2)).encode()
        else:
            source = other_words(source, WORDS[kind], chance)
    if chance.random() < 0.3:
        text = other_words(text, ["a", "b", "[", "]", '"', "1", ",", "{", "}", "é", " ", ":"], chance)
    return (kind.encode() + source + b"\x00" + text)[:max_size]


def other_words(source: bytes, words: list[str], chance: random.Random) -> bytes:
    parts = re.findall(rb'"(?:[^"\\\n]|\\.)*"|\[(?:[^\]\\\n]|\\.)*\]|\w+|\s+|[^\w\s]', source)
    at = chance.randint(0, len(parts))
    match chance.randrange(4):
        case 0:
            parts.insert(at, chance.choice(words).encode())
        case 1:
            del parts[at : at + chance.randint(1, 4)]
        case 2:
            parts[at:at] = parts[(begin := chance.randint(0, len(parts))) : begin + chance.randint(1, 8)]
        case _:
            parts[at : at + 1] = [chance.choice(words).encode()]
    return b"".join(parts)


def random_schema(chance: random.Random, depth: int):
    if chance.random() < 0.1:
        return chance.random() < 0.5
    schema: dict = {}
    for _ in range(chance.randint(1, 3)):
        add_keyword(schema, chance, depth)
    return schema


def add_keyword(schema: dict, chance: random.Random, depth: int) -> None:
    if depth and chance.random() < 0.5:
        inner = random_schema(chance, depth - 1)
        key = chance.choice(ASKS + LISTS + NAMED)
        if key in LISTS:
            inner = [inner, *(random_schema(chance, depth - 1) for _ in range(chance.randint(0, 2)))]
        elif key in NAMED:
            inner = {chance.choice(["a", "b", "ab", "^a", "b$"]): inner}
        schema[key] = inner
    else:
        key = chance.choice(sorted(KEYWORDS))
        schema[key] = chance.choice(KEYWORDS[key])


def other_schema(schema, chance: random.Random):
    """Change one place of a JSON document."""
    places = [(None, None, schema)]
    for _, _, part in places:  # grows while it is walked
        pairs = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        places += [(part, key, inner) for key, inner in pairs]
        if len(places) > 500:
            break
    holder, key, part = chance.choice(places)
    if isinstance(part, dict) and chance.random() < 0.6:
        if part and chance.random() < 0.3:
            del part[chance.choice(list(part))]
        else:
            add_keyword(part, chance, 2)
        return schema
    new = chance.choice([chance.choice(places)[2], random_schema(chance, 2), chance.choice(VALUES)])
    new = json.loads(json.dumps(new))
    if holder is None:
        return {"anyOf": [schema, new]} if chance.random() < 0.3 else {"not": schema} if chance.random() < 0.1 else new
    holder[key] = new
    return schema


# ------------------------------------------------------------------------------------------------ the two processes


class Log:
    """What was found, in a JSON file that is whole at every moment; each kind of finding once and how often."""

    def __init__(self, path: Path):
        self.path = path
        self.found = json.loads(path.read_text()) if path.exists() else {"inputs": 0, "seconds": 0.0, "findings": {}}

    def write(self) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.found, indent=1))
        part.replace(self.path)

    def add(self, name: str, data: bytes, detail: str) -> None:
        entry = self.found["findings"].setdefault(name, {"times": 0, "input": repr(data), "detail": detail})
        entry["times"] += 1
        if len(data) < len(entry["input"]) // 2:  # keep the shortest
            entry.update(input=repr(data), detail=detail)
        if entry["times"] in (1, 10, 100, 1000):
            print(f"{name} (x{entry['times']}): {detail.splitlines()[-1][:200]}", flush=True)
        self.write()


def name_of(error: BaseException) -> str:
    """One name for all findings that are probably one fault: what was raised, and where."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "gdlib" in f.filename or HERE.name in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
    skeleton = re.sub(r"b?'.*'|b?\".*\"|[{\[].*|\d+", "_", str(error))[:60] if isinstance(error, Finding) else ""
    return f"{type(error).__name__} {where} {skeleton}".strip()


def instrument() -> None:
    """Count what the plain functions of the engine reach; compiled ones must keep the code that numba knows."""
    modules = [module for name, module in sys.modules.items() if name.startswith("gdlib.")]
    names = [thing for module in modules for thing in vars(module).values()]
    for thing in [*names, *(part for kind in names if isinstance(kind, type) for part in vars(kind).values())]:
        for inner in ("__func__", "fget", "func", "__wrapped__"):  # static methods, properties, kept results
            thing = getattr(thing, inner, thing) if not hasattr(thing, "py_func") else thing
        if isinstance(thing, FunctionType) and thing.__module__.startswith("gdlib."):
            atheris.instrument_func(thing)


def fuzz(seconds: int, out: Path, corpus: Path) -> None:
    """Run in this process; findings are noted and the run goes on."""
    log, begun, last = Log(out), time.monotonic(), time.monotonic()
    before = log.found["seconds"]

    def too_slow(number, frame):
        raise Slow(f"more than {SLOW} s")

    def one_input(data: bytes) -> None:
        nonlocal last
        log.found["inputs"] += 1
        signal.setitimer(signal.ITIMER_PROF, SLOW)
        try:
            check(data)
        except Exception as error:
            log.add(name_of(error), data, "".join(traceback.format_exception(error)[-6:]))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if time.monotonic() - last > 30:
            last = time.monotonic()
            log.found["seconds"] = before + last - begun
            log.write()

    for seed in SEEDS:  # load and compile everything first
        check(seed)
    instrument()
    signal.signal(signal.SIGPROF, too_slow)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    flags = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_BYTES}",
        "-rss_limit_mb=0",
        "-timeout=120",
        "-print_final_stats=1",
    ]
    flags += [f"-artifact_prefix={out.parent}/{out.stem}-died-", "-handle_int=0"]
    atheris.Setup(
        [sys.argv[0], *flags, str(corpus)], one_input, custom_mutator=lambda d, size, seed: mutate(d, size, seed)
    )
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path("_build/fuzz.json"), help="where findings are written")
    parser.add_argument("--replay", type=Path, nargs="+", help="check these inputs instead")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.replay:
        for path in arguments.replay:
            check(path.read_bytes())
        return
    if atheris is None:
        sys.exit("error: coverage guidance needs atheris: pip install atheris (Python 3.11 to 3.13, Linux)")
    out = arguments.out.resolve()
    if arguments.child:
        fuzz(arguments.seconds, out, arguments.child)
        return
    corpus = out.with_suffix(".corpus")
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    end = time.monotonic() + arguments.seconds
    while (
        left := int(end - time.monotonic())
    ) > 5:  # a fresh process now and then: none may live on memory of the last
        begun = time.monotonic()
        command = [
            sys.executable,
            __file__,
            "--seconds",
            str(min(left, CHILD)),
            "--out",
            str(out),
            "--child",
            str(corpus),
        ]
        done = subprocess.run(command)
        if done.returncode:
            died = max(out.parent.glob(f"{out.stem}-died-*"), key=lambda p: p.stat().st_mtime, default=None)
            Log(out).add(f"process ended with {done.returncode}", died.read_bytes() if died else b"", f"see {died}")
            time.sleep(max(0, 5 - (time.monotonic() - begun)))
    found = Log(out).found
    print(f"{found['inputs']} inputs, {len(found['findings'])} kinds of findings: {out}")
    sys.exit(bool(found["findings"]))


if __name__ == "__main__":
    main()
