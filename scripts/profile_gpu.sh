#!/usr/bin/env bash
# Profiles a training step on a GPU, small enough to be committed, and checks that profiling changed nothing.
#
#   scripts/profile_gpu.sh DIRECTORY [PYTHON]
#
# Leaves run.pickle and run.trace.json.gz, the same without a profile and with Python's calls, and what memprof profile
# says of them. Holistic Trace Analysis is asked where it is installed.
set -euo pipefail
out=$1
python=${2:-python3}
cd "$(dirname "$0")/.."
mkdir -p "$out"
options=(--device cuda --model pythia-14m --seq 128 --mbs 2 --precision 16-mixed)
"$python" -m memprof capture "${options[@]}" -o "$out/plain.pickle"
"$python" -m memprof capture "${options[@]}" --profile -o "$out/run.pickle"
"$python" -m memprof capture "${options[@]}" --profile-stacks -o "$out/stacks.pickle"
"$python" - "$out" <<'PYTHON'
import pickle
import sys
from pathlib import Path


def read(name):
    snapshot = pickle.loads((Path(sys.argv[1]) / name).read_bytes())
    device = next(index for index, trace in enumerate(snapshot["device_traces"]) if trace)
    events = [(entry["action"], entry["size"]) for entry in snapshot["device_traces"][device]]
    labels = snapshot["memprof"]["labels"]
    strings = snapshot["memprof"]["strings"]
    known = [
        [strings[value] if value >= 0 else None for value in labels[name]] for name in ("category", "module", "op", "phase")
    ]
    return events, snapshot["memprof"]["stats"][-1], known


plain = read("plain.pickle")
for name in ("run.pickle", "stacks.pickle"):
    profiled = read(name)
    print(
        name,
        "events equal:", plain[0] == profiled[0], len(profiled[0]),
        "peak equal:", plain[1]["max_allocated_bytes"] == profiled[1]["max_allocated_bytes"],
        profiled[1]["max_allocated_bytes"],
        "labels equal:", plain[2] == profiled[2],
    )
PYTHON
for name in run stacks; do
    "$python" -m memprof profile "$out/$name.trace.json.gz" | tee "$out/$name.txt"
    "$python" -m memprof profile --json "$out/$name.trace.json.gz" > "$out/$name.json"
done
ls -l "$out"
