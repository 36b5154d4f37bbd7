"""The segments of guided-decoding-bench: a JSON text as literals with typed holes.

A structured answer is mostly fixed text. What is open is a few holes, and each hole is of one of four kinds: LITERAL,
WORD, INT or BOOL. The same holes come in two widths. *Bounded* holes take any value of their kind up to a length, which
is what a schema means. *Fixed* holes take exactly so many characters, which is the reconstruction of how a constrained
decoder can come out less valid than a free one (see `fixed=True`).
"""

from __future__ import annotations

import json

from gdlib.grammar.nodes import Alt, Node, Repeat, Seq, byte_class, byte_range, literal, optional

LETTERS = byte_range(ord("a"), ord("z"))
DIGITS = byte_range(ord("0"), ord("9"))

# One character of a JSON string: a well-formed UTF-8 sequence (RFC 3629) other than a control, a quote or a
# backslash, or an escape (RFC 8259). Surrogate escapes are left out: half a pair is not a character.
_TAIL = byte_range(0x80, 0xBF)
_HEX = byte_class(b"0123456789abcdefABCDEF")
CHARACTER = Alt(
    (
        byte_class([b for b in range(0x20, 0x80) if b not in b'"\\']),
        Seq((byte_range(0xC2, 0xDF), _TAIL)),
        Seq((byte_class([0xE0]), byte_range(0xA0, 0xBF), _TAIL)),
        Seq((byte_class([*range(0xE1, 0xED), 0xEE, 0xEF]), _TAIL, _TAIL)),
        Seq((byte_class([0xED]), byte_range(0x80, 0x9F), _TAIL)),
        Seq((byte_class([0xF0]), byte_range(0x90, 0xBF), _TAIL, _TAIL)),
        Seq((byte_range(0xF1, 0xF3), _TAIL, _TAIL, _TAIL)),
        Seq((byte_class([0xF4]), byte_range(0x80, 0x8F), _TAIL, _TAIL)),
        Seq((literal("\\"), byte_class(b'"\\/bfnrt'))),
        Seq((literal("\\u"), byte_class(b"0123456789abcefABCEF"), _HEX, _HEX, _HEX)),
        Seq((literal("\\u"), byte_class(b"dD"), byte_class(b"01234567"), _HEX, _HEX)),
    )
)


def word(length: int, fixed: bool = False, character: Node = LETTERS) -> Node:
    """WORD: 1 to `length` characters, or exactly `length` of them where `fixed`. The quotes are not part of it."""
    return Repeat(character, length if fixed else 1, length)


def integer(digits: int, fixed: bool = False, signed: bool = False) -> Node:
    """INT: a JSON integer of 1 to `digits` digits, no leading zero.

    `fixed` gives exactly `digits` digits, leading zeros included: what a fixed-width segment allows, and no JSON
    parser reads. `signed` allows a minus.
    """
    if fixed:
        return Repeat(DIGITS, digits, digits)
    number = Alt((literal("0"), Seq((byte_range(ord("1"), ord("9")), Repeat(DIGITS, 0, digits - 1)))))
    return Seq((optional(literal("-")), number)) if signed else number


def boolean() -> Node:
    """BOOL: `true` or `false`."""
    return Alt((literal("true"), literal("false")))


def text(length: int) -> Node:
    """WORD for real text: a quoted JSON string of 1 to `length` characters of any script, escapes included."""
    return Seq((literal('"'), word(length, character=CHARACTER), literal('"')))


def items(item: Node, low: int, high: int, separator: str) -> Node:
    """`low` to `high` (at least 1) items with a separator between them."""
    return Seq((item, Repeat(Seq((literal(separator), item)), max(low - 1, 0), high - 1)))


def members(fields: list[tuple[str, Node]], comma: str = ",", colon: str = ":") -> Node:
    """A JSON object with exactly these members in this order. Keys are LITERAL segments."""
    if not fields:
        return literal("{}")
    parts: list[Node] = []
    for index, (key, value) in enumerate(fields):
        parts += [literal((comma if index else "{") + json.dumps(key, ensure_ascii=False) + colon), value]
    return Seq((*parts, literal("}")))
