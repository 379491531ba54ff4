"""What can be run as a script or a module, and what is said of what cannot."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch")
from memprof.capture.script import run_as_main
from memprof.errors import CaptureError

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
        ("", True, "-m : no such module"),
    ],
)
def test_what_cannot_be_run_is_told_in_one_line(target, module, said):
    with pytest.raises(CaptureError) as caught:
        run_as_main(target, [], module=module)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("module", [False, True])
def test_a_package_that_can_be_run_is(module):
    assert run_as_main("memprof_test_main", [], module=module)["found"] == "__main__"


def test_what_a_package_lacks_is_its_own_error():
    with pytest.raises(ModuleNotFoundError, match="memprof_test_nowhere"):
        run_as_main("memprof_test_lacking.inner", [], module=True)
