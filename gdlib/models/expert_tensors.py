"""Where a checkpoint keeps its experts, whichever way its architecture names and stacks them.

transformers computes Qwen3-MoE, OLMoE, Mixtral, Granite-MoE and GLM-4-MoE with the same two tensors an expert, gate and
up in one and down in the other, and converts the published names while loading. Whoever does not want all experts in
memory has to find them in the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from gdlib.models.wheels import ModelError

# the classes whose forward is act(gate) * up, then down, weighted and summed, with nothing else about it
KNOWN = ("Qwen3MoeExperts", "OlmoeExperts", "MixtralExperts", "GraniteMoeExperts", "Glm4MoeExperts")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)

_ONE = re.compile(r".*\.layers\.(\d+)\..*\bexperts\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight")
_STACKED = re.compile(
    r".*\.layers\.(\d+)\..*(experts\.gate_up_proj|experts\.down_proj|\.input_linear\.weight|\.output_linear\.weight)"
)
_ROLES = {"gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "down_proj": "down", "w2": "down"}


@dataclass(frozen=True)
class Experts:
    """All experts of a model. layers: the numbers of its MoE layers, ascending; experts: how many a layer has; top_k:
    how many a token takes; read(index of the layer, expert) -> (gate_up [2 width, hidden], down [hidden, width])."""

    layers: list[int]
    experts: int
    top_k: int
    read: Callable[[int, int], tuple[torch.Tensor, torch.Tensor]]


def experts_of_model(model: nn.Module) -> Experts:
    """Those of a transformers model in memory. ModelError where it has none, or of a class that is not known."""
    found = moe_modules(model)
    layers = sorted(found)

    def read(index: int, expert: int) -> tuple[torch.Tensor, torch.Tensor]:
        module = found[layers[index]][1]
        return module.gate_up_proj[expert].detach().cpu(), module.down_proj[expert].detach().cpu()

    return Experts(layers, found[layers[0]][1].num_experts, model.config.num_experts_per_tok, read)


def moe_modules(model: nn.Module) -> dict[int, tuple[str, nn.Module]]:
    """Layer number -> (name, module) of the experts of a model, loaded or on the meta device.

    ModelError where there are none, or their class is not among `KNOWN` or not laid out as those are.
    """
    found = {}
    for name, module in model.named_modules():
        if name.endswith(".experts"):
            if type(module).__name__ not in KNOWN or not _plain(module):
                raise ModelError(
                    f"{type(model).__name__} keeps its experts in {type(module).__name__} ({name}), whose layout is "
                    f"not known here; known are {', '.join(KNOWN)}. Load the model whole."
                )
            found[int(re.search(r"\.layers\.(\d+)\.", name)[1])] = (name, module)
    if not found:
        raise ModelError(f"{type(model).__name__} has no experts to stream; load it whole")
    return found


def _plain(module: nn.Module) -> bool:
    if [name for name, _ in module.named_parameters()] != ["gate_up_proj", "down_proj"]:
        return False
    (experts, double, hidden), down = module.gate_up_proj.shape, module.down_proj.shape
    return experts == module.num_experts and tuple(down) == (experts, hidden, double // 2)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint: those its index names, else all but a head's (mtp.safetensors)."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return sorted(folder / name for name in names)
    return sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("*.safetensors"))


def experts_of_checkpoint(folder: str | Path, stack: ExitStack) -> Experts:
    """Those of a folder of safetensors with its config.json; its files stay open, mapped, until `stack` closes.

    Layers past the configuration's last one (GLM-4-MoE ships its multi-token head so) are left out. ModelError where
    the files cannot be read or no experts by a known name are in them, or not all of them.
    """
    folder = Path(folder)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        depth, top_k = int(config["num_hidden_layers"]), int(config["num_experts_per_tok"])
        files = [stack.enter_context(safe_open(path, "pt")) for path in weight_files(folder)]
    except KeyError as error:
        raise ModelError(
            f"{folder}/config.json has no {error}: not a mixture of experts; load the model whole"
        ) from error
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"{folder}: its checkpoint cannot be read: {error}") from error
    where = {}  # (layer, expert or None, role) -> (file, name)
    for file in files:
        for name in file.keys():  # noqa: SIM118  (a safetensors file is no mapping)
            if (one := _ONE.fullmatch(name)) and int(one[1]) < depth:
                where[int(one[1]), int(one[2]), _ROLES[one[3]]] = file, name
            elif (all_ := _STACKED.fullmatch(name)) and int(all_[1]) < depth:
                role = "down" if "down_proj" in all_[2] or "output" in all_[2] else "gate_up"
                where[int(all_[1]), None, role] = file, name
    if not where:
        raise ModelError(f"{folder}: no experts by a known name in its safetensors; load the model whole")
    layers = sorted({layer for layer, _, _ in where})

    def read(index: int, expert: int) -> tuple[torch.Tensor, torch.Tensor]:
        layer = layers[index]
        try:
            if (layer, None, "down") in where:
                return tuple(_slice(where[layer, None, role], expert) for role in ("gate_up", "down"))
            gate, up, down = (_whole(where[layer, expert, role]) for role in ("gate", "up", "down"))
        except KeyError as error:
            raise ModelError(f"{folder}: layer {layer}, expert {expert} is not whole ({error})") from error
        return torch.cat([gate, up]), down

    numbers = [expert for _, expert, _ in where if expert is not None]
    count = max(numbers) + 1 if numbers else _count(*where[layers[0], None, "down"])
    return Experts(layers, count, top_k, read)


def _whole(place) -> torch.Tensor:
    file, name = place
    return file.get_tensor(name)


def _slice(place, expert: int) -> torch.Tensor:
    file, name = place
    return file.get_slice(name)[expert]


def _count(file, name: str) -> int:
    return file.get_slice(name).get_shape()[0]
