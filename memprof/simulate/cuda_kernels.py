"""The kernels of a CUDA build of torch, none of which may run: what a CPU build does in their place is done.

A CPU build has no kernels for the device, so that an op's composite kernel or torch's fallback runs. In a CUDA build
``libtorch_cuda`` has registered some 1,300. Each gets another registration, and the newest one counts:

- An op that has a composite kernel as well is let *fall through*: the device's key is skipped, no other is left, and
  where there is none torch runs the composite kernel. No Python is on that way.
- Every other op runs on the simulated device.
- Kernels for sparse, quantized and nested tensors refuse.

The registrations are what `torch.library` makes, by the call beneath it: some 1,800 in 50 ms.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from memprof.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["COMPOSITE_KEYS", "registrations", "replace_cuda_kernels"]

COMPOSITE_KEYS = (
    "CompositeExplicitAutograd",
    "CompositeImplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)
_OTHER_KEYS = {
    "SparseCUDA": "sparse",
    "SparseCsrCUDA": "sparse",
    "QuantizedCUDA": "quantized",
    "NestedTensorCUDA": "nested",
}
"""Keys of other tensors on the device, and what these are called."""
_COLLECTIVES = "c10d"
"""Namespace of kernels that a CPU build has as well; `memprof.simulate.refusals` sees to them."""


def registrations() -> set[tuple[str, str]]:
    """Return op and dispatch key of every kernel that is registered for the device."""
    of = torch._C._dispatch_get_registrations_for_dispatch_key
    return {(name, key) for key in ("CUDA", *_OTHER_KEYS) for name in of(key)}


def replace_cuda_kernels(run: Callable[..., Any], but: Collection[tuple[str, str]]) -> list[Any]:
    """Replace the kernels that are registered for the device.

    Parameters
    ----------
    run
        Takes an op and its arguments.
    but
        Ops and keys whose kernels stay.

    Returns
    -------
    list
        Keeps the registrations alive.
    """
    core: Any = torch._C
    kept: dict[tuple[str, str], Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once that a kernel was replaced
        for name, key in sorted(registrations().difference(but)):
            namespace = name.partition("::")[0]
            if namespace == _COLLECTIVES:
                continue
            if key != "CUDA":
                function: Any = _refusing(name, _OTHER_KEYS[key])
            elif any(core._dispatch_has_kernel_for_dispatch_key(name, composite) for composite in COMPOSITE_KEYS):
                function = torch.library.fallthrough_kernel
            else:
                function = _Late(run, name)
            library = kept.get((namespace, key))
            if library is None:
                library = kept[namespace, key] = core._dispatch_library("IMPL", namespace, key)
            library.impl(name, key, function)
    return list(kept.values())


class _Late:
    """Runs an op that is looked up by name when it is called first: most never are."""

    __slots__ = ("_name", "_op", "_run")

    def __init__(self, run: Callable[..., Any], name: str) -> None:
        self._run = run
        self._name = name
        self._op: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._op is None:
            namespace, _, rest = self._name.partition("::")
            packet, _, overload = rest.partition(".")
            self._op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
        return self._run(self._op, *args, **kwargs)


def _refusing(name: str, kind: str) -> Callable[..., Any]:
    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise UnsupportedError(
            f"{name} cannot be simulated: {kind} tensors on the device are not; run it on a real device or leave it out"
        )

    return refused
