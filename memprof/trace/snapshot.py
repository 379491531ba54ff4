"""A torch memory snapshot, any version, into a `Trace`.

This module, `events` and `segments` are the only ones that know how torch spells its keys. The dict that they read came
out of `unpickle` or from JSON: plain values, of which not one is trusted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.errors import InputError
from memprof.trace.check import DEVICES, INT64_END, SIZE_END, as_dict, as_int, as_list, as_text, malformed, shown
from memprof.trace.embedded import read_embedded
from memprof.trace.events import RawEvents, read_events
from memprof.trace.model import Annotation, Blocks, DeviceTrace, Segments, Settings, Trace
from memprof.trace.segments import RawState, read_segments
from memprof.trace.stacks import DEPTH, BadFrameError, StackInterner, TextInterner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.trace.events import Emit

__all__ = ["read_snapshot"]


def read_snapshot(snapshot: Any, *, path: str = "", emit: Emit | None = None) -> Trace:
    """Return what `snapshot`, the plain value of a file, says.

    Parameters
    ----------
    snapshot
        torch's dict of ``segments`` and ``device_traces``, or the bare list of segments of very old files.
    path
        Goes into `Trace.path`; messages do not have it.
    emit
        Receives the columns of events part by part, long before the trace is complete.

    Raises
    ------
    InputError
        Not a snapshot, or a value of the wrong type or range: names the place and the fact.
    """
    notes: list[str] = []
    if type(snapshot) is list:
        notes.append("the file is a bare list of segments: a state without events")
        snapshot = {"segments": snapshot}
    if type(snapshot) is not dict:
        raise InputError(f"holds {shown(snapshot)}, not a torch memory snapshot (a dict of segments and device_traces)")
    if "segments" not in snapshot and "device_traces" not in snapshot:
        keys = ", ".join(shown(key).removeprefix("the text ") for key in list(snapshot)[:5])
        raise InputError(
            f"has neither 'segments' nor 'device_traces', so it is no torch memory snapshot (keys: {keys or 'none'})"
        )
    try:
        return _read(snapshot, path, notes, emit)
    except BadFrameError as error:
        malformed(_place_of_frame(snapshot, error.frame), error.fact)


def _read(snapshot: dict[str, Any], path: str, notes: list[str], emit: Emit | None) -> Trace:
    stacks = StackInterner()
    texts = TextInterner()
    if "segments" not in snapshot:
        notes.append("the file has no segments: what is live at the end is known from the events only")
    states = read_segments(as_list(snapshot.get("segments", []), "segments"), stacks=stacks)
    events = _read_device_traces(snapshot.get("device_traces", []), stacks, texts, notes, emit)
    annotations = _read_annotations(snapshot.get("external_annotations", []))
    settings = _read_settings(snapshot.get("allocator_settings"))
    actions = {device: raw.action for device, raw in events.items()}
    embedded = read_embedded(snapshot.get("memprof"), actions=actions, texts=texts)
    table, stack_rows = stacks.finish()
    if stacks.cut:
        notes.append(f"{stacks.cut} stacks are deeper than {DEPTH} frames: the innermost {DEPTH} of each were kept")

    devices = []
    for device in sorted(states.keys() | events.keys()):
        raw = events.get(device) or _no_events()
        state = states.get(device) or _no_state()
        if not len(raw) and not len(state.segments):
            continue
        prefix = f"device {device}: " if len(states.keys() | events.keys()) > 1 else ""
        notes.extend(prefix + note for note in state.notes)
        devices.append(
            DeviceTrace(
                device=device,
                events=raw.finish(stack_rows),
                segments=state.segments,
                blocks=state.finish(stack_rows),
                annotations=tuple(annotations.get(device, ())),
                labels=embedded.labels.get(device),
                marks=tuple(embedded.marks.get(device, ())),
                stats=tuple(embedded.stats.get(device, ())),
            )
        )
    return Trace(
        path=path,
        source=embedded.source,
        devices=tuple(devices),
        stacks=table,
        texts=texts.texts(),
        settings=settings,
        made_by=embedded.made_by,
        environment=embedded.environment,
        notes=tuple(notes),
    )


def _no_events() -> RawEvents:
    return read_events([], name="", stacks=StackInterner(), texts=TextInterner())


def _no_state() -> RawState:
    empty = np.zeros(0, np.int64)
    index, code, flag = np.zeros(0, np.int32), np.zeros(0, np.uint8), np.zeros(0, np.bool_)
    return RawState(
        segments=Segments(address=empty, total_size=empty, stream=empty, large=flag, pool=index, expandable=flag),
        blocks=Blocks(segment=index, address=empty, size=empty, requested=empty, state=code, stack=index),
        notes=[],
    )


def _read_device_traces(
    traces: Any, stacks: StackInterner, texts: TextInterner, notes: list[str], emit: Emit | None
) -> dict[int, RawEvents]:
    lists = as_list(traces, "device_traces")
    if len(lists) > DEVICES:
        malformed("device_traces", f"has {len(lists)} lists")
    found: dict[int, RawEvents] = {}
    moved: dict[int, list[tuple[RawEvents, NDArray[Any]]]] = {}
    for device, value in enumerate(lists):
        entries = as_list(value, f"device_traces[{device}]")
        # The list given may be a copy (of a tuple): what stacks are made of lives on in the snapshot itself.
        raw = read_events(entries, name=f"device_traces[{device}]", stacks=stacks, texts=texts, emit=emit)
        found[device] = raw
        owner = _owners(entries, device)
        if owner is not None:
            for other in np.unique(owner):
                moved.setdefault(int(other), []).append((raw, np.flatnonzero(owner == other)))
            del found[device]
    for device, parts in moved.items():
        own = [(found[device], np.arange(len(found[device])))] if device in found else []
        found[device] = _join([raw.take(rows) for raw, rows in own + parts])
        notes.append(f"events of device {device} were found in the list of another device and moved")
    return found


def _owners(entries: list[dict[str, Any]], device: int) -> NDArray[np.int32] | None:
    """Return the device that each entry names, None where all belong to `device`."""
    # Entries of torch itself have no such key; whoever adds it adds it to all or to the first already.
    if not entries or not any("device" in entry for entry in (entries[0], entries[-1])):
        return None
    owner = np.array(
        [
            as_int(entry.get("device", device), f"device_traces[{device}][{index}].device", end=DEVICES)
            for index, entry in enumerate(entries)
        ],
        np.int32,
    )
    return None if bool((owner == device).all()) else owner


def _join(parts: list[RawEvents]) -> RawEvents:
    joined = RawEvents(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in RawEvents.__slots__}
    )
    if len(parts) > 1 and bool(joined.time_us.all()):
        joined = joined.take(np.argsort(joined.time_us, kind="stable"))
    return joined


def _read_annotations(annotations: Any) -> dict[int, list[Annotation]]:
    found: dict[int, list[Annotation]] = {}
    for index, value in enumerate(as_list(annotations, "external_annotations")):
        place = f"external_annotations[{index}]"
        entry = as_dict(value, place)
        stage = entry.get("stage")
        if type(stage) is not str or stage not in ("START", "END"):
            malformed(f"{place}.stage", f"is {shown(stage)}, neither 'START' nor 'END'")
        device = as_int(entry.get("device", 0), f"{place}.device", low=-1, end=DEVICES)
        found.setdefault(device, []).append(
            Annotation(
                name=as_text(entry.get("name", ""), f"{place}.name"),
                start=stage == "START",
                time_us=as_int(entry.get("time_us", 0), f"{place}.time_us", end=INT64_END),
            )
        )
    return found


def _read_settings(value: Any) -> Settings:
    default = Settings()
    if value is None:
        return default
    place = "allocator_settings"
    settings = as_dict(value, place)
    # A size_t written as int64: SIZE_MAX, torch's default of no limit, comes out as -1.
    limit = as_int(settings.get("max_split_size", -1), f"{place}.max_split_size", low=-1)
    expandable = settings.get("expandable_segments", False)
    if type(expandable) is not bool:
        malformed(f"{place}.expandable_segments", f"is {shown(expandable)}, not a bool")
    threshold = settings.get("garbage_collection_threshold", 0.0)
    if type(threshold) not in (int, float) or not 0 <= threshold <= 1:
        malformed(f"{place}.garbage_collection_threshold", f"is {shown(threshold)}, not a share")
    divisions = []
    for key, count in as_dict(
        settings.get("roundup_power2_divisions", {}), f"{place}.roundup_power2_divisions"
    ).items():
        # torch writes the keys as texts of MiB.
        if type(key) is not str or not (key.isascii() and key.isdigit()) or len(key) > 9:
            malformed(f"{place}.roundup_power2_divisions", f"has {shown(key)} as a key, not a number of MiB")
        if as_int(count, f"{place}.roundup_power2_divisions[{key}]", end=SIZE_END):
            divisions.append((int(key), count))
    conf = as_text(settings.get("PYTORCH_CUDA_ALLOC_CONF") or "", f"{place}.PYTORCH_CUDA_ALLOC_CONF")
    return Settings(
        expandable_segments=expandable,
        max_split_size=None if limit == -1 else limit,
        roundup_power2_divisions=tuple(sorted(divisions)),
        garbage_collection_threshold=float(threshold),
        max_non_split_rounding_size=_megabytes(conf, "max_non_split_rounding_mb", default.max_non_split_rounding_size),
        large_segment_size=_megabytes(conf, "large_segment_size_mb", default.large_segment_size),
        conf=conf,
    )


def _megabytes(conf: str, option: str, default: int) -> int:
    """Return an option of the setting's text that torch does not repeat among its keys, in bytes."""
    # Spaces are skipped by torch's parser (``ConfigTokenizer``) as well.
    found = re.search(rf"(?:^|,){option}:(\d{{1,9}})(?:,|$)", conf.replace(" ", ""), re.ASCII)
    return int(found.group(1)) << 20 if found else default


def _place_of_frame(snapshot: dict[str, Any], frame: Any) -> str:
    """Return where `frame` stands in `snapshot`: only looked up once it is known to be wrong."""
    owners: list[tuple[str, Any]] = [
        (f"segments[{s}].blocks[{b}]", block)
        for s, segment in enumerate(snapshot.get("segments", []))
        for b, block in enumerate(segment.get("blocks", []))
    ]
    for place, block in owners:
        history = block.get("history") or [{}]
        for frames in (block.get("frames") or (), history[0].get("frames") or ()):
            for index, found in enumerate(frames):
                if found is frame:
                    return f"{place}.frames[{index}]"
    for device, entries in enumerate(snapshot.get("device_traces", [])):
        for entry_index, entry in enumerate(entries):
            for index, found in enumerate(entry.get("frames") or ()):
                if found is frame:
                    return f"device_traces[{device}][{entry_index}].frames[{index}]"
    return "a stack frame"
