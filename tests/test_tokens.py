"""Vocabulary, trie, bitmask and matcher: what a token list makes of a grammar."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_grammars import grammars, sentences
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from gdlib.grammar import Grammar
from gdlib.grammar.nodes import Alt, Seq, byte_class, literal
from gdlib.grammar.segments import members, text, word
from gdlib.tokens import forest
from gdlib.tokens.bitmask import allocate_bitmask, apply_mask, bitmask_to_ids, bitmask_words
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Trie, Vocabulary, VocabularyError

token_lists = st.lists(st.binary(min_size=0, max_size=4).map(lambda b: bytes(b"abc"[x % 3] for x in b)), min_size=1)


@settings(max_examples=200, deadline=None)
@given(token_lists)
def test_trie_holds_every_token_once(tokens):
    trie, seen, path = Trie(tokens), {}, b""
    for node in range(len(trie.byte)):
        path = path[: trie.depth[node] - 1] + bytes([trie.byte[node]])
        token = trie.token[node]
        while token >= 0:
            seen[int(token)] = path
            token = trie.same[token]
        # the subtree is what shares the path
        assert all(trie.depth[n] > trie.depth[node] for n in range(node + 1, trie.skip[node]))
        assert trie.skip[node] == len(trie.byte) or trie.depth[trie.skip[node]] <= trie.depth[node]
    assert seen == {i: t for i, t in enumerate(tokens) if t}


@settings(max_examples=150, deadline=None)
@given(grammars(unbounded=False), token_lists, st.data())
def test_masks_accept_and_rollback_agree_with_enumeration(grammar, tokens, data):
    tokens = [*tokens, b"a", b"b", b"c", b""]
    vocab = Vocabulary(tokens, [len(tokens) - 1])
    language = sentences(grammar.root)
    matcher, sofar, past = Matcher(grammar, vocab), b"", []
    for _ in range(8):
        legal = {i for i, t in enumerate(tokens) if t and any(s.startswith(sofar + t) for s in language)}
        if sofar in language:
            legal.add(vocab.eos_ids[0])
        assert matcher.can_stop() == (sofar in language)
        row = np.full(bitmask_words(len(vocab)), -1, dtype=np.int32)
        matcher.fill_mask(row)
        assert set(bitmask_to_ids(row, len(vocab))) == legal == set(matcher.allowed_ids())
        assert matcher.only_token() == (next(iter(legal)) if len(legal) == 1 else -1)
        for illegal in set(range(-2, len(tokens) + 3)) - legal:
            assert not matcher.accept(illegal)
        fresh = Matcher(grammar, vocab)
        assert all(fresh.accept(t) for t in past) and np.array_equal(fresh.mask(), matcher.mask())
        if not legal:
            break
        if past and data.draw(st.booleans()):
            back = data.draw(st.integers(0, len(past)))
            matcher.rollback(back)
            past = past[: len(past) - back]
        else:
            token = data.draw(st.sampled_from(sorted(legal)))
            if token == vocab.eos_ids[0]:
                copy = matcher.copy()
                assert copy.accept(token) and not copy.allowed_ids().size and not copy.can_stop()
                assert not copy.accept(0)
                copy.rollback(1)
                assert copy.can_stop()
                continue
            assert matcher.accept(token)
            past.append(token)
        sofar = vocab.decode(past)
    matcher.reset()
    assert matcher.can_stop() == (b"" in language)


def test_copies_do_not_share_their_place():
    vocab = Vocabulary([b"a", b"b", b""], [2])
    first = Matcher(Grammar(literal("ab")), vocab)
    second = first.copy()
    assert first.accept(0) and not second.accept(1) and second.accept(0) and first.accept(1)
    first.rollback(2)
    assert first.accept(0)
    with pytest.raises(ValueError, match="rollback of 5 tokens, but 1 were accepted"):
        first.rollback(5)


def test_one_token_may_span_several_segments():
    grammar = Grammar(members([("a", text(4)), ("b", text(4))]))
    tokens = [b'{"a":"', b"x", b'","b":"', b'"}', b'y"}', b""]
    matcher = Matcher(grammar, Vocabulary(tokens, [5]))
    assert all(matcher.accept(t) for t in (0, 1, 2, 4, 5))


def test_fill_mask_refuses_a_row_that_does_not_fit():
    matcher = Matcher(Grammar(word(3)), Vocabulary.from_characters("abc"))
    for row in (np.zeros(2, np.int32), np.zeros(1, np.int64), torch.zeros(1, 1, dtype=torch.int32)):
        with pytest.raises(ValueError, match=r"bitmask row is .* want int32\[1\]"):
            matcher.fill_mask(row)


@pytest.mark.parametrize("size", [31, 32, 33, 63, 64, 65, 50257])
@pytest.mark.parametrize("padding", [0, 1, 7, 31, 64, 267])
def test_a_padded_head_never_lets_an_illegal_id_win(size, padding):
    """Logits wider than the vocabulary, word edges, and the sign bit of a word."""
    for allowed in ([0], [size - 1], [min(31, size - 1)], list(range(0, size, 2))):
        rows = allocate_bitmask(1, size)
        for i in allowed:
            rows.numpy().view(np.uint32)[0, i >> 5] |= np.uint32(1 << (i & 31))
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            for loud in {0, size - 1, size, size + padding - 1, 31, 32, 63, 64} & set(range(size + padding)):
                logits = torch.zeros(1, size + padding, dtype=dtype)
                logits[0, loud] = 9
                apply_mask(logits, rows)
                assert torch.equal(torch.isfinite(logits[0]).nonzero().flatten(), torch.tensor(allowed))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 200), st.integers(0, 40), st.integers(1, 3), st.randoms(use_true_random=False))
def test_fast_and_plain_masking_agree(size, padding, batch, random):
    rows = torch.tensor(
        [[random.randint(-(2**31), 2**31 - 1) for _ in range(bitmask_words(size))] for _ in range(batch)],
        dtype=torch.int32,
    )
    logits = torch.randn(batch, size + padding)
    expected = logits.clone()
    for b in range(batch):
        for i in range(size + padding):
            word_ = int(rows[b, i >> 5]) if i >> 5 < rows.shape[1] else 0
            if not (word_ >> (i & 31)) & 1:
                expected[b, i] = -torch.inf
    by_torch = logits.t().contiguous().t()  # not contiguous: the path that a GPU takes
    assert torch.equal(apply_mask(by_torch, rows), expected) and torch.equal(apply_mask(logits, rows), expected)


@pytest.mark.parametrize(
    ("logits", "rows", "says"),
    [
        (torch.zeros(4), torch.zeros(1, 1, dtype=torch.int32), "does not fit"),
        (torch.zeros(2, 4), torch.zeros(3, 1, dtype=torch.int32), "does not fit"),
        (torch.zeros(4), torch.zeros(1, dtype=torch.int64), "does not fit"),
        (torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), "floating point"),
    ],
)
def test_apply_mask_refuses_what_does_not_fit(logits, rows, says):
    with pytest.raises(ValueError, match=says):
        apply_mask(logits, rows)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_masks_like_the_cpu():
    rows = torch.randint(-(2**31), 2**31 - 1, (4, 40), dtype=torch.int32)
    logits = torch.randn(4, 1300)
    assert torch.equal(apply_mask(logits.cuda(), rows).cpu(), apply_mask(logits.clone(), rows))


def test_vocabularies_that_cannot_be_used_say_why():
    with pytest.raises(VocabularyError, match="no token with bytes"):
        Vocabulary([b"", b""], [0])
    with pytest.raises(VocabularyError, match="eos id 7 is outside"):
        Vocabulary([b"a"], [7])
    with pytest.raises(VocabularyError, match="not a fast tokenizer"):
        Vocabulary.from_hf(object())


def test_eos_with_bytes_never_stands_for_them():
    vocab = Vocabulary([b"a", b"b"], [1])
    matcher = Matcher(Grammar(literal("ab")), vocab)
    assert matcher.accept(0) and not matcher.accept(1) and matcher.allowed_ids().size == 0


def fast_tokenizer(entries: dict[str, int], decoder, **special) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE(entries, []))
    backend.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def test_byte_level_tokens_become_their_bytes():
    tokenizer = fast_tokenizer({"Ġa": 0, "é": 1, "Ċ": 2, "ÃŃ": 3}, decoders.ByteLevel(), eos_token="</s>")
    vocab = Vocabulary.from_hf(tokenizer)
    assert vocab.tokens == [b" a", b"\xe9", b"\n", "í".encode(), b""] and vocab.eos_ids == (4,)


def test_byte_fallback_tokens_become_their_bytes():
    entries = {"<0x0A>": 0, "▁the": 1, "é": 2}
    tokenizer = fast_tokenizer(entries, decoders.Sequence([decoders.ByteFallback()]), eos_token="</s>")
    assert Vocabulary.from_hf(tokenizer).tokens == [b"\n", b" the", "é".encode(), b""]


def test_holes_and_missing_eos():
    tokenizer = fast_tokenizer({"a": 0, "b": 3}, decoders.ByteLevel(), eos_token="b")
    assert Vocabulary.from_hf(tokenizer).tokens == [b"a", b"", b"", b""]
    with pytest.raises(VocabularyError, match="no eos"):
        Vocabulary.from_hf(fast_tokenizer({"a": 0}, decoders.ByteLevel()))
    with pytest.raises(VocabularyError, match="neither"):
        Vocabulary.from_hf(fast_tokenizer({"a": 0}, decoders.WordPiece(), eos_token="a"))


def test_many_narrow_readings_at_once_have_a_mask():
    """Together they read many bytes, though none does alone."""
    words = [bytes([a, b]) for a in range(ord("A"), ord("z")) for b in b"ab"]
    grammar = Grammar(Alt(tuple(Seq((literal(w), byte_class(b"01"))) for w in words)))
    vocab = Vocabulary([bytes([b]) for b in range(128)] + [b"Ab1", b"zb", b""], [130])
    matcher = Matcher(grammar, vocab)
    assert set(matcher.allowed_ids()) == {*range(ord("A"), ord("z")), 128}


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ('root ::= [a-z]{2,} "x1"', [b"abx1", b"ab", b"abx", b"x1", b"a"]),
        ("root ::= [0-9]{3} [0-9]{2}", [b"12345", b"123", b"12", b"1234", b"1", b"123456"]),
        ("root ::= ([0-9]{2})*", [b"12345", b"123", b"12", b"1"]),
        ('root ::= .{2,4} "," .*', [b"abc,de", b"ab,cde", b"abcde", b"a"]),
    ],
)
def test_a_loop_whose_exit_begins_like_its_character_loses_no_token(monkeypatch, text, tokens):
    for name in ("HEAVY", "VISITS", "WORTH"):
        monkeypatch.setattr(forest, name, 1)
    vocab = Vocabulary([*tokens, b""], [len(tokens)])
    matcher = Matcher(Grammar.from_gbnf(text), vocab)
    for token in (None, 2, 2):
        if token is not None and not matcher.accept(token):
            break
        assert matcher.allowed_ids().tolist() == [i for i in range(len(vocab)) if matcher.copy().accept(i)]
