"""Regular expressions as JSON Schema writes them (ECMA-262, unicode mode), as trees over bytes.

Alternation, classes and counts stay a tree, so a count of 100,000 costs nothing here. Anchors are worked into the tree
too. Lookarounds and word boundaries ask about text that other parts of the pattern read; they hold only as one machine,
and the whole pattern then becomes one `Dfa`.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from gdlib.grammar.nodes import (
    ANY_CHARACTER,
    EMPTY,
    Alt,
    Character,
    Dfa,
    GrammarError,
    Literal,
    Node,
    Ranges,
    Repeat,
    Seq,
)
from gdlib.grammar.regular import (
    MAX_STATES,
    NOTHING,
    Ahead,
    Behind,
    complement_ranges,
    contains,
    dfa,
    difference,
    intersect,
    minimize,
    union_ranges,
)

_MAX_DEPTH = 100  # groups inside groups
_MAX_ANCHORED = 30  # parts with an anchor in them, one after another
_MAX_UNROLLED = 32  # least number of rounds of a group with an anchor in it

_DIGIT: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE = union_ranges(
    [(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)],
    [(0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)],
)
_DOT = complement_ranges(((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)))
_SHORTHANDS = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_COUNT = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}")
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


# The parsed pattern is a tree of nodes and of these three, which none but this module sees.


@dataclass(frozen=True)
class _Anchor:
    start: bool  # ^ or $


@dataclass(frozen=True)
class _Boundary:
    negative: bool
    at: int


@dataclass(frozen=True)
class _Look:
    ahead: bool
    negative: bool
    body: Node
    at: int


# ------------------------------------------------------------------------------------------------------ entry points


@lru_cache(maxsize=1024)
def search(pattern: str, style: str = "utf8", max_states: int = MAX_STATES) -> Node:
    """All texts in which `pattern` is found somewhere, as JSON Schema means it; characters are spelled in `style`.

    A tree, or a `Dfa` where the pattern looks around; a `Dfa` without states where nothing can match. GrammarError for
    what the subset leaves out and for what takes more than `max_states` states as one machine.
    """
    return _language(pattern, style, max_states, whole_text=False)


@lru_cache(maxsize=1024)
def whole(pattern: str, style: str = "utf8", max_states: int = MAX_STATES) -> Node:
    """All texts that match `pattern` from start to end; else as `search`."""
    return _language(pattern, style, max_states, whole_text=True)


@lru_cache(maxsize=1024)
def search_dfa(pattern: str, style: str = "utf8", max_states: int = MAX_STATES) -> Dfa:
    """`search` as one machine, for boolean operations."""
    found = search(pattern, style, max_states)
    return found if isinstance(found, Dfa) else dfa(found, max_states)


@lru_cache(maxsize=1024)
def parse(pattern: str, style: str = "utf8") -> Node:
    """The language of a pattern without anchors, lookarounds and word boundaries; GrammarError where it has one."""
    root = _parse(pattern, style)
    if _contains(root, _Anchor | _Look | _Boundary):
        raise GrammarError(f"{_name(pattern)}: has an anchor or a lookaround; use `whole` or `search`")
    return root


def _language(pattern: str, style: str, max_states: int, whole_text: bool) -> Node:
    root = _parse(pattern, style)
    if _contains(root, _Look | _Boundary):
        return _machine(root, _Place(pattern, style, max_states), whole_text)
    return _tree(root, pattern, style, whole_text)


def _tree(root: Node, pattern: str, style: str, whole_text: bool) -> Node:
    cases = _by_context(root, pattern) if _contains(root, _Anchor) else {(False, False): root}
    if whole_text:
        found = _alt(list(cases.values()))
    else:
        found = _alt([_padded(node, not start, not end, style) for (start, end), node in cases.items()])
        if isinstance(found, Alt) and _anything(style) in found.choices:
            found = _anything(style)
    return found


def _name(pattern: str) -> str:
    return f"regex {pattern if len(pattern) <= 60 else pattern[:57] + '...'!r}"


def _contains(root: Node, kinds) -> bool:
    todo = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, kinds):
            return True
        todo.extend(_children(node))
    return False


def _children(node) -> tuple:
    if isinstance(node, Seq):
        return node.parts
    if isinstance(node, Alt):
        return node.choices
    return (node.node,) if isinstance(node, Repeat) else ()


# ------------------------------------------------------------------------------------------------ building, simplified


def _anything(style: str) -> Repeat:
    return Repeat(Character(ANY_CHARACTER, style), 0, None)


def _seq(parts: list) -> Node:
    """The parts in a row; neighbouring single characters become one literal."""
    flat: list = []
    for part in parts:
        if part is NOTHING:
            return NOTHING
        flat += part.parts if isinstance(part, Seq) else (part,)
    joined: list = []
    for fixed, run in groupby(flat, key=lambda part: _spelling(part) is not None):
        run = list(run)
        joined += [Literal(b"".join(map(_spelling, run)))] if fixed and len(run) > 1 else run
    return joined[0] if len(joined) == 1 else Seq(tuple(joined))


def _spelling(node) -> bytes | None:
    """The only text of a node, where that is easily seen."""
    if isinstance(node, Literal):
        return node.text
    if isinstance(node, Character) and len(node.ranges) == 1 and node.style != "json_any":
        (low, high) = node.ranges[0]
        if low == high and (node.style == "utf8" or (low >= 0x20 and chr(low) not in '"\\')):
            return chr(low).encode()
    return None


def _alt(choices: list) -> Node:
    """One of the choices; single characters become one class."""
    flat: list = []
    for choice in choices:
        flat += choice.choices if isinstance(choice, Alt) else (choice,)
    kept = list(dict.fromkeys(choice for choice in flat if choice is not NOTHING))
    classes = [choice for choice in kept if isinstance(choice, Character)]
    if len(classes) > 1:
        joined = Character(union_ranges(*(choice.ranges for choice in classes)), classes[0].style)
        kept = [joined if choice is classes[0] else choice for choice in kept if choice not in classes[1:]]
    if not kept:
        return NOTHING
    return kept[0] if len(kept) == 1 else Alt(tuple(kept))


def _repeat(node: Node, low: int, high: int | None) -> Node:
    if node is NOTHING:
        return EMPTY if low == 0 else NOTHING
    if high == 0 or node == EMPTY:
        return EMPTY
    if (low, high) == (1, 1):
        return node
    if isinstance(node, Repeat) and node.low <= 1:  # every count between the least and the most is reached
        top = None if high is None or node.high is None else node.high * high
        return Repeat(node.node, node.low * low, top)
    return Repeat(node, low, high)


def _nullable(node) -> bool:
    """Whether the empty text is in the language; anchors and lookarounds count as empty."""
    if isinstance(node, Seq):
        return all(_nullable(part) for part in node.parts)
    if isinstance(node, Alt):
        return any(_nullable(choice) for choice in node.choices)
    if isinstance(node, Repeat):
        return node.low == 0 or _nullable(node.node)
    if isinstance(node, Literal):
        return not node.text
    if isinstance(node, Dfa):
        return contains(node, b"")
    return not isinstance(node, Character)


def _padded(node: Node, left: bool, right: bool, style: str) -> Node:
    """`node` with any characters on the open sides; what these take in anyway is cut off `node`."""
    if node is NOTHING:
        return NOTHING
    parts = list(node.parts) if isinstance(node, Seq) else [node]
    for side, at in ((left, 0), (right, -1)):
        while side and parts:
            end = parts[at]
            if isinstance(end, Repeat) and end.low > 0 and not _nullable(end.node):
                parts[at] = _repeat(end.node, end.low, end.low)
                if isinstance(parts[at], Repeat):
                    break
            elif _nullable(end):
                del parts[at]
            else:
                break
    anything = [_anything(style)]
    if not parts:
        return anything[0] if left or right else EMPTY
    return _seq(anything * left + parts + anything * right)


# ------------------------------------------------------------------------------------------------------------ anchors


def _by_context(node: Node, pattern: str) -> dict[tuple[bool, bool], Node]:
    """The language of `node` by what it asks: (nothing may stand before it, nothing may stand behind it) -> texts.

    Exact, not only for ^ and $ at the ends: what stands before a ^ can still be read as the empty text.
    """
    if isinstance(node, _Anchor):
        return {(node.start, not node.start): EMPTY}
    inner = _children(node)
    if not inner:
        return {(False, False): node}
    cases = [_by_context(child, pattern) for child in inner]
    anchored = sum(case.get((False, False)) is not child for case, child in zip(cases, inner, strict=True))
    if not anchored:
        return {(False, False): node}
    if isinstance(node, Alt):
        made = _gathered([item for case in cases for item in case.items()])
    elif isinstance(node, Repeat):
        made = _rounds(cases[0], node.low, node.high, pattern)
    else:
        if anchored > _MAX_ANCHORED:
            raise _scattered(pattern)
        made = cases[0]
        for case in cases[1:]:
            made = _after(made, case)
    _check_size(list(made.values()), pattern)
    return made


def _scattered(pattern: str) -> GrammarError:
    return GrammarError(f"{_name(pattern)}: its anchors stand in too many places; move ^ and $ to the ends of groups")


def _check_size(roots: list, pattern: str) -> None:
    """Anchors copy what stands beside them; refuse trees that this made too large or too deep."""
    size: dict[int, tuple[int, int]] = {}
    stack = list(roots)
    while stack:
        node = stack[-1]
        inner = _children(node)
        todo = [child for child in inner if id(child) not in size]
        if todo:
            stack.extend(todo)
            continue
        stack.pop()
        below = [size[id(child)] for child in inner]
        size[id(node)] = (1 + sum(n for n, _ in below), 1 + max((depth for _, depth in below), default=0))
    if any(n > 1000 + 20 * len(pattern) or depth > 4 * _MAX_DEPTH for n, depth in (size[id(r)] for r in roots)):
        raise _scattered(pattern)


def _gathered(items: list) -> dict[tuple[bool, bool], Node]:
    grouped = defaultdict(list)
    for asks, node in items:
        grouped[asks].append(node)
    made = {asks: _alt(nodes) for asks, nodes in grouped.items()}
    return {asks: node for asks, node in made.items() if node is not NOTHING} or {(False, False): NOTHING}


def _after(first: dict, second: dict) -> dict[tuple[bool, bool], Node]:
    items = []
    for (start, end), a in first.items():
        for (start_b, end_b), b in second.items():
            if start_b and not _nullable(a):
                continue
            if end and not _nullable(b):
                continue
            items.append(((start or start_b, end or end_b), _seq([EMPTY if start_b else a, EMPTY if end else b])))
    return _gathered(items)


def _rounds(case: dict, low: int, high: int | None, pattern: str) -> dict[tuple[bool, bool], Node]:
    """A group with anchors in it, repeated: only a first round can use a ^, and only a last one a $."""
    if low > _MAX_UNROLLED:
        raise GrammarError(
            f"{_name(pattern)}: a group with an anchor in it is repeated at least {low} times; "
            f"want at most {_MAX_UNROLLED}, or the anchor outside the group"
        )
    made = {(False, False): EMPTY}
    for _ in range(low):
        made = _after(made, case)
    if high == low:
        return made
    free, begins = case.get((False, False), NOTHING), case.get((True, False), NOTHING)
    ends, both = case.get((False, True), NOTHING), case.get((True, True), NOTHING)
    more = None if high is None else high - low

    def rest(less: int) -> Node:
        if more is not None and more < less:
            return NOTHING
        return _repeat(free, 0, None if more is None else more - less)

    optional = [
        ((False, False), rest(0)),
        ((True, False), _seq([begins, rest(1)])),
        ((False, True), _seq([rest(1), ends])),
        ((True, True), _alt([both, _seq([begins, rest(2), ends])])),
    ]
    return _after(made, _gathered(optional))


# -------------------------------------------------------------------------------------------------------- lookarounds


def _machine(root: Node, place: _Place, whole_text: bool) -> Dfa:
    parts = list(root.parts) if isinstance(root, Seq) else [root]
    at_start = whole_text or parts[0] == _Anchor(True)
    looks = []
    if at_start:  # lookaheads there bind the whole text: cheaper one by one than all at once
        skip = int(parts[0] == _Anchor(True))
        while skip < len(parts) and isinstance(parts[skip], _Look) and parts[skip].ahead:
            looks.append(parts.pop(skip))
    rest = Seq(tuple(parts))
    if not _contains(rest, _Look | _Boundary):
        made = dfa(_tree(_seq(parts), place.pattern, place.style, whole_text), place.max_states)
    else:
        anything = [_anything(place.style)]
        left = [] if at_start else anything
        right = [] if whole_text or parts[-1] == _Anchor(False) else anything
        made = dfa(_resolved(Seq((*left, *parts, *right)), place, whole_text), place.max_states)
    asked = None
    for look in looks:
        machine = _resolved_look(look, place, True).machine
        asked = machine if asked is None else minimize(intersect(asked, machine, place.max_states))
    return made if asked is None else intersect(made, asked, place.max_states)


@dataclass(frozen=True)
class _Place:
    pattern: str
    style: str
    max_states: int


def _resolved(node: Node, place: _Place, at_start: bool) -> Node:
    """Anchors and lookarounds as Ahead and Behind. `at_start`: nothing stands before the node, whatever the text."""
    if isinstance(node, _Anchor):
        empty = dfa(EMPTY)
        return Behind(empty) if node.start else Ahead(empty, place.style)
    if isinstance(node, _Boundary):
        return _boundary(node.negative, place.style)
    if isinstance(node, _Look):
        return _resolved_look(node, place, at_start)
    if isinstance(node, Alt):
        return Alt(tuple(_resolved(choice, place, at_start) for choice in node.choices))
    if isinstance(node, Repeat):
        return Repeat(_resolved(node.node, place, False), node.low, node.high)
    if isinstance(node, Seq):
        parts = []
        for part in node.parts:
            parts.append(_resolved(part, place, at_start))
            at_start = (at_start and isinstance(part, _Look | _Anchor | _Boundary)) or part == _Anchor(True)
        return Seq(tuple(parts))
    return node


def _resolved_look(look: _Look, place: _Place, at_start: bool) -> Node:
    def where(reason: str) -> GrammarError:
        return GrammarError(f"{_name(place.pattern)}: lookaround at offset {look.at}: {reason}")

    def machine(body: Node, before: bytes = b"") -> Dfa:
        """The machine of the body with what may stand on its far side, or of the texts where that is not found."""
        parts = (body, everything) if look.ahead else (everything, body)
        found = minimize(dfa(Seq(parts), place.max_states, before))
        if look.negative:
            found = minimize(difference(dfa(everything), found, place.max_states))
        return found

    everything = _anything(place.style)
    if not look.ahead:
        if _sees(look.body, ahead=True):
            raise where(
                "a lookbehind that looks ahead ($, \\b or a lookahead in it) is not supported; move that part out"
            )
        return Behind(machine(_resolved(look.body, place, False)))
    if at_start:
        return Ahead(machine(_resolved(look.body, place, True)), place.style)
    body = _resolved(look.body, place, False)
    if not _sees(look.body, ahead=False):
        return Ahead(machine(body), place.style)
    if _sees(look.body, ahead=False, only_look=True):
        raise where("a lookbehind inside a lookahead is supported only at the start of the pattern, behind ^")
    # ^ and \b ask no more than this of the text before: none, a word character last, or another one last
    word, other = _last_character(place.style)
    return Alt(
        tuple(
            Seq((Behind(before), Ahead(machine(body, sample), place.style)))
            for before, sample in ((dfa(EMPTY), b""), (word, b"a"), (other, b" "))
        )
    )


def _sees(root: Node, ahead: bool, only_look: bool = False) -> bool:
    """Whether something in `root` asks about the text ahead of it (or else behind it); `only_look`: a lookaround."""
    todo = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, _Look):
            if node.ahead == ahead:
                return True
            todo.append(node.body)
        elif (isinstance(node, _Boundary) or (isinstance(node, _Anchor) and node.start != ahead)) and not only_look:
            return True
        todo.extend(_children(node))
    return False


@lru_cache(maxsize=8)
def _last_character(style: str) -> tuple[Dfa, Dfa]:
    """Machines of the texts that end in a word character, and in another one."""
    anything = _anything(style)
    return tuple(
        minimize(dfa(Seq((anything, Character(ranges, style))))) for ranges in (_WORD, complement_ranges(_WORD))
    )


@lru_cache(maxsize=8)
def _boundary(negative: bool, style: str) -> Node:
    anything = _anything(style)
    every = dfa(anything)
    before = _last_character(style)[0]
    after = minimize(dfa(Seq((Character(_WORD, style), anything))))
    not_before, not_after = minimize(difference(every, before)), minimize(difference(every, after))
    pairs = ((before, after), (not_before, not_after)) if negative else ((before, not_after), (not_before, after))
    return Alt(tuple(Seq((Behind(a), Ahead(b, style))) for a, b in pairs))


# ------------------------------------------------------------------------------------------------- reading the pattern


@dataclass
class _Group:
    at: int
    look: tuple[bool, bool] | None  # (ahead, negative)
    choices: list
    parts: list


@dataclass
class _Reader:
    pattern: str
    style: str
    at: int = 0
    fold: bool = False

    def error(self, at: int, reason: str) -> GrammarError:
        return GrammarError(f"{_name(self.pattern)}: offset {at}: {reason}")

    def peek(self, count: int = 1) -> str:
        return self.pattern[self.at : self.at + count]

    def take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False


@lru_cache(maxsize=1024)
def _parse(pattern: str, style: str) -> Node:
    reader = _Reader(pattern, style)
    reader.fold = reader.take("(?i)")
    stack = [_Group(0, None, [], [])]
    repeatable = False  # whether the last part may take a quantifier
    while reader.at < len(pattern):
        at, char = reader.at, reader.peek()
        group = stack[-1]
        if char in "*+?" or (char == "{" and _is_count(reader)):
            low, high = _quantifier(reader)
            if not repeatable:
                raise reader.error(at, f"nothing to repeat before {pattern[at : reader.at]!r}")
            group.parts[-1] = _repeat(group.parts[-1], low, high)
            repeatable = False
            continue
        reader.at += 1
        repeatable = True
        if char == "(":
            stack.append(_Group(at, _group_kind(reader), [], []))
            repeatable = False
            if len(stack) > _MAX_DEPTH:
                raise reader.error(at, f"more than {_MAX_DEPTH} groups inside each other")
        elif char == ")":
            if len(stack) == 1:
                raise reader.error(at, "unmatched ')'; write \\) for the character")
            node = _alt([*group.choices, _seq(group.parts)])
            stack.pop()
            if group.look is not None:
                node = _Look(*group.look, node, group.at)
                repeatable = False
            stack[-1].parts.append(node)
        elif char == "|":
            group.choices.append(_seq(group.parts))
            group.parts = []
            repeatable = False
        elif char in "^$":
            group.parts.append(_Anchor(char == "^"))
            repeatable = False
        elif char == "\\" and reader.peek() in ("b", "B"):
            group.parts.append(_Boundary(reader.peek() == "B", at))
            reader.at += 1
            repeatable = False
        else:
            group.parts.append(_character(reader, char))
    if len(stack) > 1:
        raise reader.error(stack[-1].at, "group is never closed")
    return _alt([*stack[0].choices, _seq(stack[0].parts)])


def _character(reader: _Reader, char: str) -> Node:
    """The atom that starts with `char`, which has been read: a class, an escape or the character itself."""
    if char == "[":
        ranges = _class(reader)
    elif char == ".":
        ranges = _DOT
    elif char == "\\":
        code, ranges = _escape(reader, in_class=False)
        if code is not None:
            ranges = _folded(reader, ((code, code),))
    else:
        ranges = _folded(reader, ((ord(char), ord(char)),))
    ranges = union_ranges(ranges)  # a lone surrogate goes here: no text holds one
    return Character(ranges, reader.style) if ranges else NOTHING


def _is_count(reader: _Reader) -> bool:
    """Whether the brace here opens a quantifier; else it is a character like any other."""
    found = _COUNT.match(reader.pattern, reader.at)
    if found and not found[1] and found[3]:
        raise reader.error(reader.at, f"{found[0]} means different things to different engines: write {{0,{found[3]}}}")
    return found is not None and found[1] != ""


def _quantifier(reader: _Reader) -> tuple[int, int | None]:
    at, char = reader.at, reader.peek()
    if char == "{":
        found = _COUNT.match(reader.pattern, at)
        if len(found[0]) > 40:
            raise reader.error(at, f"count of {len(found[0])} digits")
        low = int(found[1])
        high = int(found[3]) if found[3] else None if found[2] else low
        if high is not None and high < low:
            raise reader.error(at, f"{found[0]}: the least count is above the most")
        reader.at = found.end()
    else:
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        reader.at += 1
    reader.take("?")  # lazy: prefers a shorter match, but matches the same texts
    return low, high


def _group_kind(reader: _Reader) -> tuple[bool, bool] | None:
    """Read what follows an opening parenthesis; (ahead, negative) for a lookaround."""
    if not reader.take("?"):
        return None
    at = reader.at - 2
    for text, look in (("=", (True, False)), ("!", (True, True)), ("<=", (False, False)), ("<!", (False, True))):
        if reader.take(text):
            return look
    if reader.take(":"):
        return None
    if reader.take("P<") or reader.take("<"):
        end = reader.pattern.find(">", reader.at)
        if end < 0 or not reader.pattern[reader.at : end].replace("$", "_").isidentifier():
            raise reader.error(at, "bad group name; want (?<name>...)")
        reader.at = end + 1
        return None
    raise reader.error(
        at,
        f"group (?{reader.peek()} is not supported; known are (?:...), (?<name>...), (?=...), (?!...), (?<=...), "
        "(?<!...) and (?i) at the very start",
    )


def _escape(reader: _Reader, in_class: bool) -> tuple[int | None, Ranges]:
    """The escape whose backslash has been read: one code point, or None and a class."""
    at, char = reader.at - 1, reader.peek()
    if not char:
        raise reader.error(at, "backslash at the end; write \\\\ for the character")
    reader.at += 1
    if char.lower() in _SHORTHANDS:
        ranges = _SHORTHANDS[char.lower()]
        return None, ranges if char.islower() else complement_ranges(ranges)
    if char in _CONTROLS:
        return _CONTROLS[char], ()
    if char == "b" and in_class:
        return 8, ()
    if char == "0" and not reader.peek().isdigit():
        return 0, ()
    if char == "x":
        return _hex(reader, at, 2), ()
    if char == "u":
        return _unicode_escape(reader, at), ()
    if char == "c" and reader.peek().isascii() and reader.peek().isalpha():
        reader.at += 1
        return ord(reader.pattern[reader.at - 1]) % 32, ()
    if char in "pP":
        ranges = _property(reader, at)
        return None, complement_ranges(ranges) if char == "P" else ranges
    if char in "0123456789k":
        raise reader.error(at, f"\\{char}: a backreference is not regular, and octal escapes are not ECMA-262")
    if char.isascii() and char.isalpha():
        hint = {"A": "; write ^", "Z": "; write $", "z": "; write $", "h": "; write [\\t ]", "e": "; write \\x1b"}
        raise reader.error(at, f"\\{char} is no escape of ECMA-262{hint.get(char, '')}")
    return ord(char), ()


def _hex(reader: _Reader, at: int, digits: int) -> int:
    text = reader.peek(digits)
    if len(text) < digits or not all(c in "0123456789abcdefABCDEF" for c in text):
        raise reader.error(at, f"want {digits} hexadecimal digits, found {text!r}")
    reader.at += digits
    return int(text, 16)


def _unicode_escape(reader: _Reader, at: int) -> int:
    if reader.take("{"):
        end = reader.pattern.find("}", reader.at)
        text = reader.pattern[reader.at : end].lstrip("0") if end > reader.at else "-"
        if len(text) > 6 or not all(c in "0123456789abcdefABCDEF" for c in text) or int(text or "0", 16) > 0x10FFFF:
            raise reader.error(at, "want \\u{...} with a code point up to 10ffff")
        reader.at = end + 1
        return int(text or "0", 16)
    code = _hex(reader, at, 4)
    if 0xD800 <= code <= 0xDBFF and reader.peek(2) == "\\u":
        back = reader.at
        reader.at += 2
        low = 0 if reader.peek() == "{" else _hex(reader, back, 4)
        if 0xDC00 <= low <= 0xDFFF:
            return 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
        reader.at = back
    return code


def _class(reader: _Reader) -> Ranges:
    """The class whose bracket has been read; one without members is empty, and its negation is any character."""
    at = reader.at - 1
    negative = reader.take("^")
    plain: list[tuple[int, int]] = []
    shorthands: list[Ranges] = []
    while not reader.take("]"):
        start = reader.at
        low, ranges = _class_atom(reader, at)
        if reader.peek() != "-" or reader.peek(2) in ("-]", "-"):
            if low is None:
                shorthands.append(ranges)
            else:
                plain.append((low, low))
            continue
        reader.at += 1
        high, more = _class_atom(reader, at)
        if low is None or high is None:  # as in [\w-.]: no range, so the hyphen is one
            plain.append((ord("-"), ord("-")))
            plain += [(code, code) for code in (low, high) if code is not None]
            shorthands += [ranges, more]
        elif high < low:
            raise reader.error(start, f"range {reader.pattern[start : reader.at]!r} runs backwards")
        else:
            plain.append((low, high))
    ranges = union_ranges(_folded(reader, plain), *shorthands)
    return complement_ranges(ranges) if negative else ranges


def _class_atom(reader: _Reader, at: int) -> tuple[int | None, Ranges]:
    char = reader.peek()
    if not char:
        raise reader.error(at, "class is never closed; write \\[ for the character")
    reader.at += 1
    return _escape(reader, in_class=True) if char == "\\" else (ord(char), ())


# ------------------------------------------------------------------------------------------------------------ Unicode


def _folded(reader: _Reader, ranges) -> Ranges:
    """With (?i): also every character of another case."""
    if not reader.fold:
        return tuple(ranges)
    cased, family = _case_families()
    found = [code for low, high in ranges for code in cased[bisect_left(cased, low) : bisect_right(cased, high)]]
    return union_ranges(ranges, [(other, other) for code in found for other in family[code]])


@lru_cache(maxsize=1)
def _case_families() -> tuple[list[int], dict[int, list[int]]]:
    """All characters that have another case, and for each those equal to it but for case (itself among them)."""
    families = defaultdict(list)
    for code in range(0x1F000):  # no character beyond has case
        char = chr(code)
        folded = char.casefold()
        if len(folded) > 1:
            folded = char.lower() if len(char.lower()) == 1 else char
        families[folded].append(code)
    family = {code: codes for codes in families.values() if len(codes) > 1 for code in codes}
    return sorted(family), family


_LONG_NAMES = {
    "Letter": "L",
    "Cased_Letter": "LC",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm",
    "Other_Letter": "Lo",
    "Mark": "M",
    "Combining_Mark": "M",
    "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Letter_Number": "Nl",
    "Other_Number": "No",
    "Punctuation": "P",
    "punct": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po",
    "Symbol": "S",
    "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk",
    "Other_Symbol": "So",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp",
    "Other": "C",
    "Control": "Cc",
    "cntrl": "Cc",
    "Format": "Cf",
    "Private_Use": "Co",
    "Unassigned": "Cn",
    "Surrogate": "Cs",
}


def _property(reader: _Reader, at: int) -> Ranges:
    r"""The characters of \p{...}, whose p has been read."""
    end = reader.pattern.find("}", reader.at)
    if not reader.take("{") or end < 0:
        raise reader.error(at, "want \\p{...}, such as \\p{L}")
    name = reader.pattern[reader.at : end]
    reader.at = end + 1
    for prefix in ("General_Category=", "gc="):
        name = name.removeprefix(prefix)
    if name == "Any":
        return ANY_CHARACTER
    if name == "ASCII":
        return ((0, 0x7F),)
    if name == "Assigned":
        return complement_ranges(_category("Cn"))
    short = _LONG_NAMES.get(name, name)
    if short not in _LONG_NAMES.values():
        raise reader.error(
            at,
            f"\\p{{{name}}}: known are the general categories (L, Lu, Nd, ...), Any, ASCII and Assigned; "
            "for scripts and other properties write the characters as a class",
        )
    return _category(short)


@lru_cache(maxsize=64)
def _category(name: str) -> Ranges:
    """All characters of a general category, or of a group of them such as L."""
    kinds = _categories()
    if name == "LC":
        return union_ranges(*(kinds[kind] for kind in ("Lu", "Ll", "Lt")))
    return union_ranges(*(ranges for kind, ranges in kinds.items() if kind.startswith(name)))


@lru_cache(maxsize=1)
def _categories() -> dict[str, list[tuple[int, int]]]:
    """The runs of each general category."""
    kinds = defaultdict(list)
    first, kind = 0, "Cc"
    for code, now in enumerate(map(unicodedata.category, map(chr, range(0x110000)))):
        if now != kind:
            kinds[kind].append((first, code - 1))
            first, kind = code, now
    kinds[kind].append((first, 0x10FFFF))
    return kinds
