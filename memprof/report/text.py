"""Text from a file, made safe for a terminal."""

from __future__ import annotations

import unicodedata

__all__ = ["clean"]


def clean(text: str, limit: int = 200) -> str:
    """Strip control and formatting characters from `text`, and cut it at `limit` characters.

    Function and file names in a snapshot are a stranger's: an escape sequence among them could rewrite the screen.
    """
    long = len(text) > limit
    text = text[:limit]  # first, since each character is looked at
    if text.isascii() and text.isprintable():
        safe = text
    else:
        safe = "".join("?" if unicodedata.category(char)[0] == "C" else char for char in text)
    return safe[: limit - 1] + "…" if long else safe
