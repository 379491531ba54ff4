from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from memprof.errors import UsageError
from memprof.options import RECIPE_DEFAULTS
from memprof.recipes.registry import LATER, RECIPES, make_recipe, settings_for

VARIED = {"model", "quant", "precision", "mbs", "seq", "fix"}


def defaults(recipe):
    return {**RECIPE_DEFAULTS, "recipe": recipe}


@pytest.mark.torch
@pytest.mark.parametrize("recipe", list(RECIPES))
def test_a_recipe_has_every_option_but_those_that_it_lacks(recipe):
    made = make_recipe(recipe, settings_for(defaults(recipe), RECIPE_DEFAULTS))
    fields = {field.name for field in dataclasses.fields(made)}
    lacks = RECIPES[recipe].lacks
    options = (RECIPE_DEFAULTS.keys() | VARIED) - {"recipe"}
    assert options - lacks <= fields
    assert not lacks & fields
    assert made.recipe == recipe


@pytest.mark.torch
@pytest.mark.parametrize("recipe", list(RECIPES))
def test_what_is_planned_is_what_the_file_will_say(recipe):
    settings = settings_for(defaults(recipe), RECIPE_DEFAULTS)
    written = make_recipe(recipe, settings).settings()
    assert {name: written.get(name) for name in settings} == settings


def test_an_option_that_a_recipe_lacks_is_an_error_where_it_is_asked_for():
    with pytest.raises(UsageError, match="--prepare-kbit: the recipe lit_gpt_2023 has no such option"):
        settings_for({**defaults("lit_gpt_2023"), "prepare_kbit": True}, RECIPE_DEFAULTS)


def test_an_unknown_recipe_names_the_closest():
    with pytest.raises(UsageError, match=r"--recipe lit_gpt: unknown.*did you mean"):
        settings_for(defaults("lit_gpt"), RECIPE_DEFAULTS)


def test_later_options_are_left_out_at_their_defaults_and_kept_else():
    settings = settings_for({**defaults("lit_gpt_2023"), "fix": "bf16-true"}, RECIPE_DEFAULTS)
    assert settings.keys() & LATER == {"fix"}


def test_recipes_are_found_without_loading_torch():
    code = "import sys, memprof.recipes.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
