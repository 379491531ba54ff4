"""Breakdown for people: rich tables on a terminal, plain text through a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from memprof.analysis.caller import caller_of
from memprof.analysis.caveats import caveats_of
from memprof.categories.category import CATEGORIES, Category
from memprof.report.caveats import caveat_lines
from memprof.report.phases import listed_phases
from memprof.report.text import clean
from memprof.trace.model import Source
from memprof.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memprof.analysis.breakdown import Breakdown, DeviceBreakdown
    from memprof.analysis.caveats import KnownCaveat
    from memprof.analysis.groups import Group
    from memprof.analysis.state import State

__all__ = ["breakdown_report", "make_console"]

SOURCES = {
    Source.RECORDED: "recorded on a CUDA device by memprof",
    Source.SIMULATED: "simulated: real PyTorch over a CUDA device that is not there",
    Source.PROFILED: "CPU capture: real allocations from the profiler's memory events, no caching allocator",
    Source.UNKNOWN: "a snapshot that memprof did not make",
}
COLORS = {
    Category.WEIGHTS: "blue",
    Category.OPTIMIZER_STATE: "magenta",
    Category.GRADIENTS: "green",
    Category.DEQUANTIZED: "red",
    Category.WEIGHT_CASTS: "cyan",
    Category.INPUTS: "white",
    Category.ACTIVATIONS: "yellow",
    Category.WORKSPACE: "bright_black",
    Category.TEMPORARIES: "bright_blue",
    Category.UNKNOWN: "bright_red",
}
BAR_WIDTH = 24


def make_console(*, stderr: bool = False) -> Console:
    """Return the console that every command prints to: colour only on a terminal, wide enough through a pipe."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, width=max(console.width, 120), no_color=True)
    return console


def breakdown_report(breakdown: Breakdown, *, by: str | None = None, groups: Sequence[Sequence[Group]] = ()) -> Lines:
    """Render a breakdown.

    Parameters
    ----------
    breakdown
        What `break_down` returned.
    by, groups
        Name of a further grouping, and its groups for each device of `breakdown`.

    """
    parts: list[RenderableType] = [_header(breakdown)]
    for index, device in enumerate(breakdown.devices):
        # Caveats are the run's, and a simulated run has one device.
        caveats = caveats_of(breakdown.trace.environment) if index == 0 else ()
        parts += _device_parts(device, caveats, several=len(breakdown.devices) > 1)
        if by is not None:
            parts += [Text(), _by_table(by, groups[index], device.shown.allocated)]
    return Lines(*parts)


def _header(breakdown: Breakdown) -> Text:
    trace = breakdown.trace
    text = Text(clean(trace.path), style="bold")
    text.append(f"  {SOURCES[trace.source]}", style="default")
    config = (trace.made_by or {}).get("config")
    if isinstance(config, dict):
        facts = [str(config[key]) for key in ("model", "precision", "quant") if config.get(key) is not None]
        facts += [f"{key} {config[key]}" for key in ("mbs", "seq") if config.get(key) is not None]
        text.append(f"\n{clean(', '.join(facts))}", style="default")
    environment = trace.environment or {}
    versions = [str(environment[key]) for key in ("card", "driver", "torch") if environment.get(key)]
    if versions:
        text.append(f"\n{clean(' · '.join(versions))}", style="dim")
    return text


def _device_parts(device: DeviceBreakdown, caveats: Sequence[KnownCaveat], *, several: bool) -> list[RenderableType]:
    account = device.account
    state = device.shown
    parts: list[RenderableType] = [Text()]
    name = f"device {account.device.device}: " if several else ""
    when = {"peak": "peak", "end": "end", "oom": "out of memory"}.get(device.moment, device.moment)
    parts += [
        Text(f"{name}{when}, after event {state.event:,} of {len(account.device.events):,}", style="bold"),
        _account_table(device, state),
        Text(),
        _category_table(state),
        *_agreement(device),
        *caveat_lines(caveats),
    ]
    for oom in device.oom:
        parts.append(
            Text(
                f"Out of memory at event {oom.event:,}: {format_bytes(oom.requested)} requested, "
                f"{format_bytes(oom.free)} free on the device, {format_bytes(oom.state.allocated)} allocated.",
                style="bold red",
            )
        )
    if device.phases:
        parts += [Text(), _phase_table(device)]
    if device.top:
        parts += [Text(), _top_table(device.top)]
    if state.categories[Category.UNKNOWN]:
        parts += [Text(), _unknown(device)]
    parts += [Text(f"note: {clean(note, 400)}", style="dim") for note in account.notes]
    return parts


def _account_table(device: DeviceBreakdown, state: State) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")

    def row(label: str, size: int | None, absent: str) -> None:
        if size is None:
            table.add_row(label, absent, "", "")
        else:
            table.add_row(label, format_bytes(size), format_bytes(size, binary=True), f"{size:,} B")

    if state.device_used is not None and state.reserved is not None:
        row("device used", state.device_used, "")
        row("  outside the allocator (context, libraries, others)", state.device_used - state.reserved, "")
        if state.context is not None:
            row("    CUDA context and libraries of this process", state.context, "")
            row("    other processes and the driver", state.others, "")
    cpu = device.account.trace.source is Source.PROFILED
    row("reserved", state.reserved, "none: the CPU has no caching allocator" if cpu else "not in the file")
    if state.reserved is not None:
        row("  cached (free blocks in segments)", state.cached, "")
        if state.pending:
            row("  pending (freed, waiting for a stream)", state.pending, "")
    row("allocated" if cpu else "  allocated", state.allocated, "")
    row("    of which requested", state.requested, "")
    if state.managed:
        row("managed memory, outside the account", state.managed, "")
    return table


def _category_table(state: State) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("category")
    table.add_column("size", justify="right")
    table.add_column("share", justify="right")
    table.add_column("", width=BAR_WIDTH)
    table.add_column("count", justify="right")
    table.add_column("finer")
    for category in CATEGORIES:
        size = state.categories[category]
        if not size and category is not Category.UNKNOWN:
            continue
        share = size / state.allocated if state.allocated else 0.0
        finer = ", ".join(f"{clean(name, 40)} {format_bytes(part)}" for name, part in state.finer[category].items())
        table.add_row(
            Text(category.value, style=COLORS[category]),
            format_bytes(size),
            f"{share:6.1%}",
            Text("█" * round(share * BAR_WIDTH), style=COLORS[category]),
            format_count(state.counts[category]),
            finer,
        )
    count = format_count(sum(state.counts.values()))
    table.add_row("allocated", format_bytes(state.allocated), f"{1:6.1%}", "", count, "", style="bold")
    return table


def _agreement(device: DeviceBreakdown) -> Iterable[Text]:
    """Say whether our figures are the allocator's own."""
    reported = device.reported
    simulated = device.account.trace.source is Source.SIMULATED
    ours = (
        ("allocated", reported.max_allocated, device.peak.allocated),
        ("reserved", reported.max_reserved, device.max_reserved),
    )
    for name, theirs, our in ours:
        if theirs is None or our is None:
            continue
        if theirs == our:
            whose = "the simulated allocator's own figure" if simulated else f"torch.cuda.max_memory_{name}()"
            yield Text(f"peak {name} {our:,} B: equal to {whose}", style="dim")
        else:
            yield Text(
                f"peak {name}: replay says {our:,} B, the allocator said {theirs:,} B ({our - theirs:+,} B)",
                style="bold red",
            )


def _phase_table(device: DeviceBreakdown) -> Lines:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("step", "phase"):
        table.add_column(name)
    table.add_column("peak allocated", justify="right")
    phases, left = listed_phases(device.phases)
    for phase in phases:
        table.add_row(
            "" if phase.step < 0 else str(phase.step), clean(phase.phase, 40), format_bytes(phase.peak_allocated)
        )
    return Lines(table, *([Text(left, style="dim")] if left else []))


def _top_table(groups: Sequence[Group]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title="largest allocations", title_justify="left")
    table.add_column("size", justify="right")
    table.add_column("count", justify="right")
    for name in ("category", "module or caller", "op", "dtype", "shape"):
        table.add_column(name, overflow="fold")
    for group in groups:
        finer = f" · {clean(group.finer, 40)}" if group.finer else ""
        table.add_row(
            format_bytes(group.size),
            format_count(group.count),
            Text(f"{group.category.value}{finer}", style=COLORS[group.category]),
            clean(group.parameter or group.module or caller_of(group.stack) or "", 80),
            _operation(group),
            clean(group.dtype or "", 20),
            "" if group.shape is None else " x ".join(map(str, group.shape)),
        )
    return table


def _operation(group: Group) -> str:
    if group.op:
        return clean(group.op, 80)
    return clean(f"{group.stack[0].name} ({group.stack[0].filename}:{group.stack[0].line})", 80) if group.stack else ""


def _by_table(by: str, groups: Sequence[Group], allocated: int) -> Table:
    table = Table(
        box=None, padding=(0, 2, 0, 0), header_style="dim", title=f"by category and {by}", title_justify="left"
    )
    table.add_column("category")
    table.add_column(by, overflow="fold")
    table.add_column("size", justify="right")
    table.add_column("share", justify="right")
    table.add_column("count", justify="right")
    for group in groups:
        table.add_row(
            Text(group.category.value, style=COLORS[group.category]),
            _key_text(by, group),
            format_bytes(group.size),
            f"{group.size / allocated if allocated else 0:6.1%}",
            format_count(group.count),
        )
    return table


def _key_text(by: str, group: Group) -> str:
    if by == "stack":
        shown = [f"{clean(frame.name, 60)} ({clean(frame.filename, 60)}:{frame.line})" for frame in group.stack[:12]]
        return "\n".join(shown) if shown else "no stack"
    value = getattr(group, by)
    return "not known" if value is None else clean(str(value), 100)


def _unknown(device: DeviceBreakdown) -> Text:
    reasons: dict[str, int] = {}
    account = device.account
    live = account.replay.allocations.live_at(device.shown.event)
    known = account.classification
    for row in live[known.category[live] == Category.UNKNOWN.code].tolist():
        reason = known.text(known.reason, row) or "the capture did not see it"
        reasons[reason] = reasons.get(reason, 0) + int(account.replay.allocations.size[row])
    parts = [f"{format_bytes(size)} {reason}" for reason, size in sorted(reasons.items(), key=lambda pair: -pair[1])]
    return Text("unknown: " + "; ".join(parts))
