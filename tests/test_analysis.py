"""What is said of a grammar, against naive definitions of the same on random grammars, and on chains of rules."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from test_gbnf import matches, random_grammars

from gdlib.grammar.analysis import left_recursive, nullable
from gdlib.grammar.gbnf import from_gbnf
from gdlib.grammar.nodes import (
    EMPTY,
    Alt,
    Character,
    Dfa,
    Grammar,
    GrammarError,
    Lazy,
    Literal,
    Node,
    Ref,
    Repeat,
    Seq,
    Words,
    WordTable,
    byte_class,
    optional,
)


def corners(node: Node, grammar: Grammar) -> set[str]:
    """The rules at the left edge of `node`."""
    if isinstance(node, Ref):
        return {node.name}
    if isinstance(node, Repeat):
        return corners(node.node, grammar) if node.high != 0 else set()
    if isinstance(node, Alt):
        return set().union(*(corners(c, grammar) for c in node.choices))
    found = set()
    for part in node.parts if isinstance(node, Seq) else ():
        found |= corners(part, grammar)
        if not matches(Grammar(part, grammar.rules), b""):
            break
    return found


def closed(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Everything that each name leads to, in one step or more."""
    for _ in edges:
        edges = {name: to | {far for near in to for far in edges[near]} for name, to in edges.items()}
    return edges


@settings(max_examples=120, deadline=None)
@given(random_grammars())
def test_agrees_with_naive_definitions(grammar):
    assert nullable(grammar) == {name for name in grammar.rules if matches(Grammar(Ref(name), grammar.rules), b"")}

    edges = {name: corners(body, grammar) for name, body in grammar.rules.items()}
    cycles = left_recursive(grammar)
    assert set(cycles) == {name for name, to in closed(edges).items() if name in to}
    for name, cycle in cycles.items():
        assert name in cycle and len(set(cycle)) == len(cycle)
        assert all(after in edges[before] for before, after in zip(cycle, cycle[1:] + cycle[:1], strict=True))


@pytest.mark.parametrize(
    ("text", "cycles"),
    [
        ('root ::= "a" root | x\nx ::= "b"', {}),
        ('root ::= root "a" | "b"', {"root": ["root"]}),
        ('root ::= s root "x" | "y"\ns ::= "-"?', {"root": ["root"]}),
        ('root ::= "" [a]* (root | "b")', {"root": ["root"]}),
        ('root ::= [a]+ root | "b"', {}),
        ('root ::= root{0} "b"', {}),
        ('root ::= x\nx ::= y\ny ::= "a"? x', {"x": ["x", "y"], "y": ["x", "y"]}),
        ('root ::= "a"\nunused ::= unused "b"', {"unused": ["unused"]}),
    ],
)
def test_left_recursion(text, cycles):
    found = left_recursive(from_gbnf(text))
    assert {name: sorted(cycle) for name, cycle in found.items()} == cycles


def machine(accepting: list[bool]) -> Dfa:
    states = len(accepting)
    return Dfa(np.zeros(256, np.uint8), np.full((states, 1), -1, np.int32), np.array(accepting, dtype=bool))


@pytest.mark.parametrize(
    ("node", "empty"),
    [
        (EMPTY, True),
        (Literal(b""), True),
        (Literal(b"a"), False),
        (byte_class(b"a"), False),
        (Character(((97, 122),)), False),
        (optional(Literal(b"a")), True),
        (Repeat(Literal(b"a"), 2, 3), False),
        (Repeat(EMPTY, 2, None), True),
        (Seq((EMPTY, EMPTY, optional(Ref("root")))), True),
        (Seq((EMPTY, Ref("root"))), False),
        (Alt((Literal(b"a"), Ref("root"))), False),
        (Alt((Ref("root"), EMPTY)), True),
        (machine([True]), True),
        (machine([False]), False),
        (machine([]), False),
        (Lazy("k", lambda: EMPTY), False),
        (Words(WordTable((b"a",)), lambda i: EMPTY), False),
    ],
)
def test_empty_text_by_kind_of_node(node, empty):
    assert nullable(Grammar(Ref("root"), {"root": node})) == ({"root"} if empty else set())


@pytest.mark.parametrize("node", [Lazy("k", lambda: Ref("gone")), Words(WordTable((b"a",)), lambda i: Ref("gone"))])
def test_what_is_not_built_is_not_looked_into(node):
    grammar = Grammar(Seq((Literal(b"a"), node)), {"unused": node})
    assert nullable(grammar) == set() and left_recursive(grammar) == {}


@pytest.mark.parametrize("analysis", [nullable, left_recursive])
def test_undefined_rule_is_named(analysis):
    with pytest.raises(GrammarError, match="'gone'"):
        analysis(Grammar(Seq((Literal(b"a"), Ref("gone")))))


@pytest.mark.parametrize(("last", "ring"), [('"z"', False), ('"z" | r0', True), ('"(" r0 ")"', False)])
def test_long_chains(last, ring):
    n = 5000
    grammar = from_gbnf("root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(n)) + f"r{n} ::= {last}")
    start = time.process_time()
    assert nullable(grammar) == set()
    assert len(left_recursive(grammar)) == (n + 1 if ring else 0)
    assert time.process_time() - start < 120  # it ends


def test_shared_nodes_are_visited_once():
    node: Node = optional(Ref("root"))
    for _ in range(200):
        node = Seq((node, node))
    grammar = Grammar(Ref("root"), {"root": node})
    assert nullable(grammar) == {"root"}
    assert left_recursive(grammar) == {"root": ["root"]}
