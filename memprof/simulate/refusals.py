"""Parts of torch that cannot work here and would otherwise fail far from their cause: they refuse in words."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from memprof.errors import UnsupportedError

__all__ = ["install_refusals"]


def install_refusals() -> None:
    """Let compiled functions refuse when they are called; libraries decorate with ``torch.compile`` at import."""
    package: Any = torch
    package.compile = _compile
    package.nn.Module.compile = _compile_module


def _refuse(*_args: Any, **_named: Any) -> NoReturn:
    raise UnsupportedError(
        "torch.compile cannot be simulated: the kernels that it would make are not known; run without it"
    )


def _compile(model: Any = None, **_options: Any) -> Any:
    if model is None:
        return _compile
    if isinstance(model, torch.nn.Module):
        model.forward = _refuse
        return model
    return _refuse


def _compile_module(module: torch.nn.Module, *_args: Any, **_options: Any) -> None:
    module.forward = _refuse
