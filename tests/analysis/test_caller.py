from __future__ import annotations

import pytest

from memprof.analysis.caller import caller_of
from memprof.trace.model import Frame

LOSS = Frame("cross_entropy", "site-packages/torch/nn/functional.py", 3504)
STEP = Frame("step", "train.py", 9)


@pytest.mark.parametrize(
    "stack",
    [
        (LOSS, Frame("chunked", "litgpt/utils.py", 326), STEP),  # Python 3.12
        (LOSS, Frame("<listcomp>", "litgpt/utils.py", 326), Frame("chunked", "litgpt/utils.py", 325), STEP),  # 3.11
    ],
)
def test_a_comprehension_belongs_to_the_function_around_it(stack):
    assert caller_of(stack) == "chunked (litgpt/utils.py:326)"


def test_nobody_outside_libraries():
    assert caller_of((LOSS, Frame("at::native::softmax", "??", 0))) is None
    assert caller_of(()) is None
