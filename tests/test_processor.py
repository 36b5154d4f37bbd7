"""The logits processor under transformers' own generate: greedy, sampled, beams, batches."""

import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gdlib import Grammar, GrammarLogitsProcessor, Vocabulary
from gdlib.decoding import DecodingError

TOKENS = [bytes([b]) for b in range(256)] + [b'{"', b'":', b'", "', b'"}', b"true", b"", b""]
EOS = len(TOKENS) - 1
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(7)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(
        vocab_size=len(TOKENS) + 5, max_position_embeddings=256, eos_token_id=EOS, pad_token_id=EOS, **size
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def vocab():
    return Vocabulary(TOKENS, [EOS])


@pytest.mark.parametrize(
    "how",
    [
        {"do_sample": False},
        {"do_sample": True, "temperature": 1.5, "top_k": 0},
        {"do_sample": False, "num_beams": 3},
        {"do_sample": True, "num_return_sequences": 4},
    ],
)
def test_every_row_is_a_sentence(model, vocab, how):
    processor = GrammarLogitsProcessor(Grammar.from_json_schema(SCHEMA, whitespace="compact"), vocab)
    torch.manual_seed(1)
    prompt = torch.tensor([[5, 6, 7], [8, 9, 10]])
    for _ in range(2):  # one processor serves several calls
        out = model.generate(prompt, logits_processor=[processor], max_new_tokens=60, **how)
        assert len(out) == 2 * how.get("num_return_sequences", 1)
        for row in out.tolist():
            ids = row[3 : row.index(EOS, 3)]
            value = json.loads(vocab.decode(ids))
            assert set(value) == {"name", "ok"} and len(value["name"]) <= 4 and isinstance(value["ok"], bool)


def test_a_token_that_is_not_allowed_is_an_error(vocab):
    processor = GrammarLogitsProcessor(Grammar.from_regex("ab"), vocab)
    scores = torch.zeros(1, len(TOKENS))
    first = processor(torch.tensor([[1, 2]]), scores.clone())
    assert first.isfinite().nonzero().tolist() == [[0, ord("a")]]
    with pytest.raises(DecodingError, match="put this one last"):
        processor(torch.tensor([[1, 2, ord("z")]]), scores.clone())
