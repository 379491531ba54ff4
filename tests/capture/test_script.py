"""What can be run as a script or a module, and what is said of what cannot."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch")
from memprof.capture.script import run_as_main, show_error
from memprof.errors import CaptureError, UsageError

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A directory with a folder and packages, as the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["memprof"])
    monkeypatch.setattr(sys, "path", ["first", *sys.path])
    (tmp_path / "folder").mkdir()
    for name in ("memprof_test_plain", "memprof_test_main", "memprof_test_lacking"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "memprof_test_main" / "__main__.py").write_text("found = __name__")
    (tmp_path / "memprof_test_lacking" / "__init__.py").write_text("import memprof_test_nowhere")
    yield
    for name in [name for name in sys.modules if name.startswith("memprof_test_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "module", "said"),
    [
        ("none.py", False, "none.py: no such script; give a file, or -m and"),
        ("folder", False, "folder: a folder without __main__.py; give the script"),
        ("memprof_test_none", True, "-m memprof_test_none: no such module"),
        ("memprof_test_none.inner", True, "-m memprof_test_none.inner: no such module"),
        ("memprof_test_plain.inner", True, "-m memprof_test_plain.inner: no such module"),
        ("memprof_test_plain", True, "-m memprof_test_plain: a package without __main__.py; give the module"),
        (".relative", True, "-m .relative: no such module"),
    ],
)
def test_what_cannot_be_run_is_told_in_one_line(target, module, said):
    with pytest.raises(CaptureError) as caught:
        run_as_main(target, [], module=module)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "said"),
    [(False, "'': the name of the script is empty"), (True, "-m '': the name of the module is empty")],
)
def test_an_empty_name_is_an_option_with_a_wrong_value(module, said):
    with pytest.raises(UsageError) as caught:
        run_as_main("", [], module=module)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("text", [b"ok = 1\nprint(1\n", b"ok = 1\nx = \0\n"])
def test_a_script_that_cannot_be_read_is_told_as_python_tells_it(tmp_path, capsys, text):
    (tmp_path / "broken.py").write_bytes(text)
    with pytest.raises(SyntaxError) as caught:
        run_as_main("broken.py", [], module=False)

    show_error(caught.value)

    lines = capsys.readouterr().err.splitlines()
    assert lines[0].strip().endswith('broken.py", line 2')
    assert lines[-1].startswith("SyntaxError: ")


def test_the_frames_of_an_error_begin_in_the_script(tmp_path, capsys):
    (tmp_path / "broken.py").write_text("def f():\n    compile('\\0', 'x', 'exec')\nf()\n")
    with pytest.raises((SyntaxError, ValueError)) as caught:
        run_as_main("broken.py", [], module=False)

    show_error(caught.value)

    lines = capsys.readouterr().err.splitlines()
    frames = [line.split(", ", 1)[1] for line in lines if line.startswith("  File")]
    assert frames == ["line 3, in <module>", "line 2, in f"]


@pytest.mark.parametrize("module", [False, True])
def test_a_package_that_can_be_run_is(module):
    assert run_as_main("memprof_test_main", [], module=module)["found"] == "__main__"


def test_what_a_package_lacks_is_its_own_error():
    with pytest.raises(ModuleNotFoundError, match="memprof_test_nowhere"):
        run_as_main("memprof_test_lacking.inner", [], module=True)
