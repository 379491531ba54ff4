#!/usr/bin/env bash
# The main job on this machine: capture a LoRA step, plain and 4-bit, and say where every byte went.
# Usage: scripts/demo.sh DIRECTORY_OF_PYTHON
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1
mkdir -p out

show() { printf '\n\033[1m$ memprof %s\033[0m\n' "$*"; "$bin/python" -m memprof "$@"; }

if "$bin/python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    run=(--mbs 16 --precision 16-mixed)
else
    # 16-mixed at length 1037 takes minutes on a CPU; the categories are the same.
    run=(--mbs 4 --precision bf16-mixed --seq 128 --device cpu)
fi

echo "First, what was recorded on an H200 (traces/README.md says how): Pythia-70m, LoRA, 4-bit, micro batch 16."
recorded=traces/h200-pythia-70m-16-mixed-bnb.nf4-mbs16.pickle
show breakdown "$recorded" --top 5

echo
echo "The same run on an H200 that is not there: real PyTorch over a simulated allocator, compared with the recording."
if show capture --mbs 16 --quant bnb.nf4 --precision 16-mixed --simulate h200 -o out/simulated.pickle; then
    show compare "$recorded" out/simulated.pickle --top 5
else
    echo "(This torch cannot be simulated on, as said above; the rest goes on.)"
fi

echo
echo "Now the training step on this machine itself, plain and 4-bit."
show capture "${run[@]}" -o out/plain.pickle
show capture "${run[@]}" --quant bnb.nf4 -o out/nf4.pickle
show breakdown out/plain.pickle --top 5
show breakdown out/nf4.pickle --top 5
