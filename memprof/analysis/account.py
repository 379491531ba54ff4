"""The account of one device: its trace, the replay of it, and the category of every allocation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memprof.allocator.replay import replay
from memprof.categories.labels import classify_by_labels
from memprof.categories.light import fill_by_rules
from memprof.categories.rules import classify_by_rules

if TYPE_CHECKING:
    from memprof.allocator.account import Replay
    from memprof.categories.classification import Classification
    from memprof.trace.model import DeviceTrace, Trace

__all__ = ["DeviceAccount", "open_account"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAccount:
    """What every analysis starts from; rows of `classification` are rows of `replay.allocations`."""

    trace: Trace
    device: DeviceTrace
    replay: Replay
    classification: Classification

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything odd about the file and this device, in words."""
        return (*self.trace.notes, *self.replay.notes)


def open_account(trace: Trace, device: DeviceTrace) -> DeviceAccount:
    """Replay a device's trace and classify its allocations, by labels where the file has them, else by rules.

    Light labels are filled up by the rules.
    """
    replayed = replay(device, trace.settings, trace.source)
    if device.labels is not None:
        classification = classify_by_labels(device.labels, replayed.allocations, trace.texts)
        if (trace.made_by or {}).get("labels") == "light":
            classification = fill_by_rules(classification, device, replayed.allocations, trace.stacks)
    else:
        classification = classify_by_rules(device, replayed.allocations, trace.stacks)
    return DeviceAccount(trace=trace, device=device, replay=replayed, classification=classification)
