from __future__ import annotations

from memprof.report.text import clean


def test_escape_sequences_and_direction_marks_are_taken_out():
    assert clean("a\x1b[2Jb\u202ec\nd\x7f") == "a?[2Jb?c?d?"


def test_other_alphabets_stay():
    assert clean("Größe/模型.py") == "Größe/模型.py"


def test_long_text_is_cut():
    assert clean("x" * 300, 10) == "x" * 9 + "…"
