"""The book's machinery on a book of one page: errors stop it, nothing stale is shown, and the old one stays."""

import json
import re

import pandas as pd
import pytest
import yaml
from matplotlib import pyplot as plt
from mini_project import make_project

from gdlib.bench import record, sweep
from gdlib.report import build, page

PAGE = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {name: python3, display_name: Python 3}
mystnb: {execution_mode: force}
---

# A page

```{code-cell} ipython3
from gdlib.bench import record
from gdlib.report import page

runs = record.load("mini")
page.say(total=runs.table["value_count"].sum())
page.table(runs.table, "all", "Everything.", runs)
```

The total is {glue:text}`total`.
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a book of one page and two finished runs, and the repository's own book settings."""
    monkeypatch.setenv("GDLIB_ROOT", str(tmp_path))
    for name in ("GDLIB_PROFILE", "GDLIB_RESULTS", "PYTEST_CURRENT_TEST"):
        monkeypatch.delenv(name, raising=False)
    config = yaml.safe_load((build.Path(__file__).parents[1] / "_config.yml").read_text())
    config["sphinx"]["config"]["html_static_path"] = []
    config["sphinx"]["config"]["html_css_files"] = []
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "_toc.yml").write_text("{format: jb-book, root: book/index}\n")
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "index.md").write_text(PAGE)
    make_project(tmp_path)
    record_runs(tmp_path, 20)
    return tmp_path


def record_runs(root, value):
    loaded = sweep.load(root / "params" / "mini.yml")
    for point in sweep.points(loaded, "quick"):
        run = record.begin(root / "results" / "quick" / "mini" / point.run, point.parameters, seed=7)
        record.finish(run, pd.DataFrame({"trial": [0], "value_count": [value]}))


def run_build(root):
    return build.main(["--results", "results/quick", "--build", "_build"])


def test_a_page_shows_the_last_runs_and_a_failed_build_keeps_the_old_book(project, capsys):
    html = project / "_build" / "html" / "book" / "index.html"
    assert run_build(project) == 0
    assert "The total is" in html.read_text() and ">40<" in html.read_text()
    assert (project / "_build" / "html" / "tables" / "mini.csv").read_text().startswith("run,trial,value_count")
    assert (project / "_build" / "html" / "notebooks" / "mini.ipynb").is_file()
    for built in (project / "_build" / "html").rglob("*.html"):  # nothing is loaded from another host
        text = built.read_text()
        assert "thebe" not in text and not re.search(r"""<(?!a\b)[^>]*\b(src|href)=["']?(https?:)?//""", text), built

    assert run_build(project) == 0
    assert "nothing has changed" in capsys.readouterr().out

    before = html.read_text()
    (project / "book" / "index.md").write_text(PAGE.replace('runs = record.load("mini")', "1 / 0"))
    assert run_build(project) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert html.read_text() == before

    (project / "book" / "index.md").write_text(PAGE + "\n[nowhere](no-such-page.md)\n")
    assert run_build(project) == 1  # a warning is an error
    assert "no-such-page" in capsys.readouterr().err and html.read_text() == before

    # Another number under another name: the new page shows it without being asked to, and no page is left over.
    record_runs(project, 21)
    (project / "book" / "index.md").unlink()
    (project / "book" / "start.md").write_text(PAGE)
    (project / "_toc.yml").write_text("{format: jb-book, root: book/start}\n")
    assert run_build(project) == 0
    assert ">42<" in html.with_name("start.html").read_text() and not html.exists()


@pytest.mark.parametrize("harm", ["missing", "half", "tampered", "other parameters"])
def test_no_page_shows_a_run_that_is_not_whole(project, capsys, harm):
    folder = project / "results" / "quick" / "mini" / "schema=nested"
    if harm == "missing":
        (folder / "table.csv").unlink()
    elif harm == "half":
        (folder / "run.json").unlink()
    elif harm == "tampered":
        (folder / "table.csv").write_text((folder / "table.csv").read_text().replace("20", "99"))
    else:
        info = json.loads((folder / "run.json").read_text())
        info["parameters"]["trials"] = 77
        (folder / "run.json").write_text(json.dumps(info))
    assert run_build(project) == 1
    said = capsys.readouterr().err
    assert "schema=nested" in said and "make sweep PROFILE=quick" in said
    assert not (project / "_build" / "html").exists()


def test_code_is_part_of_what_a_book_depends_on(project):
    (project / "gdlib").mkdir()
    (project / "gdlib" / "x.py").write_text("A = 1\n")
    results = project / "results" / "quick"
    one = build._digest(project, results)
    (project / "gdlib" / "x.py").write_text("A = 2\n")
    two = build._digest(project, results)
    (project / "book" / "index.md").write_text(PAGE + "more\n")
    assert len({one, two, build._digest(project, results)}) == 3


def test_runs_of_two_sweeps_can_be_shown_together():
    one, two = (record.Runs(pd.DataFrame({"a": [n]}), [{"run": n}]) for n in (1, 2))
    both = record.together(one, two)
    assert list(both.table["a"]) == [1, 2] and [i["run"] for i in both.infos] == [1, 2]
    with pytest.raises(record.RecordError, match="other columns"):
        record.together(one, record.Runs(pd.DataFrame({"b": [1]}), []))


def test_slow_cells_are_given_time():
    config = yaml.safe_load((build.Path(__file__).parents[1] / "_config.yml").read_text())
    assert config["sphinx"]["config"]["nb_execution_timeout"] >= 60
    assert config["sphinx"]["config"]["nb_execution_raise_on_error"] is True
    assert config["execute"]["execute_notebooks"] == "off"


def test_figures_carry_alt_caption_and_provenance():
    info = {
        "start": "2026-01-02T03:04:05+00:00",
        "provenance": {
            "gpu": None,
            "device": "cpu",
            "cpu": "A Processor",
            "cores": 2,
            "threads": {"omp": 1, "torch": 1},
            "commit": "0123456789",
            "dirty": False,
        },
    }
    runs = record.Runs(pd.DataFrame({"a": [1, 2, 3]}), [info])
    figure, axis = plt.subplots()
    axis.plot([1, 2])
    html = page.figure(figure, "name", "A caption.", 'Rises from "1" to 2.', runs).data
    assert 'alt="Rises from &quot;1&quot; to 2."' in html and "A caption." in html and 'id="name"' in html
    arms = record.Runs(pd.DataFrame({"arm": ["free", "free", "dense"]}), [info])
    assert page.observations(runs, arms) == "n = 3 and 1 to 2 (per arm)"
    for word in ("A Processor", "0123456", "2026-01-02", "n = 3"):
        assert word in html
    shown = page.table(pd.DataFrame({"a<b": ["x&y"]}), "t", "A table.", runs).data
    assert "a&lt;b" in shown and "x&amp;y" in shown and 'download="t.csv"' in shown


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (float("nan"), 0, "none"),
        (0.9996, 0, "99.96%"),
        (0, 0, "0%"),
        (1, 0, "100%"),
        (0.5, 0, "50%"),
        (0.999, 0, "99.9%"),
        (0.0004, 0, "0.04%"),
        (0.1234, 1, "12.3%"),
    ],
)
def test_percent_never_rounds_to_nothing_or_everything(value, digits, text):
    assert page.percent(value, digits) == text
