"""Bytes that survive a crash: files replaced as a whole, and logs that grow by whole lines.

Nothing here returns before its fsync. Every system call goes through ``Disk``, so that a test can make any one
of them fail, or stop the process in front of it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

_CHUNK = 1 << 16
_AT_ONCE = 64
"""Files that are replaced together: each keeps a descriptor open."""
_SPARE_NAMES = 3
"""Of temporary files, looked at after every write; more would need more writers of one file at a time."""


class Disk:
    """The system calls that make bytes durable, one method each."""

    def open(self, path: Path, flags: int) -> int:
        """A descriptor that child processes do not inherit."""
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Write at ``offset`` bytes from the start; returns how many bytes went in, which may be fewer."""
        return os.pwrite(descriptor, data, offset)

    def fsync(self, descriptor: int) -> None:
        """Wait until the file, or the folder, is on stable storage."""
        os.fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(descriptor, size)

    def replace(self, source: Path, target: Path) -> None:
        """Rename over ``target`` in one step."""
        source.replace(target)

    def make_folder(self, path: Path) -> None:
        """Create one folder; an existing one is fine."""
        path.mkdir(exist_ok=True)


DISK = Disk()
"""The real one."""


def make_folders(path: Path, disk: Disk = DISK) -> None:
    """Create ``path`` and its parents, each durable before the next. Raises OSError."""
    if path.is_dir():
        return
    make_folders(path.parent, disk)
    disk.make_folder(path)
    _sync_folder(path.parent, disk)


def replace_files(files: Sequence[tuple[Path, bytes]], disk: Disk = DISK) -> None:
    """Put each content in place of the file at its path; readers see the old file or the new one, never a part.

    Several processes may replace one file at a time: the last rename stays. All are durable on return. Raises
    OSError; then some targets may be replaced and no temporary file is left.
    """
    for start in range(0, len(files), _AT_ONCE):
        _replace(files[start : start + _AT_ONCE], disk)


def _replace(files: Sequence[tuple[Path, bytes]], disk: Disk) -> None:
    staged: deque[tuple[Path, Path]] = deque()
    with ExitStack() as stack:
        try:
            for path, content in files:
                make_folders(path.parent, disk)
                temporary, descriptor = _taken(path, disk)
                # Not before its rename: what is open is locked.
                stack.callback(os.close, descriptor)
                staged.append((temporary, path))
                _write_whole(descriptor, content, 0, disk)
                disk.fsync(descriptor)
            while staged:
                disk.replace(*staged[0])
                staged.popleft()
            for folder in {path.parent for path, _ in files}:
                _sync_folder(folder, disk)
        except OSError:
            # On a full disk the leftovers are what keeps it full.
            for temporary, _ in staged:
                temporary.unlink(missing_ok=True)
            raise
    for path, _ in files:
        _remove_abandoned(path)


def _taken(path: Path, disk: Disk) -> tuple[Path, int]:
    """An empty file beside ``path``, locked until its descriptor is closed.

    It has the first name that nobody holds, so what a killed process left is written over by the next one.
    """
    for number in itertools.count():
        temporary = _beside(path, number)
        descriptor = disk.open(temporary, os.O_WRONLY | os.O_CREAT)
        try:
            if _locked(descriptor) and is_at(temporary, descriptor):
                if os.fstat(descriptor).st_size:
                    disk.truncate(descriptor, 0)
                return temporary, descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise AssertionError("numbers do not end")


def _beside(path: Path, number: int) -> Path:
    return path.with_name(f".{path.name}.{number}.tmp" if number else f".{path.name}.tmp")


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Without locks on this file system nothing tells writers apart; a launch has one, or is refused.
        return True
    return True


def _remove_abandoned(path: Path) -> None:
    """What a process left that was killed while others wrote the file too: nobody comes to its name soon."""
    for number in range(1, _SPARE_NAMES + 1):
        temporary = _beside(path, number)
        with contextlib.suppress(OSError), temporary.open("rb") as left:
            if _locked(left.fileno()) and is_at(temporary, left.fileno()):
                temporary.unlink()


def is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one at ``path``: a lock on one that was removed protects nothing."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


class AppendLog:
    """A file of lines that only grows, by whole lines, with one owner.

    A failed append leaves no byte behind: the file is cut back to its last good end, at once where the disk
    allows it, else before the next append. ``torn`` is how many bytes of an unfinished last line were cut when
    the log was opened.
    """

    def __init__(self, path: Path, disk: Disk = DISK) -> None:
        self.path = path
        self._disk = disk
        make_folders(path.parent, disk)
        created = not path.exists()
        self._descriptor = disk.open(path, os.O_RDWR | os.O_CREAT)
        try:
            if created:
                _sync_folder(path.parent, disk)
            size = os.fstat(self._descriptor).st_size
            self._end = _end_of_last_line(self._descriptor, size)
            self.torn = size - self._end
            self._tidy = self.torn == 0
            self.recover()
        except BaseException:
            self.close()
            raise

    @property
    def end(self) -> int:
        """Bytes of whole, durable lines: where the next one starts."""
        return self._end

    def append(self, lines: Sequence[bytes]) -> list[int]:
        """Add lines, each without its line break, with one fsync for all; returns where each starts.

        Raises OSError, also where somebody else changed the file; then none of them is in the log.
        """
        self.recover()
        self._require_untouched()
        starts: list[int] = []
        start = self._end
        for line in lines:
            starts.append(start)
            start += len(line) + 1
        self._tidy = False
        try:
            _write_whole(self._descriptor, b"".join(line + b"\n" for line in lines), self._end, self._disk)
            self._disk.fsync(self._descriptor)
        except OSError:
            # The append's own error is the one to report; a failed cut is made good by the next recover().
            with contextlib.suppress(OSError):
                self.recover()
            raise
        self._tidy = True
        self._end = start
        return starts

    def recover(self) -> None:
        """Cut what a failed append may have left behind the last good line. Raises OSError."""
        if self._tidy:
            return
        self._disk.truncate(self._descriptor, self._end)
        self._disk.fsync(self._descriptor)
        self._tidy = True

    def _require_untouched(self) -> None:
        # An editor that saves puts another file in place of ours, and what is written to ours is gone.
        there, ours = self.path.stat(), os.fstat(self._descriptor)
        if not os.path.samestat(there, ours) or ours.st_size != self._end:
            raise OSError(errno.ESTALE, "another process changed or replaced it", str(self.path))

    def close(self) -> None:
        """Give the file back; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _write_whole(descriptor: int, content: bytes, offset: int, disk: Disk) -> None:
    rest = memoryview(content)
    while rest:
        written = disk.write(descriptor, rest, offset)
        if written <= 0:
            raise OSError(errno.EIO, "the disk took no more bytes")
        rest, offset = rest[written:], offset + written


def _sync_folder(path: Path, disk: Disk) -> None:
    descriptor = disk.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        disk.fsync(descriptor)
    finally:
        os.close(descriptor)


def _end_of_last_line(descriptor: int, size: int) -> int:
    while size > 0:
        start = max(0, size - _CHUNK)
        found = os.pread(descriptor, size - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        size = start
    return 0
