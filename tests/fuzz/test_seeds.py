"""The fuzz target itself runs on its seeds and on a few of their descendants, so that it does not rot between runs."""

import random

import pytest
from fuzz_grammars import SEEDS, check, other_schema, other_words, random_schema


@pytest.mark.parametrize("seed", SEEDS, ids=range(len(SEEDS)))
def test_a_seed_holds(seed):
    check(seed)


def test_mutations_are_inputs():
    chance = random.Random(3)
    for _ in range(300):
        schema = random_schema(chance, 2)
        assert isinstance(other_schema(schema, chance), dict | bool | list | str | int | float | None)
        assert isinstance(other_words(b'root ::= "a" [b]*', ["x"], chance), bytes)
