"""Episodes that our machinery failed and that nobody tries any more: which, why, and what becomes of them (D9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.episode import EndReason, EpisodeRecord
from chime_dist.wiring.results import JournalFile
from chime_dist.wiring.stored_cluster import stored_cluster

Fate = Literal["committed_empty", "held", "waits", "owed"]
"""``committed_empty``: a train position that taught nothing, for good. ``held``: one that is not committed, which
the next resume runs again. ``waits``: the same while a driver runs; it is committed empty or held at its turn.
``owed``: an evaluation, which the next resume runs again."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One such episode."""

    unit: str
    """Its key."""
    run_id: str
    task: str
    deliveries: int
    """How often a worker had it."""
    attempts: int
    """How often one lived to tell."""
    reason: EndReason
    detail: str
    fate: Fate
    started_at: str
    """Of the last attempt, UTC with offset."""
    row: str
    """``FILE:LINE``, 1-based, in failures.jsonl: the last attempt's plan and last steps."""


def dead_letters(launch: LaunchDirectory) -> tuple[DeadLetter, ...]:
    """In the order of the manifest's runs, and of their first failures. Raises RunDirectoryError.

    While a driver runs, an episode that has deliveries left is not among them. Evaluations of a version that is
    not the last any more are left out: nobody owes them.
    """
    most = stored_cluster(launch, ("max_deliveries",)).max_deliveries if launch.holder() is not None else None
    return tuple(letter for run_id in launch.manifest.runs for letter in _of_run(launch, run_id, most))


def _of_run(launch: LaunchDirectory, run_id: str, max_deliveries: int | None) -> Iterator[DeadLetter]:
    """``max_deliveries`` is None where no driver delivers."""
    archive, folder = EpisodeArchive(launch), launch.run(run_id)
    failed: dict[str, list[tuple[int, EpisodeRecord]]] = {}
    for line, failure in enumerate(archive.failures(run_id), start=1):
        failed.setdefault(failure.record.unit.key, []).append((line, failure.record))
    if not failed:
        return
    entry = launch.manifest.runs[run_id]
    finals, head = archive.finals(run_id), JournalFile.read(folder.journal).head
    for key, attempts in failed.items():
        line, last = attempts[-1]
        committed = last.unit.phase == "train" and last.unit.position < head
        if last.unit.phase == "eval" and last.unit.read_version != entry.train_size * entry.epochs:
            continue
        more = max_deliveries is not None and last.delivery < max_deliveries
        if key in finals or (more and not committed):
            continue
        lost = last.unreported
        yield DeadLetter(
            unit=key,
            run_id=run_id,
            task=last.unit.task,
            deliveries=last.delivery - lost,
            attempts=len(attempts) - lost,
            reason=last.end_reason,
            detail=last.detail,
            fate=_fate(last, committed, driven=max_deliveries is not None),
            started_at=last.started_at,
            row=f"{folder.failures}:{line}",
        )


def _fate(last: EpisodeRecord, committed: bool, *, driven: bool) -> Fate:
    if last.unit.phase == "eval":
        return "owed"
    if committed:
        return "committed_empty"
    return "waits" if driven else "held"
