"""``memprof capture``: one recipe, one configuration, one file."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memprof.atomic import check_output, check_writable
from memprof.commands.simulated import card_to_simulate, inside_simulation, run_in_child, simulated_device
from memprof.errors import CaptureError
from memprof.options import RECIPE_DEFAULTS
from memprof.simulate.cards import card_named

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memprof.capture.recorder import CaptureResult

__all__ = ["run"]


def run(
    settings: Mapping[str, Any],
    *,
    output: Path,
    device: str,
    simulate: str | None,
    labels: str,
    stacks: str,
    max_entries: int,
    absolute_paths: bool,
    profile: bool,
    profile_steps: str | None,
    profile_stacks: bool,
    as_json: bool,
) -> None:
    """Capture one run of a recipe and say what was written.

    Raises
    ------
    UsageError
        If a setting is wrong.
    OutputError
        If `output` cannot be written.
    CaptureError
        If what a capture runs is not installed, or the run fails.

    """
    check_writable(check_output(output))  # not only after the whole run
    card = card_to_simulate(device, simulate, as_json=as_json)
    if card is not None and not inside_simulation():
        run_in_child(card)
    # It would say at the top of the report that triton, which a run of these recipes does not need, is not there.
    logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)
    try:
        import torch  # noqa: F401 - looked for first, so that its absence is told in one line

        from memprof.capture.recorder import capture
        from memprof.capture.step_profilers import chosen_steps
        from memprof.recipes.registry import make_recipe, settings_for
    except ModuleNotFoundError as error:
        raise CaptureError(
            f"a capture needs {error.name}, which is not installed: pip install 'memprof[capture]'"
        ) from error
    from memprof.report.progress import steps

    on = device if card is None else simulated_device(card)
    config = make_recipe(str(settings["recipe"]), settings_for(settings, RECIPE_DEFAULTS))
    with steps() as tell:
        result = capture(
            config,
            output=output,
            device=on,
            labels=labels,
            stacks=stacks,
            max_entries=max_entries,
            profile=chosen_steps(profile_steps, config.micro_steps, stacks=profile_stacks) if profile else None,
            absolute_paths=absolute_paths,
            progress=tell,
        )
    _print(result, as_json=as_json, card=None if card is None else card_named(card).name)


def _print(result: CaptureResult, *, as_json: bool, card: str | None) -> None:
    if as_json:
        from memprof.report.as_json import to_text

        trace = None if result.profile is None else str(result.profile)
        sys.stdout.write(to_text({"format": 1, **asdict(result), "path": str(result.path), "profile": trace}) + "\n")
        return
    from memprof.report.capture import capture_report
    from memprof.report.console import make_console

    make_console().print(capture_report(result, card=card))
