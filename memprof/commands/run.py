"""``memprof run``: any training script, unmodified."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from memprof.commands.simulated import card_to_simulate, inside_simulation, run_in_child, simulated_device
from memprof.errors import CaptureError, MemprofError
from memprof.simulate.cards import card_named

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["run"]

NO_GPU = ("Torch not compiled with CUDA enabled", "No CUDA GPUs are available", "Found no NVIDIA driver")
"""What torch says to a script that wants a CUDA device where none is."""
WATCHED = "Expected no weakrefs to"
"""What ``torch.utils.swap_tensors`` says of tensors with weak references, such as ``torch.profiler`` keeps with
``record_shapes`` (``torch/csrc/profiler/data_flow.h``, ``WeakTensor``)."""


def run(
    target: str, arguments: Sequence[str], *, module: bool, output: Path, steps: str | None, simulate: str | None,
    profile: bool, profile_steps: str | None, profile_stacks: bool,
    device: str, labels: str, stacks: str, max_entries: int, absolute_paths: bool,
) -> None:  # fmt: skip
    """Run a script, or with `module` a module, and record it; end as it ends.

    Only stderr is written to, and only after the script ended, so that its output is what it would be without memprof.

    Raises
    ------
    MemprofError
        If torch is missing, an option is wrong, or the file cannot be written.

    """
    card = None if simulate is None else card_to_simulate(device, simulate, as_json=False)
    if card is not None and not inside_simulation():
        run_in_child(card)
    try:
        from memprof.capture.record import record
        from memprof.capture.script import run_as_main, show_error
        from memprof.capture.step_profilers import chosen_steps
    except ModuleNotFoundError as error:
        raise CaptureError(
            f"a recording needs {error.name}, which is not installed: pip install 'memprof[capture]'"
        ) from error
    name = os.path.basename(target)  # noqa: PTH119 - of a module's name too
    recording = record(
        output,
        device=device if card is None else simulated_device(card),
        steps=steps,
        labels=labels,
        stacks=stacks,
        max_entries=max_entries,
        profile=chosen_steps(profile_steps, None, stacks=profile_stacks) if profile else None,
        absolute_paths=absolute_paths,
        # Not the arguments of the script: who knows what is in them.
        made_by={"script": name, "command": f"memprof run {'-m ' if module else ''}{name}"},
    )
    alive: Any = None
    try:
        with recording:
            alive = run_as_main(target, arguments, module=module)
    except MemprofError as error:
        if card is not None:
            _refused(error)
        raise
    except KeyboardInterrupt:
        _say(recording.result, card)
        # As Python ends: by the signal itself, so that a shell or a scheduler sees it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except SystemExit:
        _say(recording.result, card)
        raise
    except Exception as error:  # noqa: BLE001 - whatever the script raised
        if card is not None:
            _refused(error)
        show_error(error)
        hint = _hint(error, simulated=card is not None)
        if hint:
            sys.stderr.write(f"memprof: {hint}\n")
        sys.exit(1)
    finally:
        del alive
    _say(recording.result, card)


def _hint(error: BaseException | None, *, simulated: bool) -> str:
    """Say what of memprof's the script's error comes from, if it does; an error has others that it was raised from."""
    while error is not None:
        if not simulated and any(words in str(error) for words in NO_GPU):
            return "no CUDA device is here; --simulate h200, or another card, gives the script one"
        if WATCHED in str(error):
            return (
                "torch does not swap tensors that its profiler has seen, and full labels need the profiler: use "
                "--labels light on CUDA, or --labels none"
            )
        error = error.__cause__
    return ""


def _refused(error: Exception) -> None:
    """Raise the refusal that an error of the script stands for, if it does."""
    from memprof.simulate.unsimulated import as_refusal, with_place

    refusal = as_refusal(error)
    if refusal is not None:
        raise with_place(refusal, error) from None


def _say(result: Any, card: str | None) -> None:
    if result is None:
        return
    from memprof.report.capture import capture_report
    from memprof.report.console import make_console

    name = None if card is None else card_named(card).name
    make_console(stderr=True).print(capture_report(result, card=name))
    if name is not None and not result.entries:
        sys.stderr.write(
            f"memprof: nothing was allocated on the simulated {name}; processes that the script starts do not have it: "
            "run the script that trains itself, not its launcher\n"
        )
