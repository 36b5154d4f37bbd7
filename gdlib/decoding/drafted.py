"""Drafts for those who decode with transformers' own `generate`.

    drafted = Drafted(grammar, tokenizer)
    model.generate(**inputs, max_new_tokens=200, custom_generate=drafted)

`custom_generate` is the hook that transformers has for the loops of others: `generate` prepares prompt, configuration,
logits processors and stopping criteria, and calls what it was given in the place of its own loop. The other way in,
assisted generation, wants a second model, knows chains of candidates only, and its parts are private.

The loop is `speculative`. Every token is chosen as `generate` would choose it, by its own processors and criteria and
with its own random numbers; the drafts only decide how many choices a forward is good for.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch

from gdlib.decoding import room
from gdlib.decoding.generate import DEFAULT_DRAFTS, draft_sources
from gdlib.decoding.speculative import speculative
from gdlib.drafts import MAX_DRAFT, DraftError, Source
from gdlib.drafts.gate import Costs, Gate, named_gate
from gdlib.drafts.tree import ROOT, Tree
from gdlib.grammar.nodes import Grammar
from gdlib.models.hf import CausalModel
from gdlib.tokens.vocabulary import Vocabulary

# What `generate` prepares for a forward and this loop does itself.
_OWN = {"attention_mask", "position_ids", "cache_position", "cache", "past_key_values", "use_cache", "logits_to_keep"}


class Drafted:
    """A `custom_generate`: the tokens that `generate` would return without it, in fewer forwards.

    grammar: what the text is expected to look like, or None; a guess, which never narrows the output (for that, give
    `generate` a GrammarLogitsProcessor too). vocabulary: a Vocabulary, or a transformers fast tokenizer to make one
    from; needed where there is a grammar. drafts, draft_cap, gate, linear: as for `gdlib.generate`.

    Greedily and sampled, the output is that of `generate`, token for token and seed for seed, as far as a forward over
    several tokens rounds like several over one (see `speculative`). Logits processors and warpers (temperature, top_k,
    repetition_penalty, those given by hand, ...) are called once a token, in order, with the ids before it; stopping
    criteria once a token too, so that the text ends inside a block of drafts where it would end without. Eos ids,
    max_new_tokens, max_time, left padding, a streamer and return_dict_in_generate (`sequences` alone) work as ever.

    Refused with ValueError: more than one text at a time (batches, num_return_sequences, beams), other strategies
    (assistant_model, prompt lookup, contrastive search, DoLa), encoder-decoders, inputs that are not token ids, a cache
    that is given or not the usual one, scores, logits, attentions or hidden states in the output, several processes, a
    prompt that fills the context. ModelError for a model whose cache cannot be taken back (sliding windows, recurrent
    layers). Where the text reaches the end of the model's context it ends there. `stop_strings` does not reach any
    callable in transformers 5.24: give stopping_criteria=[StopStringCriteria(tokenizer, strings)] instead.

    One object serves any number of calls and models, one after another. The first call on a model measures what its
    forwards cost, where the gate asks for it. report: of the last call, as `speculative` gives it, None before; its
    `stop` is "criterion" where a stopping criterion other than eos and length ended the text.

    Raises DraftError for a source that cannot be had, ValueError for a draft_cap or gate that there is not.
    """

    def __init__(
        self,
        grammar: Grammar | None = None,
        vocabulary=None,
        *,
        drafts: Sequence[str | Source] = DEFAULT_DRAFTS,
        draft_cap: int = 24,
        gate: str | Gate = "cost",
        linear: bool = False,
    ):
        if grammar is not None and vocabulary is None:
            raise ValueError("drafts from a grammar need the tokenizer (or a gdlib.Vocabulary) as well")
        if vocabulary is not None and not isinstance(vocabulary, Vocabulary):
            vocabulary = Vocabulary.from_hf(vocabulary)
        if "mtp" in drafts:
            raise DraftError("draft source 'mtp': no multi-token head is read from transformers' models; leave it out")
        if not 1 <= draft_cap <= MAX_DRAFT:
            raise ValueError(f"draft_cap={draft_cap}: want 1 to {MAX_DRAFT} rows of drafts a forward")
        if isinstance(gate, str):
            named_gate(gate)
        self.sources = draft_sources(drafts, grammar, vocabulary)
        self.draft_cap, self.gate, self.linear = draft_cap, gate, linear
        self.report: dict | None = None
        self._costs: WeakKeyDictionary = WeakKeyDictionary()  # model -> Costs

    def __call__(
        self,
        model,
        input_ids: torch.Tensor,
        logits_processor,
        stopping_criteria,
        generation_config,
        streamer=None,
        **model_kwargs,
    ):
        """Called by `generate`. input_ids: int64[1, n]. Returns int64[1, n + new], or a GenerateDecoderOnlyOutput."""
        from transformers.generation import EosTokenCriteria, GenerateDecoderOnlyOutput, MaxLengthCriteria

        asked = _asked(inspect.currentframe().f_back)
        streamer = asked.get("streamer") if streamer is None else streamer
        _check_request(model, input_ids, generation_config, asked.get("assistant_model"), model_kwargs)
        prompt = input_ids[0, _padding(input_ids, model_kwargs) :].tolist()
        lengths = [c.max_length for c in stopping_criteria if isinstance(c, MaxLengthCriteria)]
        eos_ids = {i for c in stopping_criteria if type(c) is EosTokenCriteria for i in c.eos_token_id.tolist()}
        others = [c for c in stopping_criteria if type(c) not in (EosTokenCriteria, MaxLengthCriteria)]
        target = CausalModel(model)  # no cache of the last call: the weights may have been trained since
        target.costs = self._costs.get(model)
        limit = room(target, prompt, max(1, min(lengths) - input_ids.shape[1]))
        decided = None
        if generation_config.do_sample or logits_processor or others:
            sample = generation_config.do_sample is True
            decided = _Decided(target, input_ids, limit, logits_processor, others, eos_ids, sample)

        def written(ids: list[int]) -> list[int]:
            return [decided.last if decided and token == decided.end_id else token for token in ids]

        def stream(ids: list[int]) -> None:
            for token in written(ids):
                streamer.put(torch.tensor([token]))

        generation = speculative(
            target if decided is None else decided,
            prompt,
            self.sources,
            decided.ends if decided else eos_ids,
            limit,
            gate=named_gate(self.gate) if isinstance(self.gate, str) else self.gate,
            draft_cap=self.draft_cap,
            linear=self.linear,
            on_tokens=stream if streamer is not None else None,
        )
        if streamer is not None:
            streamer.end()
        if target.costs is not None:
            self._costs[model] = target.costs
        self.report = generation.report
        if decided and generation.ids[-1] == decided.end_id:
            self.report["stop"] = "criterion"
        sequences = torch.cat([input_ids, input_ids.new_tensor([written(generation.ids)])], dim=1)
        return GenerateDecoderOnlyOutput(sequences) if generation_config.return_dict_in_generate else sequences


class _Decided:
    """A model whose logits are what `generate` makes of them: 1 at the token that it would take, 0 elsewhere.

    The choices are made while the rows come in, down the tree, so processors and criteria see the text as they would
    without drafts: each token once, in order, and no row that the text does not reach. `end_id`, one past the
    vocabulary, stands for a token that a criterion ends the text with; `last` says which one it was.
    """

    def __init__(self, model: CausalModel, prompt: torch.Tensor, limit: int, processors, criteria, eos_ids, sample):
        self.model, self.processors, self.criteria = model, processors, criteria
        self.ends, self.sample = set(eos_ids), sample  # and end_id, once logits have shown their width
        self.end_id = self.last = -1
        self._text = torch.cat([prompt, prompt.new_zeros((1, limit))], dim=1)
        self._count = prompt.shape[1]

    def __getattr__(self, name: str):
        return getattr(self.model, name)

    @property
    def costs(self) -> Costs:
        if self.model.costs is None:
            self.model.costs = Costs.measure(self.model)  # not through `verify` here, which would choose tokens
        return self.model.costs

    def __call__(self, new_ids: Sequence[int]) -> torch.Tensor:
        return self._decide(self.model(new_ids)[None], Tree())[0]

    def verify(self, root: int, tree: Tree) -> torch.Tensor:
        rows = self.model.verify(root, tree)
        return self._decide(rows, tree if len(rows) > 1 else Tree())

    def _decide(self, rows: torch.Tensor, tree: Tree) -> torch.Tensor:
        """uint8[n + 1, V + 1] from float[n + 1, V]; rows that the text does not reach stay 0."""
        self.end_id = rows.shape[-1]
        self.ends.add(self.end_id)
        decided, node = torch.zeros((len(rows), self.end_id + 1), dtype=torch.uint8), ROOT
        while True:
            token, ended = self._choose(rows[node + 1])
            decided[node + 1, self.end_id if ended else token] = 1
            node = tree.child(node, token)
            if ended or node < 0 or token in self.ends:
                return decided

    def _choose(self, logits: torch.Tensor) -> tuple[int, bool]:
        """(the next token, whether a criterion ends the text with it); both are noted."""
        before = self._text[:, : self._count]
        # float32 and where the ids are, a copy that processors may change: as `generate` does it
        scores = logits[None].to(copy=True, dtype=torch.float32, device=before.device)
        scores = self.processors(before, scores)
        if self.sample:
            token = torch.multinomial(torch.softmax(scores, dim=-1), num_samples=1).item()
        else:
            token = scores.argmax(-1).item()
        self._text[0, self._count] = self.last = token
        self._count += 1
        text = self._text[:, : self._count]
        ends = [bool(criterion(text, None).all()) for criterion in self.criteria]
        return token, any(ends)


def _check_request(model, input_ids: torch.Tensor, config, assistant_model, model_kwargs: dict) -> None:
    """ValueError, naming it, for what `generate` was asked for and this loop cannot do."""
    from transformers.generation import GenerationMode

    mode = config.get_generation_mode(assistant_model)
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        raise ValueError(
            f"this asks for {mode.value.replace('_', ' ')}, and gdlib's drafts are for greedy search and sampling: "
            "leave out num_beams, assistant_model, prompt_lookup_num_tokens and their like, or custom_generate"
        )
    if model.config.is_encoder_decoder:
        raise ValueError(f"{type(model).__name__} is an encoder-decoder: gdlib's drafts are for decoders alone")
    if len(input_ids) != 1:
        raise ValueError(
            f"{len(input_ids)} texts at once: gdlib's drafts are verified one text at a time; call generate for each "
            "(num_return_sequences=1), or leave custom_generate out"
        )
    if config.return_dict_in_generate:
        for name in ("output_scores", "output_logits", "output_attentions", "output_hidden_states"):
            if getattr(config, name, None):
                raise ValueError(f"{name}=True: drafted decoding keeps the sequences alone; leave it out")
    if config.cache_implementation not in (None, "dynamic", "dynamic_full"):
        raise ValueError(
            f"cache_implementation={config.cache_implementation!r}: drafts can be taken back from a dynamic cache "
            "alone; leave it out"
        )
    cache = model_kwargs.get("cache", model_kwargs.get("past_key_values"))
    if cache is not None and (getattr(cache, "_is_user_defined", False) or cache.get_seq_length()):
        raise ValueError("a cache was given, which drafted decoding would neither read nor fill: leave it out")
    for name in sorted(model_kwargs.keys() - _OWN):
        if model_kwargs[name] is not None:
            raise ValueError(f"{name}: gdlib's drafts are for inputs of token ids alone; leave custom_generate out")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        world = torch.distributed.get_world_size()
        if world > 1:  # each would draft by its own clock, and wait for the others forever
            raise ValueError(f"{world} processes: gdlib's drafts are for a model in one process")


def _padding(input_ids: torch.Tensor, model_kwargs: dict) -> int:
    """How many ids on the left are padding. ValueError where the mask or the positions are not those of plain text."""
    mask, positions, padding = model_kwargs.get("attention_mask"), model_kwargs.get("position_ids"), 0
    if mask is not None:
        padding = int((mask[0] == 0).sum())
        if padding == input_ids.shape[1] or not bool(mask[0, padding:].all()):
            raise ValueError("attention_mask hides more than padding on the left: gdlib's drafts cannot leave that out")
    if positions is not None:
        positions = positions[..., padding:]
        if not bool((positions == torch.arange(positions.shape[-1], device=positions.device)).all()):
            raise ValueError("position_ids do not count 0, 1, 2, ...: leave them out, or custom_generate")
    return padding


def _asked(caller) -> dict:
    """The arguments of the running `generate`, from its frame; none where something else has called.

    transformers 5.24 does not hand `streamer` and `assistant_model` on to a callable. The first would be lost without
    a word, and whoever reads from a streamer that is never ended waits forever.
    """
    return caller.f_locals if caller is not None and caller.f_code.co_name == "generate" else {}
