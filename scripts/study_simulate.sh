#!/bin/sh
# Every simulated run of the study: sh scripts/study_simulate.sh DIRECTORY [python]
# About an hour on two cores. Then: python scripts/study_collect.py DIRECTORY simulated
set -eu
out=$1
run="${2:-python} $(dirname "$0")/study_simulate.py"
report="--model pythia-70m --precision 16-mixed --seq 1037"

# The reported table on the card that we measured, and on those of the report.
$run -o "$out/h200-today" $report --quant none,bnb.nf4 --mbs 1,2,4,8,16,32
$run -o "$out/h200-2023" $report --quant none --mbs 1,2,4,8,16,32 --set fabric_output=true
$run -o "$out/h200-2023" $report --quant bnb.nf4 --mbs 1,2,4,8,16,32 \
    --set fabric_output=true matmul_4bit=2023 optimizer=paged-adamw
# The same with today's 4-bit product; the plain half of it is that of h200-2023.
$run -o "$out/h200-fabric" $report --quant bnb.nf4 --mbs 1,2,4,8,16,32 --set fabric_output=true optimizer=paged-adamw
for card in t4 a10g; do
    if [ $card = t4 ]; then mbs=1,2,4,8,16; else mbs=32; fi
    $run -o "$out/cards-2023" --card $card $report --quant none --mbs $mbs --set fabric_output=true
    $run -o "$out/cards-2023" --card $card $report --quant bnb.nf4 --mbs $mbs \
        --set fabric_output=true matmul_4bit=2023 optimizer=paged-adamw
done

# The simulated A10G is too small for the last cell; a card of the same capability that is larger.
$run -o "$out/larger-card-2023" --card rtx3090 $report --quant bnb.nf4 --mbs 32 \
    --set fabric_output=true matmul_4bit=2023 optimizer=paged-adamw

# Causes taken away.
fixes=none,autocast-output,bf16-true,half-frozen-weights,checkpointed-loss,lm-head-chunk-32
$run -o "$out/fixes" $report --quant none,bnb.nf4 --mbs 1,8,16,32 --fix $fixes

# litgpt#1112 and Hugging Face on the same models.
for recipe in litgpt huggingface; do
    $run -o "$out/$recipe" --recipe $recipe --model pythia-70m,tiny-llama-1.1b --precision bf16-true \
        --quant none,bnb.nf4 --seq 512 --mbs 8
done
$run -o "$out/lit_gpt_2023" --model pythia-70m,tiny-llama-1.1b --precision bf16-true --quant none,bnb.nf4 \
    --seq 512 --mbs 8
issue="--recipe litgpt --no-labels --model tiny-llama-1.1b --precision bf16-true --seq 768 --mbs 8"
$run -o "$out/litgpt-1112" $issue --quant none,bnb.nf4
$run -o "$out/litgpt-1112-2023" $issue --quant bnb.nf4 --set matmul_4bit=2023
for other in prepare_kbit=true gradient_checkpointing=true; do
    $run -o "$out/huggingface-$other" --recipe huggingface --model pythia-70m,tiny-llama-1.1b --precision bf16-true \
        --quant none,bnb.nf4 --seq 512 --mbs 8 --set $other
done

# When does 4-bit pay? Peaks only; the lines are what is kept: study_grid.py OUT-grid.jsonl simulated
$run -o "$out-grid" --no-labels \
    --model pythia-70m,pythia-160m,pythia-410m,pythia-1b,tiny-llama-1.1b,Llama-2-7b-hf \
    --precision 32-true,16-mixed,bf16-mixed,16-true,bf16-true \
    --quant none,bnb.nf4,bnb.nf4-dq,bnb.fp4,bnb.int8-training --seq 512 --mbs 1,4,16,64 >"$out-grid.jsonl"
