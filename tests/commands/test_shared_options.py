"""`sweep` takes every option of `capture`, and hands each of them on unchanged."""

from __future__ import annotations

import typer

from memprof.cli import app
from memprof.commands.sweep_children import arguments
from memprof.options import RECIPE_DEFAULTS, split_options

COMMANDS = typer.main.get_command(app).commands
VARIED = {"model", "quant", "precision", "mbs", "seq"}
PROFILE = {"profile", "profile_steps", "profile_stacks"}
"""What only one capture is asked for: a sweep does not profile."""


def names(command):
    return {parameter.name for parameter in COMMANDS[command].params} - {"help"}


def parsed(command, words):
    return COMMANDS[command].make_context(command, list(words)).params


def test_sweep_has_every_option_of_capture():
    assert names("capture") - names("sweep") == PROFILE
    assert names("sweep") - names("capture") == {"force", "jobs"}


def test_fit_has_every_option_of_the_recipe_and_none_of_the_recorder():
    defaults = parsed("fit", ["--card", "t4"])
    recipe, recorder = split_options(defaults)

    assert set(recipe) - {"card", "maximum", "up_to", "as_json"} == set(RECIPE_DEFAULTS) | VARIED | {"fix"}
    assert recorder == {}
    differing = {name for name, value in RECIPE_DEFAULTS.items() if defaults[name] != value}
    assert differing == {"cycles"}


def test_defaults_arrive_as_they_are():
    defaults = parsed("capture", [])

    given = arguments({**defaults, **dict.fromkeys(["as_json", *PROFILE])})
    assert parsed("capture", given) == defaults


def test_every_value_arrives_as_it_was_given():
    given = ["--lora-r", "4", "--no-lora-query", "--lora-mlp", "--lora-dropout", "0.25", "--data", "d.json"]
    given += ["--device", "cpu", "--labels", "none", "--stacks", "all", "--absolute-paths", "--cycles", "3"]
    swept = parsed("sweep", [*given, "-o", "folder", "--mbs", "1,2"])
    shared = {name: swept[name] for name in names("capture") - VARIED - PROFILE - {"output", "as_json"}}

    recipe, recorder = split_options(shared)
    captured = parsed("capture", arguments({**recipe, **recorder}))

    assert {name: captured[name] for name in shared} == shared
    assert (captured["lora_r"], captured["lora_query"], captured["labels"]) == (4, False, "none")
    assert {"device", "labels", "stacks", "max_entries", "absolute_paths"} <= set(recorder)
    assert recipe["data"] == "d.json"
