"""The command line: parse, call, print. No logic of its own; each command's work is in the module it imports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from memprof.errors import MemprofError

__all__ = ["app", "main"]

app = typer.Typer(
    name="memprof",
    help="Explains where PyTorch training memory goes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON instead of tables.")]


def main() -> None:
    """Run the command line: exit 0 when done, 1 for our errors (one line on stderr), 2 for wrong usage."""
    try:
        app()
    except MemprofError as error:
        from memprof.report.text import clean

        sys.stderr.write(f"memprof: {clean(str(error), 1000)}\n")
        sys.exit(1)


@app.callback(invoke_without_command=True)
def _root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from memprof import __version__

        typer.echo(f"memprof {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


@app.command(epilog="Example:  memprof breakdown run.pickle --at step:1 --by module")
def breakdown(
    file: Annotated[Path, typer.Argument(help="A snapshot: memprof's run.pickle, or anybody's torch snapshot.")],
    at: Annotated[str, typer.Option(help="Moment: peak, end, oom, event:N or step:N (peak within the step).")] = "peak",
    by: Annotated[str | None, typer.Option(help="Also list by module, op, dtype, shape, parameter or stack.")] = None,
    device: Annotated[int | None, typer.Option(help="Only this device.")] = None,
    top: Annotated[int, typer.Option(min=0, help="How many of the largest allocations to list.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Say where every byte of a snapshot is: categories at the peak, their causes, the largest allocations."""
    from memprof.commands.breakdown import run

    run(file, at=at, by=by, device=device, top=top, as_json=as_json)


@app.command(epilog="Example:  memprof capture --mbs 16 --quant bnb.nf4 --precision 16-mixed -o run.pickle")
def capture(
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("run.pickle"),
    model: Annotated[str, typer.Option(help="Any model that litgpt has a configuration for.")] = "pythia-70m",
    quant: Annotated[
        str,
        typer.Option(help="none, bnb.nf4, bnb.nf4-dq, bnb.fp4, bnb.fp4-dq or bnb.int8-training."),
    ] = "none",
    precision: Annotated[
        str, typer.Option(help="32-true, 16-true, bf16-true, 16-mixed (with GradScaler) or bf16-mixed.")
    ] = "16-mixed",
    optimizer: Annotated[str, typer.Option(help="adamw (torch's), paged-adamw, adamw8bit or sgd.")] = "adamw",
    mbs: Annotated[int, typer.Option(help="Samples of a micro-batch.")] = 1,
    seq: Annotated[int, typer.Option(help="Tokens of a sample.")] = 1037,
    steps: Annotated[int, typer.Option(help="Micro-steps of an optimizer cycle; the last one steps.")] = 2,
    cycles: Annotated[int, typer.Option(help="Optimizer cycles; from the second on, optimizer state is there.")] = 1,
    lora_r: Annotated[int, typer.Option(help="Rank of the adapters.")] = 8,
    lora_alpha: Annotated[int, typer.Option(help="Scale of the adapters.")] = 16,
    lora_dropout: Annotated[float, typer.Option(help="Dropout in front of the adapters.")] = 0.05,
    lora_query: Annotated[bool, typer.Option(help="Adapt the query projection.")] = True,
    lora_key: Annotated[bool, typer.Option(help="Adapt the key projection.")] = False,
    lora_value: Annotated[bool, typer.Option(help="Adapt the value projection.")] = True,
    lora_projection: Annotated[bool, typer.Option(help="Adapt the attention's output projection.")] = False,
    lora_mlp: Annotated[bool, typer.Option(help="Adapt the MLP.")] = False,
    lora_head: Annotated[bool, typer.Option(help="Adapt the output layer.")] = False,
    lm_head_chunk_size: Annotated[
        int, typer.Option(help="Tokens for which the output layer runs at a time; 0 for all at once.")
    ] = 128,
    cross_entropy_chunk_size: Annotated[
        int, typer.Option(help="Tokens over which the loss is taken at a time where logits are one tensor; 0 for all.")
    ] = 128,
    checkpoint_dir: Annotated[
        Path | None, typer.Option(help="Directory with lit_model.pth; else random weights.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="JSON file in Alpaca's format; else random tokens.")] = None,
    tokenizer_dir: Annotated[Path | None, typer.Option(help="Directory of the tokenizer for --data.")] = None,
    device: Annotated[str, typer.Option(help="auto (CUDA if there is one, else the CPU), cuda or cpu.")] = "auto",
    labels: Annotated[bool, typer.Option(help="Record what each allocation is for.")] = True,
    stacks: Annotated[str, typer.Option(help="python, or all (with C++ frames; CUDA only).")] = "python",
    max_entries: Annotated[
        int, typer.Option(help="Entries kept; older ones are lost beyond it (CUDA only).")
    ] = 2_000_000,
    absolute_paths: Annotated[bool, typer.Option(help="Keep file names as they are, home directory and all.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run real LoRA training steps, record every allocation, and write one file that any snapshot viewer opens."""
    from memprof.commands.capture import run

    run(
        {
            "model": model,
            "quant": quant,
            "precision": precision,
            "optimizer": optimizer,
            "mbs": mbs,
            "seq": seq,
            "steps": steps,
            "cycles": cycles,
            "lora_r": lora_r,
            "lora_alpha": lora_alpha,
            "lora_dropout": lora_dropout,
            "lora_query": lora_query,
            "lora_key": lora_key,
            "lora_value": lora_value,
            "lora_projection": lora_projection,
            "lora_mlp": lora_mlp,
            "lora_head": lora_head,
            "lm_head_chunk_size": lm_head_chunk_size,
            "cross_entropy_chunk_size": cross_entropy_chunk_size,
            "checkpoint_dir": None if checkpoint_dir is None else str(checkpoint_dir),
            "data": None if data is None else str(data),
            "tokenizer_dir": None if tokenizer_dir is None else str(tokenizer_dir),
        },
        output=output,
        device=device,
        labels=labels,
        stacks=stacks,
        max_entries=max_entries,
        absolute_paths=absolute_paths,
        as_json=as_json,
    )


if __name__ == "__main__":
    main()
