"""The streaming JSON reader: the same values as the standard library's, wherever a block ends; damage is one error."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprof.errors import InputError
from memprof.trace import json_stream
from memprof.trace.json_stream import items_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def read(text: str | bytes, *, block: int = 1 << 20):
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_BLOCK", block)
        return list(items_of(io.BufferedReader(io.BytesIO(data)), "events"))


@given(
    before=st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
    events=st.lists(VALUES, max_size=6),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
    block=st.integers(1, 40),
)
def test_reads_what_json_reads_wherever_a_block_ends(before, events, indent, ascii_only, block):
    before.pop("events", None)
    whole = {**before, "events": events}
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only)
    if not ascii_only:
        text = text.encode("utf-8", "replace").decode()
        whole = json.loads(text)

    items = read(text, block=block)

    assert [value for key, value in items if key == "events"] == whole.pop("events")
    assert {key: value for key, value in items if key != "events"} == whole


def test_a_bare_list_is_the_opened_key():
    assert read('[1, {"a": 2}]\n') == [("events", 1), ("events", {"a": 2})]


def test_an_opened_key_that_holds_no_list_is_a_value():
    assert read('{"events": {"a": [1]}}') == [("events", {"a": [1]})]


def test_a_name_that_is_no_utf_8_does_not_stop_the_reading():
    ((_, value),) = read(b'{"events": ["caf\xe9"]}')

    assert value == "caf�"


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("7", "is not JSON"),
        ("{", "truncated JSON"),
        ('{"events": [1, 2', "truncated: it has no end"),
        ('{"events": [1, 2}', "'}' where ']' should be"),
        ('{"events": [1 2]}', "'2' where ']' should be"),
        ('{"events": ["a', "truncated JSON"),
        ('{"events" [1]}', "'[' where ':' should be"),
        ("{1: 2}", "the text '1' where a key should be".replace("the text '1'", "1")),
        ('{"a": 1} {', "something follows"),
        ('{"events": [1,]}', "truncated JSON"),
        (f'{{"a": {"7" * 5000}}}', "number beyond reason"),
    ],
)
def test_damage_is_one_error(text, fact):
    with pytest.raises(InputError) as caught:
        read(text)

    assert fact in str(caught.value)


def test_one_value_without_end_is_given_up_before_all_of_it_is_in_memory(monkeypatch):
    monkeypatch.setattr(json_stream, "_VALUE_END", 1000)
    read_bytes = 0

    class Endless(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            nonlocal read_bytes
            buffer[:] = b"x" * len(buffer) if read_bytes else (b'{"a": "' + b"x" * len(buffer))[: len(buffer)]
            read_bytes += len(buffer)
            return len(buffer)

    with pytest.raises(InputError, match="a value of over"):
        list(items_of(io.BufferedReader(Endless()), "events"))
    assert read_bytes < 8 << 20
