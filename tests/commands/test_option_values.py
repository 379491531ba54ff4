"""A value that an option cannot have ends every command with status 2; a file that is not there, with 1."""

from __future__ import annotations

import sys

import pytest

from memprof.cli import main


@pytest.fixture
def ended(monkeypatch, capsys, tmp_path):
    """How the command line ends in an empty directory: its status and what it says on stderr."""
    monkeypatch.chdir(tmp_path)

    def end(words):
        monkeypatch.setattr(sys, "argv", ["memprof", *words])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code, capsys.readouterr().err

    return end


RECORDER = [
    (["--labels", "nonsense"], "--labels nonsense: unknown; it can be none, light or full"),
    (["--stacks", "x"], "--stacks x: unknown; it can be python or all"),
    (["--device", "tpu"], "--device tpu: unknown; it can be auto, cuda or cpu"),
    (["--max-entries", "0"], "--max-entries 0: must be at least 1"),
    (["--simulate", "abacus"], "--simulate: card 'abacus' is not known"),
]
COMMANDS = [["capture"], ["sweep", "-o", "folder"], ["run", "-o", "run.pickle"]]


@pytest.mark.parametrize(("words", "said"), RECORDER)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_of_the_recorder(ended, tmp_path, command, words, said):
    code, err = ended([*command, *words, *(["train.py"] if command[0] == "run" else [])])

    assert code == 2
    assert err.startswith(f"memprof: {said}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep", "-o", "folder", "--mbs", "0"], "--mbs 0: '0' is no whole number from 1 on"),
        (["sweep", "-o", "folder", "--seq", "x"], "--seq x: 'x' is no whole number from 1 on"),
        (["sweep", "-o", "folder", "--quant", ","], "--quant ',' names no value"),
        (["sweep", "-o", "folder", "--recipe", "cake"], "--recipe cake: unknown"),
        (["sweep", "-o", "folder", "--prepare-kbit"], "--prepare-kbit: the recipe lit_gpt_2023 has no such option"),
        (["fit", "--card", "abacus"], "--card: card 'abacus' is not known"),
        (["fit", "--card", "t4", "--recipe", "cake"], "--recipe cake: unknown"),
        (["check", "--budget", "much", "run.pickle"], "--budget much"),
        (["growth", "folder", "--by", "colour"], "--by colour"),
        (["compare", "a", "b", "--by", "colour"], "--by colour"),
        (["breakdown", "a", "--alloc-conf", "nosuch:1"], "--alloc-conf"),
    ],
)
def test_of_other_options(ended, words, said):
    code, err = ended(words)

    assert code == 2
    assert err.startswith(f"memprof: {said}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["capture", "-o", ""],
        ["sweep", "-o", ""],
        ["run", "-o", "", "train.py"],
        ["report", "run.pickle", "-o", ""],
        ["check", "--budget", "1GB", "-o", "", "--", "--mbs", "1"],
        ["breakdown", ""],
        ["scrub", "run.pickle", ""],
        ["breakdown", "run.pickle", "--device", "-1"],
        ["breakdown", "run.pickle", "--top", "-1"],
    ],
)
def test_a_name_that_is_empty_and_a_number_below_the_least(ended, words):
    code, err = ended(words)

    assert code == 2
    assert "Invalid value for" in err
    assert ("an empty name" in err) == ("" in words)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--steps", "x", "train.py"], "--steps x: give how many"),
        (["run", "--steps", "3-1", "train.py"], "--steps 3-1: give how many"),
        (["run", "--profile-steps", "0", "train.py"], "--profile-steps 0: where step 0 begins is not known"),
        (["capture", "--device", "cpu", "--mbs", "0"], "--mbs 0: must be at least 1"),
        (["capture", "--device", "cpu", "--profile-steps", "99"], "--profile-steps 99: the run has steps 0 to 1"),
        (["capture", "--device", "cpu", "--optimizer", "paged-adamw"], "--optimizer paged-adamw: bitsandbytes has it"),
    ],
)
def test_what_is_known_once_torch_is_loaded(ended, words, said):
    pytest.importorskip("litgpt")
    code, err = ended(words)

    assert (code, err.count("\n")) == (2, 1), err
    assert err.startswith(f"memprof: {said}")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--checkpoint-dir", "nowhere"], "--checkpoint-dir nowhere: has no lit_model.pth"),
        (["--data", "no.json", "--tokenizer-dir", "."], "--data no.json: No such file or directory"),
        (["-o", "no/run.pickle"], "-o no/run.pickle: give the name of a file in a directory that exists"),
    ],
)
def test_files_that_are_not_there_end_with_1(ended, words, said):
    pytest.importorskip("litgpt")
    code, err = ended(["capture", "--device", "cpu", "--model", "pythia-14m", "--seq", "16", *words])

    assert code == 1
    assert err.splitlines()[-1].startswith(f"memprof: {said}")
