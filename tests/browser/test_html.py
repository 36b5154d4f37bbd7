"""Every page of the built book is valid HTML, by the checker of the W3C (vnu), without a network."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from reading import BOOK, PAGES

from gdlib.report import trace

ROOT = Path(__file__).parents[2]
# What is a matter of style, and why it stays: the beginning of vnu's sentence -> the reason. No error is among them.
STYLE = {
    "Trailing slash on void elements": "Sphinx and docutils write <br /> as XHTML does; no reader is the worse for it",
    "Article lacks heading": "the theme's <article> has its <h1> in the section inside it",
    "Consider using the “h1” element as a top-level": "the same: the one h1 of a page is in a section of its article",
}


def findings(vnu, *paths):
    """What vnu says of these files: [(path, line, sentence, extract)], without what STYLE lets pass."""
    command = ["java", "-jar", str(vnu), "--format", "json", "--stdout", "--exit-zero-always", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(command[:3])}: {done.stderr[-500:]}"
    return [
        (found["url"].removeprefix("file:"), found.get("lastLine", 0), found["message"], found.get("extract", ""))
        for found in json.loads(done.stdout)["messages"]
        if not any(found["message"].startswith(known) for known in STYLE)
    ]


@pytest.fixture(scope="module")
def vnu(book):
    path = ROOT / os.environ.get("GDLIB_VNU", "_build/vnu/26.9.27/package/build/dist/vnu.jar")
    assert path.is_file(), f"{path} is missing: `make test-pages` fetches it"
    assert shutil.which("java"), "java is needed to check HTML: apt-get install default-jre-headless"
    return path


def test_pages_are_valid_html(vnu, book, tmp_path):
    told = {"tokens": [["{", "model", 1], ["a", "grammar", 2]], "rejected": [["<b>", "ngram", 2, 1]]}
    alone = tmp_path / "alone.html"
    alone.write_text(trace.standalone([trace.Recording("r0", "One <text>", json.dumps(told))], "Recorded"), "utf-8")
    found = findings(vnu, *(BOOK / page for page in PAGES), alone)
    told = [f"{path}:{line}: {said} In: {extract.strip()[:120]!r}" for path, line, said, extract in found]
    assert not found, "\n".join(told)


def test_the_checker_finds_what_it_is_there_for(vnu, tmp_path):
    wrong = tmp_path / "wrong.html"
    wrong.write_text(
        '<!DOCTYPE html><html lang="en"><head><title>t</title></head><body>\n'
        '<p id="a">one<p id="a">two\n<span><div>block</div></span>\n<center>old</center>\n<img src="x.png">\n'
        "</body></html>"
    )
    lines = {line for _, line, _, _ in findings(vnu, wrong)}
    assert {2, 3, 4, 5} <= lines
