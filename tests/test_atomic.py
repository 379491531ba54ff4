"""Files appear whole or not at all, and only where a plain file may stand."""

from __future__ import annotations

import os

import pytest

from memprof.atomic import check_writable, write_whole
from memprof.errors import OutputError


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_link_is_followed(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)

    write_whole(link, lambda file: file.write(b"new"))

    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_what_stood_there_stays_when_writing_fails(tmp_path):
    path = tmp_path / "page.html"
    path.write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        write_whole(path, fail)

    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["page.html"]


@pytest.mark.parametrize("what", ["pipe", "directory", "no folder", "loop", "null"])
def test_what_is_no_place_for_a_file_is_refused_and_left_alone(tmp_path, what):
    path = tmp_path / "there"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    elif what == "no folder":
        path = tmp_path / "none" / "there"
    elif what == "loop":
        path.symlink_to(path)
    elif what == "null":
        path.symlink_to("/dev/null")
    before = sorted(names(tmp_path))

    for attempt in (lambda: check_writable(path), lambda: write_whole(path, lambda file: file.write(b"x"))):
        with pytest.raises(OutputError) as caught:
            attempt()
        assert "\n" not in str(caught.value)

    assert sorted(names(tmp_path)) == before


def test_checking_leaves_nothing(tmp_path):
    check_writable(tmp_path / "run.pickle")

    assert names(tmp_path) == []
