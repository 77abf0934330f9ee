"""The journal on files, where disks fill up, processes are killed and owners are replaced (H8)."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chime_dist.adapters.directory.durable_file import Disk
from chime_dist.adapters.directory.file_journal import FENCE_NAME, JOURNAL_NAME, FileJournal
from chime_dist.core.journal import parse_line
from chime_dist.errors import JournalError, RunDirectoryError
from chime_dist.ports import Appended


def journal_in(folder: Path, disk: Disk | None = None) -> FileJournal:
    return FileJournal(lambda run_id: folder / run_id, disk=disk or Disk())


def stored(folder: Path) -> bytes:
    return (folder / "run" / JOURNAL_NAME).read_bytes()


def tear(folder: Path, tail: bytes) -> None:
    with (folder / "run" / JOURNAL_NAME).open("ab") as file:
        file.write(tail)


async def two_lines(folder: Path) -> tuple[FileJournal, int]:
    journal = journal_in(folder)
    fence = await journal.take_fence("run")
    for position in range(2):
        await journal.append("run", fence, position, f"line {position}")
    return journal, fence


class FailingDisk(Disk):
    """Fails one kind of call, on demand."""

    def __init__(self) -> None:
        self.full = self.unsyncable = self.frozen = False

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        """See ``Disk``."""
        if not self.full:
            return super().write(descriptor, data, offset)
        if len(data) > 4:
            return super().write(descriptor, data[:4], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fsync(self, descriptor: int) -> None:
        """See ``Disk``."""
        if self.unsyncable:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        """See ``Disk``."""
        if self.frozen:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().truncate(descriptor, size)


async def test_a_line_is_one_line_of_the_file(tmp_path: Path) -> None:
    await two_lines(tmp_path)
    assert stored(tmp_path) == b"line 0\nline 1\n"


async def test_another_process_sees_the_entries_and_takes_over(tmp_path: Path) -> None:
    journal, fence = await two_lines(tmp_path)
    successor = journal_in(tmp_path)
    assert await successor.read("run") == ["line 0", "line 1"]
    newer = await successor.take_fence("run")
    assert newer > fence
    assert await successor.append("run", newer, 2, "line 2") is Appended.APPENDED
    assert await journal.append("run", fence, 2, "line 2'") is Appended.FENCED
    assert await journal.read("run") == ["line 0", "line 1", "line 2"]


async def test_processes_that_race_for_a_fence_get_different_ones(tmp_path: Path) -> None:
    journals = [journal_in(tmp_path) for _ in range(8)]
    fences = await asyncio.gather(*(journal.take_fence("run") for journal in journals))
    assert sorted(fences) == list(range(1, 9))


async def test_reading_creates_nothing(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    assert (await journal.head("run"), await journal.read("run")) == (0, [])
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240 - a temporary folder


async def test_a_copied_journal_is_readable_without_its_fence_file(tmp_path: Path) -> None:
    await two_lines(tmp_path)
    (tmp_path / "run" / FENCE_NAME).unlink()
    assert await journal_in(tmp_path).read("run", 1) == ["line 1"]


@pytest.mark.parametrize("tail", [b"li", "订".encode()[:2], b'{"half":'])
async def test_a_torn_tail_is_no_entry_and_the_next_owner_cuts_it(tmp_path: Path, tail: bytes) -> None:
    """H8: a line without its end was acknowledged to nobody; two entries never fuse into one."""
    await two_lines(tmp_path)
    tear(tmp_path, tail)
    journal = journal_in(tmp_path)
    assert await journal.read("run") == ["line 0", "line 1"]
    assert stored(tmp_path).endswith(tail), "a reader changes nothing"
    with capture_logs() as logs:
        fence = await journal.take_fence("run")
    assert [(entry["event"], entry["bytes"]) for entry in logs] == [("journal.torn_tail_cut", len(tail))]
    assert await journal.append("run", fence, 2, "line 2") is Appended.APPENDED
    assert stored(tmp_path) == b"line 0\nline 1\nline 2\n"


async def test_a_full_disk_leaves_the_file_as_it_was_and_the_append_can_be_repeated(tmp_path: Path) -> None:
    """H8: a line is whole or absent, and an append that failed was not acknowledged."""
    disk = FailingDisk()
    journal = journal_in(tmp_path, disk)
    fence = await journal.take_fence("run")
    await journal.append("run", fence, 0, "line 0")
    disk.full = True
    with pytest.raises(RunDirectoryError, match=r"journal\.jsonl: could not be made durable.*No space left"):
        await journal.append("run", fence, 1, "line 1")
    assert stored(tmp_path) == b"line 0\n"
    disk.full = False
    assert await journal.append("run", fence, 1, "line 1") is Appended.APPENDED
    assert stored(tmp_path) == b"line 0\nline 1\n"


async def test_a_disk_that_fails_in_every_way_never_fuses_two_lines(tmp_path: Path) -> None:
    """H8: not even the half line could be cut; the next append cuts it first."""
    disk = FailingDisk()
    journal = journal_in(tmp_path, disk)
    fence = await journal.take_fence("run")
    disk.full = disk.frozen = True
    with pytest.raises(RunDirectoryError):
        await journal.append("run", fence, 0, "line 0")
    assert stored(tmp_path) == b"line"
    assert await journal.read("run") == []
    disk.full = disk.frozen = False
    assert await journal.append("run", fence, 0, "line 0") is Appended.APPENDED
    assert stored(tmp_path) == b"line 0\n"


async def test_a_line_that_was_not_synced_was_not_appended(tmp_path: Path) -> None:
    disk = FailingDisk()
    journal = journal_in(tmp_path, disk)
    fence = await journal.take_fence("run")
    disk.unsyncable = True
    with pytest.raises(RunDirectoryError):
        await journal.append("run", fence, 0, "line 0")
    disk.unsyncable = False
    assert await journal.head("run") == 0
    assert await journal.append("run", fence, 0, "line 0") is Appended.APPENDED


async def test_a_directory_that_cannot_be_made_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file is in the way")
    with pytest.raises(RunDirectoryError, match=r"run/journal\.jsonl"):
        await journal_in(tmp_path).take_fence("run")


async def test_a_journal_that_was_replaced_by_a_shorter_one_is_read_anew(tmp_path: Path) -> None:
    journal, _ = await two_lines(tmp_path)
    (tmp_path / "run" / JOURNAL_NAME).write_bytes(b"other\n")
    assert await journal.read("run") == ["other"]
    (tmp_path / "run" / JOURNAL_NAME).unlink()
    assert await journal.read("run") == []


async def test_a_byte_that_is_no_text_is_left_to_whoever_verifies(tmp_path: Path) -> None:
    """R1: a journal that was altered is refused by its line, not by its encoding."""
    journal, fence = await two_lines(tmp_path)
    path = tmp_path / "run" / JOURNAL_NAME
    path.write_bytes(stored(tmp_path).replace(b"line 1", b"line \xff"))
    [_, damaged] = await journal_in(tmp_path).read("run")
    with pytest.raises(JournalError, match="the journal, entry 1: the line's hash does not match"):
        parse_line(damaged, "the journal, entry 1")
    assert await journal.append("run", fence, 1, "line 1") is Appended.CONFLICT


async def test_an_append_that_was_cancelled_can_be_repeated(tmp_path: Path) -> None:
    """D4: the thread finishes what the coroutine no longer waits for."""
    written, go_on = threading.Event(), threading.Event()

    class SlowDisk(Disk):
        def fsync(self, descriptor: int) -> None:
            """See ``Disk``."""
            super().fsync(descriptor)
            written.set()
            go_on.wait(10)

    journal = journal_in(tmp_path, SlowDisk())
    go_on.set()
    fence = await journal.take_fence("run")
    go_on.clear()
    written.clear()
    append = asyncio.create_task(journal.append("run", fence, 0, "line 0"))
    await asyncio.to_thread(written.wait, 10)
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append
    go_on.set()
    assert await journal.append("run", fence, 0, "line 0") is Appended.ALREADY_SAME
    assert await journal.append("run", fence, 1, "line 1") is Appended.APPENDED
