"""Columns of a recording, without stacks: make_columns.py SNAPSHOT.pickle OUT.npz (device 0)."""

from __future__ import annotations

import sys

import numpy as np

from memprof.trace import load

(device,) = load(sys.argv[1]).devices
columns = {
    f"{part}_{name}": getattr(getattr(device, part), name)
    for part, names in (
        ("events", ("action", "address", "size", "stream")),
        ("segments", ("address", "total_size", "stream", "large", "pool", "expandable")),
        ("blocks", ("segment", "address", "size", "requested", "state")),
    )
    for name in names
}
np.savez_compressed(sys.argv[2], **columns)
