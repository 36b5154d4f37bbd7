"""One timed run on a device at a time, also where several batches share a box: a slot is a lock that dies with its run.

Under Slurm the devices of a job are its own already, and their numbers may be relative to it: nothing is locked there.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


def visible() -> list[str]:
    """Names of the CUDA devices this process may use: what CUDA_VISIBLE_DEVICES lists, else all, by number."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


@contextlib.contextmanager
def slot(names: list[str], patience_s: float = 0.5) -> Iterator[str]:
    """Hold one of the devices, waiting for it as long as it takes; yields what CUDA_VISIBLE_DEVICES should be."""
    if "SLURM_JOB_ID" in os.environ:
        yield ",".join(names)
        return
    folder = Path(tempfile.gettempdir()) / f"gdlib-devices-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name.replace("/", "_"), "a")) for name in names}
        while True:
            for name, file in files.items():
                with contextlib.suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield name
                    return
            time.sleep(patience_s)
