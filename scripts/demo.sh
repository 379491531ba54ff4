#!/usr/bin/env bash
# The whole question on this machine: what does 4-bit save, up to which batch size, and what fits? Plain and nf4 over
# micro-batches of 1 to 32 samples of 1,037 tokens, on this machine's GPU, or without one on a simulated H200 and T4.
# Usage: scripts/demo.sh DIRECTORY_OF_PYTHON
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1
mkdir -p out

show() { printf '\n\033[1m$ memprof %s\033[0m\n' "$*"; "$bin/python" -m memprof "$@"; }

run=(--mbs 1,2,4,8,16,32 --quant none,bnb.nf4 --force)

if "$bin/python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    show sweep "${run[@]}" -o out/gpu
    show growth out/gpu
    show breakdown out/gpu/pythia-70m_16-mixed_bnb.nf4_seq1037_mbs8.pickle --top 5
else
    echo "No GPU is here: real PyTorch over a simulated allocator, on two cards that are not here."
    show sweep "${run[@]}" --simulate h200 -o out/h200
    show sweep "${run[@]}" --simulate t4 -o out/t4
    show growth out/h200
    show growth out/t4
    echo
    echo "And what an H200 really did (traces/README.md says how it was recorded), beside its simulation:"
    show compare traces/h200-pythia-70m-16-mixed-bnb.nf4-mbs16.pickle \
        out/h200/pythia-70m_16-mixed_bnb.nf4_seq1037_mbs16.pickle --top 5
fi
