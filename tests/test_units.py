from __future__ import annotations

import pytest

from memprof.errors import MemprofError
from memprof.units import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("size", "decimal", "binary"),
    [
        (0, "0 B", "0 B"),
        (999, "999 B", "999 B"),
        (1000, "1.000 kB", "1000 B"),
        (9_417_176_576, "9.417 GB", "8.770 GiB"),
        (84_063_358_976, "84.06 GB", "78.29 GiB"),
        (-1_500_000, "-1.500 MB", "-1.431 MiB"),
        (123_456_789_012, "123.5 GB", "115.0 GiB"),
    ],
)
def test_format(size, decimal, binary):
    assert (format_bytes(size), format_bytes(size, binary=True)) == (decimal, binary)


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("15GB", 15 * 10**9), ("1.5 GiB", 3 * 2**29), (" 2kb ", 2000), ("8 b", 8)],
)
def test_parse(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 XB", "1e9", "nan", "1,5 GB"])
def test_parse_refuses(text):
    with pytest.raises(MemprofError, match="is not a size"):
        parse_bytes(text)
