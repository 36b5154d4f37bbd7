"""Build the book from a folder of results: `python -m gdlib.report.build --results results/quick`.

A build starts from nothing in a folder of its own and takes the old book's place only when it is whole, so no page is
left over and none is half new. Where nothing it depends on has changed since the last one, it is not built again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from gdlib.bench import record, sweep
from gdlib.report import published

SOURCES = ("book", "gdlib", "notebooks", "params", "workloads")
FILES = ("_config.yml", "_toc.yml", "requirements.txt", "constraints.txt", "README.md", "CHANGELOG.md", "CITATION.cff")


class BookError(RuntimeError):
    """The book could not be built; the message says which page or run stands in the way."""


def build(results: Path, out: Path) -> Path:
    """Build into <out>/html and return its index.html. Raises BookError, MissingRun or BrokenRun."""
    root = sweep.root()
    runs = {name: record.load(name, results) for name in sorted(p.stem for p in (root / "params").glob("*.yml"))}
    published.machines()
    digest = _digest(root, results)
    html, stamp = out / "html", out / "book.sha256"
    if stamp.is_file() and stamp.read_text() == digest and (html / "index.html").is_file():
        print("book: nothing has changed since it was built", flush=True)
        return html / "index.html"
    fresh = out / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    log = out / "book.log"
    jupyter_book = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command = [*jupyter_book, "build", str(root), "--path-output", str(fresh)]
    _run(
        [*command, "-W", "--keep-going", "-n"],
        log,
        os.environ | {"GDLIB_RESULTS": str(results.resolve())},
    )
    built = fresh / "_build" / "html"
    for page in built.rglob("*.html"):
        if "Traceback (most recent call last)" in page.read_text(encoding="utf-8"):
            raise BookError(f"page {page.relative_to(built)} shows a traceback; see {log}")
    _forward(built / "index.html")
    (built / "tables").mkdir()
    for name, one in runs.items():
        one.table.to_csv(built / "tables" / f"{name}.csv", index=False)
    shutil.copytree(root / "notebooks", built / "notebooks", ignore=shutil.ignore_patterns(".*"))
    stamp.unlink(missing_ok=True)
    shutil.rmtree(html, ignore_errors=True)
    built.rename(html)
    shutil.rmtree(fresh)
    stamp.write_text(digest)
    return html / "index.html"


def _run(command: list[str], log: Path, environment: dict[str, str]) -> None:
    """Run jupyter-book, show its progress, keep everything in the log."""
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
        )
        lines = []
        for line in process.stdout:
            line = re.sub(r"\x1b?\[[0-9;]+m", "", line)  # colours, which sphinx writes even into a pipe
            file.write(line)
            lines.append(line.rstrip())
            if any(word in line for word in ("Executing notebook", "WARNING", "ERROR")) and "IPKernelApp" not in line:
                print("  " + line.strip()[:160], flush=True)
        code = process.wait()
    if code:
        telling = ("WARNING:", "ERROR:", "Error:")
        told = [line for line in lines if any(word in line for word in telling)] or lines
        raise BookError("the book was not built, the old one stays:\n  " + "\n  ".join(told[-15:]) + f"\nlog: {log}")


def _forward(page: Path) -> None:
    """Make a whole page of the line that sends on to the first chapter; Jupyter Book leaves it alone in its file."""
    line = page.read_text(encoding="utf-8").strip()
    found = re.search(r"url=([^\"]+)", line)
    if found is None or "<body" in line:
        return
    page.write_text(
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>The book</title>\n{line}\n</head>\n'
        f'<body>\n<p><a href="{found[1]}">The book begins here.</a></p>\n</body>\n</html>\n',
        encoding="utf-8",
    )


def _digest(root: Path, results: Path) -> str:
    """Of everything that a page can depend on: sources, environment, and the runs themselves."""
    files = [root / name for name in FILES]
    for folder in SOURCES:
        files += sorted((root / folder).rglob("*"))
    files += sorted(results.glob("*/*/table.csv")) + sorted(results.glob("*/*/run.json"))
    files.append(results / "profile.txt")
    digest = hashlib.sha256()
    for path in files:
        if path.is_file() and "__pycache__" not in path.parts and ".ipynb_checkpoints" not in path.parts:
            place = path.relative_to(results if results in path.parents else root)
            digest.update(f"{place} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gdlib.report.build", description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results/quick"), help="folder of the results to show")
    parser.add_argument("--build", type=Path, default=Path("_build"), help="folder to build into (default _build)")
    options = parser.parse_args(arguments)
    try:
        index = build(sweep.root() / options.results, sweep.root() / options.build)
    except (BookError, record.RecordError, sweep.SweepError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"book: {index}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
