"""The run directory's writer: the RecordStore of a launch that keeps its results on disk."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Self

import structlog

from chime_dist.adapters.directory.disk_errors import explained
from chime_dist.adapters.directory.durable_file import DISK, Disk
from chime_dist.adapters.directory.episode_rows import Place
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.directory.run_writer import TALLIED, RunWriter
from chime_dist.core.episode import EpisodeTrace, Unit, unit_key
from chime_dist.errors import RunDirectoryError

_log = structlog.get_logger()

_BATCH = 256
"""Most traces that share one fsync; bounds what one failed write throws back."""


class EpisodeStore:
    """Implements ``ports.RecordStore`` over a launch directory. Open it with ``open``, one per launch.

    One thread owns all files. Writes that come in while it works wait together and share the next fsync
    (group commit), so durability costs one fsync per batch and not one per row; nothing is acknowledged before
    its fsync. A write that is cancelled before its batch starts is dropped, later it is stored.
    """

    def __init__(self, launch: LaunchDirectory, disk: Disk = DISK) -> None:
        self._launch = launch
        self._disk = disk
        self._lock = launch.records_lock()
        self._runs: dict[str, RunWriter] = {}
        self._tallies: dict[str, dict[str, int]] = {}
        """Replaced after every batch, never changed, so that the event loop may read it without waiting."""
        self._waiting: deque[tuple[EpisodeTrace, Future[EpisodeTrace]]] = deque()
        self._thread = ThreadPoolExecutor(1, "episode-store")
        self._closed = False

    @classmethod
    async def open(cls, launch: LaunchDirectory, *, now: datetime, disk: Disk = DISK) -> Self:
        """Take the launch's records lock, cut torn rows (and log them), and index every final row.

        ``now`` is UTC with offset. Raises RunDirectoryError where another process writes here or rows are damaged.
        """
        store = cls(launch, disk)
        try:
            await asyncio.get_running_loop().run_in_executor(store._thread, store._open, now)
        except BaseException:
            await store.close()
            raise
        return store

    async def write(self, trace: EpisodeTrace) -> EpisodeTrace:
        """See RecordStore. Raises RunDirectoryError; then nothing of ``trace`` is stored.

        After a failure every further write tries again and fails until the disk takes writes: stop claiming work
        at the first one.
        """
        answer: Future[EpisodeTrace] = Future()
        self._must_be_open()
        self._waiting.append((trace, answer))
        self._thread.submit(self._write_waiting)
        return await asyncio.wrap_future(answer)

    async def final(self, unit: Unit) -> EpisodeTrace | None:
        """See RecordStore. Raises RunDirectoryError where the trace is damaged or belongs to another config."""
        self._must_be_open()
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._final, unit)

    async def settled(self, run_id: str) -> frozenset[str]:
        """See RecordStore."""
        self._must_be_open()
        places = await asyncio.get_running_loop().run_in_executor(self._thread, self._places, run_id)
        return frozenset(unit_key(run_id, *place) for place in places)

    async def tally(self, run_id: str) -> Mapping[str, int]:
        """See RecordStore. Counts what was acknowledged; waits for nothing."""
        return self._tallies.get(run_id) or dict.fromkeys(TALLIED, 0)

    async def close(self) -> None:
        """Finish what waits, then give files and lock back; idempotent."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown(wait=False)

    def _must_be_open(self) -> None:
        if self._closed:
            raise RunDirectoryError(f"{self._launch.path}: the episode store is closed; open the launch again")

    # The rest runs on the store's own thread.

    def _open(self, now: datetime) -> None:
        self._lock.acquire(now)
        for folder in self._launch.runs():
            self._writer(folder.run_id)

    def _close(self) -> None:
        for writer in self._runs.values():
            writer.close()
        self._lock.release()

    def _writer(self, run_id: str) -> RunWriter:
        if run_id not in self._runs:
            folder = self._launch.run(run_id)
            try:
                writer = RunWriter(folder, self._disk)
            except OSError as error:
                raise RunDirectoryError(
                    f"{folder.path}: cannot be opened for writing: {explained(error)}"
                ) from error
            if writer.torn:
                _log.warning("run_directory.torn_row_cut", file=str(folder.episodes), bytes=writer.torn)
            self._runs[run_id] = writer
            self._tallies[run_id] = writer.tally()
        return self._runs[run_id]

    def _final(self, unit: Unit) -> EpisodeTrace | None:
        writer = self._runs.get(unit.run_id)
        return writer.final(unit) if writer is not None else None

    def _places(self, run_id: str) -> list[Place]:
        writer = self._runs.get(run_id)
        return writer.settled() if writer is not None else []

    def _write_waiting(self) -> None:
        batch: list[tuple[EpisodeTrace, Future[EpisodeTrace]]] = []
        while self._waiting and len(batch) < _BATCH:
            trace, answer = self._waiting.popleft()
            if answer.set_running_or_notify_cancel():
                batch.append((trace, answer))
        try:
            for run_id in {trace.record.unit.run_id for trace, _ in batch}:
                self._write_run(run_id, [(t, answer) for t, answer in batch if t.record.unit.run_id == run_id])
        except BaseException as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            raise

    def _write_run(self, run_id: str, batch: list[tuple[EpisodeTrace, Future[EpisodeTrace]]]) -> None:
        results: list[EpisodeTrace | RunDirectoryError]
        try:
            writer = self._writer(run_id)
            results = writer.write([trace for trace, _ in batch])
            self._tallies[run_id] = writer.tally()
        except RunDirectoryError as error:
            _log.error("run_directory.write_failed", run=run_id, traces=len(batch), reason=str(error))
            results = [error] * len(batch)
        for (_, answer), result in zip(batch, results, strict=True):
            if isinstance(result, RunDirectoryError):
                answer.set_exception(result)
            else:
                answer.set_result(result)
