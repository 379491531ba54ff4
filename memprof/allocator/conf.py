"""``PYTORCH_CUDA_ALLOC_CONF``: the allocator's settings as text.

The grammar and the limits are those of ``AcceleratorAllocatorConfig`` in ``c10/core/AllocatorConfig.cpp`` (torch 2.10
and later) and of ``CUDAAllocatorConfig`` in ``c10/cuda/CUDAAllocatorConfig.cpp``; older versions know fewer options.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from memprof.errors import InputError, UnsupportedError
from memprof.trace.model import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["parse_alloc_conf"]

_MIB = 1 << 20
_WITHOUT_EFFECT = frozenset(
    {
        "graph_capture_record_stream_reuse",
        "pinned_free_catch_all",
        "pinned_max_cached_size_mb",
        "pinned_max_round_threshold_mb",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "release_lock_on_cudamalloc",
        "throw_on_cudamalloc_oom",
    }
)
"""Options that torch has, but that do not change what is reserved: host memory, locks, reuse within a capture."""
_INTERVALS = 16
"""``kRoundUpPowerOfTwoIntervals``: sizes from 1, 2, 4, ... 32768 MiB."""


def parse_alloc_conf(text: str) -> Settings:
    """Read a value of ``PYTORCH_CUDA_ALLOC_CONF``, such as ``expandable_segments:True,max_split_size_mb:128``.

    Raises
    ------
    InputError
        What torch would refuse.
    UnsupportedError
        Another allocator (``backend:cudaMallocAsync``): memprof has no model of it.
    """
    settings = Settings(conf=text)
    for name, value in _options(text):
        if name in _WITHOUT_EFFECT:
            continue
        if name not in _PARSERS:
            known = ", ".join(sorted(_PARSERS))
            raise InputError(f"allocator setting {name!r} is not known; those that change memory are {known}")
        settings = _PARSERS[name](settings, name, value)
    if settings.max_split_size is not None and settings.max_split_size < settings.large_segment_size:
        least = settings.large_segment_size // _MIB
        raise InputError(f"allocator setting 'max_split_size_mb' is too small: torch takes {least} and more")
    return settings


def _options(text: str) -> list[tuple[str, str]]:
    """Cut the text into names and values; blanks do not matter, and a value in brackets may have commas."""
    compact = re.sub(r"\s", "", text)
    part = r"(?:[^,\[\]]|\[[^\[\]]*\])+"
    if not re.fullmatch(rf"(?:{part}(?:,{part})*)?", compact):
        raise InputError(f"allocator settings {text!r} cannot be read: write name:value,name:value")
    options = []
    for option in re.findall(part, compact):
        name, colon, value = option.partition(":")
        if not colon or not value:
            raise InputError(f"allocator setting {option!r} is not of the form name:value")
        options.append((name, value))
    return options


def _whole(name: str, value: str) -> int:
    """Read a whole number."""
    if not re.fullmatch(r"[0-9]{1,12}", value):
        raise InputError(f"allocator setting {name!r} takes a whole number, not {value!r}")
    return int(value)


def _mebibytes(name: str, value: str, least: int) -> int:
    """Read a number of MiB of at least `least`, as bytes."""
    number = _whole(name, value)
    if number < least:
        raise InputError(f"allocator setting {name!r} is too small: torch takes {least} and more, not {value}")
    return number * _MIB


def _fraction(name: str, value: str) -> float:
    """Read a number."""
    try:
        return float(value)
    except ValueError:
        raise InputError(f"allocator setting {name!r} takes a number, not {value!r}") from None


def _expandable(settings: Settings, name: str, value: str) -> Settings:
    if value not in {"True", "False"}:
        raise InputError(f"allocator setting {name!r} takes True or False, not {value!r}")
    return replace(settings, expandable_segments=value == "True")


def _max_split(settings: Settings, name: str, value: str) -> Settings:
    return replace(settings, max_split_size=_mebibytes(name, value, 1))


def _non_split(settings: Settings, name: str, value: str) -> Settings:
    return replace(settings, max_non_split_rounding_size=_mebibytes(name, value, 20))


def _large_segment(settings: Settings, name: str, value: str) -> Settings:
    return replace(settings, large_segment_size=_mebibytes(name, value, 11))


def _threshold(settings: Settings, name: str, value: str) -> Settings:
    number = _fraction(name, value)
    if not 0 < number < 1:
        raise InputError(f"allocator setting {name!r} is a share between 0 and 1, not {value}")
    return replace(settings, garbage_collection_threshold=number)


def _memory_fraction(settings: Settings, name: str, value: str) -> Settings:
    number = _fraction(name, value)
    if not 0 <= number <= 1:
        raise InputError(f"allocator setting {name!r} is a share from 0 to 1, not {value}")
    return replace(settings, memory_fraction=number)


def _backend(settings: Settings, name: str, value: str) -> Settings:
    if value != "native":
        raise UnsupportedError(
            f"allocator setting {name!r}: memprof models torch's native allocator only, not {value!r}"
        )
    return settings


def _roundup(settings: Settings, name: str, value: str) -> Settings:
    """Read one number for all sizes, or ``[start:divisions,...]``; ``>`` stands for all further sizes."""
    per_interval = [0] * _INTERVALS
    if value.startswith("["):
        last = 0
        for number, pair in enumerate(value[1:-1].split(",")):
            start, _, count = pair.partition(":")
            divisions = _divisions(name, count)
            if start == ">":
                per_interval[last + 1 :] = [divisions] * (_INTERVALS - last - 1)
                continue
            mebibytes = _whole(name, start)
            if mebibytes.bit_count() != 1:
                raise InputError(f"allocator setting {name!r}: {start} is not a power of two")
            last = min(mebibytes.bit_length() - 1, _INTERVALS - 1)
            if number == 0:
                per_interval[:last] = [divisions] * last
            per_interval[last] = divisions
    else:
        per_interval = [_divisions(name, value)] * _INTERVALS
    return replace(
        settings,
        roundup_power2_divisions=tuple((1 << place, count) for place, count in enumerate(per_interval) if count),
    )


def _divisions(name: str, value: str) -> int:
    """Read a number of divisions: 0, or a power of two."""
    number = _whole(name, value)
    if number.bit_count() > 1:
        raise InputError(f"allocator setting {name!r} takes powers of two or 0 as divisions, not {value}")
    return number


_PARSERS: dict[str, Callable[[Settings, str, str], Settings]] = {
    "backend": _backend,
    "expandable_segments": _expandable,
    "garbage_collection_threshold": _threshold,
    "large_segment_size_mb": _large_segment,
    "max_non_split_rounding_mb": _non_split,
    "max_split_size_mb": _max_split,
    "per_process_memory_fraction": _memory_fraction,
    "roundup_power2_divisions": _roundup,
}
