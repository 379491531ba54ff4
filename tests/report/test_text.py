from __future__ import annotations

import time

from memprof.report.text import clean


def test_escape_sequences_and_direction_marks_are_taken_out():
    assert clean("a\x1b[2Jb\u202ec\nd\x7f") == "a?[2Jb?c?d?"


def test_other_alphabets_stay():
    assert clean("Größe/模型.py") == "Größe/模型.py"


def test_long_text_is_cut():
    assert clean("x" * 300, 10) == "x" * 9 + "…"


def test_what_is_cut_off_is_not_looked_at():
    # given: far more than anybody reads, of what takes long
    text = "\x1b]0;x\x07" * 2_000_000

    # when
    before = time.process_time()
    shown = clean(text)

    # then
    assert shown == ("?]0;x?" * 40)[:199] + "…"
    assert time.process_time() - before < 0.1
