"""Files replaced as a whole, logs that grow by whole lines."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from chime_dist.adapters.directory.disk_errors import explained
from chime_dist.adapters.directory.durable_file import AppendLog, Disk, replace_files
from tests.adapters.faulty_disks import CountingDisk


@given(
    lines=st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b), max_size=8), cut=st.integers(0, 400)
)
def test_a_log_cut_anywhere_opens_with_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cut: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    log = AppendLog(path)
    starts = [start for line in lines for start in log.append([line])]
    log.close()
    content = path.read_bytes()
    assert [content[start : start + len(line)] for start, line in zip(starts, lines, strict=True)] == lines
    path.write_bytes(content[:cut])
    reopened = AppendLog(path)
    whole = content[: content[:cut].rfind(b"\n") + 1]
    assert reopened.torn == len(content[:cut]) - len(whole)
    reopened.append([b"next"])
    reopened.close()
    assert path.read_bytes() == whole + b"next\n"


def test_a_torn_line_longer_than_one_block_is_cut_back_to_the_last_line_break(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"one\n" + b"x" * 200_000)
    log = AppendLog(path)
    assert (log.torn, log.end) == (200_000, 4)
    log.close()
    log.close()
    path.write_bytes(b"x" * 200_000)
    log = AppendLog(path)
    assert (log.torn, log.end) == (200_000, 0)
    log.close()


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path) -> None:
    """H8: truncated JSON never replaces a good file."""
    path = tmp_path / "status.json"
    replace_files([(path, b"old")])
    for step in range(3):
        with pytest.raises(OSError, match="No space"):
            replace_files([(path, b"new content")], CountingDisk(step))
        assert [file.name for file in tmp_path.iterdir()] == ["status.json"]
        assert path.read_bytes() == b"old"


def test_a_disk_that_takes_no_bytes_is_an_error_and_not_an_endless_loop(tmp_path: Path) -> None:
    class StuckDisk(Disk):
        def write(self, descriptor: int, data: memoryview, offset: int) -> int:
            return 0

    log = AppendLog(tmp_path / "log.jsonl", StuckDisk())
    with pytest.raises(OSError, match="took no more bytes"):
        log.append([b"row"])
    assert log.end == 0
    log.close()


@pytest.mark.parametrize("meddling", ["replaced", "grown", "cut", "removed"])
def test_a_file_that_somebody_else_changed_takes_no_more_lines(tmp_path: Path, meddling: str) -> None:
    """H8: an editor that saves leaves us with a file that nobody sees; what goes into it would be lost."""
    path = tmp_path / "log.jsonl"
    log = AppendLog(path)
    log.append([b"one"])
    match meddling:
        case "replaced":
            (tmp_path / "edited").write_bytes(path.read_bytes())
            (tmp_path / "edited").replace(path)
        case "grown":
            path.write_bytes(b"one\ntheirs\n")
        case "cut":
            path.write_bytes(b"")
        case _:
            path.unlink()
    found = path.read_bytes() if path.exists() else None
    for _ in range(2):
        with pytest.raises(OSError, match=r"changed or replaced|No such file"):
            log.append([b"two"])
    assert (path.read_bytes() if path.exists() else None) == found
    log.close()


class Interleaved(Disk):
    """Others replace the same file in front of one call, each while the one before is in the middle of it."""

    def __init__(self, path: Path, call: str, others: int) -> None:
        self.path = path
        self.call = call
        self.others = others

    def _reached(self, call: str) -> None:
        if call == self.call and self.others:
            replace_files([(self.path, b"another's")], Interleaved(self.path, call, self.others - 1))
            self.others = 0

    @override
    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        self._reached("write")
        return super().write(descriptor, data, offset)

    @override
    def fsync(self, descriptor: int) -> None:
        self._reached("fsync")
        super().fsync(descriptor)

    @override
    def replace(self, source: Path, target: Path) -> None:
        self._reached("replace")
        super().replace(source, target)


@pytest.mark.parametrize("others", [1, 3])
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_file_may_be_replaced_by_several_at_once(tmp_path: Path, call: str, others: int) -> None:
    """Two resumes of a complete launch write its report at the same time: whole contents, the last one stays."""
    path = tmp_path / "report.md"
    replace_files([(path, b"ours, which is longer")], Interleaved(path, call, others))
    assert path.read_bytes() == b"ours, which is longer"
    assert [file.name for file in tmp_path.iterdir()] == ["report.md"]


def test_a_failed_replacement_leaves_the_temporary_file_of_another_one(tmp_path: Path) -> None:
    path = tmp_path / "report.md"

    class Full(Interleaved):
        def replace(self, source: Path, target: Path) -> None:
            with pytest.raises(OSError, match="No space"):
                replace_files([(path, b"another's")], CountingDisk(1))
            super().replace(source, target)

    replace_files([(path, b"ours")], Full(path, "", 0))
    assert path.read_bytes() == b"ours"
    assert [file.name for file in tmp_path.iterdir()] == ["report.md"]


def test_what_killed_processes_left_goes_with_the_next_write(tmp_path: Path) -> None:
    """It is written over or removed, so a disk never fills with it."""
    path = tmp_path / "report.md"
    for left in (".report.md.tmp", ".report.md.1.tmp", ".report.md.3.tmp"):
        (tmp_path / left).write_bytes(b"x" * 100)
    replace_files([(path, b"short")])
    assert path.read_bytes() == b"short"
    assert [file.name for file in tmp_path.iterdir()] == ["report.md"]


def test_a_large_batch_needs_few_descriptors(tmp_path: Path) -> None:
    files = [(tmp_path / str(number), b"x") for number in range(200)]
    most = 0

    class Counting(Disk):
        def fsync(self, descriptor: int) -> None:
            nonlocal most
            most = max(most, len(list(Path("/proc/self/fd").iterdir())))
            super().fsync(descriptor)

    before = len(list(Path("/proc/self/fd").iterdir()))
    replace_files(files, Counting())
    assert most - before < 100
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path, _ in files}


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EACCES, "check its owner, its rights and its attributes"),
        (errno.EPERM, "check its owner, its rights and its attributes"),
        (errno.EROFS, "mount its file system writable"),
        (errno.EXDEV, "check the path, its owner and the disk"),
    ],
)
def test_an_error_of_the_disk_comes_with_its_own_fix(number: int, fix: str) -> None:
    """Nobody who lacks a right is told to free some space."""
    assert explained(OSError(number, os.strerror(number))) == f"{os.strerror(number)}; {fix}"
