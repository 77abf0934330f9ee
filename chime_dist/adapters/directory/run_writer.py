"""One run's files as their only writer sees them. Blocking; the caller keeps it on one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chime_dist import faults
from chime_dist.adapters.directory.artifact_json import encode
from chime_dist.adapters.directory.disk_errors import explained
from chime_dist.adapters.directory.durable_file import AppendLog, Disk, replace_files
from chime_dist.adapters.directory.episode_rows import Place, index_rows, place_of, read_row
from chime_dist.adapters.directory.growing_file import GrowingFile
from chime_dist.adapters.directory.launch_directory import RunFolder
from chime_dist.adapters.directory.prompt_files import pack_prompts
from chime_dist.adapters.directory.trajectory_files import load, pack
from chime_dist.core.episode import EpisodeRecord, EpisodeTrace, Outcome, Step, Unit
from chime_dist.core.frozen import Frozen
from chime_dist.core.journal import attempt_in
from chime_dist.errors import RunDirectoryError

_LAST_STEPS = 3

TALLIED = (*(outcome.value for outcome in Outcome), "gate_error")

Answer = EpisodeTrace | RunDirectoryError


class FailedAttempt(Frozen):
    """One row of failures.jsonl: an attempt that our machinery failed, and where it stood."""

    record: EpisodeRecord
    plan: str | None
    last_steps: tuple[Step, ...]
    """The end of the trajectory, at most three steps."""


@dataclass(frozen=True, slots=True)
class _Staged:
    trace: EpisodeTrace
    row: bytes
    packed: bytes | None
    """The trajectory file; None for an attempt that is only history."""
    prompts: bytes | None
    """The file beside it."""
    failure: bytes | None


class RunWriter:
    """Appends attempts to one run and decides which attempt of a unit is final: the first one written, unless the
    run's journal is of another one at a position that is committed (see ``core.journal.counts``).

    A batch is durable as a whole before any of it is answered: trajectory files, then failures, then rows. A
    crash in between leaves at most a trajectory file without a row, which the next attempt replaces.
    """

    def __init__(self, folder: RunFolder, disk: Disk) -> None:
        self.folder = folder
        self._disk = disk
        self._rows = AppendLog(folder.episodes, disk)
        self._failures: AppendLog | None = None
        self._journal = GrowingFile(folder.journal)
        try:
            attempts = [attempt_in(line) for line in self._journal.lines()]
            self._index = index_rows(folder.episodes, folder.run_id, attempts)
        except RunDirectoryError:
            self._rows.close()
            raise

    @property
    def torn(self) -> int:
        """Bytes of an unfinished last row that were cut when the run was opened."""
        return self._rows.torn

    def settled(self) -> list[Place]:
        """Where there is a final row."""
        self._follow()
        return list(self._index.finals)

    def tally(self) -> dict[str, int]:
        """Final rows by outcome, and ``gate_error``."""
        self._follow()
        return {name: self._index.tally[name] for name in TALLIED}

    def final(self, unit: Unit) -> EpisodeTrace | None:
        """The unit's final trace, or None. Raises RunDirectoryError, also where the row's unit differs."""
        self._follow()
        return self._stored(unit)

    def _stored(self, unit: Unit) -> EpisodeTrace | None:
        offset = self._index.finals.get(place_of(unit))
        if offset is None:
            return None
        record = read_row(self.folder.episodes, offset)
        if record.unit != unit:
            raise RunDirectoryError(
                f"{self.folder.episodes}: {unit.key} is recorded as {record.unit!r}, now it is {unit!r}; "
                "the folder belongs to another config"
            )
        return load(self.folder.trajectory(unit), record)

    def write(self, traces: Sequence[EpisodeTrace]) -> list[Answer]:
        """Store a batch; one answer per trace, in order.

        The answer is the unit's final trace (an earlier one where there is one), the trace itself where it is
        history, or an error that concerns this trace alone. Raises RunDirectoryError where the disk fails; then
        nothing of the batch counts, and the next call starts by tidying up.
        """
        self._follow()
        answers: dict[int, Answer] = {}
        staged: dict[int, _Staged] = {}
        leaders: dict[Place, int] = {}
        followers: dict[int, int] = {}
        for i, trace in enumerate(traces):
            place = place_of(trace.record.unit)
            if place in leaders:
                followers[i] = leaders[place]
                continue
            try:
                known = self._stored(trace.record.unit)
                if known is not None:
                    answers[i] = known
                elif trace.record.attempt in self._index.retried and not trace.record.final:
                    answers[i] = trace
                else:
                    staged[i] = _stage(trace)
                    if trace.record.final:
                        leaders[place] = i
            except RunDirectoryError as error:
                answers[i] = error
        self._store(list(staged.values()))
        answers.update({i: one.trace for i, one in staged.items()})
        answers.update({i: answers[leader] for i, leader in followers.items()})
        return [answers[i] for i in range(len(traces))]

    def close(self) -> None:
        """Give the files back."""
        self._rows.close()
        if self._failures is not None:
            self._failures.close()

    def _store(self, staged: list[_Staged]) -> None:
        if not staged:
            return
        try:
            # Before any trajectory file is replaced: a row that a failed append left behind may name the old one.
            self._rows.recover()
            replace_files([file for one in staged for file in self._files(one)], self._disk)
            faults.reached("records.trajectory")
            failures = [s.failure for s in staged if s.failure is not None]
            if failures:
                self._failures = self._failures or AppendLog(self.folder.failures, self._disk)
                self._failures.append(failures)
            offsets = self._rows.append([s.row for s in staged])
            faults.reached("records.row")
        except OSError as error:
            raise RunDirectoryError(
                f"{self.folder.path}: cannot write, and nothing of this write counts: {explained(error)}, then "
                "resume"
            ) from error
        for one, offset in zip(staged, offsets, strict=True):
            record = one.trace.record
            place = place_of(record.unit)
            if not record.final:
                self._index.retried.add(record.attempt)
            elif self._index.counts(place, record.attempt):
                self._index.settle(place, offset, record.attempt, record.outcome.value, record.gate_status)

    def _follow(self) -> None:
        """Take in what was committed since the last look."""
        for line in self._journal.lines():
            self._index.commit(attempt_in(line))

    def _files(self, staged: _Staged) -> Iterator[tuple[Path, bytes]]:
        unit = staged.trace.record.unit
        if staged.prompts is not None:
            yield self.folder.prompts(unit), staged.prompts
        if staged.packed is not None:
            yield self.folder.trajectory(unit), staged.packed


def _stage(trace: EpisodeTrace) -> _Staged:
    record = trace.record
    what = f"the row of {record.unit.key}, attempt {record.attempt},"
    failure = None
    if record.outcome is Outcome.INFRA:
        failed = FailedAttempt(
            record=record, plan=trace.trajectory.plan, last_steps=trace.trajectory.steps[-_LAST_STEPS:]
        )
        failure = encode(failed, what)
    # Read once, from their file; nobody who is answered needs them.
    kept = trace.model_copy(update={"calls": ()}) if trace.calls else trace
    if not record.final:
        return _Staged(kept, encode(record, what), None, None, failure)
    return _Staged(kept, encode(record, what), pack(kept), pack_prompts(trace), failure)
