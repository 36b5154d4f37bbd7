"""Forced bytes in tokens: cut as the tokenizer cuts them, and never further than what may follow leaves them."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_grammars import grammars
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from gdlib.grammar import Grammar
from gdlib.models import hf
from gdlib.models.hf import ModelError
from gdlib.models.published import published_vocabulary
from gdlib.recognizers import Recognizer
from gdlib.tokens.canonical import longest_match, span_store, tokenize_after, whole_characters
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

RECORDS = r"""
root ::= (obj "\n")+
obj ::= "{\"orderId\":" int ",\"customer\":" str ",\"status\":" status ",\"tags\":[" tags "],\"paid\":" bool "}"
tags ::= (str ("," str)*)?
status ::= "\"pending\"" | "\"paid\"" | "\"paid late\""
bool ::= "true" | "false"
int ::= "0" | [1-9] [0-9]*
str ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
"""


@pytest.fixture(scope="module", params=["smollm2", "llama3"])
def vocab(request):
    try:
        if request.param == "smollm2":
            return Vocabulary.from_hf(hf.load_tokenizer())
        vocab, vocab.encode = published_vocabulary("llama3")
    except ModelError as error:
        pytest.skip(str(error))
    return vocab


def texts(count, seed=0):
    """Texts of RECORDS as a model might write them, strange strings included."""
    rng = random.Random(seed)
    words = [
        "Anna",
        "Berg",
        "naïve",
        "日本",
        "a,b",
        ")",
        ",",
        ":",
        "",
        "...",
        "x y",
        "12",
        "}",
        "👋",
        "\\n",
        '\\"',
        "[",
    ]
    for _ in range(count):
        lines = []
        for _ in range(rng.randint(1, 3)):
            strings = [" ".join(rng.choices(words, k=rng.randint(0, 3))) for _ in range(rng.randint(1, 4))]
            customer, *tags = (f'"{s}"' for s in strings)
            order, status = rng.randrange(10 ** rng.randint(1, 6)), rng.choice(["pending", "paid", "paid late"])
            lines.append(
                f'{{"orderId":{order},"customer":{customer},"status":"{status}","tags":[{",".join(tags)}],'
                f'"paid":{rng.choice(["true", "false"])}}}\n'
            )
        yield "".join(lines)


def test_a_continuation_is_cut_as_the_whole_text_is(vocab):
    for text in texts(8):
        ids = vocab.encode(text)
        assert vocab.decode(ids) == text.encode()
        for at in range(len(ids)):
            assert tokenize_after(vocab, ids[:at], vocab.decode(ids[at:])) == ids[at:]


def test_forced_tokens_are_what_the_tokenizer_writes_whatever_follows(vocab):
    """Every text of the grammar that goes on from here has these tokens here."""
    matcher, drafted = Matcher(Grammar.from_gbnf(RECORDS), vocab), 0
    for text in texts(12, seed=1):
        ids = vocab.encode(text)
        matcher.reset()
        for at, token in enumerate(ids):
            forced = matcher.forced_tokens(ids[:at])
            assert forced == ids[at : at + len(forced)], (text, vocab.decode(ids[:at]))
            drafted += len(forced)
            assert matcher.accept(token)
    assert drafted > 300


def swallowed(matcher, forced):
    """The places of `forced` at which some legal token takes what is left of the forced bytes, and more."""
    matcher, text = matcher.copy(), matcher.forced_bytes(4096)
    for index, token in enumerate(forced):
        ids = matcher.allowed_ids().tolist()
        if any(len(t) > len(text) and t.startswith(text) for t in (matcher.vocab.tokens[i] for i in ids)):
            yield index
        assert matcher.accept(token)
        text = text.removeprefix(matcher.vocab.tokens[token])


ENDS = {
    "space": r'root ::= "The answer is " [a-z0-9]+ "."',
    "quote": r'root ::= "{\"name\":\"" [^"]* "\"}"',
    "colon and space": r'root ::= "{\"a\": " ("1" | "true" | "\"x\"") "}"',
    "comma": r'root ::= "[1," [0-9 ]+ "]"',
    "part of a word": r'root ::= "{\"order" ("Id" | "s" | "") "\":1}"',
    "digit before a free digit": r'root ::= "year 20" [0-9] [0-9]',
    "closing quote": r'root ::= "[\"a\"" (",\"b\"")* "]"',
    "line end": r'root ::= ("{\"a\":1}" "\n"*)+',
}


@pytest.mark.parametrize("name", ENDS)
def test_what_a_longer_token_may_take_is_held_back(name, vocab):
    matcher = Matcher(Grammar.from_gbnf(ENDS[name]), vocab)
    for context in ([], vocab.encode("As JSON:\n")):
        forced = matcher.forced_tokens(context)
        assert not list(swallowed(matcher, forced))
        text = vocab.decode(forced)
        assert matcher.forced_bytes(4096).startswith(text)


@settings(max_examples=150, deadline=None)
@given(grammars(), st.lists(st.text("abc", min_size=1, max_size=4), min_size=1), st.data())
def test_forced_tokens_are_legal_and_settled_in_odd_vocabularies(grammar, tokens, data):
    """Overlapping tokens, tokens twice over, bytes that no token writes."""
    vocab = Vocabulary([*(t.encode() for t in tokens), b"a", b"b", b"", b"a"], [len(tokens) + 2])
    matcher, past = Matcher(grammar, vocab), []
    for _ in range(6):
        limit = data.draw(st.integers(0, 4))
        forced = matcher.forced_tokens(past, limit)
        assert len(forced) <= limit and not list(swallowed(matcher, forced))
        assert matcher.forced_bytes(4096).startswith(vocab.decode(forced))
        legal = [i for i in matcher.allowed_ids().tolist() if i not in vocab.eos_ids]
        if not legal:
            break
        past.append(data.draw(st.sampled_from(legal)))
        assert matcher.accept(past[-1])


def test_the_end_of_a_forced_text_moves_with_what_follows():
    """`ab` and `c` come out as `a`, `bc`: the border before the last token is not settled either."""
    merges = {"a": 0, "b": 1, "c": 2, "d": 3, "bc": 4, "ab": 5, "</s>": 6}
    backend = Tokenizer(models.BPE(vocab=merges, merges=[("b", "c"), ("a", "b")]))
    backend.decoder = decoders.ByteLevel()
    vocab = Vocabulary.from_hf(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>"))
    assert vocab.encode("ab") == [5] and vocab.encode("abc") == [0, 4]
    assert Matcher(Grammar.from_gbnf('root ::= "ab" ("c" | "d")'), vocab).forced_tokens([]) == []
    assert Matcher(Grammar.from_gbnf('root ::= "ab" ("a" | "d")'), vocab).forced_tokens([]) == [5]


def test_a_grammar_that_forces_text_for_ever(vocab):
    matcher = Matcher(Grammar.from_gbnf('root ::= "ab " root'), vocab)
    for limit in (1, 2, 24, 48):
        forced = matcher.forced_tokens([], limit)
        assert len(forced) == limit and b"ab ".join([b""] * 400).startswith(vocab.decode(forced))
    assert matcher.forced_tokens([], 0) == []


def test_a_span_that_is_cut_says_so_and_begins_as_the_whole_does(vocab):
    text = "".join(f"item {i}, " for i in range(60))
    recognizer = Recognizer(Grammar.from_gbnf(f'root ::= "{text}" [a-z]'))
    spans = span_store(vocab, recognizer.arena)

    def cut_at(most):
        return spans.span(recognizer, recognizer.start, [], 400, True, b"", most)

    whole = cut_at(1000)
    assert whole.text == text.encode() and not whole.cut and not cut_at(len(text) + 1).cut
    for most in (1, 40, 64, 256, len(text)):
        span = cut_at(most)
        assert span.cut and span.text == whole.text[:most]
        assert span.tokens == whole.tokens[: len(span.tokens)] and (most < 64 or len(span.tokens) > 5)


def test_forced_tokens_at_the_end_and_with_nothing_forced(vocab):
    matcher = Matcher(Grammar.from_gbnf('root ::= "yes"'), vocab)
    ids = matcher.forced_tokens([])
    assert vocab.decode(ids) == b"yes" and all(map(matcher.accept, ids)) and matcher.forced_tokens(ids) == []
    assert matcher.accept(vocab.eos_ids[0]) and matcher.forced_tokens(ids) == []
    assert Matcher(Grammar.from_gbnf('root ::= ""'), vocab).forced_tokens([]) == []
    assert Matcher(Grammar.from_gbnf('root ::= "a"?'), vocab).forced_tokens([]) == []


def test_a_context_that_the_tokenizer_would_not_have_written(vocab):
    """`{` stands alone where `{"` is one token: what follows is encoded by itself."""
    brace, both = vocab.first_ids[b"{"], vocab.first_ids[b'{"']
    assert tokenize_after(vocab, [brace], b'"id":1') == vocab.encode('"id":1')
    assert tokenize_after(vocab, [both], b"id") == vocab.encode('{"id')[1:]
    for strange in ([], [-1], [len(vocab) + 5], [vocab.eos_ids[0]]):
        assert tokenize_after(vocab, strange, b"id") == vocab.encode("id")


def test_characters_cut_in_two(vocab):
    wave = "👋".encode()
    assert vocab.decode(tokenize_after(vocab, [], b"hi " + wave[:2])) == b"hi "
    assert tokenize_after(vocab, [], wave[:3]) == [] and tokenize_after(vocab, [], b"") == []
    head = longest_match(vocab, wave[:2])
    rest = tokenize_after(vocab, head, wave[2:] + b" there")
    assert vocab.decode(head + rest) == wave + b" there"
    assert vocab.decode(tokenize_after(vocab, [], b"a\xc3b")) == b"a\xc3b"  # no UTF-8 at all


def test_what_stands_before_half_a_character_is_held_back(vocab):
    """` ` and the beginning of `👋` may be one token."""
    matcher = Matcher(Grammar.from_gbnf('root ::= "hi " ("👋" | "👌")'), vocab)
    assert matcher.forced_bytes() == b"hi " + "👋".encode()[:3]
    text = vocab.encode("hi 👋")
    forced = matcher.forced_tokens([])
    assert forced == text[: len(forced)] and len(forced) == 1


def test_whole_characters():
    for text in ("", "a", "é", "日", "👋", "a日é"):
        data = text.encode()
        assert whole_characters(data) == len(data)
        for cut in range(1, len(text[-1:].encode())):
            assert whole_characters(data[:-cut]) == len(text[:-1].encode())
    assert whole_characters(b"\x80\x80\x80\x80") == 4  # nothing that a character could still come of


def test_special_tokens_spelled_out_are_text():
    vocab = Vocabulary.from_hf(hf.load_tokenizer())
    ids = tokenize_after(vocab, [], b"<|im_end|> x")
    assert vocab.decode(ids) == b"<|im_end|> x"


def byte_fallback(prefix: bool) -> Vocabulary:
    """Like Llama 2's: spaces as U+2581, bytes as <0x..>, a space in front of every text where `prefix`."""
    names = [
        "</s>",
        *(f"<0x{i:02X}>" for i in range(256)),
        "\u2581",
        *'{"id:1}',
        "\u2581{",
        '{"',
        "id",
        '":',
        '\u2581{"',
    ]
    vocab = {name: i for i, name in enumerate(dict.fromkeys(names))}
    merges = [("{", '"'), ("\u2581", '{"'), ("\u2581", "{"), ("i", "d"), ('"', ":")]
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True))
    steps = [normalizers.Prepend("\u2581")] if prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "\u2581")])
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return Vocabulary.from_hf(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>"))


@pytest.mark.parametrize("prefix", [False, True])
def test_byte_fallback_vocabularies(prefix):
    vocab = byte_fallback(prefix)
    text = '{"id":1}'
    matcher = Matcher(Grammar.from_gbnf('root ::= "{\\"id\\":" [0-9é] "}"'), vocab)
    forced = matcher.forced_tokens([])
    assert [vocab.tokens[i] for i in forced] == [b'{"', b"id", b'":']
    context = vocab.encode("\n")
    assert tokenize_after(vocab, context, text.encode()) == [*forced, *vocab.encode("\n1}")[-2:]]
    assert vocab.decode(tokenize_after(vocab, [], "é日".encode())) == "é日".encode()
    accented = Matcher(Grammar.from_gbnf('root ::= "é" [a-z]'), vocab)
    assert vocab.decode(accented.forced_tokens([])) == "é".encode()


def test_a_normalising_tokenizer_falls_back_to_the_longest_match():
    backend = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "A": 2, "AB": 3, "</s>": 4}, merges=[]))
    backend.normalizer, backend.decoder = normalizers.Lowercase(), decoders.ByteLevel()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("x"), "isolated")
    vocab = Vocabulary.from_hf(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>"))
    assert tokenize_after(vocab, [], b"ABa") == [3, 0] and tokenize_after(vocab, [], b"ab") == [0, 1]


def test_plain_vocabularies_use_the_longest_match():
    vocab = Vocabulary([b"a", b"ab", b"abc", b"ab", b"\xff", b""], [5])
    assert vocab.encode is None
    assert tokenize_after(vocab, [], b"abcab") == [2, 1]
    assert tokenize_after(vocab, [], b"ab?a") == [1]  # no token writes a question mark
    assert tokenize_after(vocab, [0], b"\xff") == [4]


def test_forced_bytes_past_the_end_of_a_sentence():
    recognizer = Recognizer(Grammar.from_gbnf('root ::= ("{\\"a\\":" [0-9] "}\\n")+'))
    at = recognizer.advance(recognizer.start, b'{"a":1')
    assert recognizer.forced(at, 100)[0] == b"}\n"
    text, end = recognizer.forced(at, 100, through_end=True)
    assert text == b'}\n{"a":' and end == recognizer.advance(at, text)
    for limit in range(len(text) + 1):
        assert recognizer.forced(at, limit, through_end=True)[0] == text[:limit]
    closed = Recognizer(Grammar.from_gbnf('root ::= "ab"'))
    assert closed.forced(closed.start, 10, through_end=True)[0] == b"ab"
    twice = Recognizer(Grammar.from_gbnf('root ::= "a"+'))
    assert twice.forced(twice.start, 5, through_end=True)[0] == b"aaaaa"


def test_records_are_json():
    for text in texts(5):
        for line in text.splitlines():
            json.loads(line)
