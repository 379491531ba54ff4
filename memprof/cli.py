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
    except BrokenPipeError:
        # The reader of our output (head, less) went away; that is its right.
        sys.stderr.close()
        sys.exit(0)


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


if __name__ == "__main__":
    main()
