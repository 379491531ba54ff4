"""A comparison for people: the difference by category, what changed in words, and the rows behind it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memprof.analysis.sweep import collapse_layers
from memprof.categories.category import CATEGORIES
from memprof.report.console import COLORS
from memprof.report.growth_words import signed
from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memprof.analysis.compare import Change, Comparison, Side

__all__ = ["compare_report", "words"]

SETTINGS = ("model", "precision", "quant", "mbs", "seq")


def compare_report(comparison: Comparison, *, by: str | None = None, top: int = 15) -> Lines:
    """Render a comparison.

    Parameters
    ----------
    comparison
        What `compare` returned.
    by
        Group the rows by category, module, op or dtype; None for all of them.
    top
        How many rows, and how many sentences, to show.

    """
    parts: list[RenderableType] = [
        Text.assemble(("a  ", "bold"), _said(comparison.a)),
        Text.assemble(("b  ", "bold"), _said(comparison.b)),
        Text(),
        _categories(comparison),
    ]
    sentences = list(words(comparison.changes))[:top]
    if sentences:
        parts += [Text(), Text("what changed", style="dim"), *sentences]
    parts += [Text(), _rows(comparison, by, top)]
    parts += [Text(f"note: {clean(note, 400)}", style="dim") for note in comparison.notes]
    return Lines(*parts)


def _said(side: Side) -> str:
    config = (side.trace.made_by or {}).get("config")
    facts = ""
    if isinstance(config, dict):
        facts = ", ".join(
            str(config[name]) if isinstance(config[name], str) else f"{name} {config[name]}"
            for name in SETTINGS
            if config.get(name) is not None
        )
    return clean(f"{side.trace.path}  {facts or side.trace.source.value}, by {side.classified_by}", 300)


def _categories(comparison: Comparison) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("at the peak")
    for name in ("a", "b", "b - a", "exactly"):
        table.add_column(name, justify="right")
    for category in CATEGORIES:
        a, b = (side.state.categories[category] for side in (comparison.a, comparison.b))
        if a or b:
            table.add_row(
                Text(category.value, style=COLORS[category]),
                format_bytes(a),
                format_bytes(b),
                signed(b - a),
                f"{b - a:+,} B",
            )
    a, b = comparison.a.state.allocated, comparison.b.state.allocated
    table.add_row("allocated", format_bytes(a), format_bytes(b), signed(b - a), f"{b - a:+,} B", style="bold")
    return table


def words(changes: Iterable[Change]) -> Iterable[Text]:
    """Say which tensors changed their type or op, largest difference first; equal layers are one sentence."""
    grouped: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for change in changes:
        if change.paired and (_differ(change.dtype_a, change.dtype_b) or _differ(change.op_a, change.op_b)):
            name = collapse_layers(change.parameter or change.module) or change.caller or change.op or "something"
            grouped[name, _what(change)].append(change)
    for (name, what), members in sorted(grouped.items(), key=lambda pair: -abs(_difference(pair[1]))):
        if _difference(members):
            count = sum(change.count_b for change in members)
            tensors = f", {count} tensors" if count > 1 else ""
            text = Text("  ")
            text.append(clean(name, 100), style="bold")
            text.append(clean(f" {what}, {signed(_difference(members))}{tensors}", 300), style="default")
            yield text


def _differ(a: str | None, b: str | None) -> bool:
    """Tell whether both are known and not the same."""
    return a is not None and b is not None and a != b


def _what(change: Change) -> str:
    """Say what a pair is and how it changed."""
    what = change.finer_b or change.category.value
    if change.parameter is None and change.op is not None and (change.module or change.caller):
        what += f" of {_changed(change, change.op_a, change.op_b)}"
    return f"{what}: {_changed(change, change.dtype_a, change.dtype_b)}"


def _rows(comparison: Comparison, by: str | None, top: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    names = ("category", "module or parameter", "op", "dtype") if by is None else (by,)
    grouped: dict[tuple[str, ...], list[Change]] = defaultdict(list)
    for change in comparison.changes:
        grouped[_key(change, by)].append(change)
    for name in names:
        table.add_column(name, overflow="fold")
    for name in ("a", "b", "b - a"):
        table.add_column(name, justify="right")
    found = sorted(grouped.items(), key=lambda pair: -abs(_difference(pair[1])))
    for key, members in found[:top]:
        sizes = (sum(each.bytes_a for each in members), sum(each.bytes_b for each in members))
        table.add_row(*key, *map(format_bytes, sizes), signed(_difference(members)))
    if found[top:]:
        rest = [change for _, members in found[top:] for change in members]
        sizes = (sum(each.bytes_a for each in rest), sum(each.bytes_b for each in rest))
        label = [f"{len(found) - top} more", *("" for _ in names[1:])]
        table.add_row(*label, *map(format_bytes, sizes), signed(_difference(rest)), style="dim")
    table.add_row("difference", *("" for _ in names[1:]), "", "", signed(comparison.difference), style="bold")
    return table


def _difference(changes: Sequence[Change]) -> int:
    return sum(change.difference for change in changes)


def _key(change: Change, by: str | None) -> tuple[str, ...]:
    category = change.category.value
    if change.category_a is not None and change.category_b is not None and change.category_a is not change.category_b:
        category = f"{change.category_a.value} -> {category}"
    name = clean(collapse_layers(change.parameter or change.module) or change.caller or "not known", 100)
    op = clean(_changed(change, change.op_a, change.op_b), 100)
    dtype = clean(_changed(change, change.dtype_a, change.dtype_b), 60)
    keys = {"category": category, "module": name, "op": op, "dtype": dtype}
    return tuple(keys.values()) if by is None else (keys[by],)


def _changed(change: Change, a: str | None, b: str | None) -> str:
    """Name a property: as it is, or as it was and is; of what only one side has, that side's."""
    if not change.paired:
        return (b if change.count_b else a) or ""
    return (a or "") if a == b else f"{a or 'unknown'} -> {b or 'unknown'}"
