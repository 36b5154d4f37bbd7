"""Three machines, one language: against each other, against `re`, and against lark's Earley parser."""

import re

import lark
import pytest
from hypothesis import given, settings
from small_grammars import grammars, pattern, recursive_grammars, texts

from gdlib.grammar.nodes import GrammarError, Literal, Ref, Seq
from gdlib.recognizers import Recognizer
from gdlib.recognizers.arena import Arena

SMALL = 1 / 64


@pytest.fixture(scope="module")
def arenas():
    return {"fsm": Arena(scale=SMALL), "pda": Arena(scale=SMALL), "earley": Arena(earley=True, scale=SMALL)}


def arena_of(arenas, kind):
    """The shared arena of a kind, a fresh one where it fills up."""
    if arenas[kind].full() > 0.4:
        arenas[kind] = Arena(earley=kind == "earley", scale=SMALL)
    return arenas[kind]


def accepts(recognizer, data):
    return recognizer.accepting(recognizer.advance(recognizer.start, data))


@settings(max_examples=250, deadline=None)
@given(grammars())
def test_all_three_agree_with_re_on_regular_grammars(arenas, grammar):
    judge = re.compile(pattern(grammar.root))
    machines = [Recognizer(grammar, kind, arena_of(arenas, kind)) for kind in arenas]
    for data in texts(4):
        want = judge.fullmatch(data) is not None
        assert [accepts(machine, data) for machine in machines] == [want] * 3, data


def as_lark(grammar):
    """The same rules in lark's notation, letters as terminals."""

    def body(node):
        if isinstance(node, Ref):
            return f"r_{node.name}"
        if isinstance(node, Literal):
            return " ".join(f'"{chr(b)}"' for b in node.text)
        if isinstance(node, Seq):
            return " ".join(map(body, node.parts))
        return " | ".join(body(c) for c in node.choices)

    return "\n".join(f"r_{name}: {body(node)}" for name, node in grammar.rules.items())


@settings(max_examples=150, deadline=None)
@given(recursive_grammars())
def test_earley_and_the_pda_agree_with_lark_on_context_free_grammars(arenas, grammar):
    judge = lark.Lark(as_lark(grammar), start="r_root", parser="earley", lexer="dynamic", ambiguity="resolve")
    machines = [Recognizer(grammar, "earley", arena_of(arenas, "earley"))]
    try:
        machines.append(Recognizer(grammar, "pda", arena_of(arenas, "pda")))
    except GrammarError as refused:
        assert "left-recursive" in str(refused) or "open readings" in str(refused)
    for data in texts(4):
        try:
            judge.parse(data.decode())
            want = True
        except lark.exceptions.LarkError:
            want = False
        assert [accepts(machine, data) for machine in machines] == [want] * len(machines), (data, as_lark(grammar))
