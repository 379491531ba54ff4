"""The pages of the study are what their script writes from committed files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STUDY = ROOT / "docs" / "study"


def test_pages_are_what_the_script_writes():
    script = ROOT / "scripts" / "study_pages.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run python scripts/study_pages.py: {done.stdout}{done.stderr[-2000:]}"


def test_links_lead_somewhere():
    for page in STUDY.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (STUDY / target).exists(), (page.name, target)


def test_the_script_finds_a_number_that_was_changed(tmp_path):
    # given a copy of everything that the script reads, with one figure changed by hand
    import shutil

    for part in ("memprof", "scripts", "docs/study"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "traces" / "sweep-pythia-70m", tmp_path / "traces" / "sweep-pythia-70m")
    page = tmp_path / "docs" / "study" / "table.md"
    page.write_text(page.read_text(encoding="utf-8").replace("9.79", "9.78"), encoding="utf-8")
    # when
    command = [sys.executable, str(tmp_path / "scripts" / "study_pages.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # then
    assert done.returncode == 1
    assert "table.md" in done.stdout
