"""What a capture wrote, in a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from memprof.analysis.caveats import read_caveats
from memprof.report.caveats import caveat_summary
from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.capture.recorder import CaptureResult

__all__ = ["capture_report"]


def capture_report(result: CaptureResult, *, card: str | None = None) -> Text:
    """Render the result of `memprof.capture.capture`; `card` names the one that was simulated."""
    text = Text()
    if result.source == "profiled":
        text.append("CPU capture (no CUDA device used): real allocations from the profiler, no caching allocator\n")
    elif card is not None:
        text.append(f"simulated {clean(card)}: real PyTorch over a CUDA device that is not there\n")
    else:
        text.append(f"{result.source} on {clean(result.device)}\n")
    if result.status == "interrupted":
        text.append("interrupted: the file has what happened until then\n", style="bold")
    elif result.status != "ok":
        text.append(f"ran out of memory: {clean(result.reason or 'no reason given', 400)}\n", style="bold red")
    text.append(f"peak allocated {format_bytes(result.peak_allocated_bytes)}", style="bold")
    text.append(f" ({result.peak_allocated_bytes:,} B)")
    if result.max_reserved_bytes is not None:
        text.append(f", peak reserved {format_bytes(result.max_reserved_bytes)}")
    if result.device_used_bytes is not None:
        text.append(f", device used {format_bytes(result.device_used_bytes)}")
    text.append(
        f"\n{result.entries:,} trace entries, {result.labelled:,} allocations labelled, {result.seconds:.1f} s\n"
    )
    for note in result.notes:
        text.append(f"{note}\n", style="bold")
    summary = caveat_summary(read_caveats(result.caveats))
    if summary:
        text.append(f"{summary}\n", style="dim")
    text.append(f"wrote {clean(str(result.path))}; next: memprof breakdown {clean(str(result.path))}")
    if result.profile is not None:
        text.append(f"\nwrote {clean(str(result.profile))}; next: memprof profile {clean(str(result.profile))}")
    return text
