"""The pages of the study are what their script writes from committed files."""

from __future__ import annotations

import json
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
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text):
            if target.startswith("http"):
                continue
            found = STUDY / target if target else page
            assert found.exists(), (page.name, target)
            if anchor:
                headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in headings}
                assert anchor in anchors, (page.name, target, anchor)


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


def test_grid_is_whole():
    # given what was kept of the grid: six models, five precisions, five quantizations, four batches
    rows = json.loads((STUDY / "data" / "grid-simulated.json").read_text(encoding="utf-8"))
    # then every point is there once, and ended well or out of memory
    points = {(row["model"], row["precision"], row["quant"], row["mbs"]) for row in rows}
    assert len(points) == len(rows) == 6 * 5 * 5 * 4
    assert {row["status"] for row in rows} == {"ok", "oom"}


def test_what_litgpt_and_hugging_face_hold_sums_to_the_whole():
    known = json.loads((STUDY / "data" / "hands.json").read_text(encoding="utf-8"))["hands"]
    for each in known.values():
        assert sum(row["litgpt"] for row in each["rows"]) == each["litgpt"]
        assert sum(row["hf"] for row in each["rows"]) == each["huggingface"]


def test_casebook_has_every_report_and_every_run():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from casebook_runs import CASES
    finally:
        sys.path.pop(0)
    rows = json.loads((STUDY / "data" / "casebook-simulated.json").read_text(encoding="utf-8"))
    stated = json.loads((STUDY / "data" / "casebook-reported.json").read_text(encoding="utf-8"))
    assert {row["case"] for row in stated} == {case.key for case in CASES}
    assert {(row["case"], row["run"]) for row in rows} == {(case.key, run.name) for case in CASES for run in case.runs}
    for case in CASES:
        for run in case.runs:
            assert run.script == "capture" or (ROOT / "scripts" / "casebook" / run.script).exists()
