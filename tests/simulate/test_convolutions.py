"""Workspaces of convolutions: the recorded table, and the guess from neighbours."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memprof.simulate.convolution_rule import Neighbours
from memprof.simulate.convolutions import Convolution, Pass, recorded, table

PLAIN = Convolution(
    batch=16,
    inputs=64,
    spatial=(56, 56),
    outputs=64,
    kernel=(3, 3),
    stride=(1, 1),
    padding=(1, 1),
    dilation=(1, 1),
    groups=1,
    transposed=False,
    dtype="f16",
    channels_last=False,
)


def test_recorded_workspaces_are_given_back() -> None:
    # given a convolution of a ResNet as an H200 recorded it
    assert [recorded(PLAIN, which) for which in Pass] == [12918800, 12918800, 14836391]
    # then a dtype or a layout makes it another one, and what was not recorded is not there
    assert recorded(replace(PLAIN, channels_last=True), Pass.FORWARD) == 0
    assert recorded(replace(PLAIN, spatial=(57, 57)), Pass.FORWARD) is None


def test_output_sizes() -> None:
    assert PLAIN.output_spatial() == (56, 56)
    assert replace(PLAIN, stride=(2, 2)).output_spatial() == (28, 28)
    assert replace(PLAIN, kernel=(2, 2), stride=(2, 2), padding=(0, 0), transposed=True).output_spatial() == (112, 112)
    assert replace(PLAIN, groups=64).elements()[2] == 64 * 9


@pytest.mark.parametrize("which", list(Pass))
def test_a_neighbour_that_is_the_same_gives_its_own_workspace(which: Pass) -> None:
    # given some of what was recorded, and all of it known
    chosen = random.Random(0).sample(list(table().items()), 200)
    neighbours = Neighbours(chosen)
    # then the guess at each is what was recorded
    for convolution, workspaces in chosen:
        if workspaces[which] is not None:
            assert neighbours.estimate(convolution, which) == workspaces[which]


def test_shapes_that_were_held_out_are_mostly_met() -> None:
    # given a table without one in ten of its shapes
    def shape(convolution: Convolution) -> Convolution:
        return replace(convolution, batch=0, dtype="", channels_last=False)

    names = list(dict.fromkeys(map(shape, table())))
    out = set(random.Random(3).sample(names, len(names) // 10))
    kept = Neighbours(item for item in table().items() if shape(item[0]) not in out)
    asked = random.Random(4).sample([item for item in table().items() if shape(item[0]) in out], 400)
    # when they are guessed
    exact = {
        which: sum(kept.estimate(convolution, which) == workspaces[which] for convolution, workspaces in asked)
        / len(asked)
        for which in Pass
    }
    # then most are met to the byte, and half of the weight gradients are
    assert exact[Pass.FORWARD] > 0.7
    assert exact[Pass.INPUT_GRADIENT] > 0.7
    assert exact[Pass.WEIGHT_GRADIENT] > 0.45


def test_what_has_no_neighbour_copies_input_and_output() -> None:
    # given a grouped convolution of one dimension, which was recorded with one number of groups only
    odd = replace(PLAIN, spatial=(300,), kernel=(9,), stride=(4,), padding=(0,), dilation=(1,), groups=4)
    known = Neighbours([])
    x, y, _ = odd.elements()
    assert known.estimate(odd, Pass.INPUT_GRADIENT) == 2 * (x + y) + 32
    assert known.estimate(odd, Pass.FORWARD) == 0


def test_a_transposed_convolution_is_its_mirrors_input_gradient() -> None:
    # given the convolutions that were recorded both ways round
    both = [
        (known, table()[mirror])
        for convolution, known in table().items()
        if convolution.transposed and (mirror := convolution.mirrored()) in table()
    ]
    # then forward and input gradient took the same as each other's mirror, and the weight's gradient as its own
    assert len(both) > 400
    assert all(known == (mirrored[1], mirrored[0], mirrored[2]) for known, mirrored in both)


def test_what_was_recorded_one_way_is_known_the_other_way() -> None:
    # given a convolution of which only the mirror was recorded
    mirrors = ((each.mirrored(), known) for each, known in table().items() if not each.transposed)
    convolution, known = next((m, k) for m, k in mirrors if m is not None and m not in table() and None not in k)
    # then it is known
    found = [recorded(convolution, which) for which in Pass]
    assert found == [known[1], known[0], known[2]]
