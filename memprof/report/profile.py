"""A profile for people: time beside memory, what HTA says of the GPU, and whether the allocator agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memprof.report.profile_json import device_name
from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memprof.analysis.profile import Cost, ProfileSummary
    from memprof.analysis.profile_check import MemoryCheck
    from memprof.analysis.profile_held import Held
    from memprof.analysis.profile_hta import HtaResult

__all__ = ["format_ns", "profile_report"]


def format_ns(time: int) -> str:
    """Format nanoseconds in the largest unit that keeps them at 1 or above."""
    for unit, factor in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if time >= factor:
            value = time / factor
            return f"{value:.{3 if value < 10 else 2 if value < 100 else 1}f} {unit}"
    return f"{time} ns"


def profile_report(
    summary: ProfileSummary,
    checks: Sequence[MemoryCheck],
    held: Held | None,
    hta: HtaResult | None,
    *,
    notes: Sequence[str],
    snapshot: Path | None,
    top: int = 15,
) -> Lines:
    """Render a profile.

    Parameters
    ----------
    summary
        What `summarize` returned.
    checks
        One a device of the snapshot.
    held
        Who holds memory at the peak, where the snapshot says it.
    hta
        What Holistic Trace Analysis says; None where there is no GPU, or no HTA.
    notes
        What is to be said at the end.
    snapshot
        The file that `checks` are about.
    top
        How many modules, ops and kernels to list.

    """
    parts: list[RenderableType] = [_head(summary)]
    for device in summary.devices:
        text = Text(f"memory of {device_name(device.kind, device.index)}  ")
        text.append(f"{device.events:,} events, {format_bytes(device.allocated)} allocated, ")
        text.append(f"{format_bytes(device.freed)} freed")
        if device.peak is not None:
            text.append(f"; peak allocated {format_bytes(device.peak)}", style="bold")
            text.append(
                f" ({device.peak:,} B), reached in {clean(device.peak_module, 80)} by {clean(device.peak_op, 80)}"
            )
        parts.append(text)
    parts += [_checked(check, snapshot) for check in checks]
    if hta is not None:
        parts += [Text(), *_hta(hta)]
    gpu = summary.kernels > 0
    parts += [Text(), _costs("module", summary.modules, top, gpu=gpu, held=held)]
    parts += [Text(), _costs("op", summary.ops, top, gpu=gpu, held=None)]
    if gpu:
        parts += [Text(), _kernels(summary, top)]
    if held is not None:
        parts.append(
            Text(f"held: live at event {held.event:,} of the snapshot, the peak of the profile's part", style="dim")
        )
    parts += [Text(f"note: {clean(note, 400)}", style="dim") for note in notes]
    return Lines(*parts)


def _head(summary: ProfileSummary) -> Text:
    text = Text(f"{clean(summary.profile.path)}\n", style="bold")
    steps = ", ".join(f"step {step.number} in {format_ns(step.duration)}" for step in summary.steps[:6])
    more = f" and {len(summary.steps) - 6} more" if len(summary.steps) > 6 else ""
    text.append(f"{format_ns(summary.duration)} profiled{': ' if steps else ''}{steps}{more}", style="default")
    if summary.kernels:
        cards = ", ".join(sorted(set(summary.profile.devices)))
        text.append(
            f"\n{summary.kernels:,} kernels, copies and sets{f' on {clean(cards, 100)}' if cards else ''}: "
            f"{format_ns(summary.kernel_time)} summed, busy {format_ns(summary.busy)}",
            style="default",
        )
    return text


def _checked(check: MemoryCheck, snapshot: Path | None) -> Text:
    name = clean(snapshot.name if snapshot is not None else "the snapshot")
    if check.reason:
        return Text(f"against {name}: {check.reason}", style="dim")
    text = Text(f"against {name}, device {check.device}: ")
    if check.agrees:
        text.append("agrees", style="bold green")
        text.append(
            f": all {check.events:,} [memory] events are its events {check.first_event:,} to {check.last_event:,}; "
        )
        text.append(f"allocated after each is equal, and so is the peak, {check.replay_peak:,} B")
        if check.replay_peak_reserved is not None:
            text.append(f"; reserved too, up to {check.replay_peak_reserved:,} B")
        if check.allocated_offset:
            text.append(f" (but for {check.allocated_offset:+,} B from before the profile)")
        return text
    text.append("differs", style="bold red")
    text.append(
        f": {check.matched:,} of {check.events:,} [memory] events are in it; allocated is equal after "
        f"{check.allocated_equal:,}; peak {check.profile_peak:,} B in the profile, {check.replay_peak:,} B here"
    )
    if check.allocated_offset:
        text.append(f" (the replay has {check.allocated_offset:+,} B from the first event on)")
    if check.reserved_equal is not None:
        text.append(f"; reserved is equal after {check.reserved_equal:,}")
    return text


def _hta(hta: HtaResult) -> list[RenderableType]:
    def share(time: int) -> str:
        return f"{format_ns(time)} ({time / hta.span:.1%})" if hta.span else format_ns(time)

    lines: list[RenderableType] = [
        Text.assemble(
            ("Holistic Trace Analysis", "bold"),
            f": of {format_ns(hta.span)} on the GPU, idle {share(hta.idle)}, computing {share(hta.compute)}, "
            f"other work {share(hta.non_compute)}",
        ),
        Text("  " + ", ".join(f"{clean(kind.lower(), 60)} {format_ns(time)}" for kind, time in hta.kinds)),
    ]
    for figure in hta.agreements:
        said = format_ns(figure.memprof)
        lines.append(
            Text(
                f"  {figure.what}: {said}, the same as memprof's"
                if figure.same
                else f"  {figure.what}: {format_ns(figure.hta)}, memprof's {said}",
                style="dim" if figure.same else "yellow",
            )
        )
    return lines


def _costs(title: str, costs: Sequence[Cost], top: int, *, gpu: bool, held: Held | None) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(title, overflow="fold")
    names = ["ops" if title == "module" else "calls", *(["GPU time"] if gpu else []), "CPU time", "allocated"]
    for name in [*names, *(["held"] if held is not None else [])]:
        table.add_column(name, justify="right")
    for cost in costs[:top]:
        table.add_row(clean(cost.name, 100), *_figures([cost], gpu=gpu, held=held))
    if costs[top:]:
        table.add_row(f"{len(costs) - top:,} more", *_figures(costs[top:], gpu=gpu, held=held), style="dim")
    total = _figures(costs, gpu=gpu, held=None)
    if held is not None:
        elsewhere = held.allocated - sum(held.modules.get(cost.name, 0) for cost in costs)
        if elsewhere:
            table.add_row("modules that do nothing here", *("" for _ in total), format_bytes(elsewhere), style="dim")
        total.append(format_bytes(held.allocated))
    table.add_row("all", *total, style="bold")
    return table


def _figures(costs: Sequence[Cost], *, gpu: bool, held: Held | None) -> list[str]:
    found = [f"{sum(cost.calls for cost in costs):,}"]
    if gpu:
        found.append(format_ns(sum(cost.device for cost in costs)))
    found += [format_ns(sum(cost.cpu for cost in costs)), format_bytes(sum(cost.allocated for cost in costs))]
    if held is not None:
        found.append(format_bytes(sum(held.modules.get(cost.name, 0) for cost in costs)))
    return found


def _kernels(summary: ProfileSummary, top: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("kernel", overflow="fold")
    for name in ("calls", "GPU time"):
        table.add_column(name, justify="right")
    for cost in summary.by_kernel[:top]:
        table.add_row(clean(cost.name, 90), f"{cost.calls:,}", format_ns(cost.device))
    return table
