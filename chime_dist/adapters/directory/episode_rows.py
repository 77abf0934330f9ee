"""Reading ``episodes.jsonl``: which row is final for which unit, without holding the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pydantic import ConfigDict

from chime_dist.adapters.directory.artifact_json import decode, unreadable
from chime_dist.core.episode import EpisodeRecord, Unit
from chime_dist.core.frozen import Frozen
from chime_dist.core.journal import attempt_in, counts
from chime_dist.errors import RunDirectoryError

Place = tuple[str, int, int]
"""A unit inside its run: phase, version (eval; 0 in train), position. Two units are one iff these agree."""


def place_of(unit: Unit) -> Place:
    """See ``Place``."""
    return _place(unit.phase, unit.read_version, unit.position)


def _place(phase: str, read_version: int, position: int) -> Place:
    return (phase, read_version if phase == "eval" else 0, position)


class _Reduced(Frozen):
    """A part of something stored: what else is there is passed over unread."""

    model_config = ConfigDict(extra="ignore")


class _UnitPart(_Reduced):
    run_id: str
    phase: str
    read_version: int
    position: int


class EpisodeRow(_Reduced):
    """What the index needs of a row of ``episodes.jsonl``."""

    unit: _UnitPart
    attempt: str
    final: bool
    outcome: str
    gate_status: str


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A final train row whose position is not committed: what has to be taken back if its attempt is not."""

    attempt: str
    outcome: str
    gate_status: str


@dataclass(slots=True)
class EpisodeIndex:
    """Where the final rows that count of one run are (see ``core.journal.counts``); some 350 bytes each."""

    attempts: list[str] = field(default_factory=list)
    """The journal's, by position."""
    finals: dict[Place, int] = field(default_factory=dict)
    """Byte offset of the final row."""
    ahead: dict[int, _Ahead] = field(default_factory=dict)
    """Final train rows by position, of those that are not committed."""
    retried: set[str] = field(default_factory=set)
    """Attempts that ended infra and were not final."""
    tally: Counter[str] = field(default_factory=Counter)
    """Final rows by outcome, and under ``gate_error`` those without a gate decision."""

    def counts(self, place: Place, attempt: str) -> bool:
        """Whether a row of this unit and attempt can be its result."""
        return counts(self.attempts, place[0], place[2], attempt)

    def settle(self, place: Place, offset: int, attempt: str, outcome: str, gate_status: str) -> None:
        """Enter a final row that counts; the unit must have none yet."""
        phase, _, position = place
        self.finals[place] = offset
        self._tally(outcome, gate_status, 1)
        if phase == "train" and position >= len(self.attempts):
            self.ahead[position] = _Ahead(attempt, outcome, gate_status)

    def commit(self, attempt: str) -> None:
        """Take in the journal's next entry: a row of another attempt at its position is history from here on."""
        position = len(self.attempts)
        self.attempts.append(attempt)
        row = self.ahead.pop(position, None)
        place = _place("train", 0, position)
        if row is not None and not self.counts(place, row.attempt):
            del self.finals[place]
            self._tally(row.outcome, row.gate_status, -1)

    def _tally(self, outcome: str, gate_status: str, by: int) -> None:
        self.tally[outcome] += by
        if gate_status == "gate_error":
            self.tally[gate_status] += by


def attempts_in(journal: Path) -> list[str]:
    """The attempts of a run's journal, by position; none where there is no file. Raises RunDirectoryError."""
    return [attempt_in(line) for _, _, line in finished_lines(journal)]


def index_rows(path: Path, run_id: str, attempts: Sequence[str] = ()) -> EpisodeIndex:
    """Scan the rows of a run; an unfinished last line is left out. Empty where there is no file.

    ``attempts`` are the journal's, by position. Raises RunDirectoryError, naming the line, for a row that cannot
    be read or is another run's, and for a unit with two different final rows, one of which counts; equal ones
    count once (H3).
    """
    index, late = EpisodeIndex(list(attempts)), dict[Place, tuple[int, str]]()
    for number, offset, line in finished_lines(path):
        row = decode(EpisodeRow, line, f"{path}, line {number}")
        unit = row.unit
        if unit.run_id != run_id:
            raise RunDirectoryError(
                f"{path}, line {number}: a row of run {unit.run_id!r} in the folder of {run_id!r}"
            )
        if not row.final:
            index.retried.add(row.attempt)
            continue
        place = _place(unit.phase, unit.read_version, unit.position)
        if not index.counts(place, row.attempt):
            late[place] = (number, row.attempt)
            continue
        known = index.finals.get(place)
        if known is None:
            index.settle(place, offset, row.attempt, row.outcome, row.gate_status)
        elif (first := read_row(path, known)) != decode(EpisodeRecord, line, f"{path}, line {number}"):
            raise _second(path, number, row.attempt, first)
    # A position that was committed empty has no final row beside the late one.
    for place in late.keys() & index.finals.keys():
        raise _second(path, *late[place], read_row(path, index.finals[place]))
    return index


def _second(path: Path, number: int, attempt: str, other: EpisodeRecord) -> RunDirectoryError:
    return RunDirectoryError(
        f"{path}, line {number}: a second, different final row of {other.unit.key} (attempt {attempt}, the other"
        f" one {other.attempt}); a unit has exactly one, so the folder was mixed from two copies"
    )


def read_row(path: Path, offset: int) -> EpisodeRecord:
    """The row that starts at byte ``offset``. Raises RunDirectoryError."""
    with _opened(path) as file:
        return _row_at(file, path, offset)


def read_rows_at(path: Path, offsets: Sequence[int]) -> dict[str, EpisodeRecord]:
    """The rows that start at these bytes, by unit key and in the order given. Raises RunDirectoryError."""
    if not offsets:
        return {}
    with _opened(path) as file:
        rows = [_row_at(file, path, offset) for offset in offsets]
    return {row.unit.key: row for row in rows}


def read_rows(path: Path) -> Iterator[EpisodeRecord]:
    """Every finished attempt, oldest first. Raises RunDirectoryError."""
    for number, _, line in finished_lines(path):
        yield decode(EpisodeRecord, line, f"{path}, line {number}")


def _row_at(file: BinaryIO, path: Path, offset: int) -> EpisodeRecord:
    file.seek(offset)
    return decode(EpisodeRecord, file.readline(), f"{path}, the row at byte {offset}")


def finished_lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """1-based line number, byte offset and bytes of every finished line; none where there is no file.

    Raises RunDirectoryError where it cannot be read.
    """
    if not path.exists():
        return
    with _opened(path) as file:
        offset = 0
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, offset, line
            offset += len(line)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise unreadable(path, error) from error
