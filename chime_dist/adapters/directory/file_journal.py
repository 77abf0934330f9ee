"""A run's journal as ``journal.jsonl`` in its directory: one sealed line per position, fsynced before returning.

Beside it lies ``journal.fence``: fence n is its n-th line. The same file is the lock that orders owners of
different processes, so a replaced owner is refused by its next append, as it is by the Redis journal.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import structlog

from chime_dist.adapters.directory.disk_errors import explained
from chime_dist.adapters.directory.durable_file import DISK, AppendLog, Disk, make_folders
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.errors import RunDirectoryError
from chime_dist.ports import Appended, Change

log = structlog.get_logger()

JOURNAL_NAME = "journal.jsonl"
FENCE_NAME = "journal.fence"


class FileJournal:
    """Implements ``ports.Journal`` on files. One instance may serve many runs; safe for several processes.

    Disk work runs in threads. A cancelled append may still become durable; asking again answers ALREADY_SAME.
    """

    def __init__(
        self, directory_of: Callable[[str], Path], feed: ChangeFeed | None = None, disk: Disk = DISK
    ) -> None:
        """``directory_of`` gives a run id's directory; commits are told to ``feed``, if there is one."""
        self._directory_of = directory_of
        self._feed = feed
        self._disk = disk
        self._files: dict[str, _RunFile] = {}

    async def take_fence(self, run_id: str) -> int:
        """See ``ports.Journal``. Raises RunDirectoryError where the directory cannot be written."""
        return await asyncio.to_thread(self._file(run_id).take_fence)

    async def append(self, run_id: str, fence: int, position: int, line: str) -> Appended:
        """See ``ports.Journal``.

        A line that is there answers ALREADY_SAME whoever owns the journal now; then the fence is checked, then
        the head. Raises ValueError for a negative position or a line that is not one line, RunDirectoryError
        where the line could not be made durable (the file is as before) or the fence was never given.
        """
        if position < 0 or not line or "\n" in line:
            raise ValueError(f"position {position}: a journal holds non-empty single lines from position 0 on")
        answer = await asyncio.to_thread(self._file(run_id).append, fence, position, line)
        if self._feed is not None and answer in (Appended.APPENDED, Appended.ALREADY_SAME):
            self._feed.publish(Change(kind="committed", run_id=run_id, head=position + 1))
        return answer

    async def read(self, run_id: str, start: int = 0) -> list[str]:
        """See ``ports.Journal``. A line that a crash cut is not there."""
        return await asyncio.to_thread(self._file(run_id).read, start)

    async def head(self, run_id: str) -> int:
        """See ``ports.Journal``."""
        return await asyncio.to_thread(self._file(run_id).head)

    def _file(self, run_id: str) -> _RunFile:
        if run_id not in self._files:
            self._files[run_id] = _RunFile(run_id, self._directory_of(run_id), self._disk)
        return self._files[run_id]


class _RunFile:
    """One run's two files. Thread-safe; every method blocks on the disk and raises RunDirectoryError."""

    def __init__(self, run_id: str, directory: Path, disk: Disk) -> None:
        self._run_id = run_id
        self._directory = directory
        self._path = directory / JOURNAL_NAME
        self._fence_path = directory / FENCE_NAME
        self._disk = disk
        self._mutex = threading.Lock()
        self._ends = [0]
        """Byte offsets: line n lies from ``_ends[n]`` to ``_ends[n + 1]``, its line break included."""

    def take_fence(self) -> int:
        with self._owned(), self._journal(), closing(AppendLog(self._fence_path, self._disk)) as fences:
            fence = self._newest_fence() + 1
            fences.append([str(fence).encode()])
            return fence

    def append(self, fence: int, position: int, line: str) -> Appended:
        data = line.encode()
        with self._owned(), self._journal() as journal:
            self._learn()
            head = len(self._ends) - 1
            if position < head and self._bytes(position, position + 1) == data + b"\n":
                return Appended.ALREADY_SAME
            newest = self._newest_fence()
            if fence > newest:
                raise RunDirectoryError(
                    f"{self._fence_path}: fence {fence} was never given, the newest is {newest}; the run "
                    "directory was replaced while its owner ran. Resume the launch"
                )
            if fence < newest:
                return Appended.FENCED
            if position != head:
                return Appended.CONFLICT
            journal.append([data])
            self._ends.append(journal.end)
            return Appended.APPENDED

    def read(self, start: int) -> list[str]:
        with self._shared():
            head = len(self._ends) - 1
            if start >= head:
                return []
            # A byte that is no UTF-8 becomes a surrogate, which no line hash accepts: who verifies names the line.
            return self._bytes(start, head).decode("utf-8", "surrogateescape").split("\n")[:-1]

    def head(self) -> int:
        with self._shared():
            return len(self._ends) - 1

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Hold the run's lock against every other owner and reader."""
        with self._mutex, self._disk_errors("could not be made durable"):
            make_folders(self._directory, self._disk)
            with self._opened(self._fence_path, os.O_RDWR | os.O_CREAT) as fd:
                fcntl.flock(fd, fcntl.LOCK_EX)
                yield

    @contextmanager
    def _shared(self) -> Iterator[None]:
        """See only what owners have finished. Creates nothing: a reader may have no right to write."""
        with self._mutex, self._disk_errors("cannot be read"):
            if not self._fence_path.exists():
                self._learn()
                yield
                return
            with self._opened(self._fence_path, os.O_RDONLY) as fd:
                fcntl.flock(fd, fcntl.LOCK_SH)
                self._learn()
                yield

    @contextmanager
    def _journal(self) -> Iterator[AppendLog]:
        """Open the journal's file, cut what a crash left of a line that nobody was told of, and say so."""
        with closing(AppendLog(self._path, self._disk)) as journal:
            if journal.torn:
                log.warning("journal.torn_tail_cut", run=self._run_id, path=str(self._path), bytes=journal.torn)
            yield journal

    def _learn(self) -> None:
        """Find the ends of lines that are new since the last look; a line without its break is none yet."""
        if not self._path.exists():
            self._ends = [0]
            return
        with self._opened(self._path, os.O_RDONLY) as fd:
            size = os.fstat(fd).st_size
            if size < self._ends[-1]:
                self._ends = [0]
            base, offset = self._ends[-1], 0
            data = os.pread(fd, size - base, base)
            while (found := data.find(b"\n", offset)) >= 0:
                offset = found + 1
                self._ends.append(base + offset)

    def _newest_fence(self) -> int:
        return self._fence_path.read_bytes().count(b"\n")

    def _bytes(self, start: int, stop: int) -> bytes:
        with self._opened(self._path, os.O_RDONLY) as fd:
            return os.pread(fd, self._ends[stop] - self._ends[start], self._ends[start])

    @contextmanager
    def _opened(self, path: Path, flags: int) -> Iterator[int]:
        fd = self._disk.open(path, flags)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _disk_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunDirectoryError(f"{self._path}: {what}: {explained(error)}") from error
