"""Params files: what is refused, with which message, and that values keep their types."""

import os

import pytest
from mini_project import PARAMETERS, make_project, write_notebook, write_sweep

from gdlib.bench import sweep as sweeps
from gdlib.bench.sweep import SweepError


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("GDLIB_ROOT", str(tmp_path))
    make_project(tmp_path)
    return tmp_path


def refused(project, **changes) -> str:
    path = write_sweep(project, **changes)
    with pytest.raises(SweepError) as caught:
        sweeps.load(path)
    assert "mini.yml" in str(caught.value)
    return str(caught.value)


def test_points_merge_defaults_base_profile_and_axes(project):
    sweep = sweeps.load(write_sweep(project, axes={"schema": ["flat", "nested"], "noise": [1, 2.5]}))
    quick, smoke = sweeps.points(sweep, "quick"), sweeps.points(sweep, "smoke")
    assert [p.run for p in quick] == [f"schema={s}+noise={n}" for s in ("flat", "nested") for n in ("1.0", "2.5")]
    assert quick[1].parameters == {
        "schema": "flat", "trials": 2, "noise": 2.5, "quiet": False, "label": None, "sizes": [1, "2"],
    }  # fmt: skip
    assert type(quick[0].parameters["noise"]) is float
    assert [p.parameters["trials"] for p in smoke] == [1, 1]
    assert (sweep.threads, sweep.gpu, sweep.timed, sweep.takes) == (1, False, True, ("out", "threads"))
    assert sweeps.points(sweep, "gpu")[0].gpu and not quick[0].gpu
    quick[0].parameters["sizes"].append(3)
    assert quick[1].parameters["sizes"] == [1, "2"]


def test_a_sweep_without_axes_has_one_run_called_default(project):
    sweep = sweeps.load(write_sweep(project, axes=None, profiles={"quick": None}))
    assert [p.run for p in sweeps.points(sweep, "quick")] == ["default"]


VALUES = ["a=b", "1e-3", "no", "true", "1", "", "NaN", '"x"', "a,b", "a/b", "..", "é {x} %41 'q'", None, True]
VALUES += [1, 1.0, -2, 1e-9, [1, "2"], {"a": None}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_run_names_give_the_values_back_with_their_types(value, tmp_path):
    name = sweeps.run_name({"first": value, "second": "x"})
    assert sweeps.same(sweeps.parse_run(name), {"first": value, "second": "x"})
    (tmp_path / name).mkdir()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_run_names_of_different_values_differ():
    assert len({sweeps.run_name({"a": value}) for value in VALUES}) == len(VALUES)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base": {"trails": 2}}, ["base.trails", "trails", "did you mean 'trials'"]),
        ({"axes": {"scheme": ["flat"]}}, ["axes.scheme", "did you mean 'schema'"]),
        ({"profiles": {"quick": {"axes": {"schemas": ["x"]}}}}, ["quick.axes.schemas", "no such axis", "'schema'"]),
        ({"profiles": {"quick": {"base": {"nois": 1}}}}, ["quick.base.nois", "did you mean 'noise'"]),
        ({"base": {"trials": True}}, ["base.trials", "True is bool", "is int"]),
        ({"base": {"trials": "1"}}, ["base.trials", "'1' is str", "without quotes"]),
        ({"base": {"trials": 1.0}}, ["base.trials", "1.0 is float"]),
        ({"base": {"noise": "1e-3"}}, ["base.noise", "write 0.001 without quotes"]),
        ({"base": {"noise": float("nan")}}, ["base.noise", "nan is not a JSON value"]),
        ({"base": {"quiet": 1}}, ["base.quiet", "1 is int"]),
        ({"base": {"sizes": 3}}, ["base.sizes", "3 is int", "[1, '2']"]),
        ({"axes": {"schema": ["a", True]}}, ["axes.schema", "True is bool", "quotes"]),
        ({"axes": {"schema": []}}, ["axes.schema", "[]"]),
        ({"axes": {"schema": "flat"}}, ["axes.schema", '"flat"']),
        ({"axes": {"schema": ["a", "b", "a"]}}, ["axes.schema", "'a' stands twice"]),
        ({"axes": {"noise": [1, 1.0]}}, ["axes.noise", "1.0 stands twice"]),
        ({"axes": {"schema": ["x" * 300]}}, ["axes", "too long"]),
        ({"base": {"schema": "flat"}}, ["base.schema is also an axis"]),
        ({"base": {"out": "here"}}, ["base.out", "set by the run itself"]),
        ({"base": {"threads": 2}}, ["base.threads", "set by the run itself"]),
        ({"sweep": "other"}, ["'other'", "'mini'"]),
        ({"notebook": "notebooks/none.ipynb"}, ["notebook", "notebooks/none.ipynb"]),
        ({"inputs": ["workloads/none.jsonl"]}, ["inputs", "workloads/none.jsonl"]),
        ({"thread": 2}, ["'thread'", "did you mean 'threads'"]),
        ({"threads": 0}, ["threads", "0"]),
        ({"title": None}, ['"title"']),
        ({"profiles": {}}, ["profiles"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_params_name_file_key_value_and_way_out(project, changes, words):
    message = refused(project, **changes)
    assert all(word in message for word in words), message


def test_yaml_that_says_a_thing_twice_or_says_nothing(project):
    path = project / "params" / "mini.yml"
    path.write_text(path.read_text() + "threads: 1\nthreads: 2\n")
    with pytest.raises(SweepError, match=r"(?s)mini\.yml.*'threads' stands twice"):
        sweeps.load(path)
    path.write_text("")
    with pytest.raises(SweepError, match=r"mini\.yml.*null is not of type \"object\""):
        sweeps.load(path)
    path.write_text("a: [")
    with pytest.raises(SweepError, match=r"mini\.yml"):
        sweeps.load(path)
    with pytest.raises(SweepError, match=r"minni\.yml.*did you mean 'mini\.yml'"):
        sweeps.load(path.with_name("minni.yml"))


def test_yaml_no_and_1e3_are_caught_and_quoted_ones_survive(project):
    path = write_sweep(project)
    text = path.read_text().replace("- flat\n  - nested\n", "- no\n", 1)
    path.write_text(text)
    with pytest.raises(SweepError, match=r"axes\.schema: False is bool.*put it in quotes"):
        sweeps.load(path)
    path.write_text(text.replace("- no\n", "- 'no'\n  - a=b\n  - 1e-3\n", 1))
    assert sweeps.load(path).axes["schema"] == ["no", "a=b", "1e-3"]


def test_unknown_profile_and_sweep(project):
    sweep = sweeps.load(project / "params" / "mini.yml")
    with pytest.raises(SweepError, match=r"mini\.yml.*'quik'.*did you mean 'quick'"):
        sweeps.points(sweep, "quik")
    with pytest.raises(SweepError, match=r"no minni\.yml; did you mean 'mini'"):
        sweeps.load_all(["minni"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tags": 0}, ["0 cells are tagged `parameters`"]),
        ({"tags": 2}, ["2 cells are tagged `parameters`"]),
        ({"parameters": PARAMETERS + "\nstart = time.time()"}, ["line 9", "start = time.time()", "another cell"]),
        ({"parameters": PARAMETERS + "\nimport os"}, ["line 9", "import os"]),
        ({"parameters": PARAMETERS + "\na, b = 1, 2"}, ["line 9", "a, b = 1, 2"]),
        ({"parameters": PARAMETERS + "\ntrials += 1"}, ["line 9"]),
        ({"parameters": PARAMETERS + "\ntrials = 3"}, ["line 9", "trials is set twice"]),
        ({"parameters": PARAMETERS + "\nlimit = 1e999"}, ["line 9"]),
        ({"parameters": PARAMETERS + "\nx = ("}, ["parameters cell, line"]),
        ({"parameters": "trials = 1"}, ['out = ""']),
    ],
    ids=str,
)
def test_bad_notebooks_name_the_file_and_the_line(project, changes, words):
    write_notebook(project / "notebooks" / "mini.ipynb", **changes)
    with pytest.raises(SweepError) as caught:
        sweeps.load(write_sweep(project))
    assert all(word in str(caught.value) for word in ["mini.ipynb", *words]), caught.value


def test_annotated_defaults_and_ones_that_hold_an_equals_sign(project):
    text = PARAMETERS.replace("trials = 1", "trials: int = 1  # how often") + '\nquery: str | None = "a=b"'
    write_notebook(project / "notebooks" / "mini.ipynb", parameters=text)
    found = sweeps.notebook_parameters(project / "notebooks" / "mini.ipynb")
    assert found["trials"] == 1 and found["query"] == "a=b" and list(found)[:2] == ["out", "threads"]


def test_not_a_notebook(project):
    (project / "notebooks" / "mini.ipynb").write_text("<<<<<<< ours")
    with pytest.raises(SweepError, match=r"mini\.ipynb: this is not a notebook"):
        sweeps.load(project / "params" / "mini.yml")


def test_sources_follow_content_and_not_dates(project):
    (project / "gdlib" / "report").mkdir(parents=True)
    for name in ("core.py", "report/figures.py", "__main__.py"):
        (project / "gdlib" / name).write_text("x = 1\n")
    (project / "data.jsonl").write_text("{}\n")
    sweep = sweeps.load(write_sweep(project, inputs=["data.jsonl"]))
    first = sweeps.sources(sweep)
    os.utime(project / "gdlib" / "core.py")
    (project / "gdlib" / "report" / "figures.py").write_text("x = 2\n")
    (project / "gdlib" / "__main__.py").write_text("x = 2\n")
    assert sweeps.sources(sweep) == first
    digests = {first}
    for path, change in [("gdlib/core.py", "x = 2\n"), ("data.jsonl", "[]\n")]:
        (project / path).write_text(change)
        digests.add(sweeps.sources(sweep))
    write_notebook(project / "notebooks" / "mini.ipynb", "1 + 1")
    digests.add(sweeps.sources(sweep))
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("sizes", "says"),
    [([], "the list is empty"), ([4, True], r"sizes\[1\]: True is bool"), (["4"], r"sizes\[0\]: '4' is str")],
)
def test_items_of_a_list_have_the_type_of_the_defaults(project, sizes, says):
    notebook = project / "notebooks" / "mini.ipynb"
    notebook.write_text(notebook.read_text().replace('sizes = [1, \\"2\\"]', "sizes = [1, 2]"))
    with pytest.raises(SweepError, match=f"(?s)mini.yml: base.{says}" if sizes else says):
        sweeps.load(write_sweep(project, base={"sizes": sizes}))
