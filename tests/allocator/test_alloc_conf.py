from __future__ import annotations

import pytest
from allocator_driving import MIB

from memprof.allocator.conf import parse_alloc_conf
from memprof.allocator.rules import round_size
from memprof.errors import InputError, UnsupportedError


def test_no_text_is_the_default():
    settings = parse_alloc_conf("")

    assert not settings.expandable_segments
    assert settings.max_split_size is None
    assert settings.roundup_power2_divisions == ()
    assert settings.garbage_collection_threshold == 0
    assert settings.memory_fraction == 1


def test_every_option_that_changes_memory_is_read():
    text = (
        "expandable_segments:True, max_split_size_mb:128, max_non_split_rounding_mb:64, large_segment_size_mb:40,"
        "garbage_collection_threshold:0.8,per_process_memory_fraction:0.5,roundup_power2_divisions:4,backend:native"
    )

    settings = parse_alloc_conf(text)

    assert settings.expandable_segments
    assert settings.max_split_size == 128 * MIB
    assert settings.max_non_split_rounding_size == 64 * MIB
    assert settings.large_segment_size == 40 * MIB
    assert settings.garbage_collection_threshold == 0.8
    assert settings.memory_fraction == 0.5
    assert settings.roundup_power2_divisions == tuple((1 << place, 4) for place in range(16))
    assert settings.conf == text


def test_divisions_by_interval_are_those_of_torchs_own_test():
    # the text and the values are in c10/test/core/AllocatorConfig_test.cpp: sizes in MiB and their divisions
    settings = parse_alloc_conf("roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]")

    divisions = dict(settings.roundup_power2_divisions)

    assert [divisions[size] for size in (32, 64, 128, 256, 512, 1024, 2048, 4096)] == [8, 8, 2, 4, 2, 4, 1, 1]
    assert round_size(33 * MIB, settings) == 36 * MIB


def test_divisions_of_zero_turn_an_interval_off():
    settings = parse_alloc_conf("roundup_power2_divisions:[4:0,8:2]")

    assert settings.roundup_power2_divisions == ((8, 2),)


def test_options_without_effect_on_memory_are_accepted():
    settings = parse_alloc_conf("pinned_use_background_threads:True,release_lock_on_cudamalloc:False")

    assert settings.max_split_size is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("expandable_segments", "'expandable_segments' is not of the form name:value"),
        ("expandable_segments:yes", "takes True or False, not 'yes'"),
        ("max_split_size_mb:10", "'max_split_size_mb' is too small: torch takes 20 and more"),
        ("max_split_size_mb:many", "takes a whole number, not 'many'"),
        ("max_split_size_mb:-1", "takes a whole number, not '-1'"),
        ("large_segment_size_mb:64,max_split_size_mb:32", "torch takes 64 and more"),
        ("large_segment_size_mb:10", "torch takes 11 and more"),
        ("garbage_collection_threshold:1.5", "a share between 0 and 1"),
        ("garbage_collection_threshold:nan", "a share between 0 and 1"),
        ("garbage_collection_threshold:x", "takes a number, not 'x'"),
        ("per_process_memory_fraction:2", "a share from 0 to 1"),
        ("roundup_power2_divisions:3", "powers of two"),
        ("roundup_power2_divisions:[3:4]", "3 is not a power of two"),
        ("roundup_power2_divisions:[4:4", "cannot be read"),
        ("expandable_segment:True", "'expandable_segment' is not known"),
        ("nosuch:1", "change memory are backend, expandable_segments"),
        (",,", "cannot be read"),
    ],
)
def test_what_torch_would_refuse_is_refused_in_one_line(text, said):
    with pytest.raises(InputError) as caught:
        parse_alloc_conf(text)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_allocator_is_not_supported():
    with pytest.raises(UnsupportedError, match="cudaMallocAsync"):
        parse_alloc_conf("backend:cudaMallocAsync")
