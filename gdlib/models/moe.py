"""A transformers mixture of experts whose experts stay on disk and are read as its rows need them.

Only the experts' part of the forward is replaced. All rows of a forward are taken together: each expert that any of
them needs is fetched once, and computes all its rows at once, those in memory first while the others are being read.
What the experts give is then summed in the order in which transformers' own eager forward sums it. So in float32 on one
thread the output is that forward's, bit for bit, wherever the experts came from. (Where the hidden width is no multiple
of 16, unlike that of published models, products of memory that is aligned otherwise may round otherwise.)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from gdlib.models import hf
from gdlib.models.expert_file import ExpertFile, repack
from gdlib.models.expert_store import ExpertStore, Weights
from gdlib.models.expert_tensors import moe_modules, weight_files
from gdlib.models.slow_disk import Disk
from gdlib.models.wheels import ModelError, cache_dir

_SMALL = 1 << 28  # bytes of checkpoint that are hashed whole to tell it from another


class StreamedExperts(nn.Module):
    """What stands in for the experts of a layer; it has no weights of its own. layer: its index among MoE layers."""

    def __init__(self, act_fn: nn.Module, layer: int):
        super().__init__()
        self.act_fn, self.layer = act_fn, layer
        self.store: ExpertStore | None = None

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """float[rows, hidden], from the same and int64, float [rows, k]: which experts a row takes, and how much."""
        store, (rows, top_k) = self.store, top_k_index.shape
        if self.layer == 0:
            store.begin()
        selected = top_k_index.cpu().numpy().astype(np.int16)
        store.last.selected.append(selected)
        # pairs of a row and an expert, by expert, then by place, then by row: the order of the eager forward
        flat = selected.T.reshape(-1)
        order = flat.argsort(kind="stable")
        every = np.bincount(flat)
        experts = every.nonzero()[0]
        counts = every[experts]
        if rows == 1:
            grouped, recency, sizes = [hidden_states] * top_k, np.arange(top_k), [1] * top_k
            row_of = torch.zeros(top_k, dtype=torch.int64, device=hidden_states.device)
        else:
            row = order % rows
            latest = np.maximum.reduceat(row, counts.cumsum() - counts)
            recency = np.empty(len(experts), np.int64)  # as if the rows had come one after another
            recency[latest.argsort(kind="stable")] = np.arange(len(experts))
            sizes = counts.tolist()
            row_of = torch.from_numpy(row).to(hidden_states.device)
            grouped = hidden_states.index_select(0, row_of).split(sizes)
        found, arrivals = store.request(self.layer, experts, counts, recency)

        out = hidden_states.new_empty((len(order), hidden_states.shape[1]))
        outs = out.split(sizes)
        held = [index for index, weights in enumerate(found) if weights is not None]
        self._compute(held, grouped, found, sizes, outs)
        came: list[int] = []  # then those that arrive, as many at once as are there
        for index, weights, now in arrivals:
            found[index] = weights
            came.append(index)
            if now:
                self._compute(came, grouped, found, sizes, outs)
                came = []
        self._compute(came, grouped, found, sizes, outs)

        places = torch.from_numpy(order).to(out.device)
        out *= top_k_weights.t().reshape(-1).index_select(0, places)[:, None]
        return torch.zeros_like(hidden_states).index_add_(0, row_of, out)

    def _compute(
        self,
        which: list[int],
        grouped: Sequence[torch.Tensor],
        weights: Sequence[Weights],
        sizes: list[int],
        outs: Sequence[torch.Tensor],
    ) -> None:
        """For each expert of `which`: its rows, float[size, hidden] of `grouped`, into its `outs`."""
        if not which:
            return
        double = weights[which[0]][0].shape[1]
        apart = 16 // math.gcd(16, double // 2)  # an expert's first row begins a cache line, as in memory of its own
        parts = [part for index in which for part in (sizes[index], -sizes[index] % apart)]
        both = grouped[0].new_zeros((sum(parts), double))
        for index, into in zip(which, both.split(parts)[::2], strict=True):
            torch.mm(grouped[index], weights[index][0], out=into)
        gate, up = both.chunk(2, -1)
        inner = self.act_fn(gate).mul_(up)
        for index, rows in zip(which, inner.split(parts)[::2], strict=True):
            torch.mm(rows, weights[index][1], out=outs[index])


def stream(
    name: str,
    *,
    slots: int | None = None,
    capacity_bytes: int | None = None,
    pin_bytes: int = 0,
    pin: Sequence[tuple[int, int]] | None = None,
    policy: str = "lru",
    disk: Disk | None = None,
    readers: int = 4,
    autopin_after: int = 0,
    usage_path: str | Path | None = None,
    how: str | None = None,
    checks: bool = True,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
):
    """(model, tokenizer) for a name that `gdlib.models.hf.load` takes; `model.expert_store` is the ExpertStore.

    The experts are written once, to one file in the cache (see `expert_file`), and never loaded whole; the rest of the
    model is loaded as ever. slots to usage_path, dtype, device: see ExpertStore. how, checks: see ExpertFile; an
    emulated `disk` reads by way of the page cache, since its own pace is what is to be seen.

    Raises ModelError for a model without experts or with some of an unknown layout, and where the cache folder cannot
    be written; ExpertError (a ModelError) for a store that cannot be.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    folder = hf.snapshot(name)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, StrictDataclassError) as error:
        said = " ".join(str(error).split())
        raise ModelError(f"{folder / 'config.json'}: no configuration of a model: {said}") from error
    kind = _without_experts(config)
    store = ExpertStore(
        ExpertFile(expert_file(folder), how or ("cached" if disk else None), checks),
        slots=slots,
        capacity_bytes=capacity_bytes,
        pin_bytes=pin_bytes,
        pin=pin,
        policy=policy,
        disk=disk,
        readers=readers,
        autopin_after=autopin_after,
        usage_path=usage_path,
        dtype=dtype,
        device=device,
    )
    model, tokenizer = hf.load(name, device, dtype, kind)
    model.requires_grad_(False)  # products are written in place
    model.expert_store = store
    streamed = [module for module in model.modules() if isinstance(module, StreamedExperts)]
    if len(streamed) != store.layers:
        raise ModelError(
            f"{folder}: config.json has {len(streamed)} layers of experts, the weights have {store.layers}; "
            "they are not of one model"
        )
    for module in streamed:
        module.store = store
    return model, tokenizer


def _without_experts(config) -> type:
    """transformers' class for a configuration, with StreamedExperts for experts: loading has no place for weights."""
    from transformers import AutoModelForCausalLM

    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise ModelError(f"{type(config).__name__} is no configuration of a causal model that transformers has")
    base = AutoModelForCausalLM._model_mapping[type(config)]

    def __init__(self, config, *args, **kwargs):
        base.__init__(self, config, *args, **kwargs)
        for index, (_, (name, experts)) in enumerate(sorted(moe_modules(self).items())):
            self.set_submodule(name, StreamedExperts(experts.act_fn, index))

    ignored = [*(base._keys_to_ignore_on_load_unexpected or []), r"\.experts\.", r"(in|out)put_linear\.weight"]
    members = {"__init__": __init__, "__module__": base.__module__, "_keys_to_ignore_on_load_unexpected": ignored}
    return type(base.__name__, (base,), members)


def expert_file(folder: Path) -> Path:
    """The experts of a checkpoint's folder as one file in the cache, written on the first call."""
    path = cache_dir() / "experts" / f"{folder.name[:40]}-{_fingerprint(folder)}.experts"
    if not path.exists():
        repack(folder, path)
    return path


def _fingerprint(folder: Path) -> str:
    """Tells checkpoints apart: by all their bytes where those are few, else by sizes, times and headers."""
    digest, files = hashlib.blake2b(digest_size=8), weight_files(folder)
    whole = sum(path.stat().st_size for path in files) <= _SMALL
    for path in [folder / "config.json", *files]:
        with path.open("rb") as file:
            if whole or path.suffix == ".json":
                digest.update(file.read())
            else:
                lead = file.read(8)
                digest.update(lead + file.read(int.from_bytes(lead, "little")))
                digest.update(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}".encode())
    return digest.hexdigest()
