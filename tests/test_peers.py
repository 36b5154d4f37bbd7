"""Other people's engines behind one protocol, and the probes and schemas they are asked: right answers, honest gaps."""

import json

import pytest
from jsonschema_rs import Draft202012Validator

from gdlib.bench import peers, probes, schemas
from gdlib.models import published
from gdlib.models.hf import ModelError

PRESENT = [arm for arm in peers.ENGINES if peers.version(arm) != "none"]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
TEXTS = {
    '{"a": "xyz"}': True,
    '{"a": "", "b": -12}': True,
    '{"a": "wxyz"}': False,
    '{"b": 3}': False,
    '{"a": ""': False,
}


@pytest.fixture(scope="module")
def engines():
    return peers.open_engines(PRESENT, *probes.byte_vocabulary())[0]


@pytest.mark.parametrize("arm", PRESENT)
def test_engines_agree_on_a_schema_that_all_can_read(engines, arm):
    engine = engines[arm]
    assert peers.refusal(engine, json.dumps(SCHEMA)) == ""
    for _ in range(2):  # a second text begins afresh
        for text, wanted in TEXTS.items():
            assert peers.takes(engine, list(text.encode()), probes.EOS) == wanted, text


@pytest.mark.parametrize("arm", PRESENT)
@pytest.mark.parametrize(("front", "grammar"), [("gbnf", 'root ::= "a" [0-9]+ | "b"'), ("regex", "a[0-9]+|b")])
def test_engines_read_other_grammars(engines, arm, front, grammar):
    engine = engines[arm]
    if front not in engine.fronts:
        pytest.skip(f"{arm} does not read {front}")
    assert peers.refusal(engine, grammar, front) == ""
    taken = [peers.takes(engine, list(text.encode()), probes.EOS) for text in ("a12", "b", "a", "ab")]
    assert taken == [True, True, False, False]


@pytest.mark.parametrize("arm", PRESENT)
def test_a_refusal_is_one_line_and_no_exception(engines, arm):
    said = peers.refusal(engines[arm], '{"type": "no such type"}')
    assert said and "\n" not in said


def test_a_missing_package_is_named_and_the_arm_left_out(monkeypatch):
    def absent(vocab, encode):
        raise ImportError("No module named 'elsewhere'")

    monkeypatch.setitem(peers.ENGINES, "elsewhere", ("elsewhere-engine", absent))
    found, missing = peers.open_engines(["gdlib", "elsewhere"], *probes.byte_vocabulary())
    assert list(found) == ["gdlib"] and "pip install elsewhere-engine" in missing["elsewhere"]
    assert peers.version("elsewhere") == "none"
    table = probes.probe_trials(["gdlib", "elsewhere"], ["regex"])
    assert set(table.loc[table["arm"] == "elsewhere", "verdict"]) == {"not installed"}
    with pytest.raises(ValueError, match="there is 'gdlib'"):
        peers.open_engines(["gdlip"], *probes.byte_vocabulary())


@pytest.mark.parametrize("family", schemas.FAMILIES)
def test_workloads_are_what_they_say_and_grow(family):
    sizes = []
    for level in (1, 2, 9, 30):
        work = schemas.workload(family, level, 5)
        validator = Draft202012Validator(work.schema)
        assert [validator.is_valid(json.loads(text)) for text, _ in work.texts] == [valid for _, valid in work.texts]
        assert {valid for _, valid in work.texts} == {True, False}
        assert work == schemas.workload(family, level, 5) != schemas.workload(family, level, 6)
        sizes.append(len(json.dumps(work.schema)))
    if family not in ("characters", "tree"):  # these grow in what they allow
        assert sizes[0] < sizes[-1]
    with pytest.raises(ValueError, match="at least 1"):
        schemas.workload(family, 0, 5)


def test_another_family_is_refused():
    with pytest.raises(ValueError, match="there is properties"):
        schemas.workload("property", 1, 0)


def test_probes_are_judged_right_and_gdlib_takes_nothing_it_should_not():
    table = probes.probe_trials(["gdlib"])
    assert len(table) == len(probes.PROBES) and (table["too_loose_count"] == 0).all()
    strict = table[table["verdict"] == "too strict"]
    # what the front end says of itself: one spelling under enum, pattern and bounds
    assert strict["feature"].str.contains("spelling|exponent").all()
    refused = table[table["verdict"] == "refuses"]
    assert len(refused) and refused["reason"].str.len().gt(10).all()
    assert set(table["verdict"]) <= set(probes.VERDICTS)


def test_a_probe_that_contradicts_the_judge_is_an_error():
    wrong = probes.Probe("json_schema", "values", "const", '{"const": 1}', ("2",), ())
    with pytest.raises(AssertionError, match="const"):
        probes._judge(wrong)


def test_values_left_free_can_be_left_out():
    engines, _ = peers.open_engines(["gdlib"], *probes.byte_vocabulary())
    assert any(probe.open for probe in probes.PROBES) and engines
    table = probes.probe_trials(["gdlib"], ["json_schema"], nothing_open=["gdlib"])
    assert (table["verdict"] == "left out").sum() == sum(probe.open for probe in probes.PROBES)


def test_a_published_vocabulary_that_cannot_be_had_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("GDLIB_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match=r"llama-models==0\.3\.0 could not be downloaded.*leave this vocabulary out"):
        published.published_vocabulary("llama3")
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    with pytest.raises(ModelError, match="there is llama3, tekken"):
        published.published_vocabulary("llama4")


@pytest.mark.parametrize("name", published.SOURCES)
def test_a_published_vocabulary_writes_texts_in_its_tokens(name, tmp_path):
    source = published.SOURCES[name]
    if not (published.cache_dir() / f"{name}-{source.file_sha256[:12]}").is_dir():
        pytest.skip("not in the cache")
    vocab, encode = published.published_vocabulary(name)
    text = '{"name": "Zoë Ümit", "n": 123456, "next": "\\n"}'
    ids = encode(text)
    assert vocab.decode(ids).decode() == text and len(ids) < len(text)
    assert vocab.tokens[vocab.eos_ids[0]] == b"" and len(vocab) > 120_000
