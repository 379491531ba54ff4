"""What a context takes of the address space: its segments' neighbours, in the order in which they come."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from memprof.allocator.chunks import Chunks, TopDown  # noqa: E402  # torch may not be there
from memprof.simulate.context import Context  # noqa: E402  # imports torch

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.torch

MIB = 1 << 20
TOP = 1 << 46
STACKS = TOP - (32 + 96 + 416) * MIB
"""Where the first stacks lie, below a chunk that is full and one with 24 MiB left."""


@pytest.fixture
def chunks() -> Chunks:
    return Chunks(TopDown(TOP))


@pytest.fixture
def context(chunks: Chunks) -> Context:
    return Context(chunks, threading.RLock())


def test_first_segments_fill_what_a_new_context_left(chunks: Chunks, context: Context) -> None:
    # given a new context, made once
    context.make()
    context.make()
    # when segments are made
    places = [chunks.reserve(size * MIB) for size in (2, 20, 2, 2)]
    # then they fill the rest of the newest chunk that is large enough, before there is another
    before = TOP - 32 * MIB
    assert places == [STACKS + 414 * MIB, before - 24 * MIB, before - 4 * MIB, before - 2 * MIB]


def test_first_kernel_gives_the_stacks_back(chunks: Chunks, context: Context) -> None:
    # given a context whose program copied and drew random numbers only, with a segment beside the stacks
    context.make()
    beside = chunks.reserve(2 * MIB)
    source = torch.zeros(8)
    context.ran("normal_", (source,))
    context.ran("copy_", (source, source.clone()))
    assert chunks.reserve(400 * MIB) < STACKS
    # when a kernel is launched
    context.ran("add", (source, source))
    # then the next segments lie where the stacks were
    assert beside == STACKS + 414 * MIB
    assert chunks.reserve(300 * MIB) == STACKS


@pytest.mark.parametrize(
    ("copied", "launched"),
    [
        (lambda: (torch.zeros(4, 4), torch.zeros(4, 4)), False),
        (lambda: (torch.zeros(4, 4), torch.zeros(4, 4).t()), True),
        (lambda: (torch.zeros(4), torch.zeros(4, dtype=torch.float16)), True),
        (lambda: (torch.zeros(4, device="meta"), torch.zeros(4).half()), False),
    ],
)
def test_a_copy_is_a_kernel_where_it_is_not_plain(
    chunks: Chunks, context: Context, copied: Callable[[], tuple[Any, ...]], launched: bool
) -> None:
    # given a context
    context.make()
    beside = chunks.reserve(2 * MIB)
    # when tensors are copied
    context.ran("copy_", copied())
    # then the stacks are given back where that takes a kernel
    assert beside == STACKS + 414 * MIB
    assert (chunks.reserve(300 * MIB) == STACKS) is launched


def test_ops_that_check_take_more_once(chunks: Chunks, context: Context) -> None:
    # given a context in which kernels ran
    context.ran("add", ())
    assert not context.settled
    # when sums are made
    context.ran("sum", ())
    # then the next sum changes nothing
    assert context.settled
    place = chunks.reserve(2 * MIB)
    chunks.unreserve(place, 2 * MIB)
    context.ran("sum", ())
    assert chunks.reserve(2 * MIB) == place


def test_every_thread_has_a_handle_of_cublas(chunks: Chunks, context: Context) -> None:
    # given a context
    context.make()
    first = chunks.reserve(512 * MIB)
    # when two threads use cuBLAS, each twice
    thread = threading.Thread(target=lambda: (context.cublas(), context.cublas()))
    thread.start()
    thread.join()
    context.cublas()
    context.cublas()
    # then each took a chunk of 64 MiB
    assert chunks.reserve(512 * MIB) == first - (2 * 64 + 512) * MIB


def test_other_orders_have_no_context() -> None:
    context = Context(None, threading.RLock())
    context.make()
    context.ran("sum", ())
    context.cublas()
    assert context.made
    assert context.settled
