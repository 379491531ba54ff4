"""What became of budgets, for people: one line each, and who held what went over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from memprof.categories.category import CATEGORIES
from memprof.report.console import COLORS, SOURCES
from memprof.report.text import clean
from memprof.trace.model import Source
from memprof.units import format_bytes, format_count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memprof.analysis.budget import Check, DeviceCheck, Spent

__all__ = ["check_report"]


def check_report(check: Check, *, name: str, top: int) -> Lines:
    """Render a check of the run called `name`; of what went over, the `top` largest holders."""
    trace = check.trace
    several = len(check.devices) > 1
    parts: list[RenderableType] = [Text(f"{clean(name)}  {SOURCES[trace.source]}", style="bold")]
    for device in check.devices:
        parts += _device(device, several=several, simulated=trace.source is Source.SIMULATED, top=top)
    if check.ended is not None:
        ended = f"the run did not come to its end, and so keeps no budget: {clean(check.ended)}"
        parts += [Text(), Text(ended, style="bold red")]
    failed = sum(spent.over > 0 for device in check.devices for spent in device.spent)
    count = sum(len(device.spent) for device in check.devices)
    kept = count - failed if check.ended is None else 0
    verdict = f"{kept} of {count} budgets kept"
    words = Text(f"passed: {verdict}", "bold green") if check.passed else Text(f"failed: {verdict}", "bold red")
    return Lines(*parts, Text(), words)


def _device(device: DeviceCheck, *, several: bool, simulated: bool, top: int) -> list[RenderableType]:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("budget")
    for column in ("limit", "held at most", "left", "over"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("at event", justify="right")
    for spent in device.spent:
        style = "red" if spent.over > 0 else "green"
        table.add_row(
            Text(spent.what, style=style),
            format_bytes(spent.budget.limit),
            format_bytes(spent.size),
            "" if spent.over > 0 else format_bytes(-spent.over),
            Text(format_bytes(spent.over), style="bold red") if spent.over > 0 else "",
            f"{spent.event:,}",
        )
    parts: list[RenderableType] = [Text()]
    if several:
        parts.append(Text(f"device {device.account.device.device}", style="bold"))
    parts.append(table)
    if simulated and any(spent.what in ("reserved", "device") for spent in device.spent):
        parts.append(Text("reserved is that of the least lucky order of segment addresses", style="dim"))
    if device.account.classification.by == "rules":
        parts.append(Text("categories are told by rules: nothing in the file says what allocations are for", "dim"))
    for spent in device.spent:
        if spent.over > 0:
            parts += [Text(), *_went_over(spent, top)]
    return parts


def _went_over(spent: Spent, top: int) -> list[RenderableType]:
    """Say who held it at its highest: a category by its causes, a total by its categories too."""
    parts: list[RenderableType] = [
        Text(
            f"{spent.what} is {format_bytes(spent.over)} over: who holds it at event {spent.event:,}", style="bold red"
        )
    ]
    if spent.failed:
        parts.append(Text(f"with {format_bytes(spent.failed)} that were asked for and not served"))
    if not _is_category(spent):
        parts.append(_totals(spent))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("count", justify="right")
    for name in ("category", "module or caller", "op", "dtype"):
        table.add_column(name, overflow="fold")
    for holder in spent.holders[:top]:
        finer = f" · {clean(holder.finer, 40)}" if holder.finer else ""
        table.add_row(
            format_bytes(holder.size),
            format_count(holder.count),
            Text(f"{holder.category.value}{finer}", style=COLORS[holder.category]),
            clean(holder.place or "", 80),
            clean(holder.op or "", 60),
            clean(holder.dtype or "", 20),
        )
    rest = spent.holders[top:]
    if rest:
        count = format_count(sum(holder.count for holder in rest))
        table.add_row(format_bytes(sum(holder.size for holder in rest)), count, f"{len(rest)} more", "", "", "")
    return [*parts, table]


def _is_category(spent: Spent) -> bool:
    return any(category.value == spent.what for category in CATEGORIES)


def _totals(spent: Spent) -> Text:
    state = spent.state
    sizes = sorted(state.categories.items(), key=lambda pair: -pair[1])
    words = [f"{category.value} {format_bytes(size)}" for category, size in sizes if size]
    if state.cached is not None:
        words.append(f"cached {format_bytes(state.cached)}")
    return Text(", ".join(words))
