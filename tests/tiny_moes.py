"""Mixtures of experts of a few kilobytes, in each architecture that is streamed, in the folders of a checkpoint."""

from pathlib import Path

import torch
import transformers as t
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

VOCAB = 97
_BASE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
# name -> (class, config): 8 experts of which a token takes 3, in 2 or 3 layers
KINDS = {
    "qwen3": (
        t.Qwen3MoeForCausalLM,
        t.Qwen3MoeConfig(**_BASE, head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=16,
                         intermediate_size=48, norm_topk_prob=True),
    ),
    "olmoe": (
        t.OlmoeForCausalLM,
        t.OlmoeConfig(**_BASE, num_experts=8, num_experts_per_tok=3, intermediate_size=16),
    ),
    "mixtral": (
        t.MixtralForCausalLM,
        t.MixtralConfig(**_BASE, num_local_experts=8, num_experts_per_tok=3, intermediate_size=16),
    ),
    "granite": (
        t.GraniteMoeForCausalLM,
        t.GraniteMoeConfig(**_BASE, num_local_experts=8, num_experts_per_tok=3, intermediate_size=16),
    ),
    "glm4": (
        t.Glm4MoeForCausalLM,
        t.Glm4MoeConfig(**_BASE, head_dim=16, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=16,
                        intermediate_size=48, n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1),
    ),
}  # fmt: skip


def new_model(kind: str, dtype: torch.dtype = torch.bfloat16):
    """A model with weights large enough for its choices to differ from token to token."""
    torch.manual_seed(0)
    kind, config = KINDS[kind]
    model = kind(config).eval().to(dtype)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.2)
    return model


def save(kind: str, folder: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Its checkpoint in `folder`, with a tokenizer of as many words."""
    new_model(kind, dtype).save_pretrained(folder)
    words = WordLevel({f"w{number}": number for number in range(VOCAB)}, unk_token="w0")
    t.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), unk_token="w0", eos_token="w1").save_pretrained(folder)
    return folder
