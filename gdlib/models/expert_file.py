"""All experts of a model in one file, each in one piece, at an address that a disk can read past the page cache.

A checkpoint keeps an expert in three tensors, far apart and aligned to nothing. Here one read fetches one expert:
gate and up, then down, padded to 4096 bytes. In front stands a header with the shapes and a CRC-32 of every expert, so
that a file that was cut or altered is told from a whole one. A file is written beside its place and moved there when
it is whole and on the disk.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import mmap
import os
import struct
import tempfile
import time
import weakref
import zlib
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from gdlib.models.expert_tensors import DTYPES, experts_of_checkpoint, experts_of_model
from gdlib.models.wheels import ModelError

LEFT_BEHIND = 24 * 3600  # seconds after which an unfinished file is nobody's
BLOCK = 4096  # what O_DIRECT wants offsets, lengths and addresses to be multiples of, on the disks there are
RETRIES = 2  # of a read that the device failed
_MAGIC = b"gdexpt01"
_LEAD = struct.Struct("<8sQI")  # magic, bytes of the header behind it, CRC-32 of those
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}


class ExpertError(ModelError):
    """An expert file that is not in order, or a store that cannot be as it was asked for; the message says which."""


@dataclass(frozen=True)
class Header:
    """layers: numbers of the MoE layers; experts: a layer; top_k: a token; dtype: by its torch name; gate_up, down:
    shapes; bytes: of one expert; stride: from one to the next, a multiple of 4096; start: offset of the first;
    crc32: [layers][experts], 8 hex digits each."""

    layers: list[int]
    experts: int
    top_k: int
    dtype: str
    gate_up: list[int]
    down: list[int]
    bytes: int
    stride: int
    start: int
    crc32: list[list[str]]

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.start + len(self.layers) * self.experts * self.stride

    def pack(self) -> bytes:
        """The first `start` bytes of the file."""
        text = json.dumps(asdict(self)).encode()
        return (_LEAD.pack(_MAGIC, len(text), zlib.crc32(text)) + text).ljust(self.start, b"\0")


def repack(source: str | Path | nn.Module, path: str | Path) -> None:
    """Write the experts of a checkpoint's folder, or of a model in memory, to `path`, in their own dtype.

    Two processes may do so at once: each writes its own file and the last one is moved into place. ModelError where
    the source has no experts of a known layout, or the file cannot be written (no room, no permission).
    """
    path = Path(path)
    with ExitStack() as stack:
        experts = experts_of_model(source) if isinstance(source, nn.Module) else experts_of_checkpoint(source, stack)
        gate_up, down = experts.read(0, 0)
        dtype = str(gate_up.dtype).removeprefix("torch.")
        if dtype not in _DTYPES:
            raise ModelError(f"experts of dtype {dtype} cannot be streamed; want one of {', '.join(_DTYPES)}")
        size = gate_up.nbytes + down.nbytes
        blank = [["0" * 8] * experts.experts for _ in experts.layers]
        header = Header(
            experts.layers, experts.experts, experts.top_k, dtype, list(gate_up.shape), list(down.shape), size,
            _aligned(size), 10**12, blank,
        )  # fmt: skip
        start = _aligned(_LEAD.size + len(json.dumps(asdict(header))))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _sweep(path)
            handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
            os.fchmod(handle, 0o644)  # mkstemp's files are for one user, a cache may be for several
            stack.callback(Path(scratch).unlink, missing_ok=True)
            stack.callback(os.close, handle)
            _write(handle, b"\0" * start)
            sums = []
            for layer in range(len(experts.layers)):
                sums.append([])
                for expert in range(experts.experts):
                    data = _bytes(experts.read(layer, expert), header)
                    sums[-1].append(f"{zlib.crc32(data):08x}")
                    _write(handle, data.ljust(header.stride, b"\0"))
            os.lseek(handle, 0, os.SEEK_SET)
            _write(handle, Header(**{**asdict(header), "start": start, "crc32": sums}).pack())
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.rename(scratch, path)
        except OSError as error:
            total = header.stride * header.experts * len(header.layers)
            raise ModelError(
                f"{path.parent}: the experts' file of {total / 1e6:.1f} MB could not be written: {error.strerror}. "
                "Set GDLIB_CACHE to a folder that can be written and has room."
            ) from error


def _sweep(path: Path) -> None:
    """Remove what killed processes left of this file; nobody writes one for a day."""
    for left in path.parent.glob(f".{glob.escape(path.name)}-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFT_BEHIND:
                left.unlink()


def _aligned(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _bytes(tensors: tuple[torch.Tensor, torch.Tensor], header: Header) -> bytes:
    found = [(str(tensor.dtype).removeprefix("torch."), list(tensor.shape)) for tensor in tensors]
    if found != [(header.dtype, header.gate_up), (header.dtype, header.down)]:
        raise ModelError(f"experts that differ in dtype or shape cannot be streamed: {found}")
    return b"".join(tensor.contiguous().view(torch.uint8).numpy().tobytes() for tensor in tensors)


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(handle, view) :]


class ExpertFile:
    """A file that `repack` wrote, open for reading; may be read from several threads at once.

    how: "O_DIRECT", past the page cache; "buffered", through it, dropping what was read behind every read; "cached",
    through it and left there, for an emulated disk. None takes O_DIRECT where the file system does, else "buffered".
    checks: compare every expert read with its CRC-32.

    Raises ExpertError for a file that is no such file, or is shorter or longer than its header says: it was whole when
    it was moved here, so bytes too many are as wrong as bytes too few.
    """

    def __init__(self, path: str | Path, how: str | None = None, checks: bool = True):
        self.path, self.checks = Path(path), checks
        try:
            self._buffered = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise ExpertError(f"{self.path}: cannot be opened: {error.strerror}") from error
        weakref.finalize(self, os.close, self._buffered)
        self.header = self._read_header()
        self.layers, self.experts, self.top_k = self.header.layers, self.header.experts, self.header.top_k
        self.stride = self.header.stride
        self.dtype = _DTYPES[self.header.dtype]
        self._sums = [[int(text, 16) for text in layer] for layer in self.header.crc32]
        direct = self._open_direct() if how in (None, "O_DIRECT") else None
        if direct is None and how == "O_DIRECT":
            raise ExpertError(f"{self.path}: its file system takes no O_DIRECT; read it 'buffered'")
        self._direct = self._buffered if direct is None else direct
        self.how = how or ("buffered" if direct is None else "O_DIRECT")
        # no reading ahead of what is asked for, or all of it ahead
        advice = os.POSIX_FADV_WILLNEED if self.how == "cached" else os.POSIX_FADV_RANDOM
        os.posix_fadvise(self._buffered, 0, 0, advice)

    def new_buffer(self) -> mmap.mmap:
        """Room for one expert, at an address that O_DIRECT takes."""
        return mmap.mmap(-1, self.stride)

    def read(self, layer: int, expert: int, buffer) -> None:
        """Fill `buffer` (writable, `stride` bytes, aligned to 4096) with an expert; layer: its index in `layers`.

        A short or interrupted read is continued, one that the device failed is tried twice more. Raises ExpertError
        where it fails again, the file was cut meanwhile, or the expert's checksum is not the header's.
        """
        offset = self.header.start + (layer * self.experts + expert) * self.stride
        with memoryview(buffer) as whole, whole[: self.stride] as view:
            self._fill(view, offset, layer, expert)
            if self.how == "buffered":
                os.posix_fadvise(self._buffered, offset, self.stride, os.POSIX_FADV_DONTNEED)
            if self.checks and (found := zlib.crc32(view[: self.header.bytes])) != self._sums[layer][expert]:
                raise self._error(
                    layer,
                    expert,
                    f"altered: its CRC-32 is {found:08x}, the header says {self._sums[layer][expert]:08x}",
                )

    def tensors(self, data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(gate_up [2 width, hidden], down [hidden, width]): views of uint8[stride] with an expert in it."""
        (double, hidden), (_, width) = self.header.gate_up, self.header.down
        numbers = data[: self.header.bytes].view(self.dtype)
        cut = double * hidden
        return numbers[:cut].view(double, hidden), numbers[cut:].view(hidden, width)

    def drop_cached(self) -> None:
        """Ask the system to forget what the page cache holds of the file."""
        os.posix_fadvise(self._buffered, 0, 0, os.POSIX_FADV_DONTNEED)

    def _fill(self, view: memoryview, offset: int, layer: int, expert: int) -> None:
        done, tries = 0, RETRIES
        while done < len(view):
            # O_DIRECT cannot go on behind a read that stopped between two blocks
            handle = self._direct if done % BLOCK == 0 else self._buffered
            try:
                got = os.preadv(handle, [view[done:]], offset + done)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno == errno.EIO and tries:
                    tries -= 1
                    continue
                again = f", and {RETRIES} times more" if error.errno == errno.EIO else ""
                raise self._error(
                    layer, expert, f"the read of {len(view)} bytes at {offset} failed{again}: {error.strerror}"
                ) from error
            if not got:
                size = os.fstat(self._buffered).st_size
                raise self._error(
                    layer, expert, f"the file was cut since it was opened: {size} bytes, not {self.header.size}"
                )
            done += got

    def _error(self, layer: int, expert: int, what: str) -> ExpertError:
        return ExpertError(
            f"{self.path}: layer {self.layers[layer]}, expert {expert}: {what}. Delete the file: it is made anew from "
            "the checkpoint."
        )

    def _read_header(self) -> Header:
        size = os.fstat(self._buffered).st_size
        wrong = f"{self.path}: not a whole file of experts ({size} bytes)"
        again = "Delete it: it is made anew from the checkpoint."
        lead = os.pread(self._buffered, _LEAD.size, 0)
        if len(lead) < _LEAD.size or not lead.startswith(_MAGIC):
            raise ExpertError(f"{wrong}: it does not begin as one. {again}")
        _, length, checksum = _LEAD.unpack(lead)
        text = os.pread(self._buffered, min(length, size), _LEAD.size)
        if len(text) < length or zlib.crc32(text) != checksum:
            raise ExpertError(f"{wrong}: its header is cut or altered. {again}")
        header = Header(**json.loads(text))
        if size != header.size:
            many = "too few" if size < header.size else "too many"
            count = len(header.layers) * header.experts
            raise ExpertError(
                f"{wrong}: its header says {header.size} ({count} experts, {header.stride} bytes each), so there are "
                f"{abs(header.size - size)} {many}. {again}"
            )
        return header

    def _open_direct(self) -> int | None:
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        except OSError:
            return None
        weakref.finalize(self, os.close, handle)
        try:  # some file systems open so and read otherwise
            os.preadv(handle, [mmap.mmap(-1, BLOCK)], 0)
        except OSError:
            return None
        return handle
