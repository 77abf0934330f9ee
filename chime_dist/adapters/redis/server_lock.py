"""One embedded server per state directory: a lock that the server itself holds, and whose name is in it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Self

import structlog
from pydantic import ValidationError

from chime_dist.adapters.process_identity import ProcessIdentity
from chime_dist.core.frozen import Frozen
from chime_dist.errors import ServiceError

log = structlog.get_logger()

LOCK_NAME = "redis.lock"

_POLL_S = 0.05
_ORPHANS_GRACE_S = 1.0
"""How long a server may outlive its owner before it is stopped: the kernel's signal is on its way."""
_STOP_PATIENCE_S = 10.0


class LockHolder(Frozen):
    """The server that is alive on a state directory, and who answers for it."""

    server: ProcessIdentity
    owner: ProcessIdentity
    """The process that started it."""

    @property
    def orphaned(self) -> bool:
        """Whether the server has certainly outlived its owner."""
        return self.owner.gone() is True and self.server.gone() is False


class ServerLock:
    """An exclusive ``flock`` on the state directory, which passes to the server that inherits ``descriptor``."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    async def acquire(cls, state_dir: Path, patience_s: float) -> Self:
        """Lock the directory for the server to come.

        A server whose owner has ended is an orphan, and is stopped: what it has acknowledged is on the disk. One
        whose owner lives, or cannot be judged from here, gets ``patience_s`` seconds to end. Raises ServiceError
        naming the server that stays alive.
        """
        lock = cls(os.open(state_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        try:
            grace_s = min(_ORPHANS_GRACE_S, patience_s)
            if not await lock._free_within(grace_s):
                holder = lock._holder()
                if holder is not None and holder.orphaned:
                    await lock._stop(holder, state_dir)
                elif not await lock._free_within(patience_s - grace_s):
                    raise ServiceError(_refusal(state_dir, holder))
            # Until the next server has a name, none is better than the last one's.
            os.ftruncate(lock.descriptor, 0)
        except BaseException:
            lock.close()
            raise
        return lock

    def name(self, server: int) -> None:
        """Write down that the process with this id is the server, and this process its owner."""
        holder = LockHolder(server=ProcessIdentity.of(server), owner=ProcessIdentity.ours())
        os.pwrite(self.descriptor, holder.model_dump_json().encode(), 0)

    def close(self) -> None:
        """Close our descriptor; a server that inherited it keeps the lock until it ends."""
        os.close(self.descriptor)

    async def _free_within(self, seconds: float) -> bool:
        """Take the lock; False where it stays another's for so long."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                await asyncio.sleep(_POLL_S)
            else:
                return True

    async def _stop(self, orphan: LockHolder, state_dir: Path) -> None:
        """End an orphan and take its lock. Raises ServiceError where it cannot be ended."""
        log.warning(
            "redis.orphan_stopped",
            pid=orphan.server.pid,
            owner=orphan.owner.pid,
            state_dir=str(state_dir),
            why="its owner has ended, and two servers on one append-only file would destroy it",
        )
        for number in (signal.SIGTERM, signal.SIGKILL):
            # A process that took its id since is not meant.
            if orphan.server.gone() is False:
                os.kill(orphan.server.pid, number)
            if await self._free_within(_STOP_PATIENCE_S):
                return
        raise ServiceError(_refusal(state_dir, orphan))

    def _holder(self) -> LockHolder | None:
        try:
            return LockHolder.model_validate_json(os.pread(self.descriptor, 4096, 0))
        except ValidationError:
            return None


def _refusal(state_dir: Path, holder: LockHolder | None) -> str:
    who = f"process {holder.server.pid}, started by {holder.owner}" if holder is not None else "process unknown"
    return (
        f"{state_dir}: a redis-server ({who}) is alive on this state directory. End the launch that started it,"
        " or choose another state_dir"
    )
