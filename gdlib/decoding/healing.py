"""Healing: decode freely, then keep the longest prefix that is valid JSON.

It costs one parse a text and repairs what comes behind a good answer; it cannot repair what is wrong inside one.
"""

from __future__ import annotations

import json

_DECODER = json.JSONDecoder()


def heal(text: str, anywhere: bool = False) -> str | None:
    """The longest prefix of `text` that is one JSON value, or None where no prefix is.

    anywhere: start at the first brace or bracket instead of the first character, which passes over a code fence or an
    introduction. A value that starts with a brace ends at one place only, so its longest prefix is its only one.
    """
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if anywhere:
        opens = [i for i in (text.find("{"), text.find("[")) if i >= 0]
        if not opens:
            return None
        start = min(opens)
    try:
        _, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):  # RecursionError: brackets nested thousands deep are no answer either
        return None
    return text[start:end]
