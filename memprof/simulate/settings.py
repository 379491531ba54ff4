"""``PYTORCH_ALLOC_CONF`` as the simulated allocator takes it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from memprof.errors import InputError
from memprof.trace.model import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["parse_settings", "settings_of_environment"]

_MIB = 1 << 20
_NO_EFFECT = frozenset(
    (
        "release_lock_on_cudamalloc",
        "pinned_use_cuda_host_register",
        "pinned_num_register_threads",
        "pinned_use_background_threads",
        "pinned_reserve_segment_size_mb",
        "graph_capture_record_stream_reuse",
        "use_cuda_host_register",
    )
)
"""Options that change how memory is had, not how much (``CUDAAllocatorConfig.h``)."""


def settings_of_environment() -> Settings:
    """Return the settings of this process's environment, as torch reads them."""
    return parse_settings(os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or "")


def parse_settings(conf: str) -> Settings:
    """Parse ``option:value,option:value``.

    Raises
    ------
    InputError
        An option or value that torch does not know, or whose effect on memory the simulation does not know.
    """
    fields: dict[str, Any] = {}
    for option, value in _items(conf):
        if option in _PARSERS:
            field, parse = _PARSERS[option]
            fields[field] = _parsed(option, value, parse)
        elif option not in _NO_EFFECT and (option, value) != ("backend", "native"):
            raise InputError(f"allocator setting {option}:{value} cannot be simulated; leave it out")
    return Settings(conf=conf, **fields)


def _parsed(option: str, value: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise InputError(
            f"allocator setting {option}:{value} has no valid value; see PyTorch's notes on PYTORCH_ALLOC_CONF"
        ) from error


def _items(conf: str) -> list[tuple[str, str]]:
    """Split at commas outside of brackets."""
    items, depth, begin = [], 0, 0
    for position, character in enumerate(conf + ","):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            text, begin = conf[begin:position].strip(), position + 1
            if text:
                option, _, value = text.partition(":")
                items.append((option.strip(), value.strip()))
    return items


def _boolean(value: str) -> bool:
    if value not in ("True", "False"):
        raise ValueError(value)
    return value == "True"


def _divisions(value: str) -> tuple[tuple[int, int], ...]:
    """Parse ``4`` or ``[256:1,512:2,>:4]``: (start in MiB, divisions) where divisions is not 0.

    A list names sizes and what holds up from them; ``>`` is what holds from the last on.
    """
    intervals = [1 << i for i in range(16)]
    if not value.startswith("["):
        return tuple((start, int(value)) for start in intervals) if int(value) else ()
    table = dict.fromkeys(intervals, 0)
    last = 0
    for part in value.strip("[]").split(","):
        size, _, count = part.partition(":")
        if size.strip() == ">":
            for start in intervals:
                if start >= last:
                    table[start] = int(count)
        else:
            first = last == 0
            last = int(size)
            for start in intervals:
                if start == last or (first and start < last):
                    table[start] = int(count)
    return tuple((start, count) for start, count in table.items() if count)


def _mebibytes(value: str) -> int:
    return int(value) * _MIB


_PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "expandable_segments": ("expandable_segments", _boolean),
    "max_split_size_mb": ("max_split_size", _mebibytes),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
    "garbage_collection_threshold": ("garbage_collection_threshold", float),
    "max_non_split_rounding_mb": ("max_non_split_rounding_size", _mebibytes),
    "large_segment_size_mb": ("large_segment_size", _mebibytes),
}
"""Option -> field of `Settings`, and how its value is read."""
