"""What in a text names a person or a machine, and the text without it: paths, addresses, user and host names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memprof.trace.check import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["PrivateText", "user_names_in"]

PACKAGES = frozenset(
    {
        "accelerate",
        "apex",
        "aten",
        "bitsandbytes",
        "c10",
        "deepspeed",
        "diffusers",
        "flash_attn",
        "lightning",
        "lightning_fabric",
        "litgpt",
        "megatron",
        "memprof",
        "peft",
        "pytorch_lightning",
        "torch",
        "torchaudio",
        "torchvision",
        "transformers",
        "triton",
        "trl",
        "xformers",
    }
)
"""Folders from which on a path names a public package, wherever somebody has its sources."""
NOBODY = PACKAGES | {"app", "conda", "jovyan", "node", "root", "runner", "shared", "ubuntu", "user", "vscode", "work"}
"""User names that name nobody."""
LEAST_NAME = 3
MOST_NAMES = 64
"""More user names than this are no user names."""
INSTALLED = re.compile(r".*/(?:site|dist)-packages/")
STANDARD_LIBRARY = re.compile(r".*/lib(?:64)?/python\d(?:\.\d+)?/")
ABSOLUTE = re.compile(r"(?:[A-Za-z]:)?/|~|\.\./")
USER = re.compile(r"(?:^|[/\\\s\"'=:])(?:home|[Uu]sers)[/\\]+([^/\\\s\"':]+)")
PATH = re.compile(
    r"(?<![\w.~/\\])(?:"
    r"(?:~[\w.-]*|\.\.?)(?:/[\w.@+%-]+)+"  # ~/x, ./x, ../x
    r"|(?:/[\w.@+%-]+){2,}"  # /x/y
    r"|[A-Za-z]:(?:\\+[^\\\s\"'<>|]+)+"  # C:\x
    r"|\\\\[^\\\s\"'<>|]+(?:\\+[^\\\s\"'<>|]+)+"  # \\host\share
    r")/?"
)
# Each begins where a word does, so that a long text is gone through once.
ADDRESS = re.compile(
    r"(?<![\w+.-])[A-Za-z][\w+.-]*://\S+"
    r"|(?<![\w+.-])[\w+.-]+@[A-Za-z][\w.-]*"
    r"|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])"
    r"|(?<![\w.-])[\w-]+(?:\.[\w-]+)*\.(?:com|edu|org|local|internal|intranet|lan|corp)(?![\w-])"
)


class PrivateText:
    """Removes what is private from texts; the same text always becomes the same.

    Parameters
    ----------
    names
        User and host names, each with the word that takes its place.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = {name.lower(): word for name, word in (names or {}).items() if len(name) >= LEAST_NAME}
        self._pattern: re.Pattern[str] | None = None
        if self._names:
            listed = "|".join(re.escape(name) for name in sorted(self._names, key=len, reverse=True))
            self._pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{listed})(?![A-Za-z0-9])", re.IGNORECASE)
        self._files: dict[str, tuple[str, bool]] = {}
        self._texts: dict[str, str] = {}

    def file(self, name: str) -> tuple[str, bool]:
        """Shorten a file name; the second value tells whether it is of a public package.

        What is installed becomes relative to its site-packages or standard library, what is of a public package starts
        with it, and of anything else the last part stays. A relative name stays as it is.
        """
        known = self._files.get(name)
        if known is None:
            known = self._files[name] = self._shorten(name)
        return known

    def text(self, text: str) -> str:
        """Replace paths, addresses and names within a text."""
        known = self._texts.get(text)
        if known is None:
            known = self.paths(text)
            known = self.names(ADDRESS.sub("(address)", known))
            self._texts[text] = known
        return known

    def paths(self, text: str) -> str:
        """Shorten the paths within a text, and leave the rest of it."""
        text = clean(text)
        if "/" not in text and "\\" not in text:
            return text
        return PATH.sub(lambda match: self.file(match[0].rstrip("/"))[0], text)

    def names(self, text: str) -> str:
        """Replace user and host names that stand as a word."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._names[match[0].lower()], text)

    def command(self, text: str) -> str:
        """Leave the last part of every argument that has directories."""
        return " ".join(self._argument(part) for part in text.split())

    def _argument(self, part: str) -> str:
        option, equals, value = part.rpartition("=")
        if "://" not in value:
            value = value.replace("\\", "/").rstrip("/").rpartition("/")[2]
        return self.text(option + equals + value)

    def _shorten(self, name: str) -> tuple[str, bool]:
        plain = clean(name).replace("\\", "/")
        for place in (INSTALLED, STANDARD_LIBRARY):
            if match := place.match(plain):
                return plain[match.end() :], True
        parts = plain.split("/")
        package = max((at for at, part in enumerate(parts[:-1]) if part in PACKAGES), default=None)
        if package is not None:
            return "/".join(parts[package:]), True
        if ABSOLUTE.match(plain):
            # The ends of these names tell which layer asked (nn/modules/linear.py), also of a renamed package.
            start = max((at for at, part in enumerate(parts[:-1]) if part == "nn"), default=len(parts) - 1)
            plain = "/".join(parts[start:])
        return self.names(plain), False


def user_names_in(texts: Iterable[str]) -> set[str]:
    """Return the user names that paths to home directories in `texts` show."""
    found: set[str] = set()
    for text in texts:
        found.update(name for name in USER.findall(text) if name.lower() not in NOBODY and len(name) >= LEAST_NAME)
        if len(found) > MOST_NAMES:
            return set()
    return found
