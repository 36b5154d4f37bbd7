"""Everything in one call: a model, a prompt, perhaps a grammar, and the draft sources to decode with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gdlib.decoding import Generation
from gdlib.decoding.speculative import speculative
from gdlib.drafts import SOURCES, DraftError, Source
from gdlib.drafts.gate import Gate, named_gate
from gdlib.grammar.nodes import Grammar
from gdlib.models.mtp import causal
from gdlib.tokens.matcher import Matcher
from gdlib.tokens.vocabulary import Vocabulary

DEFAULT_DRAFTS = ("grammar", "ngram", "branches")


def generate(
    model,
    prompt_ids: Sequence[int],
    vocab: Vocabulary | None = None,
    *,
    tokenizer=None,
    grammar: Grammar | None = None,
    drafts: Sequence[str | Source] = DEFAULT_DRAFTS,
    constrain: bool = False,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    max_tokens: int = 256,
    seed: int = 0,
    draft_cap: int = 24,
    gate: str | Gate = "cost",
    linear: bool = False,
    on_tokens: Callable[[list[int]], None] | None = None,
    on_forward: Callable[[object, list[str], list[bool]], None] | None = None,
    trace: bool = False,
) -> Generation:
    """Decode with drafts: the text that plain decoding writes, in fewer forwards.

    model: a CausalModel, or a transformers causal model, which is then wrapped for this call (wrap it yourself to keep
    the last prompt's cache and the measured costs between calls). vocab: or a transformers fast `tokenizer` to make
    one from; one of the two is needed for the eos, the text, and whatever reads the grammar. grammar: what the draft
    sources expect; a guess that never narrows the output, unless constrain=True, which makes the output conform.
    drafts: names ("grammar", "ngram", "mtp", "branches") or Source objects, the first of two that propose the same
    token has it; () decodes plainly. gate: "cost", "bytes" (of experts on disk), "all", "colibri", "rearming" or a
    Gate. The rest as `speculative`.

    Raises ValueError for parameters that do not fit together, DraftError (a ValueError) for a source that cannot be
    had, and what `speculative` raises.
    """
    if isinstance(prompt_ids, str):
        raise ValueError("prompt_ids is a text: give its token ids, such as tokenizer(text)['input_ids']")
    prompt_ids = list(prompt_ids)
    if vocab is None:
        if tokenizer is None:
            raise ValueError("generate needs a vocab (gdlib.Vocabulary) or a tokenizer to make one from")
        vocab = Vocabulary.from_hf(tokenizer)
    if not isinstance(vocab, Vocabulary):
        raise ValueError(f"vocab is a {type(vocab).__name__}: give a gdlib.Vocabulary, or tokenizer=")
    if grammar is not None and not isinstance(grammar, Grammar):
        raise ValueError(f"grammar is a {type(grammar).__name__}: make one by gdlib.Grammar.from_gbnf, for example")
    if not hasattr(model, "reset"):
        model = causal(model)
    if constrain and grammar is None:
        raise ValueError("constrain=True needs a grammar to constrain to")
    generator = None
    if temperature > 0:
        generator = torch.Generator(getattr(model, "device", "cpu")).manual_seed(seed)
    generation = speculative(
        model,
        prompt_ids,
        draft_sources(drafts, grammar, vocab, model, armed=constrain),
        vocab.eos_ids,
        max_tokens,
        matcher=Matcher(grammar, vocab) if constrain else None,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        generator=generator,
        gate=named_gate(gate) if isinstance(gate, str) else gate,
        draft_cap=draft_cap,
        linear=linear,
        on_tokens=on_tokens,
        on_forward=on_forward,
        trace=trace,
    )
    text = generation.ids[:-1] if generation.stop == "eos" else generation.ids
    generation.text = vocab.decode(text).decode(errors="replace")
    return generation


def draft_sources(
    drafts: Sequence[str | Source], grammar: Grammar | None, vocab: Vocabulary, model=None, armed: bool = False
) -> list[Source]:
    """The sources of these names; a Source stays what it is. armed: the whole text is known to be of the grammar.

    Of the default ones, those that read a grammar are left out where there is none. DraftError for a name that there
    is not, one named twice, or one that needs what is not here.
    """
    if isinstance(drafts, str):
        raise DraftError(f"drafts={drafts!r}: give a list of names, such as [{drafts!r}]")
    if drafts is DEFAULT_DRAFTS and grammar is None:
        drafts = ("ngram",)
    sources = [_source(draft, grammar, vocab, model, armed) if isinstance(draft, str) else draft for draft in drafts]
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise DraftError(f"draft source {name!r} is given twice")
    return sources


def _source(name: str, grammar: Grammar | None, vocab: Vocabulary, model, armed: bool) -> Source:
    if name not in SOURCES:
        raise DraftError(f"draft source {name!r}: there is {', '.join(SOURCES)}")
    if name == "ngram":
        from gdlib.drafts.ngram import NGramSource

        return NGramSource()
    if name == "mtp":
        from gdlib.drafts.mtp import MTPSource

        return MTPSource(model)
    if grammar is None:
        raise DraftError(f"draft source {name!r} reads a grammar, and none was given")
    if name == "grammar":
        from gdlib.drafts.grammar import GrammarSource

        return GrammarSource(grammar, vocab, armed=armed)
    from gdlib.drafts.branches import BranchSource

    return BranchSource(grammar, vocab, armed=armed)
