"""A mixture of experts with random weights and a byte-level tokenizer, in a folder: for tests that need no sense."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

from gdlib import Grammar
from gdlib.bench.drafting import Workload

EXPERTS, TOP_K, LAYERS = 8, 2, 2
RECORDS = Grammar.from_gbnf(r'root ::= r ("\n" r)* "\n"?' + "\n" + r'r ::= "{\"id\":" [0-9]+ "}"')
PROMPTS = ['{"id":1}\n{"id":2}\n{"i', '{"id":7}\n{"id":8}\n{']


def save_random_moe(folder):
    """Write it into the folder, and return that."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)} | {"<eos>": 256}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>").save_pretrained(folder)
    torch.manual_seed(4)
    config = Qwen3MoeConfig(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        num_experts=EXPERTS,
        num_experts_per_tok=TOP_K,
        norm_topk_prob=True,
        max_position_embeddings=256,
        eos_token_id=256,
        pad_token_id=256,
    )
    model = Qwen3MoeForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "experts" in name or "gate" in name:
                weight.mul_(8)  # else routing hardly hangs on the token
    model.save_pretrained(folder)
    return folder


def prompts_of(*names):
    """Workloads of these names. Random weights write nothing that conforms: use those that need not."""
    return [Workload(name, ["a", "b"], PROMPTS, RECORDS, 16, chat=False) for name in names]
