"""Workspaces of convolutions: the recorded table, and the guess from neighbours."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from memprof.simulate.convolution_rule import Neighbours
from memprof.simulate.convolutions import (
    COLUMNS,
    DETERMINISTIC,
    STRICT,
    Convolution,
    Pass,
    convolution_of,
    load,
    plain,
    recorded,
    row_of,
)

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


def test_loras_convolutions_are_guessed_from_other_lengths_and_groups() -> None:
    # given what lit-gpt multiplies by LoRA's second matrices, of queries and values, at a length of 512
    flat = {"kernel": (1,), "stride": (1,), "padding": (0,), "dilation": (1,), "spatial": (512,), "dtype": "bf16"}
    ranks_8 = replace(PLAIN, **flat, batch=4, inputs=16, outputs=1024, groups=2)
    ranks_16 = replace(PLAIN, **flat, batch=2, inputs=32, outputs=2048, groups=2)
    # and the same with keys too, or of twice the length only
    with_keys = replace(ranks_8, spatial=(1024,), inputs=24, outputs=1536, groups=3)
    longer = replace(ranks_16, spatial=(1024,))
    for known, asked in ((ranks_8, with_keys), (ranks_16, longer)):
        rows = np.array([row_of(known)], dtype=np.int32)
        neighbours = Neighbours(rows, np.array([[recorded(known, which) for which in Pass]]))
        # then the alignment of each group, and the partial gradients beside copies, make it right to the byte
        assert [neighbours.estimate(asked, which) for which in Pass] == [recorded(asked, which) for which in Pass]
    assert recorded(longer, Pass.WEIGHT_GRADIENT) == 8_913_184


def test_output_sizes() -> None:
    assert PLAIN.output_spatial() == (56, 56)
    assert replace(PLAIN, stride=(2, 2)).output_spatial() == (28, 28)
    assert replace(PLAIN, kernel=(2, 2), stride=(2, 2), padding=(0, 0), transposed=True).output_spatial() == (112, 112)
    assert replace(PLAIN, groups=64).elements()[2] == 64 * 9


def test_rows_are_convolutions() -> None:
    # given convolutions of one, two and three dimensions, and of each choice of engines
    rows = load().rows
    chosen = {tuple(row) for row in rows[:: len(rows) // 200].tolist()}
    known = [convolution_of(row) for row in chosen]
    known += [replace(PLAIN, dtype="f32", tf32=False), replace(PLAIN, deterministic=True)]
    assert {len(each.kernel) for each in known} == {1, 2, 3}
    # then each has a row of its own, and comes back from it
    assert [convolution_of(row_of(each)) for each in known] == known
    assert len({row_of(each) for each in known}) == len(known)
    assert len(load().places) == len(rows)


@pytest.mark.parametrize("which", list(Pass))
def test_a_neighbour_that_is_the_same_gives_its_own_workspace(which: Pass) -> None:
    # given some of what was recorded, and all of it known
    chosen = random.Random(0).sample(range(len(load().rows)), 200)
    rows, workspaces = load().rows[chosen], load().workspaces[chosen]
    neighbours = Neighbours(rows, workspaces)
    # then the guess at each is what was recorded
    for row, workspace in zip(rows.tolist(), workspaces[:, which].tolist(), strict=True):
        if workspace >= 0:
            assert neighbours.estimate(convolution_of(row), which) == workspace


def test_shapes_that_were_held_out_are_mostly_met() -> None:
    # given a table without one in ten of its shapes
    usual = load().rows[:, COLUMNS.index("choice")] == 0
    rows, workspaces = load().rows[usual][::3], load().workspaces[usual][::3]
    shapes, shape_of = np.unique(rows[:, : COLUMNS.index("channels_last")], axis=0, return_inverse=True)
    out = np.isin(shape_of.ravel(), random.Random(3).sample(range(len(shapes)), len(shapes) // 10))
    kept = Neighbours(rows[~out], workspaces[~out])
    asked = random.Random(4).sample(np.flatnonzero(out).tolist(), 400)
    # when they are guessed
    exact = {
        which: sum(kept.estimate(convolution_of(rows[at].tolist()), which) == workspaces[at, which] for at in asked)
        / len(asked)
        for which in Pass
    }
    # then most are met to the byte
    assert exact[Pass.FORWARD] > 0.74
    assert exact[Pass.INPUT_GRADIENT] > 0.74
    assert exact[Pass.WEIGHT_GRADIENT] > 0.5


def test_other_batches_that_agree_are_believed() -> None:
    # given a convolution whose workspace at two batch sizes is the same copies of input, output and weight
    others = [replace(PLAIN, batch=batch) for batch in (8, 32)]
    copies = [sum(each.elements()) * each.item + 16 for each in others]
    # and more of its neighbours, of the same batch, that take nothing
    nearer = [replace(PLAIN, spatial=(56, side)) for side in range(57, 70)]
    rows = np.array([row_of(each) for each in (*others, *nearer)], dtype=np.int32)
    workspaces = np.array([*([each] * 3 for each in copies), *([0] * 3 for _ in nearer)])
    # then between the two batch sizes it takes the copies, and outside of them what most neighbours take
    known = Neighbours(rows, workspaces)
    assert known.estimate(PLAIN, Pass.FORWARD) == sum(PLAIN.elements()) * PLAIN.item + 16
    assert known.estimate(replace(PLAIN, batch=64), Pass.FORWARD) == 0
    # and where the other half precision is known, that
    twin = np.array([row_of(replace(PLAIN, dtype="bf16"))], dtype=np.int32)
    known = Neighbours(np.concatenate([rows, twin]), np.concatenate([workspaces, [[7, 7, 7]]]))
    assert known.estimate(PLAIN, Pass.FORWARD) == 7


def test_what_has_no_neighbour_copies_input_and_output() -> None:
    # given a grouped convolution of one dimension, which was recorded with one number of groups only
    odd = replace(PLAIN, spatial=(300,), kernel=(9,), stride=(4,), padding=(0,), dilation=(1,), groups=4)
    known = Neighbours(load().rows[:0], load().workspaces[:0])
    x, y, _ = odd.elements()
    assert known.estimate(odd, Pass.INPUT_GRADIENT) == 2 * (x + y) + 32
    assert known.estimate(odd, Pass.FORWARD) == 0


def test_a_transposed_convolution_is_its_mirrors_input_gradient() -> None:
    # given what was recorded, and the same convolutions the other way round
    for place in random.Random(0).sample(range(len(load().rows)), 300):
        convolution = convolution_of(load().rows[place].tolist())
        known = [recorded(convolution, which) for which in Pass]
        smaller = replace(
            convolution,
            transposed=True,
            inputs=convolution.outputs,
            outputs=convolution.inputs,
            spatial=convolution.output_spatial(),
        )
        more = tuple(a - b for a, b in zip(convolution.spatial, smaller.output_spatial(), strict=True))
        transposed = replace(smaller, output_padding=more if any(more) else ())
        assert (convolution.mirrored() is None) == any(more)
        # then it is known, whatever output padding that needs
        assert plain(transposed, Pass.FORWARD) == (convolution, Pass.INPUT_GRADIENT)
        assert [recorded(transposed, which) for which in Pass] == [known[1], known[0], known[2]]


@pytest.mark.parametrize(("choice", "bit"), [({"tf32": False}, STRICT), ({"deterministic": True}, DETERMINISTIC)])
def test_a_choice_of_engines_that_changes_nothing_needs_no_row(choice: dict[str, bool], bit: int) -> None:
    # given convolutions that were asked for with a choice of engines too
    known = load()
    usual = known.rows[:, COLUMNS.index("choice")] == 0
    same = np.flatnonzero(usual & (known.same & bit > 0))
    other = np.flatnonzero(known.rows[:, COLUMNS.index("choice")] == bit)
    unknown = np.flatnonzero(usual & (known.rows[:, COLUMNS.index("dtype")] == 0) & (known.same & bit == 0))
    # then what took the same is found by the usual one, and what took something else is not
    for place in same[:: max(len(same) // 50, 1)]:
        each = convolution_of(known.rows[place].tolist())
        assert [recorded(replace(each, **choice), which) for which in Pass] == known.workspaces[place].tolist()
    differing = 0
    for place in other[:: max(len(other) // 50, 1)]:
        each = convolution_of(known.rows[place].tolist())
        assert all(getattr(each, name) == value for name, value in choice.items())
        found = [recorded(each, which) for which in Pass]
        assert found == known.workspaces[place].tolist()
        without = replace(each, tf32=True, deterministic=False)
        differing += found != [recorded(without, which) for which in Pass]
    assert differing > 40
    # and what was not asked for is not known
    asked = {known.rows[place].tobytes() for place in other}
    for place in unknown[:: max(len(unknown) // 50, 1)]:
        row = known.rows[place].copy()
        row[COLUMNS.index("choice")] = bit
        each = convolution_of(known.rows[place].tolist())
        expected = row.tobytes() in asked
        assert (recorded(replace(each, **choice), Pass.FORWARD) is not None) == expected
