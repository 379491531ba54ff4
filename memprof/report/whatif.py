"""A recording under other allocator settings, for people and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from memprof.report.text import clean
from memprof.trace.model import Source
from memprof.units import format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memprof.analysis.whatif_report import OtherSettings, RetriedRequest

__all__ = ["other_settings_json", "other_settings_parts"]

MOST_LOST = 3
"""Requests that would have failed are listed up to so many; a failure changes what the program does next anyway."""


def other_settings_json(asked: OtherSettings) -> dict[str, Any]:
    """Turn the answer into plain values: the key ``alloc_conf`` of a device in ``breakdown --json``."""
    answer = asked.answer
    low, high = answer.reserved_range
    return {
        "conf": asked.other.conf,
        "recorded_conf": asked.recorded.conf,
        "recorded_reserved_bytes": answer.recorded_peak,
        "control_reserved_bytes": answer.control_peak,
        "reserved_bytes": answer.reserved_peak,
        "reserved_low_bytes": low,
        "reserved_high_bytes": high,
        "recorded_allocated_bytes": asked.recorded_allocated,
        "allocated_bytes": answer.allocated_peak,
        "capacity_bytes": answer.capacity,
        "failed": [
            {
                "event": each.event,
                "requested_bytes": each.requested,
                "fits": each.fits,
                "fits_in_every_order": each.fits_always,
                "free_bytes": each.free,
            }
            for each in asked.retried
        ],
        "would_fail": [
            {"event": each.event, "requested_bytes": each.requested, "free_bytes": each.free} for each in asked.lost
        ],
        "notes": list(answer.notes),
    }


def other_settings_parts(asked: OtherSettings, source: Source, *, several: bool = False) -> list[RenderableType]:
    """Render the answer.

    Parameters
    ----------
    asked
        What `ask_settings` returned.
    source
        Of the recording: one of a simulated run says so.
    several
        Whether the file has more than this device.

    """
    answer = asked.answer
    low, high = answer.reserved_range
    name = f"device {asked.device}: " if several else ""
    what = "simulated run" if source is Source.SIMULATED else "recording"
    was = clean(asked.recorded.conf) if asked.recorded.conf else "torch's defaults"
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    for column in ("recorded", "would be", "difference"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    spread = f"{low:,} to {high:,} B by where segments lie" if low != high else "wherever segments lie"
    rows = (
        ("reserved peak", answer.recorded_peak, answer.reserved_peak, spread),
        ("allocated peak", asked.recorded_allocated, answer.allocated_peak, ""),
        ("reserved above allocated", asked.recorded_excess, asked.excess, "fragmentation and cache, peak to peak"),
    )
    for label, before, after, words in rows:
        table.add_row(label, format_bytes(before), format_bytes(after), format_bytes(after - before), words)
    parts: list[RenderableType] = [
        Text(),
        Text(f"{name}under {clean(asked.other.conf)}: this {what} (made with {was}) replayed", style="bold"),
        table,
        _control(asked),
    ]
    parts += [_retried(each) for each in asked.retried]
    for each in asked.lost[:MOST_LOST]:
        parts.append(
            Text(
                f"Would fail at event {each.event:,}: {format_bytes(each.requested)} requested, "
                f"{format_bytes(each.free)} free of the {format_bytes(answer.capacity or 0)} that there were.",
                style="bold red",
            )
        )
    if len(asked.lost) > MOST_LOST:
        parts.append(Text(f"{len(asked.lost) - MOST_LOST:,} more requests would fail.", style="bold red"))
    return parts + [Text(f"note: {clean(note, 400)}", style="dim") for note in answer.notes]


def _control(asked: OtherSettings) -> Text:
    if asked.control_error == 0:
        return Text("the same replay under the recorded settings gives the recorded reserved peak, to the byte", "dim")
    return Text(
        f"the same replay under the recorded settings misses the recorded reserved peak by "
        f"{format_bytes(asked.control_error)}: the answer is no better than that",
        "yellow",
    )


def _retried(request: RetriedRequest) -> Text:
    asked = f"The {format_bytes(request.requested)} that failed at event {request.event:,}"
    if request.fits_always:
        return Text(f"{asked} would have fitted, with {format_bytes(request.free)} to spare.", style="bold green")
    if request.fits_never:
        return Text(f"{asked} would not have fitted: {format_bytes(request.free)} free.", style="bold red")
    return Text(f"{asked} would have fitted or not, by where segments lie.", style="bold yellow")
