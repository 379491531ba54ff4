"""What happened on a device, as plain values: the one form that every source is turned into.

Nothing here knows how PyTorch spells its keys (that is `memprof.trace.snapshot`) or what a category is (that is
`memprof.categories`). Columns are numpy arrays, one row per event or block; texts and stacks are interned once a file.
Sizes are bytes, times microseconds, addresses the device's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.int64]
    Indices = NDArray[np.int32]
    Codes = NDArray[np.uint8]
    Flags = NDArray[np.bool_]


class Source(Enum):
    """Where a trace comes from; every file and every report says which."""

    RECORDED = "recorded"
    """A CUDA device, through ``torch.cuda.memory._record_memory_history``, by memprof."""
    SIMULATED = "simulated"
    """Real PyTorch over a simulated CUDA device."""
    PROFILED = "profiled"
    """The CPU, from the profiler's memory events: no caching allocator, so no reserved bytes."""
    UNKNOWN = "unknown"
    """Somebody else's snapshot: nothing in it says how it was made."""


class Action(IntEnum):
    """One kind of trace entry; names as in ``TraceEntry::Action`` of ``c10/cuda/CUDACachingAllocator.h``."""

    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    SNAPSHOT = 7
    OOM = 8
    OTHER = 9
    """``annotate``, ``user_defined``, ``workspace_snapshot`` and whatever comes next: no effect on memory."""


class BlockState(IntEnum):
    """State of a block in a segment."""

    INACTIVE = 0
    ALLOCATED = 1
    PENDING_FREE = 2
    """Freed by its owner, waiting for an event of another stream."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One stack frame; C++ frames have the symbol as `name` and ``??`` as `filename`."""

    name: str
    filename: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTable:
    """Interned stacks: `frame_index[offsets[i]:offsets[i + 1]]` are stack i's rows of `frames`, innermost first."""

    frames: tuple[Frame, ...]
    frame_index: Indices
    offsets: Bytes

    def __len__(self) -> int:
        """Count the distinct stacks."""
        return len(self.offsets) - 1

    def stack(self, index: int) -> tuple[Frame, ...]:
        """Return stack `index`, innermost frame first; -1 (no stack) gives an empty one."""
        if index < 0:
            return ()
        rows = self.frame_index[self.offsets[index] : self.offsets[index + 1]]
        return tuple(self.frames[row] for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The trace of one device, in the file's order. All columns have one row per entry."""

    action: Codes
    """`Action` codes."""
    address: Bytes
    """Address; for `Action.OOM`, the free bytes of the device at that moment (torch's ``device_free``)."""
    size: Bytes
    """*Requested* bytes for alloc and free, real bytes for segment entries, the request that failed for oom."""
    stream: Bytes
    time_us: Bytes
    """Microseconds since the epoch, 0 where the file has none. Not always monotonic."""
    stack: Indices
    """Row of the file's `StackTable`; -1 without one. Kept for alloc, segment_alloc, segment_map and oom only."""
    metadata: Indices
    """Row of `Trace.texts` of the allocator's ``user_metadata`` (a dict as JSON); -1 without. Kept as `stack` is."""

    def __len__(self) -> int:
        """Count the entries."""
        return len(self.action)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Segments of one device at the moment of the snapshot, sorted by address."""

    address: Bytes
    total_size: Bytes
    stream: Bytes
    large: Flags
    """True for the large pool, False for the small one."""
    pool: Indices
    """0 for the default pool, others count the private pools (``segment_pool_id``) of the file."""
    expandable: Flags

    def __len__(self) -> int:
        """Count the segments."""
        return len(self.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks of the segments at the moment of the snapshot, sorted by address; they tile their segments."""

    segment: Indices
    """Row of the device's `Segments`."""
    address: Bytes
    size: Bytes
    requested: Bytes
    """What the program asked for; equals `size` where the file does not say."""
    state: Codes
    """`BlockState` codes."""
    stack: Indices
    """Stack of the allocation that is (or was) in the block; -1 without one."""

    def __len__(self) -> int:
        """Count the blocks."""
        return len(self.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One end of a named region (``record_function``, optimizer and profiler steps)."""

    name: str
    start: bool
    time_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment that the capture named: it lies before event `entry`."""

    entry: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What a capture knew of each allocation, as columns; texts are rows of `Trace.texts`, -1 where not known.

    `entry` and `address` say which allocation a row is about: the alloc event `entry`, or, where that is -1, the block
    at `address` that was live before the first event.
    """

    entry: Bytes
    address: Bytes
    category: Indices
    """Text: a `memprof.categories.Category` value."""
    finer: Indices
    phase: Indices
    """Text: init, forward, backward, optimizer, eval or between."""
    step: Indices
    """Step number itself, not a text; -1 before the first step."""
    module: Indices
    op: Indices
    dtype: Indices
    """Text: torch's name without its prefix, such as ``float16``."""
    shape: Indices
    """Text: comma-separated sizes such as ``16,1037,512``; the empty text is a scalar."""
    parameter: Indices
    saved: Flags
    """True where autograd saved the tensor for backward."""

    def __len__(self) -> int:
        """Count the labelled allocations."""
        return len(self.entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The allocator's own figures, read (never reset) by the capture at the end of a step; None where not known."""

    step: int
    max_allocated_bytes: int | None
    max_reserved_bytes: int | None
    device_used_bytes: int | None
    """Of the whole card, by whomever (``cudaMemGetInfo``)."""
    managed_bytes: int | None = None
    reserved_bytes: int | None = None
    """What the allocator had reserved at the moment of the reading."""
    process_used_bytes: int | None = None
    """What the driver said that the process had of the card (NVML): reserved, CUDA context and libraries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTrace:
    """Everything that a file says of one device."""

    device: int
    events: Events
    segments: Segments
    blocks: Blocks
    annotations: tuple[Annotation, ...] = ()
    labels: Labels | None = None
    marks: tuple[Mark, ...] = ()
    stats: tuple[Stats, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What of ``PYTORCH_CUDA_ALLOC_CONF`` changes memory, as the file's ``allocator_settings`` has it."""

    expandable_segments: bool = False
    max_split_size: int | None = None
    """Bytes; None is torch's default, no limit."""
    roundup_power2_divisions: tuple[tuple[int, int], ...] = ()
    """(start in MiB, divisions) in rising order, only where divisions is not 0: torch's keys 1, 2, 4, ... 32768. An
    interval ends where the next begins; the first also has all smaller sizes, the last all larger ones."""
    garbage_collection_threshold: float = 0.0
    max_non_split_rounding_size: int = 20 << 20
    """Bytes; ``max_non_split_rounding_mb``, in the conf string only."""
    large_segment_size: int = 20 << 20
    """Bytes; ``large_segment_size_mb`` (newest torch), in the conf string only."""
    memory_fraction: float = 1.0
    """``per_process_memory_fraction``, in the conf string only; 1 is no limit."""
    conf: str = ""
    """The setting as the user wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One file: what was recorded on every device, and how."""

    path: str
    source: Source
    devices: tuple[DeviceTrace, ...]
    """Only devices that have events or segments, in rising order of `DeviceTrace.device`."""
    stacks: StackTable
    texts: tuple[str, ...]
    """Interned strings that `Labels` and `Events.metadata` point into."""
    settings: Settings
    made_by: Mapping[str, Any] | None = None
    """How memprof made the file: command, recipe, configuration; None for anybody else's."""
    environment: Mapping[str, Any] | None = None
    """Versions, card and driver of the machine that recorded."""
    notes: tuple[str, ...] = ()
    """What the reader found odd, in words: lost events, missing keys, disagreements."""
