"""Reads a large JSON object piece by piece: never more of it in memory than one value and one block of text."""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any

from memprof.errors import InputError
from memprof.trace.check import shown

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator

__all__ = ["items_of"]

_BLOCK = 1 << 20
_VALUE_END = 64 << 20
"""Characters that one value may have; events have hundreds."""
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"[0-9.eE+-]*")


def items_of(file: io.BufferedReader, opened: str) -> Iterator[tuple[str, Any]]:
    """Yield key and value of every item of the JSON object in `file`; of key `opened`, every element of its list.

    A bare list in place of the object is taken as the list of `opened`.

    Raises
    ------
    InputError
        The text is damaged, truncated, or holds a value beyond reason.
    """
    text = _Text(file)
    if text.take("["):
        yield from ((opened, value) for value in text.elements())
    elif text.take("{"):
        for key in text.members():
            if key == opened and text.take("["):
                yield from ((opened, value) for value in text.elements())
            else:
                yield key, text.value()
    else:
        raise InputError("is not JSON")
    text.finish()


class _Text:
    """The text of the file from `_at` on, as far as it has been read."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        # A name that is no UTF-8 must not stop the reading.
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace").decode
        self._scan = json.JSONDecoder(strict=False).raw_decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._more(_BLOCK)

    def _more(self, count: int) -> None:
        data = self._file.read(count)
        self._ended = len(data) < count
        self._text = self._text[self._at :] + self._decode(data, self._ended)
        self._at = 0

    def _next(self) -> str:
        """Return the next character that is no space; nothing at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more(_BLOCK)

    def take(self, char: str) -> bool:
        """Step over `char` if it is next."""
        if self._next() != char:
            return False
        self._at += 1
        return True

    def value(self) -> Any:
        """Step over the next value and return it."""
        self._next()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
                # A number may go on in the next block, also where it could end here: 0. is 0 until its next digit.
                reach = _NUMBER.match(self._text, end) if type(value) in (int, float) else None
                if (reach.end() if reach else end) < len(self._text) or self._ended:
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                if self._ended:
                    raise InputError(f"is damaged or truncated JSON ({shown(error.msg)[9:]})") from None
            except ValueError as error:  # an integer of thousands of digits
                raise InputError(f"has a number beyond reason ({shown(str(error))[9:]})") from None
            held = len(self._text) - self._at
            if held > _VALUE_END:
                raise InputError("has a value of over 64 MB, or is damaged: no profiler writes that")
            self._more(max(_BLOCK, held))

    def elements(self) -> Iterator[Any]:
        """Step over the elements of a list and its end, and yield each."""
        if self.take("]"):
            return
        yield self.value()
        while self.take(","):
            yield self.value()
        self._expect("]")

    def members(self) -> Iterator[str]:
        """Step over the keys of an object and its end, and yield each; whoever asks steps over the value."""
        if self.take("}"):
            return
        while True:
            key = self.value()
            if type(key) is not str:
                raise InputError(f"is damaged JSON: {shown(key)} where a key should be")
            self._expect(":")
            yield key
            if not self.take(","):
                break
        self._expect("}")

    def finish(self) -> None:
        """Make sure that nothing follows."""
        if self._next():
            raise InputError("is damaged JSON: something follows its end")

    def _expect(self, char: str) -> None:
        if not self.take(char):
            found = self._next()
            raise InputError(
                f"is damaged JSON: {found!a} where {char!r} should be" if found else "is truncated: it has no end"
            )
