from __future__ import annotations

from memprof.capture.liveblocks import LiveBlocks


def test_blocks_side_by_side_do_not_overlap():
    blocks = LiveBlocks()
    assert blocks.take(100, 50) == []
    assert blocks.take(150, 50) == []
    assert blocks.take(50, 50) == []


def test_memory_that_is_given_out_again_was_free():
    # given three blocks
    blocks = LiveBlocks()
    for address in (100, 200, 300):
        blocks.take(address, 50)

    # then a block over the end of the first and over the second shows that both are gone
    assert blocks.take(140, 80) == [(100, 50), (200, 50)]
    assert blocks.take(300, 10) == [(300, 50)]
    assert blocks.take(200, 10) == [(140, 80)]


def test_a_block_that_was_given_back_is_not_in_the_way():
    blocks = LiveBlocks()
    blocks.take(100, 50)
    blocks.give_back(100)
    blocks.give_back(100)
    assert blocks.take(120, 10) == []
