"""The file of experts: what is read is what was written, or an error that names the expert."""

import errno
import json
import mmap
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_moes import KINDS, new_model, save

from gdlib.models import expert_file
from gdlib.models.expert_file import BLOCK, ExpertError, ExpertFile, Header, repack
from gdlib.models.expert_tensors import experts_of_checkpoint, experts_of_model
from gdlib.models.wheels import ModelError

WAYS = ("O_DIRECT", "buffered", "cached")


@pytest.fixture(scope="module")
def model():
    return new_model("qwen3")


@pytest.fixture
def path(model, tmp_path):
    repack(model, tmp_path / "all.experts")
    return tmp_path / "all.experts"


def opened(path, how=None, **options):
    try:
        return ExpertFile(path, how, **options)
    except ExpertError as error:
        if "no O_DIRECT" in str(error):
            pytest.skip("no O_DIRECT on this file system")
        raise


def read(file, layer, expert):
    buffer = file.new_buffer()
    file.read(layer, expert, buffer)
    return file.tensors(torch.frombuffer(buffer, dtype=torch.uint8))


def check_all(file, model):
    wanted = experts_of_model(model)
    for layer in range(len(wanted.layers)):
        for expert in range(wanted.experts):
            for got, want in zip(read(file, layer, expert), wanted.read(layer, expert), strict=True):
                assert torch.equal(got, want)


@pytest.mark.parametrize("how", [None, *WAYS])
def test_what_is_read_is_what_was_written(path, model, how):
    file = opened(path, how)
    assert (file.layers, file.experts, file.top_k, file.dtype) == ([0, 1, 2], 8, 3, torch.bfloat16)
    assert file.how in WAYS and how in (None, file.how)
    assert file.stride % BLOCK == file.header.start % BLOCK == 0 and file.header.bytes == 3 * 16 * 32 * 2
    check_all(file, model)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_checkpoint_gives_the_same_file_as_the_model(kind, dtype, tmp_path):
    folder = save(kind, tmp_path / "model", dtype)
    repack(folder, tmp_path / "a")
    repack(new_model(kind, dtype), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert ExpertFile(tmp_path / "a").layers == ([1, 2] if kind == "glm4" else [0, 1, 2])


def test_shards_stacked_experts_and_a_head_behind_the_last_layer(tmp_path):
    folder = save("qwen3", tmp_path / "model")
    repack(folder, tmp_path / "whole")
    weights = load_file(folder / "model.safetensors")
    head = {name.replace("layers.2", "layers.3"): w.clone() for name, w in weights.items() if "layers.2.mlp" in name}
    (folder / "model.safetensors").unlink()
    shards = [{}, {}]
    for index, name in enumerate(sorted(weights | head)):
        shards[index % 2][name] = (weights | head)[name]
    for index, shard in enumerate(shards):
        save_file(shard, folder / f"model-{index}.safetensors")
    where = {name: f"model-{index}.safetensors" for index, shard in enumerate(shards) for name in shard}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (folder / "model-left-over.safetensors").write_bytes(b"not named by the index")
    repack(folder, tmp_path / "shards")
    assert (tmp_path / "shards").read_bytes() == (tmp_path / "whole").read_bytes()

    model, stacked = new_model("qwen3"), tmp_path / "stacked"
    stacked.mkdir()
    (stacked / "config.json").write_text((folder / "config.json").read_text())
    save_file({n: w.contiguous() for n, w in model.state_dict().items()}, stacked / "model.safetensors")
    repack(stacked, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes()


def test_checkpoints_without_all_their_experts(tmp_path):
    folder = save("qwen3", tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    gone = "model.layers.1.mlp.experts.5.down_proj.weight"
    save_file({name: w for name, w in weights.items() if name != gone}, folder / "model.safetensors")
    with pytest.raises(ModelError, match="layer 1, expert 5 is not whole"):
        repack(folder, tmp_path / "x")
    save_file({name: w for name, w in weights.items() if "experts" not in name}, folder / "model.safetensors")
    with pytest.raises(ModelError, match="no experts by a known name"):
        repack(folder, tmp_path / "x")
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": 3}))
    with pytest.raises(ModelError, match=r"config.json has no 'num_experts_per_tok': not a mixture"):
        repack(folder, tmp_path / "x")
    with pytest.raises(ModelError, match="nowhere: its checkpoint cannot be read"):
        repack(tmp_path / "nowhere", tmp_path / "x")
    eight = {name: w.to(torch.float8_e4m3fn) for name, w in weights.items()}
    save_file(eight, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": 3, "num_experts_per_tok": 3}))
    with pytest.raises(ModelError, match="float8_e4m3fn cannot be streamed"):
        repack(folder, tmp_path / "x")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


# cut, altered, vanished


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("less", [1, "expert", "all", "header"])
def test_a_file_that_is_cut(path, how, less):
    size, stride = path.stat().st_size, ExpertFile(path).stride
    left = {1: size - 1, "expert": size - stride, "all": 0, "header": 100}[less]
    os.truncate(path, left)
    with pytest.raises(ExpertError, match=rf"all.experts: not a whole file of experts \({left} bytes\)") as caught:
        opened(path, how)
    if less in (1, "expert"):
        assert f"its header says {size}" in str(caught.value) and f"{size - left} too few" in str(caught.value)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("less", [1, "expert", "all"])
def test_a_file_that_is_cut_while_it_is_open(path, how, less):
    file = opened(path, how)
    size = path.stat().st_size
    left = {1: size - 1, "expert": size - file.stride, "all": 0}[less]
    os.truncate(path, left)
    with pytest.raises(ExpertError, match=rf"layer 2, expert 7: .*cut since it was opened: {left} bytes, not {size}"):
        read(file, 2, 7)


def test_bytes_too_many(path):
    with path.open("ab") as file:
        file.write(b"?")
    with pytest.raises(ExpertError, match="there are 1 too many"):
        ExpertFile(path)


def test_a_file_that_is_deleted_while_it_is_open_goes_on(path, model):
    file = opened(path)
    path.unlink()
    check_all(file, model)
    with pytest.raises(ExpertError, match=r"all.experts: cannot be opened: No such file"):
        ExpertFile(path)


@pytest.mark.parametrize("how", WAYS)
def test_an_altered_byte_names_its_expert(path, model, how):
    header = ExpertFile(path).header
    for index in (0, 13, 23):
        for offset in (0, header.bytes // 2, header.bytes - 1):
            at = header.start + index * header.stride + offset
            data = bytearray(path.read_bytes())
            data[at] ^= 1
            other = path.with_name("altered")
            other.write_bytes(data)
            layer, expert = divmod(index, 8)
            with pytest.raises(ExpertError, match=f"layer {layer}, expert {expert}: altered: its CRC-32 is"):
                read(opened(other, how), layer, expert)
            read(opened(other, how), layer, (expert + 1) % 8)
            read(opened(other, how, checks=False), layer, expert)
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(ExpertError, match="its header is cut or altered"):
        ExpertFile(path)
    path.write_bytes(b"something else " * 1000)
    with pytest.raises(ExpertError, match="it does not begin as one"):
        ExpertFile(path)


# what a read may do


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("count", [1, 100, 511, 4096, 5000])
def test_short_and_interrupted_reads_are_continued(path, model, how, count, monkeypatch):
    file, real, calls = opened(path, how), os.preadv, []

    def short(handle, buffers, offset):
        calls.append(offset)
        if len(calls) % 3 == 0:
            raise InterruptedError(errno.EINTR, "interrupted")
        few = mmap.mmap(-1, len(buffers[0]))  # as aligned as the buffer itself
        got = min(real(handle, [few], offset), count)
        buffers[0][:got] = few[:got]
        return got

    monkeypatch.setattr(os, "preadv", short)
    for layer, expert in [(0, 0), (2, 7)]:
        for got, want in zip(read(file, layer, expert), experts_of_model(model).read(layer, expert), strict=True):
            assert torch.equal(got, want)
    assert len(calls) >= 2 * file.stride // max(count, 1)


@pytest.mark.parametrize("how", WAYS)
def test_a_failed_read_is_tried_again_and_not_for_ever(path, model, how, monkeypatch):
    file, real, fails = opened(path, how), os.preadv, []

    def failing(handle, buffers, offset):
        if fails and (number := fails.pop()):
            raise OSError(number, os.strerror(number))
        return real(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    fails[:] = [errno.EIO]
    check_all(file, model)
    fails[:] = [errno.EIO] * 2
    check_all(file, model)
    fails[:] = [errno.EIO] * 3
    with pytest.raises(ExpertError, match=r"layer 1, expert 4: .* failed, and 2 times more: Input/output error"):
        read(file, 1, 4)
    assert not fails
    fails[:] = [errno.ESTALE]
    with pytest.raises(ExpertError, match=r"layer 1, expert 4: .* failed: Stale"):
        read(file, 1, 4)
    check_all(file, model)


@pytest.mark.parametrize("how", WAYS)
def test_offsets_past_four_gigabytes(tmp_path, how):
    """A sparse file: three experts, 3 GiB apart."""
    path, stride = tmp_path / "far", 3 << 30
    weights = torch.arange(6 * 16 * 32, dtype=torch.float32)
    data = weights.numpy().tobytes()
    zeros = f"{expert_file.zlib.crc32(bytes(len(data))):08x}"
    sums = [[zeros, zeros, f"{expert_file.zlib.crc32(data):08x}"]]
    header = Header([0], 3, 1, "float32", [64, 32], [32, 32], len(data), stride, 4096, sums)
    with path.open("wb") as file:
        file.write(header.pack())
        file.seek(header.start + 2 * stride)
        file.write(data)
        file.truncate(header.size)
    file = opened(path, how)
    file.stride, file.header = BLOCK * 6, header  # read no more than the expert itself

    buffer = mmap.mmap(-1, BLOCK * 6)
    with memoryview(buffer) as view:
        file._fill(view, header.start + 2 * stride, 0, 2)
    assert expert_file.zlib.crc32(buffer[: len(data)]) == int(sums[0][2], 16)
    assert header.start + 2 * stride > 1 << 32


def test_where_there_is_no_direct_reading(path, model, monkeypatch):
    real = os.open

    def plain(name, flags, *rest):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(name, flags, *rest)

    monkeypatch.setattr(os, "open", plain)
    file = ExpertFile(path)
    assert file.how == "buffered"
    check_all(file, model)
    with pytest.raises(ExpertError, match="takes no O_DIRECT; read it 'buffered'"):
        ExpertFile(path, "O_DIRECT")


# what a write may meet


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_folder(model, tmp_path, number, monkeypatch):
    real, written = os.write, []

    def full(handle, data):
        if sum(written) > 20_000:
            raise OSError(number, os.strerror(number))
        written.append(real(handle, data[:5000]))  # a write may be short, too
        return written[-1]

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ModelError, match=r"the experts' file of 0.1 MB could not be written: .*GDLIB_CACHE"):
        repack(model, tmp_path / "all.experts")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(model, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"file/experts: .* could not be written: Not a directory.*GDLIB_CACHE"):
        repack(model, tmp_path / "file" / "experts" / "all.experts")
    real = os.open

    def read_only(name, flags, *rest, **options):
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(name, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(ModelError, match=r"could not be written: Read-only file system.*GDLIB_CACHE"):
        repack(model, tmp_path / "all.experts")


def test_a_file_is_there_whole_or_not_at_all(model, tmp_path, monkeypatch):
    path, seen = tmp_path / "all.experts", []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (seen.append(path.exists()), real(handle)))
    repack(model, path)
    assert seen == [False]
    first = path.read_bytes()
    repack(model, path)  # over the one that is there
    assert path.read_bytes() == first and [p.name for p in tmp_path.iterdir()] == ["all.experts"]


def test_two_processes_that_write_it_at_once(tmp_path):
    folder = save("qwen3", tmp_path / "model")
    path = tmp_path / "all.experts"
    code = (
        "import sys; from gdlib.models.expert_file import repack\n"
        "sys.stdin.readline()\n"
        "for _ in range(20): repack(sys.argv[1], sys.argv[2])"
    )
    command = [sys.executable, "-c", code, str(folder), str(path)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(2)]
    for one in both:
        one.stdin.write("go\n")
        one.stdin.flush()
    while any(one.poll() is None for one in both):
        if path.exists():
            check_all(ExpertFile(path), new_model("qwen3"))
    assert [one.wait() for one in both] == [0, 0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all.experts", "model"]
    with ExitStack() as stack:
        assert experts_of_checkpoint(Path(folder), stack).experts == 8
