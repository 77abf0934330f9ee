"""Disks that fail, and a child process that is killed in front of any chosen system call.

Run as ``python -m tests.adapters.faulty_disks FOLDER``: writes the same episodes once per system call, each time
in a process that is killed (SIGKILL) right there, with half of the bytes where the call is a write.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from pathlib import Path

from typing_extensions import override

from chime_dist.adapters.directory.durable_file import Disk
from chime_dist.adapters.directory.episode_store import EpisodeStore
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.episode import EpisodeTrace, Outcome
from tests.adapters.traces import NOW, launch_in, trace, unit


class CountingDisk(Disk):
    """Strikes in front of system call number ``at`` (0-based), in the middle of it where it is a write."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.calls = 0

    def _strike(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _due(self) -> bool:
        self.calls += 1
        return self.calls - 1 == self.at

    @override
    def open(self, path: Path, flags: int) -> int:
        if self._due():
            self._strike()
        return super().open(path, flags)

    @override
    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        if self._due():
            super().write(descriptor, data[: len(data) // 2], offset)
            self._strike()
        return super().write(descriptor, data, offset)

    @override
    def fsync(self, descriptor: int) -> None:
        if self._due():
            self._strike()
        super().fsync(descriptor)

    @override
    def truncate(self, descriptor: int, size: int) -> None:
        if self._due():
            self._strike()
        super().truncate(descriptor, size)

    @override
    def replace(self, source: Path, target: Path) -> None:
        if self._due():
            self._strike()
        super().replace(source, target)

    @override
    def make_folder(self, path: Path) -> None:
        if self._due():
            self._strike()
        super().make_folder(path)


class DeadlyDisk(CountingDisk):
    """Kills its process instead of failing."""

    def _strike(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def episodes(attempt: str) -> list[EpisodeTrace]:
    """Two train positions, an infra attempt of the second before its final one, and one eval index."""
    return [
        trace(unit(0), f"{attempt}-a"),
        trace(unit(1), f"{attempt}-b", outcome=Outcome.INFRA, final=False, detail="连接 refused"),
        trace(unit(1), f"{attempt}-c", outcome=Outcome.FAILURE, delivery=2),
        trace(unit(0, "eval", version=2), f"{attempt}-d"),
    ]


async def write_all(launch: LaunchDirectory, disk: Disk, acknowledged: Path) -> None:
    """Write the episodes one by one; every acknowledged attempt is a line of ``acknowledged``."""
    store = await EpisodeStore.open(launch, now=NOW, disk=disk)
    descriptor = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for episode in episodes("first"):
        stored = await store.write(episode)
        os.write(descriptor, f"{stored.record.attempt}\n".encode())
    os.close(descriptor)
    await store.close()


def main(folder: Path) -> None:
    """One launch ``folder/<k>`` per system call k; the last one is not killed."""
    step = 0
    while True:
        child = os.fork()
        if child == 0:
            launch = launch_in(folder, str(step))
            asyncio.run(write_all(launch, DeadlyDisk(step), launch.path / "acknowledged"))
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            return
        step += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
