#!/bin/sh
# The runs of the study on a real card: sh scripts/study_gpu.sh DIRECTORY [python [options of memprof capture]]
# Twelve captures, each in a process of its own; one line of JSON a run in DIRECTORY/runs.jsonl.
set -u
out=$1
python=${2:-python3}
on=${3:---device cuda}
mkdir -p "$out/fixes" "$out/2023" "$out/litgpt" "$out/huggingface"
capture() {
    file=$out/$1.pickle
    shift
    "$python" -m memprof capture --json $on -o "$file" "$@" >>"$out/runs.jsonl" 2>>"$out/errors.txt" ||
        echo "failed: $file $*" >>"$out/errors.txt"
}
capture fixes/nf4-autocast-output --quant bnb.nf4 --mbs 16 --fix autocast-output
capture fixes/nf4-bf16-true --quant bnb.nf4 --mbs 16 --fix bf16-true
capture fixes/nf4-checkpointed-loss --quant bnb.nf4 --mbs 16 --fix checkpointed-loss
capture fixes/none-checkpointed-loss --quant none --mbs 16 --fix checkpointed-loss
capture fixes/none-half-frozen-weights --quant none --mbs 16 --fix half-frozen-weights
capture 2023/none-mbs16 --quant none --mbs 16 --fabric-output
capture 2023/nf4-mbs1 --quant bnb.nf4 --mbs 1 --fabric-output --matmul-4bit 2023 --optimizer paged-adamw
capture 2023/nf4-mbs16 --quant bnb.nf4 --mbs 16 --fabric-output --matmul-4bit 2023 --optimizer paged-adamw
tiny="--model tiny-llama-1.1b --precision bf16-true --seq 512 --mbs 8"
capture litgpt/none --recipe litgpt $tiny --quant none
capture litgpt/nf4 --recipe litgpt $tiny --quant bnb.nf4
capture huggingface/nf4 --recipe huggingface $tiny --quant bnb.nf4
capture huggingface/nf4-prepared --recipe huggingface $tiny --quant bnb.nf4 --prepare-kbit
cat "$out/errors.txt" 2>/dev/null | grep '^failed' || echo "all twelve were captured"
