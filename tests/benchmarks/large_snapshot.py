"""A large snapshot of real shape: a recorded trace repeated, each round freeing what it left behind."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any


def write_large_snapshot(source: Path, target: Path, events: int) -> int:
    """Write about `events` events made of `source`'s; return how many there are."""
    snapshot = pickle.loads(source.read_bytes())
    snapshot.pop("memprof")
    recorded = snapshot["device_traces"][0]
    segments = [entry for entry in recorded if entry["action"].startswith("segment")]
    work = [entry for entry in recorded if not entry["action"].startswith("segment")]
    left: dict[int, dict[str, Any]] = {}
    for entry in work:
        if entry["action"] == "alloc":
            left[entry["addr"]] = entry
        elif entry["action"] == "free_completed":
            left.pop(entry["addr"], None)
    closing = [
        {**entry, "action": action} for entry in left.values() for action in ("free_requested", "free_completed")
    ]
    rounds = max(1, round(events / (len(work) + len(closing))))
    # The last round stays open, so that the file's segments are its end. Like torch's, each entry is its own dict.
    entries = segments + [dict(entry) for _ in range(rounds - 1) for entry in (*work, *closing)] + work
    time = recorded[0]["time_us"]
    for entry in entries:
        entry["frames"] = list(entry.get("frames", ()))
        entry["time_us"] = time = time + 2
    snapshot["device_traces"] = [entries]
    target.write_bytes(pickle.dumps(snapshot, protocol=4))
    return len(entries)


if __name__ == "__main__":
    print(write_large_snapshot(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))  # noqa: T201 - its one output
