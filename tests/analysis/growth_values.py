"""Small captures and points that the tests of growth and compare are made of."""

from __future__ import annotations

from memprof.analysis.sweep import Amount, Cause, Figures, PeakPlace, Point
from memprof.categories.category import CATEGORIES, Category
from memprof.trace.snapshot import read_snapshot

ADDRESS = 0x7F0000000000
TEXT_COLUMNS = ("category", "finer", "phase", "module", "op", "dtype", "shape", "parameter")


def capture_of(tensors, *, config=None, marks=(), status="ok", path="run.pickle", labelled=True):
    """A CPU capture: every tensor is allocated in turn, and freed when `until` tensors were, or at the end."""
    trace, waiting, entries = [], [], []

    def free(address, size):
        common = {"addr": address, "size": size, "stream": 0, "time_us": 1, "frames": []}
        trace.extend({"action": action, **common} for action in ("free_requested", "free_completed"))

    for number, tensor in enumerate(tensors):
        for done in [each for each in waiting if each[2] is not None and each[2] <= number]:
            waiting.remove(done)
            free(*done[:2])
        entries.append(len(trace))
        alloc = {"addr": ADDRESS + (number << 40), "size": tensor["size"], "stream": 0, "time_us": 1}
        trace.append({"action": "alloc", **alloc, "frames": tensor.get("frames", [])})
        waiting.append((alloc["addr"], alloc["size"], tensor.get("until")))
    for address, size, _ in waiting:
        free(address, size)
    snapshot = {"segments": [], "device_traces": [trace]}
    strings = [""]

    def row(text):
        if text is None:
            return -1
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    snapshot["memprof"] = {
        "version": 1,
        "source": "profiled",
        "made_by": {"recipe": "tiny", "config": config or {"model": "tiny", "mbs": 1}, "status": status},
        "environment": {"torch": "2.11.0"},
        "marks": [{"device": 0, "entry": entries[number], "name": name} for number, name in marks],
        "stats": [],
    }
    if labelled:
        labels = {name: [row(tensor.get(name)) for tensor in tensors] for name in TEXT_COLUMNS}
        labels |= {"device": [0] * len(tensors), "entry": entries}
        labels |= {"step": [tensor.get("step", 0) for tensor in tensors], "saved": [False] * len(tensors)}
        snapshot["memprof"] |= {"strings": strings, "labels": labels}
    return read_snapshot(snapshot, path=path)


def point(at, causes, *, over="mbs", place=("backward", 0, None, "aten::mm"), status="ok", slack=0, **config):
    """A point with these causes at its peak: {(category, finer, module, op, dtype): bytes}."""
    asked = {Cause(Category(key[0]), *key[1:]): size for key, size in causes.items()}
    categories = {
        category: Amount(
            sum(size + slack for cause, size in asked.items() if cause.category is category),
            sum(size for cause, size in asked.items() if cause.category is category),
        )
        for category in CATEGORIES
    }
    peak = Amount(sum(amount.size for amount in categories.values()), sum(asked.values()))
    figures = Figures(
        peak=peak,
        first_step=peak,
        steady=None,
        reserved=peak.size + 1000,
        device_used=None,
        categories=categories,
        own_maximum={category: amount.size for category, amount in categories.items()},
        causes={cause: Amount(size + slack, size) for cause, size in asked.items()},
        place=PeakPlace(*place),
    )
    return Point(
        config={"model": "tiny", "quant": "none", over: at, **config},
        file=f"{config.get('quant', 'none')}-{at}.pickle",
        status=status,
        reason=None if status == "ok" else "no memory",
        figures=figures if status != "failed" else None,
        source="recorded",
        environment={"torch": "2.11.0"},
    )
