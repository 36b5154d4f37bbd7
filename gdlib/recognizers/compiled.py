"""How the hot loops are compiled, and that what was compiled is never older than its source.

numba keeps compiled code beside the file of each function and looks at that file only: a function of another file that
was compiled in goes stale unseen. So the files whose functions call each other are stamped together, and when one has
changed the kept code of all of them goes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numba

# No function compiled with this allocates, so none needs to count references: a call costs a third less without.
compiled = numba.njit(cache=True, nogil=True, _nrt=False)

_FILES = [Path(__file__).parent / "machine.py", Path(__file__).parents[1] / "tokens" / "forest.py"]


def forget_stale() -> None:
    """Remove compiled code that an older state of the files left behind. Where that is not allowed, leave it."""
    stamp = hashlib.sha256(b"".join(f.read_bytes() for f in _FILES)).hexdigest()
    mark = _FILES[0].parent / "__pycache__" / "compiled.sha256"
    try:
        if mark.exists() and mark.read_text() == stamp:
            return
        for file in _FILES:
            for kept in (file.parent / "__pycache__").glob(f"{file.stem}.*.nbi"):
                kept.unlink(missing_ok=True)
        mark.parent.mkdir(exist_ok=True)
        mark.write_text(stamp)
    except OSError:
        return


forget_stale()
