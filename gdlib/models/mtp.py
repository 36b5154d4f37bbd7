"""A head that guesses several tokens ahead from the model's own hidden states, and the model that drafts with it.

Slot s of the head holds the hidden state of token s (what the output layer reads, behind the final norm) and the
embedding of token s + 1; it predicts token s + 2. So once the model has read tokens 0 to n - 1 and token n was chosen,
slot n - 1 gives the first guess. For the next guess the head takes its own output in the place of the hidden state
that the model has not computed yet, and so on: one set of weights, applied up to `depth` times.

Source of the method: DeepSeek-V3 (arXiv 2412.19437, section 2.2), which has a module for each depth; that one module
serves all of them, reading the keys that the steps before left, is how EAGLE (arXiv 2401.15077) drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from gdlib.models.hf import HEAD_FILE, CausalModel
from gdlib.models.wheels import ModelError

_SIZES = ("hidden", "heads", "width", "depth")


class MTPHead(nn.Module):
    """hidden: the model's width; heads: of attention; width: of the feed-forward part; depth: how many it guesses.

    The embedding, the final norm and the output layer are the model's; only what is between them is here.
    """

    def __init__(self, hidden: int, heads: int, width: int, depth: int):
        super().__init__()
        self.hidden, self.heads, self.width, self.depth = hidden, heads, width, depth
        self.hidden_norm = nn.RMSNorm(hidden, eps=1e-6)
        self.embed_norm = nn.RMSNorm(hidden, eps=1e-6)
        self.join = nn.Linear(2 * hidden, hidden, bias=False)
        self.attention_norm = nn.RMSNorm(hidden, eps=1e-6)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.mlp_norm = nn.RMSNorm(hidden, eps=1e-6)
        self.gate_up = nn.Linear(hidden, 2 * width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)
        each = hidden // heads
        self.register_buffer("rates", 10000.0 ** -(torch.arange(0, each, 2) / each), persistent=False)

    def joined(self, hidden: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """[..., H]: the block's input, from the hidden states of tokens s and the embeddings of tokens s + 1."""
        return self.join(torch.cat((self.hidden_norm(hidden), self.embed_norm(embedded)), -1))

    def heads_of(self, x: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(queries, keys, values), each [..., heads, rows, hidden / heads], of x [..., rows, H] at `slots` [rows]."""
        return _heads(self.qkv(self.attention_norm(x)), self.heads, *self.turns(slots, x.dtype))

    def turns(self, slots: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """(cosines, sines) of the rotary angles, [rows, hidden / heads / 2]."""
        angles = slots[:, None] * self.rates
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def rest(self, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """[..., rows, H]: the block's output before the final norm; mixed: what attention gave, by heads."""
        x = x + self.out(mixed.transpose(-2, -3).flatten(-2))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def states(self, hidden: torch.Tensor, embedded: torch.Tensor, norm: nn.Module) -> list[torch.Tensor]:
        """For every depth d the normed states float[B, S, H] of all slots, for training: text in, no cache.

        hidden: float[B, S, H] of tokens 0..S-1; embedded: float[B, S, H] of tokens 1..S. A state of depth d looks at
        the first depth's keys up to d - 1 slots back and at one key of each depth after it, which is what it finds
        when the head drafts. Slots below d - 1 have nothing to begin with: leave them out of the loss.
        """
        rows = hidden.shape[1]
        slots = torch.arange(rows, device=hidden.device)
        x = self.joined(hidden, embedded)
        q, first_k, first_v = self.heads_of(x, slots)
        out = [norm(self.rest(x, F.scaled_dot_product_attention(q, first_k, first_v, is_causal=True)))]
        later: list[tuple[torch.Tensor, torch.Tensor]] = []
        scale = (self.hidden // self.heads) ** -0.5
        for back in range(1, self.depth):
            x = self.joined(out[-1].roll(1, 1), embedded)
            q, k, v = self.heads_of(x, slots)
            later = [(k.roll(1, -2), v.roll(1, -2)) for k, v in later] + [(k, v)]
            unseen = torch.ones(rows, rows, dtype=torch.bool, device=x.device).triu(1 - back)
            scores = (q @ first_k.transpose(-1, -2)).masked_fill(unseen, -torch.inf)
            own = [(q * k).sum(-1, keepdim=True) for k, _ in later]
            shares = (torch.cat((scores, *own), -1) * scale).softmax(-1)
            mixed = shares[..., :rows] @ first_v
            for index, (_, v) in enumerate(later):
                mixed = mixed + shares[..., rows + index, None] * v
            out.append(norm(self.rest(x, mixed)))
        return out


def _heads(qkv: torch.Tensor, heads: int, cos: torch.Tensor, sin: torch.Tensor):
    q, k, v = qkv.unflatten(-1, (3 * heads, -1)).transpose(-2, -3).chunk(3, -3)
    return _turned(q, cos, sin), _turned(k, cos, sin), v


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def save_head(head: MTPHead, folder: Path) -> None:
    """Write the head (bfloat16) with its sizes into the model's folder."""
    tensors = {name: value.to(torch.bfloat16).contiguous() for name, value in head.state_dict().items()}
    save_file(tensors, folder / HEAD_FILE, {size: str(getattr(head, size)) for size in _SIZES})


def load_head(folder: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> MTPHead:
    """The head in the model's folder. ModelError, naming the file, where it is not whole."""
    path = Path(folder) / HEAD_FILE
    try:
        with safe_open(path, "pt") as file:
            head = MTPHead(**{size: int(file.metadata()[size]) for size in _SIZES})
            head.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"{path}: no multi-token head ({str(error).strip().splitlines()[0]})") from error
    return head.to(device, dtype).eval()


class _Quick:
    """The head's block for a few rows at a time, where it is the number of calls that costs.

    The norms' weights are multiplied into the layers behind them, and the embedding's half of `join` is looked up.
    """

    @torch.no_grad()
    def __init__(self, head: MTPHead, embedding: torch.Tensor):
        size, root = head.hidden, head.hidden**0.5
        self.head = head
        self.join = head.join.weight[:, :size] * head.hidden_norm.weight * root
        self.embedded = head.embed_norm(embedding) @ head.join.weight[:, size:].T  # [V, H]
        self.qkv = head.qkv.weight * head.attention_norm.weight * root
        self.gate_up = head.gate_up.weight * head.mlp_norm.weight * root
        self.cos, self.sin = head.turns(torch.arange(256, device=embedding.device), embedding.dtype)

    def input(self, hidden: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return F.linear(_unit(hidden), self.join) + self.embedded[ids]

    def heads(self, x: torch.Tensor, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if end > len(self.cos):
            self.cos, self.sin = self.head.turns(torch.arange(2 * end, device=x.device), x.dtype)
        return _heads(F.linear(_unit(x), self.qkv), self.head.heads, self.cos[begin:end], self.sin[begin:end])

    def output(self, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        x = x + F.linear(mixed.transpose(-2, -3).flatten(-2), self.head.out.weight)
        gate, up = F.linear(_unit(x), self.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.head.down.weight)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


class MTPModel(CausalModel):
    """A CausalModel that also drafts, by the `mtp_head` of its transformers model; weights are taken as they are now.

    What the head keeps of the text is the model's hidden states, row by row, and its own keys and values, slot by slot.
    Slots are filled when drafts are asked for, those of a prompt when it is read; whatever is behind the text is
    written over. Over `reset` all of it stays for the prompt that stays.
    """

    def __init__(self, model):
        super().__init__(model)
        self.head: MTPHead = model.mtp_head
        self.mtp_depth = self.head.depth
        self._norm, self._output = model.base_model.norm, model.get_output_embeddings()
        self._quick = _Quick(self.head, model.get_input_embeddings().weight)
        self._ids: list[int] = []  # of the rows below `length`, and of those that wait for `keep`
        self._hidden = self._keys = self._values = torch.empty(0)
        self._filled = 0  # slots below are right: their hidden state and the token behind it are in the text
        self._paths: dict[tuple[int, ...], _Step] = {}

    def __call__(self, new_ids: Sequence[int]) -> torch.Tensor:
        new_ids, first = tuple(new_ids), self.length == 0
        if first and new_ids != self._prompt:
            self._filled = 0
        with self._read(new_ids):
            logits = super().__call__(new_ids)
        if first:
            self._filled = min(self._filled, self.length - 1)
            self._fill(())  # so that no text behind this prompt pays for it
        return logits

    def verify(self, root: int, tree) -> torch.Tensor:
        if not len(tree):
            return super().verify(root, tree)  # by way of __call__
        with self._read((root, *tree.tokens)):
            return super().verify(root, tree)

    def keep(self, nodes: Sequence[int]) -> None:
        start, nodes = self.length + 1, list(nodes)
        super().keep(nodes)
        self._paths.clear()
        if nodes:
            self._ids[start : self.length] = [self._ids[start + node] for node in nodes]
            if nodes != list(range(len(nodes))):
                rows = torch.tensor(nodes, device=self.device) + start
                self._hidden[start : self.length] = self._hidden.index_select(0, rows)

    @contextmanager
    def _read(self, ids: Sequence[int]):
        """Note the ids and the hidden states of the rows that a forward within reads behind the text."""
        begin = self.length
        self._paths.clear()

        def note(module, arguments, out) -> None:
            rows = out.last_hidden_state[0]
            self._hidden = _with_room(self._hidden, 0, begin + len(rows), rows)
            self._hidden[begin : begin + len(rows)] = rows
            self._ids[begin:] = ids

        hook = self.model.base_model.register_forward_hook(note)
        try:
            yield
        finally:
            hook.remove()

    @torch.no_grad()
    def mtp(self, ahead: Sequence[int], room: int) -> list[int]:
        """At most `room` greedy guesses of what comes behind the text and `ahead`.

        ahead: begins with the token that was chosen behind the text, which the model has not read yet; the head reads
        it and those after it one by one, each in the place of a guess of its own. So there are at most
        `mtp_depth + 1 - len(ahead)` guesses, and none where that is not positive, or at the end of the context.
        """
        path = tuple(ahead)
        room = min(room, self.mtp_depth + 1 - len(path))
        if self.context:
            room = min(room, self.context - self.length - len(path))
        if not path or room <= 0 or not self.length:
            return []
        guesses: list[int] = []
        for depth in range(1, len(path) + room):
            step = self._step(path[:depth])
            if depth >= len(path):
                guesses.append(step.guess)
                path = (*path, step.guess)
        return guesses

    def _step(self, path: tuple[int, ...]) -> _Step:
        """What the head makes of the text with `path` behind it; the steps before it are taken where need be."""
        if path in self._paths:
            return self._paths[path]
        slot = self.length - 2 + len(path)
        if len(path) == 1:
            states = self._fill(path)
        else:
            before = self._step(path[:-1])
            for back in range(1, len(path)):  # another path may have been there since
                self._keys[:, slot - back], self._values[:, slot - back] = self._paths[path[:-back]].laid
            states = self._run(before.state, path[-1:], slot)
        state = states[-1:]
        laid = self._keys[:, slot].clone(), self._values[:, slot].clone()
        step = self._paths[path] = _Step(state, laid, int(self._output(state)[0, : self.width].argmax()))
        return step

    @torch.no_grad()
    def _fill(self, behind: tuple[int, ...]) -> torch.Tensor:
        """Fill the slots of the text that are not yet, and the one of its last row with the token `behind` it."""
        begin, end = self._filled, self.length - 1 + len(behind)
        self._filled = self.length - 1
        if end <= begin:
            return self._hidden[:0]
        return self._run(self._hidden[begin:end], (*self._ids[begin + 1 : self.length], *behind), begin)

    def _run(self, hidden: torch.Tensor, ids: Sequence[int], begin: int) -> torch.Tensor:
        """float[n, H]: normed states of n slots from `begin` on, from hidden states float[n, H] and the ids behind."""
        count, end = len(ids), begin + len(ids)
        x = self._quick.input(hidden, torch.tensor(ids, device=self.device))
        q, k, v = self._quick.heads(x, begin, end)
        self._keys, self._values = _with_room(self._keys, 1, end, k), _with_room(self._values, 1, end, v)
        self._keys[:, begin:end], self._values[:, begin:end] = k, v
        mask = None
        if count > 1:
            mask = torch.ones(count, end, dtype=torch.bool, device=self.device).tril(begin)
        mixed = F.scaled_dot_product_attention(
            q[None], self._keys[None, :, :end], self._values[None, :, :end], attn_mask=mask
        )
        return self._norm(self._quick.output(x, mixed[0]))


@dataclass(frozen=True)
class _Step:
    """state: float[1, H]; laid: the key and the value float[heads, H / heads] of its slot; guess: the likeliest id."""

    state: torch.Tensor
    laid: tuple[torch.Tensor, torch.Tensor]
    guess: int


def _with_room(kept: torch.Tensor, dim: int, size: int, like: torch.Tensor) -> torch.Tensor:
    """`kept` with at least `size` places along `dim`, in the other sizes, dtype and device of `like`."""
    if kept.ndim == like.ndim and kept.shape[dim] >= size:
        return kept
    shape = list(like.shape)
    shape[dim] = max(2 * size, 256)
    grown = like.new_zeros(shape)
    if kept.ndim == like.ndim:
        grown.narrow(dim, 0, kept.shape[dim]).copy_(kept)
    return grown


def causal(model) -> CausalModel:
    """The wrapper that fits a transformers model: an MTPModel where it has an `mtp_head`, else a CausalModel."""
    return MTPModel(model) if getattr(model, "mtp_head", None) is not None else CausalModel(model)
