"""What can be said of a grammar before it meets a text: which of its rules may be empty, and which go round in circles.

A recogniser is chosen by this, and an error names the cycle that was found.
Everything here is iterative and visits a node once, since a grammar may be a chain of thousands of rules.

`Lazy` and `Words` are not built to be looked at: they count as leaves that are never empty and refer to nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from gdlib.grammar.nodes import Alt, Dfa, Grammar, GrammarError, Literal, Node, Ref, Repeat, Seq


def nullable(grammar: Grammar) -> set[str]:
    """The names of all rules that match the empty text."""
    empty = _empty_nodes(grammar)
    return {name for name, node in grammar.rules.items() if id(node) in empty}


def left_recursive(grammar: Grammar) -> dict[str, list[str]]:
    """For each left-recursive rule one cycle through it; empty where there is none.

    In a cycle [a, b, c], b may stand at the left edge of a (perhaps behind parts that may be empty), c at the left edge
    of b, and a at that of c. Rules of one cycle share one list, so a rule need not be its first.
    """
    empty = _empty_nodes(grammar)
    edges = {name: _refs(node, empty) for name, node in grammar.rules.items()}
    found: dict[str, list[str]] = {}
    for component in _cyclic_components(edges):
        found |= _cycles(edges, component)
    return found


def _rule(grammar: Grammar, name: str) -> Node:
    if name not in grammar.rules:
        raise GrammarError(f"rule {name!r} is referred to and not defined: define it, or take the reference out")
    return grammar.rules[name]


def _children(node: Node) -> Iterable[Node]:
    if isinstance(node, Seq):
        return node.parts
    if isinstance(node, Alt):
        return node.choices
    if isinstance(node, Repeat) and node.high != 0:
        return (node.node,)
    return ()


def _walk(nodes: Iterable[Node]) -> Iterable[Node]:
    """Every node in these trees, each object once."""
    todo, seen = list(nodes), set()
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            todo.extend(_children(node))


def _refs(node: Node, empty: set[int] | None = None) -> list[str]:
    """The rules that a tree refers to, each once; with `empty` given, only those that may stand at its left edge."""
    names, todo, seen = {}, [node], set()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Ref):
            names[node.name] = None
        elif isinstance(node, Seq) and empty is not None:
            for part in node.parts:
                todo.append(part)
                if id(part) not in empty:
                    break
        else:
            todo.extend(_children(node))
    return list(names)


def _empty_nodes(grammar: Grammar) -> set[int]:
    """The ids of all nodes that match the empty text.

    Each node waits for as many children as it needs; one that becomes empty tells its parents, each edge once.
    """
    waiting: dict[int, int] = {}
    parents: dict[int, list[int]] = {}
    news: list[int] = []
    for node in _walk([grammar.root, *grammar.rules.values()]):
        children = [_rule(grammar, node.name)] if isinstance(node, Ref) else _children(node)
        for child in children:
            parents.setdefault(id(child), []).append(id(node))
        waiting[id(node)] = len(node.parts) if isinstance(node, Seq) else 1
        if (
            (isinstance(node, Seq) and not node.parts)
            or (isinstance(node, Literal) and not node.text)
            or (isinstance(node, Repeat) and node.low == 0)
            or (isinstance(node, Dfa) and len(node.accepting) > 0 and node.accepting[0])
        ):
            news.append(id(node))
    empty = set(news)
    while news:
        for parent in parents.get(news.pop(), ()):
            waiting[parent] -= 1
            if waiting[parent] == 0 and parent not in empty:
                empty.add(parent)
                news.append(parent)
    return empty


def _cyclic_components(edges: Mapping[str, list[str]]) -> list[list[str]]:
    """The strongly connected components that hold a cycle (Tarjan's algorithm, with a stack of its own)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []  # visited and in no finished component
    on_path: set[str] = set()
    found = []
    for start in edges:
        if start in order:
            continue
        calls = [(start, iter(edges[start]))]
        order[start] = low[start] = len(order)
        path.append(start)
        on_path.add(start)
        while calls:
            name, rest = calls[-1]
            for next_name in rest:
                if next_name not in order:
                    calls.append((next_name, iter(edges[next_name])))
                    order[next_name] = low[next_name] = len(order)
                    path.append(next_name)
                    on_path.add(next_name)
                    break
                if next_name in on_path:
                    low[name] = min(low[name], order[next_name])
            else:
                calls.pop()
                if calls:
                    caller = calls[-1][0]
                    low[caller] = min(low[caller], low[name])
                if low[name] == order[name]:
                    component = [path.pop()]
                    while component[-1] != name:
                        component.append(path.pop())
                    on_path.difference_update(component)
                    component.reverse()
                    if len(component) > 1 or name in edges[name]:
                        found.append(component)
    return found


def _cycles(edges: Mapping[str, list[str]], component: list[str]) -> dict[str, list[str]]:
    """For each name of a strongly connected component a cycle through it, from two searches of the whole component.

    A way from the hub to the name and a way back make a closed walk; where the way back first meets the way there, the
    cycle is cut short.
    """
    hub, members = component[0], set(component)
    inside = {name: [n for n in edges[name] if n in members] for name in component}
    reverse: dict[str, list[str]] = {name: [] for name in component}
    for name, following in inside.items():
        for n in following:
            reverse[n].append(name)
    before, after = _tree(hub, inside), _tree(hub, reverse)
    after[hub] = inside[hub][0]
    found: dict[str, list[str]] = {}
    for name in reversed(before):  # the farthest first: its cycle is long and serves many others
        if name in found:
            continue
        way = [name]
        if name not in inside[name]:
            while way[-1] != hub:
                way.append(before[way[-1]])
            back, place = [], {n: i for i, n in enumerate(way)}
            name = after[name]
            while name not in place:
                back.append(name)
                name = after[name]
            way = [*way[place[name] :: -1], *back]
        for n in way:
            found.setdefault(n, way)
    return found


def _tree(start: str, edges: Mapping[str, list[str]]) -> dict[str, str]:
    """From which name each other one is first reached."""
    came_from = {start: start}
    todo = deque([start])
    while todo:
        name = todo.popleft()
        for n in edges[name]:
            if n not in came_from:
                came_from[n] = name
                todo.append(n)
    return came_from
