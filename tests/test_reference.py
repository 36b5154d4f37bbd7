"""The reference pages: what the source says, nothing private, and answers that are the engine's own."""

import inspect
import json
from types import SimpleNamespace

from gdlib.__main__ import _parser
from gdlib.bench import sweep
from gdlib.grammar import schema
from gdlib.report import downloads, reference, scripts


def test_the_interface_is_the_public_part_of_the_source():
    text = reference.api()
    for name in ("class Matcher:", "def generate(", "### gdlib.tokens.matcher", "## gdlib.grammar", "def fill_mask("):
        assert name in text
    assert "def _settled" not in text and text.count("~~~") % 2 == 0
    order = [text.index(f"## gdlib.{package}\n") for package in reference.PACKAGES]
    assert order == sorted(order)


def test_keywords_are_enforced_narrowed_annotated_or_refused_with_a_reason():
    table = reference.schema_table().set_index("keyword")
    assert set(table["becomes"]) == {"enforced", "narrowed", "annotation", "refused"}
    assert table.loc["minItems, maxItems", "becomes"] == "enforced"
    refused = table[table["becomes"] == "refused"]
    assert refused["note"].str.len().gt(20).all() and "backreference" in " ".join(refused["note"])


def test_the_page_of_grammars_gives_the_defaults_that_there_are():
    page = (sweep.root() / "book" / "reference.md").read_text(encoding="utf-8")
    options = inspect.signature(schema.from_json_schema).parameters
    typed = vars(_parser().parse_args(["forced", "--regex", "a"]))
    defaults = {name: option.default for name, option in options.items() if name != "schema"}
    for name, default in defaults.items():
        assert f'| `{name}` | `"{default}"` (default)' in page
        assert name not in typed or f"`--{name} {typed[name]}` (default)" in page
    assert page.count("(default)") == len(defaults) + sum(name in typed for name in defaults)


def test_gbnf_is_read_or_refused_with_its_place():
    table = reference.gbnf_table().set_index("what")
    assert table.loc["left recursion", "read?"] == "read"
    for what in ("at most, without a least", "a token of one vocabulary", "no root", "a reversed range"):
        assert table.loc[what, "read?"].startswith("refused: line 1, column"), what


def test_the_interface_goes_where_its_page_says():
    source = [f"# A page\n\n{reference.HERE}\n"]
    scripts._read(None, "book/api", source)
    assert "class Matcher:" in source[0] and reference.HERE not in source[0]


def test_a_page_gets_the_scripts_that_it_uses():
    given = []
    app = SimpleNamespace(
        add_css_file=lambda name: given.append(name), add_js_file=lambda name, loading_method: given.append(name)
    )
    css = [SimpleNamespace(filename="_static/gd.css"), SimpleNamespace(filename="_static/sphinx-thebe.css")]
    scripts._page(app, "a", "page.html", {"body": "<p>nothing</p>", "css_files": css}, None)
    assert given == [] and [file.filename for file in css] == ["_static/gd.css"]
    scripts._page(app, "a", "page.html", {"body": '<form class="gd-calculator">', "css_files": css}, None)
    assert given == ["calculator.css", "calculator.js"]


def test_buttons_are_named_by_what_is_seen_on_them():
    field = '<button class="btn search-button-field x" title="Search" aria-label="Search" data-a="b">Search</button>'
    assert scripts.mend(field) == field.replace(' aria-label="Search"', "")
    icon = '<button class="btn search-button" aria-label="Search"><i></i></button>'
    assert scripts.mend(icon) == icon
    switch = '<i class="theme-switch fa-solid" data-mode="light" title="Light"></i>'
    assert scripts.mend(switch) == '<i class="theme-switch fa-solid" data-mode="light"></i>'


def test_a_notebook_is_named_by_its_first_heading(tmp_path):
    cells = [
        {"cell_type": "code", "source": ["# no"]},
        {"cell_type": "markdown", "source": ["# A question?\n", "more"]},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "b.ipynb").write_text(json.dumps({"cells": cells[:1]}))
    assert downloads.title(tmp_path / "a.ipynb") == "A question?" and downloads.title(tmp_path / "b.ipynb") == "b"
