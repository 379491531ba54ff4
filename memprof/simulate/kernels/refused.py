"""Ops that are known not to work on the simulated device, refused by name instead of failing inside torch."""

from __future__ import annotations

from typing import Any, NoReturn

from memprof.errors import UnsupportedError

__all__ = ["REFUSED", "refuse"]

REFUSED = ("lstm.input", "lstm.data", "gru.input", "gru.data", "rnn_tanh.input", "rnn_relu.input")
"""Composite ops that look up a CUDA implementation of cuDNN in a table that a CPU build does not have."""


def refuse(name: str) -> Any:
    """Return a kernel that refuses to run."""

    def kernel(*_args: Any, **_named: Any) -> NoReturn:
        raise UnsupportedError(
            f"aten::{name.partition('.')[0]} cannot be simulated: memory of cuDNN's recurrent networks is not known; "
            "run it on a real device or leave it out"
        )

    return kernel
