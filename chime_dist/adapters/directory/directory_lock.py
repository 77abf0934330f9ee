"""One owner at a time for a folder, and the owner's name for everybody else."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from chime_dist.adapters.directory.durable_file import is_at
from chime_dist.core.frozen import Frozen
from chime_dist.errors import RunDirectoryError

_PATIENCE_S = 0.5
"""How long ``acquire`` tries: ``holder_of`` holds a shared lock for an instant, which must not refuse an owner."""


class Holder(Frozen):
    """Who holds a lock."""

    pid: int
    host: str
    started_at: str
    """UTC with offset: when the lock was taken."""


class DirectoryLock:
    """An exclusive ``flock`` on a file that names its holder.

    The kernel drops it when the process ends, however it ends, so a crash leaves no stale lock. The file stays.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._what = what
        self._descriptor: int | None = None

    def acquire(self, now: datetime) -> None:
        """Take the lock; may block for half a second. ``now`` is UTC with offset.

        Raises RunDirectoryError naming the holder where it is held, by this process or another one, where the
        folder is gone, and where the file system has no locks.
        """
        holder = Holder(pid=os.getpid(), host=socket.gethostname(), started_at=now.isoformat())
        try:
            self._descriptor = self._take(holder)
        except FileNotFoundError as error:
            raise RunDirectoryError(
                f"{self.path.parent} is not there any more; the command ls lists the launches that are"
            ) from error
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path}: cannot be locked ({error}); the runs folder needs a writable file system with flock"
            ) from error

    def release(self) -> None:
        """Give the lock back; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take(self, holder: Holder) -> int:
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._wait(descriptor)
                # Whoever held it may have removed the folder, as ``clean`` does.
                if is_at(self.path, descriptor):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, holder.model_dump_json().encode(), 0)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _wait(self, descriptor: int) -> None:
        give_up = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    raise RunDirectoryError(self._refusal(_read(descriptor))) from None
                time.sleep(_PATIENCE_S / 10)
            else:
                return

    def _refusal(self, holder: Holder | None) -> str:
        who = (
            f"process {holder.pid} on {holder.host} since {holder.started_at}"
            if holder is not None
            else "a process that has not written its name yet"
        )
        return f"{self.path.parent}: the {self._what} lock is held by {who}; wait for it to end, or stop it first"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def holder_of(path: Path) -> Holder | None:
    """Who holds the lock file at ``path`` now, or None where nobody does or the holder gave no name yet."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> Holder | None:
    try:
        return Holder.model_validate_json(os.pread(descriptor, 4096, 0))
    except ValidationError:
        return None
