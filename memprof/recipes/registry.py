"""The recipes by name, found without loading torch."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from memprof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memprof.capture.observer import Recipe

__all__ = ["LATER", "RECIPES", "Entry", "make_recipe", "settings_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where a recipe is, and what it does not know."""

    module: str
    name: str
    """Of the class in `module`."""
    lacks: frozenset[str] = frozenset()
    """Options of the command line that are no fields of the class."""


_ONLY_HUGGINGFACE = frozenset({"prepare_kbit", "gradient_checkpointing"})
_ONLY_LIT_GPT_2023 = frozenset({"matmul_4bit", "fabric_output", "fix"})
_DATA = frozenset({"data", "tokenizer_dir"})
LATER = frozenset({"matmul_4bit", "fabric_output", "fix"})
"""Settings that files have only where they are not at their defaults: they came after the first files."""

RECIPES = {
    "lit_gpt_2023": Entry(module="memprof.recipes.lit_gpt_2023", name="LitGpt2023", lacks=_ONLY_HUGGINGFACE),
    "litgpt": Entry(
        module="memprof.recipes.litgpt", name="LitGpt", lacks=_ONLY_HUGGINGFACE | {"fabric_output", "fix"} | _DATA
    ),
    "huggingface": Entry(
        module="memprof.recipes.huggingface",
        name="HuggingFace",
        lacks=_ONLY_LIT_GPT_2023 | _DATA | {"lm_head_chunk_size", "cross_entropy_chunk_size"},
    ),
}
"""By the name that ``--recipe`` takes."""


def settings_for(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the recipe ``settings["recipe"]`` has, as its files are to have them.

    Parameters
    ----------
    settings
        Options of the command line.
    defaults
        What the command line gives where nothing is asked for.

    Raises
    ------
    UsageError
        If there is no such recipe, or a setting that it lacks has another value than the default.
    """
    recipe = str(settings["recipe"])
    lacks = _entry(recipe).lacks
    kept = {}
    for name, value in settings.items():
        asked = value != defaults.get(name)
        if name in lacks and asked:
            raise UsageError(f"--{name.replace('_', '-')}: the recipe {recipe} has no such option; leave it out")
        if name != "recipe" and name not in lacks and (asked or name not in LATER):
            kept[name] = value
    return kept


def make_recipe(recipe: str, settings: Mapping[str, Any]) -> Recipe:
    """Return the run that a recipe makes of `settings`, which are fields of its class."""
    entry = _entry(recipe)
    made: Recipe = getattr(import_module(entry.module), entry.name)(**settings)
    return made


def _entry(recipe: str) -> Entry:
    if recipe not in RECIPES:
        close = difflib.get_close_matches(recipe, RECIPES, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"--recipe {recipe}: unknown; it can be {', '.join(RECIPES)}{hint}")
    return RECIPES[recipe]
