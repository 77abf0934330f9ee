"""Reading a launch's results without holding it: for reports, ``show`` and ``ls``, also while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from chime_dist.adapters.directory.artifact_json import decode
from chime_dist.adapters.directory.episode_rows import (
    EpisodeIndex,
    Place,
    attempts_in,
    finished_lines,
    index_rows,
    place_of,
    read_row,
    read_rows,
    read_rows_at,
)
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.directory.run_writer import FailedAttempt
from chime_dist.adapters.directory.trajectory_files import load
from chime_dist.core.episode import EpisodeRecord, EpisodeTrace, Outcome, Unit, Usage
from chime_dist.core.frozen import Frozen
from chime_dist.core.journal import counts
from chime_dist.core.spending import add_usage
from chime_dist.errors import RunDirectoryError

Phase = Literal["train", "eval"]


class PhaseTotals(Frozen):
    """Counts over one phase of one run. success + failure + infra + unsettled = units with any row."""

    success: int = 0
    failure: int = 0
    infra: int = 0
    """Units whose final row is infra."""
    unsettled: int = 0
    """Units with attempts but no final row: resume owes them."""
    attempts: int = 0
    """Rows, history included."""
    gate_errors: int = 0
    """Final rows without a gate decision (R21)."""
    duration_s: float = 0.0
    """Sum over all attempts."""
    usage: dict[str, Usage] = {}
    """By role, over all attempts."""


class EpisodeArchive:
    """Read-only view of the rows and traces of a launch. An unfinished last row is as good as absent, and a final
    one that the journal overruled is history (see ``core.journal.counts``).

    Methods are blocking, read the files anew, and raise RunDirectoryError where a file is damaged.
    """

    def __init__(self, launch: LaunchDirectory) -> None:
        self._launch = launch

    def records(self, run_id: str) -> Iterator[EpisodeRecord]:
        """Every finished attempt of a run, oldest first."""
        return read_rows(self._launch.run(run_id).episodes)

    def finals(self, run_id: str) -> dict[str, EpisodeRecord]:
        """Final rows by unit key; a unit with two different ones raises (H3)."""
        return read_rows_at(self._launch.run(run_id).episodes, sorted(self._index(run_id).finals.values()))

    def ahead(self, run_id: str) -> dict[int, str]:
        """The attempts of final train rows by position, of those that are not committed."""
        return {position: row.attempt for position, row in self._index(run_id).ahead.items()}

    def attempts(self, run_id: str) -> list[str]:
        """The journal's, by position; empty for an entry that is damaged."""
        return attempts_in(self._launch.run(run_id).journal)

    def failures(self, run_id: str) -> Iterator[FailedAttempt]:
        """Attempts that our machinery failed, oldest first."""
        file = self._launch.run(run_id).failures
        for number, _, line in finished_lines(file):
            yield decode(FailedAttempt, line, f"{file}, line {number}")

    def trace(self, unit: Unit) -> EpisodeTrace | None:
        """The final trace of ``unit``, or None."""
        version = unit.read_version if unit.phase == "eval" else None
        return self.trace_at(unit.run_id, unit.phase, unit.position, version)

    def trace_at(
        self, run_id: str, phase: Phase, position: int, version: int | None = None
    ) -> EpisodeTrace | None:
        """The final trace at a train position or eval index (both 0-based), or None.

        ``version`` is the bank version of an evaluation; it may be left out where the index was evaluated at one
        version only, else RunDirectoryError names those there are.
        """
        folder = self._launch.run(run_id)
        finals = self._index(run_id).finals
        found = sorted(
            place
            for place in finals
            if (place[0], place[2]) == (phase, position)
            and (version is None or phase == "train" or place[1] == version)
        )
        if not found:
            return None
        if len(found) > 1:
            raise RunDirectoryError(
                f"{folder.path}: eval index {position} was evaluated at versions "
                f"{', '.join(str(place[1]) for place in found)}; say which"
            )
        record = read_row(folder.episodes, finals[found[0]])
        return load(folder.trajectory(record.unit), record)

    def totals(self, run_id: str) -> dict[Phase, PhaseTotals]:
        """Counts per phase; a phase without rows is left out."""
        attempts = self.attempts(run_id)
        found: dict[Phase, _Count] = {}
        for record in self.records(run_id):
            unit = record.unit
            counting = counts(attempts, unit.phase, unit.position, record.attempt)
            found.setdefault(unit.phase, _Count()).add(record, settles=record.final and counting)
        return {phase: count.totals() for phase, count in found.items()}

    def _index(self, run_id: str) -> EpisodeIndex:
        return index_rows(self._launch.run(run_id).episodes, run_id, self.attempts(run_id))


@dataclass(slots=True)
class _Count:
    """Running totals of one phase: rows go through, they are not kept."""

    settled: dict[Place, tuple[Outcome, bool]] = field(default_factory=dict)
    seen: set[Place] = field(default_factory=set)
    attempts: int = 0
    duration_s: float = 0.0
    usage: dict[str, Usage] = field(default_factory=dict)

    def add(self, record: EpisodeRecord, *, settles: bool) -> None:
        place = place_of(record.unit)
        self.seen.add(place)
        if settles:
            self.settled[place] = (record.outcome, record.gate_status == "gate_error")
        self.attempts += 1
        self.duration_s += record.duration_s
        add_usage(self.usage, record.usage.items())

    def totals(self) -> PhaseTotals:
        outcomes = [outcome for outcome, _ in self.settled.values()]
        return PhaseTotals(
            success=outcomes.count(Outcome.SUCCESS),
            failure=outcomes.count(Outcome.FAILURE),
            infra=outcomes.count(Outcome.INFRA),
            unsettled=len(self.seen) - len(self.settled),
            attempts=self.attempts,
            gate_errors=sum(gate_error for _, gate_error in self.settled.values()),
            duration_s=self.duration_s,
            usage=self.usage,
        )
