"""A file that grows is read once, line by whole line."""

from __future__ import annotations

from pathlib import Path

import pytest

from chime_dist.adapters.directory.growing_file import GrowingFile
from chime_dist.errors import RunDirectoryError


def test_every_whole_line_comes_once_and_a_torn_one_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    file = GrowingFile(path)
    assert list(file.lines()) == []
    path.write_bytes(b"one\ntwo\nthr")
    assert list(file.lines()) == [b"one\n", b"two\n"]
    assert list(file.lines()) == []
    with path.open("ab") as appended:
        appended.write(b"ee\nfour\n")
    assert list(file.lines()) == [b"three\n", b"four\n"]


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
    with pytest.raises(RunDirectoryError, match="cannot be read"):
        list(GrowingFile(tmp_path).lines())


@pytest.mark.parametrize("now", [b"six\n", b"four\nfive\nsix\n", b"four\nfive\nsix\nseven\n"])
@pytest.mark.parametrize("noticed", [False, True])
def test_another_file_in_its_place_is_read_from_its_beginning(tmp_path: Path, now: bytes, noticed: bool) -> None:
    """Shorter, as long or longer, and whether anybody looked while there was none."""
    path = tmp_path / "rows"
    path.write_bytes(b"one\ntwo\nthree\n")
    file = GrowingFile(path, anew=True)
    assert len(list(file.lines())) == 3
    path.unlink()
    if noticed:
        assert list(file.lines()) == []
    path.write_bytes(now)
    assert b"".join(file.lines()) == now
    assert list(file.lines()) == []


def test_a_copy_in_its_place_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"one\n")
    file = GrowingFile(path, anew=True)
    assert list(file.lines()) == [b"one\n"]
    (tmp_path / "edited").write_bytes(b"one\ntwo\n")
    (tmp_path / "edited").replace(path)
    assert list(file.lines()) == [b"two\n"]
