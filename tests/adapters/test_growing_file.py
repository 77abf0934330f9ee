"""A file that grows is read once, line by whole line."""

from __future__ import annotations

from pathlib import Path

import pytest

from chime_dist.adapters.directory.growing_file import GrowingFile
from chime_dist.errors import RunDirectoryError


def test_every_whole_line_comes_once_and_a_torn_one_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    file, counter = GrowingFile(path), GrowingFile(path)
    assert (list(file.lines()), counter.count()) == ([], 0)
    path.write_bytes(b"one\ntwo\nthr")
    assert (list(file.lines()), counter.count()) == ([b"one\n", b"two\n"], 2)
    assert (list(file.lines()), counter.count()) == ([], 0)
    with path.open("ab") as appended:
        appended.write(b"ee\nfour\n")
    assert (list(file.lines()), counter.count()) == ([b"three\n", b"four\n"], 2)


@pytest.mark.parametrize(
    ("newest", "lines"),
    [(100, [b"a\n", b"bb\n", b"ccc\n"]), (7, [b"bb\n", b"ccc\n"]), (6, [b"ccc\n"]), (4, [b"ccc\n"]), (3, [])],
)
def test_of_an_old_file_only_the_end_is_read(tmp_path: Path, newest: int, lines: list[bytes]) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\nbb\nccc\n")
    file = GrowingFile(path, newest)
    assert list(file.lines()) == lines
    with path.open("ab") as appended:
        appended.write(b"dddddddddddd\n")
    assert list(file.lines()) == [b"dddddddddddd\n"]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for look in (lambda: list(GrowingFile(tmp_path).lines()), lambda: GrowingFile(tmp_path).count()):
        with pytest.raises(RunDirectoryError, match="cannot be read"):
            look()
