"""One capture as a page: its timeline by category, the account at the peak, the largest allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.analysis.caller import caller_of
from memprof.analysis.moment import step_phases
from memprof.analysis.timeline import category_timeline, drawn_columns
from memprof.categories.category import CATEGORIES
from memprof.report.console import SOURCES
from memprof.report.html_colors import HTML_COLORS
from memprof.report.html_page import escaped, figure, heading, note, page, paragraph, plotly_objects, table
from memprof.report.phases import listed_phases
from memprof.trace.model import Source
from memprof.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memprof.analysis.account import DeviceAccount
    from memprof.analysis.breakdown import Breakdown, DeviceBreakdown

__all__ = ["breakdown_page"]

DRAWN = 6000
"""Columns of the timeline that are drawn; a browser is quick with these."""
MOST_MARKS = 60
"""With more phases than this their names would cover each other."""


def breakdown_page(breakdown: Breakdown) -> str:
    """Render a breakdown as one self-contained page.

    Raises
    ------
    UnsupportedError
        If plotly is not installed.

    """
    trace = breakdown.trace
    parts = [paragraph(SOURCES[trace.source]), *_origin(breakdown)]
    for device in breakdown.devices:
        if len(breakdown.devices) > 1:
            parts.append(heading(f"device {device.account.device.device}"))
        parts += _device(device)
    return page(trace.path.replace("\\", "/").rsplit("/", 1)[-1], parts)


def _origin(breakdown: Breakdown) -> Iterable[str]:
    made_by, environment = breakdown.trace.made_by or {}, breakdown.trace.environment or {}
    config = made_by.get("config")
    if isinstance(config, dict):
        names = ("model", "precision", "quant", "optimizer", "mbs", "seq")
        yield paragraph(", ".join(f"{name} {config[name]}" for name in names if config.get(name) is not None))
    if made_by.get("command"):
        yield note(str(made_by["command"]))
    versions = [f"{name} {environment[name]}" for name in ("card", "driver", "torch") if environment.get(name)]
    if versions:
        yield note(" · ".join(versions))


def _device(device: DeviceBreakdown) -> Iterable[str]:
    account, state = device.account, device.shown
    yield heading("allocated, by category, over the events of the trace")
    yield _timeline(account)
    yield heading(f"the account at the peak, after event {state.event:,}")
    yield _account(device)
    yield heading("categories at the peak")
    rows, colors = [], []
    for category in CATEGORIES:
        size = state.categories[category]
        if size:
            finer = ", ".join(f"{name} {format_bytes(part)}" for name, part in state.finer[category].items())
            share = f"{size / state.allocated:.1%}"
            rows.append((category.value, format_bytes(size), share, format_count(state.counts[category]), finer))
            colors.append(HTML_COLORS[category])
    rows.append(("allocated", format_bytes(state.allocated), "100.0%", format_count(sum(state.counts.values())), ""))
    yield table(("category", "size", "share", "count", "finer"), rows, numbers=(1, 2, 3), colors=colors, summed=True)
    if device.top:
        yield heading("largest allocations at the peak")
        yield table(
            ("size", "count", "category", "module or parameter", "op", "dtype", "shape"),
            [
                (
                    format_bytes(group.size),
                    format_count(group.count),
                    group.category.value + (f" · {group.finer}" if group.finer else ""),
                    group.parameter or group.module or caller_of(group.stack) or "",
                    group.op or "",
                    group.dtype or "",
                    "" if group.shape is None else " x ".join(map(str, group.shape)),
                )
                for group in device.top
            ],
            numbers=(0, 1),
        )
    if device.phases:
        phases, left = listed_phases(device.phases)
        yield heading("peaks of the phases")
        yield table(
            ("step", "phase", "peak allocated"),
            [
                ("" if phase.step < 0 else str(phase.step), phase.phase, format_bytes(phase.peak_allocated))
                for phase in phases
            ],
            numbers=(2,),
        )
        if left:
            yield note(left)
    for oom in device.oom:
        yield paragraph(
            f"Out of memory at event {oom.event:,}: {format_bytes(oom.requested)} requested, "
            f"{format_bytes(oom.free)} free on the device, {format_bytes(oom.state.allocated)} allocated."
        )
    for text in account.notes:
        yield note(text)


def _account(device: DeviceBreakdown) -> str:
    state = device.shown
    rows = []
    if state.device_used is not None and state.reserved is not None:
        rows += [
            ("device used", state.device_used),
            ("outside the allocator (context, libraries, others)", state.device_used - state.reserved),
        ]
        if state.context is not None:
            rows += [
                ("of it CUDA context and libraries of this process", state.context),
                ("of it other processes and the driver", state.others or 0),
            ]
    if state.reserved is not None:
        rows += [("reserved", state.reserved), ("cached (free blocks in segments)", state.cached or 0)]
        if state.pending:
            rows.append(("pending (freed, waiting for a stream)", state.pending))
    rows += [("allocated", state.allocated), ("of which requested", state.requested)]
    if state.managed:
        rows.append(("managed memory, outside the account", state.managed))
    return table(
        ("", "size", "exactly"),
        [(name, format_bytes(size), f"{size:,} B") for name, size in rows],
        numbers=(1, 2),
    )


def _timeline(account: DeviceAccount) -> str:
    """Draw the categories on each other, and reserved above them."""
    objects = plotly_objects()
    by_category = category_timeline(account)
    reserved = account.replay.reserved
    present = [category for category in CATEGORIES if by_category[category.code].any()]
    curves = [by_category[category.code] for category in present]
    curves += [account.replay.allocated] + ([] if reserved is None else [reserved])
    columns = drawn_columns(curves, DRAWN)
    events = (columns - 1).tolist()  # column 0 is the state before any event
    drawn = objects.Figure()
    for category in present:
        drawn.add_trace(
            objects.Scatter(
                x=events,
                y=by_category[category.code][columns].tolist(),
                name=category.value,
                stackgroup="allocated",
                mode="lines",
                line={"width": 0.5, "color": HTML_COLORS[category], "shape": "hv"},
                hovertemplate="%{y:.4s}B",
            )
        )
    if reserved is not None:
        drawn.add_trace(
            objects.Scatter(
                x=events,
                y=reserved[columns].tolist(),
                name="reserved",
                mode="lines",
                line={"width": 1.5, "color": "#1c2128", "shape": "hv", "dash": "dot"},
                hovertemplate="%{y:.4s}B",
            )
        )
    _mark_phases(drawn, account)
    peak = int(np.argmax(account.replay.allocated))
    drawn.add_annotation(
        x=peak - 1,
        y=int(account.replay.allocated[peak]),
        text=f"peak {format_bytes(int(account.replay.allocated[peak]))}",
        ay=-28,
        ax=0,
    )
    drawn.update_xaxes(title="event" if account.trace.source is not Source.PROFILED else "memory event of the profiler")
    drawn.update_yaxes(tickformat="~s", ticksuffix="B", rangemode="tozero")
    drawn.update_layout(hovermode="x unified")
    return figure(drawn, height=520)


def _mark_phases(drawn: Any, account: DeviceAccount) -> None:
    phases = [phase for phase in step_phases(account) if phase.end > phase.begin]
    if len(phases) > MOST_MARKS:
        return
    for phase in phases:
        drawn.add_vline(x=phase.begin, line={"width": 0.5, "color": "#6a737d"})
        if phase.phase != "between":
            step = "" if phase.step < 0 else f"{phase.step} "
            drawn.add_annotation(
                x=phase.begin,
                y=1,
                yref="paper",
                yanchor="bottom",
                xanchor="left",
                text=escaped(f"{step}{phase.phase}", 40),
                showarrow=False,
                font={"size": 10, "color": "#6a737d"},
            )
