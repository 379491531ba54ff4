"""The command line: parse, call, print. No logic of its own; each command's work is in the module it imports."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer

from memprof.capture.choices import check_device
from memprof.errors import MemprofError, UsageError
from memprof.options import (
    AsJson,
    Labels,
    MaxEntries,
    Stacks,
    capture_options,
    path,
    recipe_options,
    split_options,
)

__all__ = ["app", "main"]

app = typer.Typer(
    name="memprof",
    help="Explains where PyTorch training memory goes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT, errno.EBADF})
"""What printing may meet: the files that commands read and write have errors of their own."""
QUANTIZATIONS = "none, bnb.nf4, bnb.nf4-dq, bnb.fp4, bnb.fp4-dq or bnb.int8-training."
FIXES = (
    "autocast-output, bf16-true, half-frozen-weights, checkpointed-loss or lm-head-chunk-32: "
    "the run without one cause of memory."
)
PRECISIONS = "32-true, 16-true, bf16-true, 16-mixed (with GradScaler) or bf16-mixed."


def main() -> None:
    """Run the command line: exit 0 when done, 1 for our errors (one line on stderr), 2 for wrong usage."""
    sys.stdout, sys.stderr = _writable(sys.stdout), _writable(sys.stderr)
    try:
        app(standalone_mode=True)
    except MemprofError as error:
        _fail(str(error), 2 if isinstance(error, UsageError) else 1)
    except SystemExit:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _silence()  # the reader of our output (head, less) went away; that is its right
        except OSError as error:
            _silence()
            _fail(f"the output cannot be written: {error.strerror or error}", 1)
        raise
    except OSError as error:
        if error.errno not in WRITE_ERRORS:
            raise
        _silence()
        _fail(f"the output cannot be written: {error.strerror or error}", 1)


def _writable(stream: TextIO | None) -> TextIO:
    """Return a stream that takes any text: nowhere if it was closed, with ``?`` for what its encoding lacks."""
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return stream


def _silence() -> None:
    """Let what is still in stdout's buffer go nowhere, or Python would try to write it again as it ends."""
    sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - lives until the process ends


def _fail(message: str, code: int) -> NoReturn:
    from memprof.report.text import clean

    sys.stderr.write(f"memprof: {clean(message, 1000)}\n")
    sys.exit(code)


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
    file: Annotated[
        Path, typer.Argument(parser=path, help="A snapshot: memprof's run.pickle, or anybody's torch snapshot.")
    ],
    at: Annotated[str, typer.Option(help="Moment: peak, end, oom, event:N or step:N (peak within the step).")] = "peak",
    by: Annotated[str | None, typer.Option(help="Also list by module, op, dtype, shape, parameter or stack.")] = None,
    device: Annotated[int | None, typer.Option(min=0, help="Only this device.")] = None,
    top: Annotated[int, typer.Option(min=0, help="How many of the largest allocations to list.")] = 10,
    alloc_conf: Annotated[
        str | None,
        typer.Option(
            metavar="CONF",
            help="Also replay under another PYTORCH_CUDA_ALLOC_CONF, such as expandable_segments:True.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say where every byte of a snapshot is: categories at the peak, their causes, the largest allocations."""
    from memprof.commands.breakdown import run

    run(file, at=at, by=by, device=device, top=top, alloc_conf=alloc_conf, as_json=as_json)


@app.command(epilog="Example:  memprof capture --mbs 16 --quant bnb.nf4 --precision 16-mixed --simulate t4")
@capture_options
def capture(
    output: Annotated[Path, typer.Option("--output", "-o", parser=path, help="File to write.")] = Path("run.pickle"),
    model: Annotated[str, typer.Option(help="Any model that litgpt has a configuration for.")] = "pythia-70m",
    quant: Annotated[str, typer.Option(help=QUANTIZATIONS)] = "none",
    precision: Annotated[str, typer.Option(help=PRECISIONS)] = "16-mixed",
    mbs: Annotated[int, typer.Option(help="Samples of a micro-batch.")] = 1,
    seq: Annotated[int, typer.Option(help="Tokens of a sample.")] = 1037,
    fix: Annotated[str | None, typer.Option(help=FIXES, show_default=False)] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also profile a step into run.trace.json.gz, for memprof profile.")
    ] = False,
    profile_steps: Annotated[
        str | None, typer.Option(help="Which: 1, or 2-4, counted from 0; the last one otherwise.", show_default=False)
    ] = None,
    profile_stacks: Annotated[
        bool, typer.Option("--profile-stacks", help="Python's calls too: a larger and slower profile.")
    ] = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Run real LoRA training steps, record every allocation, and write one file that any snapshot viewer opens."""
    from memprof.commands.capture import run

    recipe, recorder = split_options(options)
    varied = {"model": model, "quant": quant, "precision": precision, "mbs": mbs, "seq": seq, "fix": fix}
    run(
        {**varied, **recipe},
        output=output,
        profile=profile or profile_stacks or profile_steps is not None,
        profile_steps=profile_steps,
        profile_stacks=profile_stacks,
        as_json=as_json,
        **recorder,
    )


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Example:  memprof run -o run.pickle train.py --lr 1e-4",
)
def run(
    script: Annotated[list[str], typer.Argument(help="A script, or with -m a module, and its own arguments.")],
    output: Annotated[Path, typer.Option("--output", "-o", parser=path, help="File to write; one a rank.")] = Path(
        "run.pickle"
    ),
    module: Annotated[bool, typer.Option("-m", help="The script is the name of a module.")] = False,
    steps: Annotated[
        str | None,
        typer.Option(
            help="Record the first so many steps, or with 10-12 these; the script runs on.", show_default=False
        ),
    ] = None,
    simulate: Annotated[
        str | None, typer.Option(help="Run on a card that is not there, such as t4.", show_default=False)
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also profile step 1 into run.trace.json.gz, for memprof profile.")
    ] = False,
    profile_steps: Annotated[
        str | None, typer.Option(help="Which: 1, or 10-12; step 0 cannot be.", show_default=False)
    ] = None,
    profile_stacks: Annotated[
        bool, typer.Option("--profile-stacks", help="Python's calls too: a larger and slower profile.")
    ] = False,
    device: Annotated[
        str, typer.Option(callback=check_device, help="auto (CUDA if there is one, else the CPU), cuda or cpu.")
    ] = "auto",
    labels: Labels = "full",
    stacks: Stacks = "python",
    max_entries: MaxEntries = 2_000_000,
    absolute_paths: Annotated[bool, typer.Option(help="Keep file names as they are, home directory and all.")] = False,
) -> None:
    """Run a training script, unmodified, and record its memory; options of memprof stand before the script."""
    from memprof.commands.run import run as run_script

    run_script(
        script[0],
        script[1:],
        module=module,
        output=output,
        steps=steps,
        simulate=simulate,
        profile=profile or profile_stacks or profile_steps is not None,
        profile_steps=profile_steps,
        profile_stacks=profile_stacks,
        device=device,
        labels=labels,
        stacks=stacks,
        max_entries=max_entries,
        absolute_paths=absolute_paths,
    )


@app.command(epilog="Example:  memprof sweep --mbs 1,2,4,8,16,32 --quant none,bnb.nf4 --simulate t4 -o sweep")
@capture_options
def sweep(
    output: Annotated[
        Path, typer.Option("--output", "-o", parser=path, help="Directory for one file a point and sweep.json.")
    ],
    model: Annotated[str, typer.Option(help="Models, with commas between.")] = "pythia-70m",
    quant: Annotated[str, typer.Option(help=f"With commas between: {QUANTIZATIONS}")] = "none",
    precision: Annotated[str, typer.Option(help=f"With commas between: {PRECISIONS}")] = "16-mixed",
    mbs: Annotated[str, typer.Option(help="Samples of a micro-batch, with commas between.")] = "1,2,4,8,16,32",
    seq: Annotated[str, typer.Option(help="Tokens of a sample, with commas between.")] = "1037",
    fix: Annotated[str, typer.Option(help=f"With commas between: none, or {FIXES}")] = "none",
    force: Annotated[bool, typer.Option("--force", help="Do finished points again.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Captures at the same time; else 1, or simulated one a core, 4 at most.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Capture every combination, each in a process of its own; what is finished is kept when it is run again."""
    from memprof.commands.sweep import run

    recipe, recorder = split_options(options)
    varied = {"model": model, "quant": quant, "precision": precision, "seq": seq, "mbs": mbs, "fix": fix}
    run(varied, recipe, recorder, folder=output, force=force, jobs=jobs, as_json=as_json)


@app.command(epilog="Example:  memprof fit --card t4,a10g --max mbs --quant bnb.nf4")
@recipe_options
def fit(
    card: Annotated[str, typer.Option(help="Cards, with commas between, such as t4,a10g,h200.")],
    maximum: Annotated[str, typer.Option("--max", help="What to search for: mbs or seq.")] = "mbs",
    up_to: Annotated[int | None, typer.Option(help="Largest size to look at.", show_default=False)] = None,
    model: Annotated[str, typer.Option(help="Any model that litgpt has a configuration for.")] = "pythia-70m",
    quant: Annotated[str, typer.Option(help=QUANTIZATIONS)] = "none",
    precision: Annotated[str, typer.Option(help=PRECISIONS)] = "16-mixed",
    mbs: Annotated[
        int | None,
        typer.Option(help="Samples of a micro-batch, where seq is searched for; else 1.", show_default=False),
    ] = None,
    seq: Annotated[
        int | None, typer.Option(help="Tokens of a sample, where mbs is searched for; else 1037.", show_default=False)
    ] = None,
    fix: Annotated[str | None, typer.Option(help=FIXES, show_default=False)] = None,
    cycles: Annotated[int, typer.Option(min=1, help="Optimizer cycles of each run, at least 2.")] = 2,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Find the largest micro-batch or sequence that fits a card, by simulated runs: no GPU is needed."""
    from memprof.commands.fit import run

    recipe, _ = split_options(options)
    varied = {"model": model, "quant": quant, "precision": precision, "mbs": mbs, "seq": seq, "fix": fix}
    run({**varied, "cycles": cycles, **recipe}, cards=card, over=maximum, up_to=up_to, as_json=as_json)


@app.command(epilog="Example:  memprof check --budget 15GB --budget activations=8GB -- --mbs 16 --simulate t4")
def check(
    words: Annotated[
        list[str],
        typer.Argument(metavar="FILE | -- OPTIONS", help="A snapshot, or what to capture: capture's options."),
    ],
    budget: Annotated[
        list[str],
        typer.Option(help="15GB (of reserved), or NAME=SIZE: allocated, reserved, device or a category. Repeatable."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", parser=path, help="Keep the capture in this file.", show_default=False),
    ] = None,
    device: Annotated[int | None, typer.Option(min=0, help="Only this device.", show_default=False)] = None,
    top: Annotated[int, typer.Option(min=0, help="Of what went over, how many of its causes to list.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Hold a file, or a capture made for it, against memory budgets: exit status 1 and the causes if one is broken."""
    from memprof.commands.check import run

    run(budget, words, output=output, device=device, top=top, as_json=as_json)


@app.command(epilog="Example:  memprof growth sweep --by op")
def growth(
    folder: Annotated[
        Path, typer.Argument(parser=path, help="Directory of a sweep, or of captures that differ in one setting.")
    ],
    over: Annotated[
        str | None, typer.Option(help="mbs or seq; without it, the one that has more values.", show_default=False)
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Also fit by module, op or dtype within each category.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a sample (or a token) costs in each category, where that changes, and where configurations meet."""
    from memprof.commands.growth import run

    run(folder, over=over, by=by, as_json=as_json)


@app.command(epilog="Example:  memprof fixes sweep")
def fixes(
    folder: Annotated[Path, typer.Argument(parser=path, help="Directory of a sweep with --fix none and others.")],
    as_json: AsJson = False,
) -> None:
    """Say what each fix of a sweep saves: as the runs without it predict, and as the runs with it show."""
    from memprof.commands.fixes import run

    run(folder, as_json=as_json)


@app.command(epilog="Example:  memprof compare plain.pickle nf4.pickle --by op")
def compare(
    a: Annotated[Path, typer.Argument(parser=path, help="A snapshot.")],
    b: Annotated[Path, typer.Argument(parser=path, help="Another snapshot.")],
    by: Annotated[
        str | None, typer.Option(help="Group the rows by category, module, op or dtype.", show_default=False)
    ] = None,
    device: Annotated[int | None, typer.Option(min=0, help="Only this device, in both.")] = None,
    top: Annotated[int, typer.Option(min=0, help="How many rows to show.")] = 15,
    as_json: AsJson = False,
) -> None:
    """Say what the second snapshot holds more than the first at the peak; the rows sum to the whole difference."""
    from memprof.commands.compare import run

    run(a, b, by=by, device=device, top=top, as_json=as_json)


@app.command(epilog="Example:  memprof report run.pickle -o report.html")
def report(
    source: Annotated[Path, typer.Argument(parser=path, help="A snapshot, or a directory that memprof sweep wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", parser=path, help="File to write.")] = Path("report.html"),
) -> None:
    """Write one HTML page that needs nothing else: timeline and breakdown of a snapshot, or growth of a sweep."""
    from memprof.commands.report import run

    run(source, output=output)


@app.command(epilog="Example:  memprof explain run.pickle")
def explain(
    source: Annotated[Path, typer.Argument(parser=path, help="A snapshot, or a directory that memprof sweep wrote.")],
    as_json: AsJson = False,
) -> None:
    """Name the causes of memory that memprof knows: each with its bytes, its evidence, and what to change."""
    from memprof.commands.explain import run

    run(source, as_json=as_json)


@app.command(epilog="Example:  memprof profile run.trace.json.gz")
def profile(
    file: Annotated[
        Path, typer.Argument(parser=path, help="What memprof capture --profile, or torch.profiler, wrote.")
    ],
    snapshot: Annotated[
        Path | None,
        typer.Option(
            parser=path, help="Snapshot of the same run; the one beside the profile otherwise.", show_default=False
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="How many modules, ops and kernels to list.")] = 15,
    as_json: AsJson = False,
) -> None:
    """Say what time and memory a profile spends on each module and op, and whether the allocator agrees."""
    from memprof.commands.profile import run

    run(file, snapshot=snapshot, top=top, as_json=as_json)


@app.command(epilog="Example:  memprof scrub run.pickle public.pickle")
def scrub(
    source: Annotated[Path, typer.Argument(parser=path, help="A snapshot, memprof's or anybody's.")],
    target: Annotated[
        Path, typer.Argument(parser=path, help="File to write: a plain pickle that any snapshot viewer opens.")
    ],
) -> None:
    """Remove paths, user and host names from a snapshot, so that it can be shown; every number stays."""
    from memprof.commands.scrub import run

    run(source, target)


if __name__ == "__main__":
    main()
