from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from memprof.capture.paths import command_line, shorten_paths


def snapshot_with(*names):
    frames = [{"name": "f", "filename": name, "line": 1} for name in names]
    block = {"frames": [{"name": "g", "filename": "/home/somebody/secret/train.py", "line": 2}]}
    return {
        # two entries share one list, as torch's own do
        "device_traces": [[{"action": "alloc", "frames": frames}, {"action": "alloc", "frames": frames}]],
        "segments": [{"frames": [], "blocks": [block]}],
    }


def names_of(snapshot):
    return [frame["filename"] for frame in snapshot["device_traces"][0][0]["frames"]]


def test_names_are_relative_to_where_packages_and_scripts_lie(tmp_path, monkeypatch):
    # given
    monkeypatch.chdir(tmp_path)
    site = Path(sysconfig.get_paths()["purelib"])
    library = Path(sysconfig.get_paths()["stdlib"])
    snapshot = snapshot_with(
        str(site / "torch/nn/functional.py"), str(library / "contextlib.py"), str(tmp_path / "train.py"), "??", "x.py"
    )

    # when
    shorten_paths(snapshot)

    # then
    assert names_of(snapshot) == ["torch/nn/functional.py", "contextlib.py", "train.py", "??", "x.py"]


def package(directory, *names):
    for name in names:
        directory = directory / name
        directory.mkdir()
        (directory / "__init__.py").touch()
    return directory


def test_a_package_in_a_folder_of_the_search_path_keeps_its_name(tmp_path, monkeypatch):
    # given what pip --target makes, with a script's own directory inside the package in the search path too
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    inner = package(tmp_path, "litgpt", "scripts")
    (tmp_path / "namespace").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(inner)
    snapshot = snapshot_with(
        str(tmp_path / "litgpt/model.py"), str(inner / "convert.py"), str(tmp_path / "namespace/part.py")
    )

    # then
    shorten_paths(snapshot)
    assert names_of(snapshot) == ["litgpt/model.py", "litgpt/scripts/convert.py", "namespace/part.py"]


def test_a_package_outside_the_search_path_keeps_its_name(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    snapshot = snapshot_with(str(package(tmp_path, "mine", "nn") / "layers.py"))
    shorten_paths(snapshot)
    assert names_of(snapshot) == ["mine/nn/layers.py"]


def test_elsewhere_only_the_file_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    snapshot = snapshot_with("/home/somebody/lib/model.py")
    shorten_paths(snapshot)
    assert names_of(snapshot) == ["model.py"]
    assert snapshot["segments"][0]["blocks"][0]["frames"][0]["filename"] == "train.py"


def test_a_working_directory_of_root_hides_nothing_less(monkeypatch):
    monkeypatch.chdir("/")
    snapshot = snapshot_with("/home/somebody/lib/model.py")
    shorten_paths(snapshot)
    assert names_of(snapshot) == ["model.py"]


def test_the_command_has_no_directories(monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["/home/somebody/bin/memprof", "capture", "-o", "/home/somebody/run.pickle", "--data=/data/a.json"]
    )
    assert command_line() == "memprof capture -o run.pickle --data=a.json"


def test_another_program_is_not_named(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/home/somebody/train.py", "--secret"])
    assert command_line() is None
