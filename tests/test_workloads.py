"""The extraction workload is well formed, and its text supports every gold value."""

import json
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[1] / "workloads" / "extraction.jsonl"
FAMILIES = {"person", "product", "event", "recipe", "flight", "book"}
TYPES = {"text": str, "int": int, "bool": bool}

ROWS = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]


def values(row, kind):
    """Yield (gold value, maximum) for the fields of one kind."""
    for name, field_kind, *limit in row["fields"]:
        if field_kind == kind:
            yield row["gold"][name], limit[0] if limit else None


each_row = pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])


def test_size_and_ids():
    assert len(ROWS) >= 30
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert len({row["text"] for row in ROWS}) == len(ROWS)


def test_families():
    assert {row["family"] for row in ROWS} == FAMILIES
    assert set(Counter(row["family"] for row in ROWS).values()) == {6}
    for family in FAMILIES:
        rows = [row for row in ROWS if row["family"] == family]
        assert all(row["fields"] == rows[0]["fields"] for row in rows)
        # Neither constant answer may score on every prompt of a family.
        assert {value for row in rows for value, _ in values(row, "bool")} == {True, False}


@each_row
def test_columns(row):
    assert list(row) == ["id", "family", "text", "fields", "gold"]
    assert re.fullmatch(re.escape(row["family"]) + r"-\d\d", row["id"])
    assert row["text"] and unicodedata.is_normalized("NFC", row["text"])


@each_row
def test_fields_are_well_formed(row):
    for name, kind, *limit in row["fields"]:
        assert isinstance(name, str) and name
        assert kind in TYPES
        assert len(limit) == (0 if kind == "bool" else 1)
        assert all(type(n) is int and n > 0 for n in limit)


@each_row
def test_gold_matches_fields(row):
    assert list(row["gold"]) == [field[0] for field in row["fields"]]
    for name, kind, *_ in row["fields"]:
        assert type(row["gold"][name]) is TYPES[kind]  # exact: a bool is an int too


@each_row
def test_text_values(row):
    for value, limit in values(row, "text"):
        assert 0 < len(value) <= limit
        assert value in row["text"]
        assert not set(value) & set("\"'\\`“”‘’")
        assert value == value.strip() and value.isprintable()


@each_row
def test_int_values(row):
    numbers = re.findall(r"\d+", row["text"])
    for value, limit in values(row, "int"):
        assert value >= 0
        assert str(value) in numbers
        assert len(str(value)) <= limit
