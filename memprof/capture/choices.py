"""Values that the recorder's options can have; known without torch, so that a wrong one is refused at once."""

from __future__ import annotations

from memprof.errors import UsageError

__all__ = ["check_device", "check_labels", "check_max_entries", "check_stacks"]

DEVICES = ("auto", "cuda", "cpu")
LABELS = ("none", "light", "full")
STACKS = ("python", "all")


def check_device(device: str) -> str:
    """Return `device`; raise `UsageError` if there is no such choice."""
    return _one_of("--device", device, DEVICES)


def check_labels(labels: str) -> str:
    """Return `labels`; raise `UsageError` if there is no such choice."""
    return _one_of("--labels", labels, LABELS)


def check_stacks(stacks: str) -> str:
    """Return `stacks`; raise `UsageError` if there is no such choice."""
    return _one_of("--stacks", stacks, STACKS)


def check_max_entries(entries: int) -> int:
    """Return `entries`; raise `UsageError` if a history cannot be so long."""
    if entries < 1:
        raise UsageError(f"--max-entries {entries}: must be at least 1")
    return entries


def _one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise UsageError(f"{option} {value}: unknown; it can be {', '.join(known[:-1])} or {known[-1]}")
    return value
