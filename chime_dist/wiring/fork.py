"""A new run out of an old one: the same up to a train position, run again from there.

What was learnt at a position stays (an empty commit too), because everything after it depends on it. Who wants
such a position to count leaves the run in front of it: the fork has the run's journal up to there, sealed again
under its own id with the content chain as it was, copies of the episodes behind it, and owes the rest, which the
next resume runs. The old run keeps its results.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime

import structlog

from chime_dist.adapters.directory.artifact_json import unwritable
from chime_dist.adapters.directory.durable_file import DISK
from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.directory.launch_directory import ForkedFrom, LaunchDirectory, RunFolder
from chime_dist.adapters.directory.run_writer import FailedAttempt, RunWriter
from chime_dist.core.episode import EpisodeRecord, EpisodeTrace, Trajectory
from chime_dist.core.journal import JournalEntry, counts, verified
from chime_dist.core.task import TaskView
from chime_dist.errors import JournalError, RunDirectoryError
from chime_dist.ports import Appended
from chime_dist.report.results import FORKED
from chime_dist.wiring.plans import FORK_MARK, fork_label
from chime_dist.wiring.results import JournalFile

log = structlog.get_logger()

_BATCH = 64
"""Traces written with one fsync; bounds what is in memory."""


def fork_run(launch: LaunchDirectory, run_id: str, position: int, *, now: datetime) -> str:
    """Make a run that leaves ``run_id`` in front of a train position; returns its id. ``now`` is UTC.

    Raises RunDirectoryError where a driver holds the launch, where the position is not one that the run has
    reached, or where a file is damaged; JournalError for a journal that does not verify. Then nothing is changed
    that anybody reads.
    """
    with launch.driver_lock() as lock:
        lock.acquire(now)
        # Whoever held the lock may have changed it.
        launch = LaunchDirectory.open(launch.path)
        entries = _shared_entries(launch, run_id, position)
        fork_id = _new_id(launch, run_id, position)
        folder = launch.run(fork_id)
        # Without an entry in the manifest it is what is left of a fork that was cut off.
        shutil.rmtree(folder.path, ignore_errors=True)
        with launch.records_lock() as records_lock:
            records_lock.acquire(now)
            try:
                _copy_episodes(launch, run_id, position, folder)
            except OSError as error:
                raise unwritable(folder.path, error) from error
        asyncio.run(_write_journal(fork_id, entries, folder))
        runs = launch.manifest.runs
        origin = ForkedFrom(run=run_id, position=position)
        deviations = {**runs[run_id].deviations, FORKED: fork_label(_root(launch, run_id), fork_id)}
        fork = runs[run_id].model_copy(update={"deviations": deviations, "forked_from": origin})
        launch.extended(launch.manifest.config, {**runs, fork_id: fork})
        launch.set_status("incomplete", now=now, reason=f"{run_id} was forked at position {position}")
    log.info("run.forked", run=run_id, position=position, fork=fork_id)
    return fork_id


def _shared_entries(launch: LaunchDirectory, run_id: str, position: int) -> list[JournalEntry]:
    journal, entry = JournalFile.read(launch.run(run_id).journal), launch.manifest.runs[run_id]
    last = min(journal.head, entry.train_size * entry.epochs - 1)
    if not 0 <= position <= last:
        raise RunDirectoryError(
            f"{run_id} has committed {journal.head} of {entry.train_size * entry.epochs} positions, so it can be "
            f"forked at 0 to {last}, not at {position}"
        )
    return list(verified(journal.lines[:position], str(journal.path)))


def _new_id(launch: LaunchDirectory, run_id: str, position: int) -> str:
    first = f"{run_id}{FORK_MARK}{position}"
    names = (first if count == 1 else f"{first}.{count}" for count in itertools.count(1))
    return next(name for name in names if name not in launch.manifest.runs)


def _root(launch: LaunchDirectory, run_id: str) -> str:
    while (origin := launch.manifest.runs[run_id].forked_from) is not None:
        run_id = origin.run
    return run_id


def _copy_episodes(launch: LaunchDirectory, run_id: str, position: int, folder: RunFolder) -> None:
    """Every attempt before ``position``, as it was stored and in that order, under the fork's id."""
    with closing(RunWriter(folder, DISK)) as writer:
        batch: list[EpisodeTrace] = []
        for trace in _traces(launch, run_id, position):
            batch.append(_moved(trace, folder.run_id))
            if len(batch) == _BATCH:
                _write(writer, batch)
                batch.clear()
        _write(writer, batch)


def _write(writer: RunWriter, batch: list[EpisodeTrace]) -> None:
    for answer in writer.write(batch):
        if isinstance(answer, RunDirectoryError):
            raise answer


def _traces(launch: LaunchDirectory, run_id: str, position: int) -> Iterator[EpisodeTrace]:
    archive = EpisodeArchive(launch)
    failures = {failure.record.attempt: failure for failure in archive.failures(run_id)}
    attempts = archive.attempts(run_id)
    for record in archive.records(run_id):
        if record.unit.phase != "train" or record.unit.position >= position:
            continue
        if record.final and not counts(attempts, "train", record.unit.position, record.attempt):
            # The fork's journal is not there yet, to overrule it as the old run's does.
            record = record.model_copy(update={"final": False})
        trace = archive.trace(record.unit) if record.final else _history(record, failures.get(record.attempt))
        if trace is None:
            raise RunDirectoryError(f"{record.unit.key} has a final row and no trace; the folder is damaged")
        yield trace


def _history(record: EpisodeRecord, failure: FailedAttempt | None) -> EpisodeTrace:
    """What is known of an attempt that did not count, in the form in which it is stored again."""
    view = TaskView(request="", messages=())
    if failure is None:
        return EpisodeTrace(record=record, trajectory=Trajectory(view=view))
    return EpisodeTrace(
        record=record, trajectory=Trajectory(view=view, plan=failure.plan, steps=failure.last_steps)
    )


def _moved(trace: EpisodeTrace, run_id: str) -> EpisodeTrace:
    unit = trace.record.unit.model_copy(update={"run_id": run_id})
    proposal = trace.proposal
    return trace.model_copy(
        update={
            "record": trace.record.model_copy(update={"unit": unit}),
            "proposal": None if proposal is None else proposal.model_copy(update={"run_id": run_id}),
        }
    )


async def _write_journal(run_id: str, entries: Sequence[JournalEntry], folder: RunFolder) -> None:
    journal = FileJournal(lambda _: folder.path)
    fence = await journal.take_fence(run_id)
    for entry in entries:
        line = entry.model_copy(update={"run_id": run_id}).line()
        answer = await journal.append(run_id, fence, entry.position, line)
        if answer is not Appended.APPENDED:
            raise JournalError(f"{folder.journal} refused position {entry.position}: {answer.value}")
