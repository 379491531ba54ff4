"""What a `Watcher` writes with: into the stream of torch's profiler, with every op and tensor around it.

`memprof.capture.notes` has the other pen, which needs no profiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from torch._C._profiler import _RecordFunctionFast

from memprof.capture.marks import looks_mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["MutedPen", "Pen", "ProfilerPen"]


class Pen(Protocol):
    """Writes marks (`memprof.capture.marks`) in the order in which things happen. It keeps no tensor."""

    def look(self, mark: str, tensors: list[torch.Tensor] | tuple[torch.Tensor, ...]) -> None:
        """Write one mark, with tensors that it is about."""

    def look_each(self, marks: Sequence[str], tensors: list[torch.Tensor]) -> None:
        """Write one mark for each of `tensors`."""

    def begin(self, mark: str) -> Any:
        """Open the range of a mark; give what it returns to `end`."""

    def end(self, begun: Any) -> None:
        """Close the range that `begin` returned."""

    def unpacked(self) -> None:
        """Say that backward fetched a tensor that autograd saved."""

    def optimizer_begins(self) -> Any:
        """Say that an optimizer's step begins; give what it returns to `end`."""


class ProfilerPen:
    """Writes ranges into the profiler's stream; it notes address, dtype and shape of the tensors they are given."""

    def look(self, mark: str, tensors: list[torch.Tensor] | tuple[torch.Tensor, ...]) -> None:
        """Write one mark, with tensors that it is about."""
        with _RecordFunctionFast(mark, tensors):
            pass

    def look_each(self, marks: Sequence[str], tensors: list[torch.Tensor]) -> None:
        """Write one range for all marks: a range of its own for each takes five times as long."""
        if tensors:
            with _RecordFunctionFast(looks_mark(marks), tensors):
                pass

    def begin(self, mark: str) -> Any:
        """Open a range."""
        begun = _RecordFunctionFast(mark)
        begun.__enter__()
        return begun

    def end(self, begun: Any) -> None:
        """Close a range."""
        if begun is not None:
            begun.__exit__(None, None, None)

    def unpacked(self) -> None:
        """Do nothing: the profiler records autograd's nodes."""

    def optimizer_begins(self) -> Any:
        """Do nothing: torch gives the profiler a range for every optimizer step."""


class MutedPen:
    """Writes nothing: the steps so far are only counted."""

    def look(self, mark: str, tensors: list[torch.Tensor] | tuple[torch.Tensor, ...]) -> None:
        """Write nothing."""

    def look_each(self, marks: Sequence[str], tensors: list[torch.Tensor]) -> None:
        """Write nothing."""

    def begin(self, mark: str) -> Any:
        """Write nothing."""

    def end(self, begun: Any) -> None:
        """Close a range that another pen opened before: there is none."""

    def unpacked(self) -> None:
        """Write nothing."""

    def optimizer_begins(self) -> Any:
        """Write nothing."""
