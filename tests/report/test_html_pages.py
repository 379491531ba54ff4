"""Pages made of hostile files: what a stranger wrote is shown, and does nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from memprof.analysis.breakdown import break_down
from memprof.analysis.growth import measure_growth
from memprof.analysis.sweep import point_of
from memprof.report.html import breakdown_page
from memprof.report.html_page import escaped, table
from memprof.report.html_sweep import sweep_page
from memprof.trace import load
from memprof.trace.snapshot import read_snapshot

EVIL = '</script><script>alert(1)</script><img src=x onerror="alert(2)">\x1b[2J'
COLUMNS = ("category", "finer", "phase", "module", "op", "dtype", "shape", "parameter")


def hostile_trace(mbs):
    """One tensor of which every text is hostile."""
    frames = [{"name": EVIL, "filename": f"{EVIL}.py", "line": 1}]
    alloc = {"action": "alloc", "addr": 4096, "size": 1000 * mbs, "stream": 0, "time_us": 1, "frames": frames}
    free = {**alloc, "action": "free_requested"}
    strings = ["activations", EVIL, "2,3"]
    labels = {name: [{"category": 0, "shape": 2}.get(name, 1)] for name in COLUMNS}
    snapshot = {
        "segments": [],
        "device_traces": [[alloc, free, {**free, "action": "free_completed"}]],
        "memprof": {
            "version": 1,
            "source": "profiled",
            "made_by": {"command": EVIL, "config": {"model": EVIL, "mbs": mbs}},
            "environment": {"card": EVIL, "torch": EVIL},
            "strings": strings,
            "labels": {**labels, "device": [0], "entry": [0], "step": [0], "saved": [True]},
            "marks": [{"device": 0, "entry": 0, "name": f"step 0 {EVIL}"}, {"device": 0, "entry": 1, "name": EVIL}],
            "stats": [],
        },
    }
    return read_snapshot(snapshot, path=f"/tmp/{EVIL}.pickle")


class Tags(HTMLParser):
    """Collects the tags of a page and the scripts in it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self._in_script = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, text):
        if self._in_script:
            self.scripts[-1] += text


@pytest.fixture(scope="module", params=["capture", "sweep"])
def page(request):
    if request.param == "capture":
        return breakdown_page(break_down(hostile_trace(1)))
    points = [point_of(hostile_trace(mbs), f"{EVIL}{mbs}") for mbs in (1, 2)]
    return sweep_page(measure_growth(points, notes=[EVIL]), EVIL)


def test_hostile_texts_make_no_tag_and_no_script(page):
    tags = Tags(page)

    assert not [tag for tag, _ in tags.tags if tag in ("img", "iframe", "object", "link")]
    assert not [attributes for _, attributes in tags.tags if any(name.startswith("on") for name in attributes)]
    assert not [script for script in tags.scripts if script.strip() == "alert(1)"]
    assert "\x1b" not in page


def test_nothing_is_fetched(page):
    tags = Tags(page)

    assert not [attributes for _, attributes in tags.tags if {"src", "href"} & set(attributes)]
    (policy,) = (each["content"] for tag, each in tags.tags if tag == "meta" and "http-equiv" in each)
    assert policy.startswith("default-src 'none'")


def test_hostile_text_is_shown(page):
    assert escaped("</script><script>alert(1)") in page


def test_timeline_draws_every_category_to_the_byte():
    page = breakdown_page(break_down(hostile_trace(7)))

    drawn = re.search(r'"name":"activations".*?"y":\[([\d,]+)\]', page) or re.search(
        r'"y":\[([\d,]+)\][^\]]*"name":"activations"', page
    )
    assert [int(value) for value in drawn[1].split(",")] == [0, 7000, 0, 0]


def test_last_row_of_a_table_can_be_a_sum():
    text = table(("a", "b"), [("x<", "1"), ("all", "2")], numbers=(1,), colors=("#000000",), summed=True)

    assert '<tr class="sum"><td>all</td><td class="n">2</td>' in text
    assert 'style="background:#000000"></span>x&lt;</td>' in text


def test_page_of_a_sweep_names_the_cause():
    folder = Path(__file__).parents[2] / "traces" / "sweep-pythia-70m"
    points = [
        point_of(load(folder / name), name)
        for quant in ("none", "bnb.nf4")
        for mbs in (16, 32)
        for name in [f"pythia-70m_16-mixed_{quant}_seq1037_mbs{mbs}.pickle"]
    ]

    text = sweep_page(measure_growth(points), "sweep")

    assert "<p>Finding quantized-output-float32: Quantized layers return float32: 4.020 GB more than" in text
    assert "<p>Because: Quantized layers return float32 (quantized-output-float32): without it a sample costs" in text
