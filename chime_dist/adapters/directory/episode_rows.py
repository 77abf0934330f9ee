"""Reading ``episodes.jsonl``: which row is final for which unit, without holding the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pydantic import ConfigDict

from chime_dist.adapters.directory.artifact_json import decode
from chime_dist.core.episode import EpisodeRecord, Unit
from chime_dist.core.frozen import Frozen
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


@dataclass(slots=True)
class EpisodeIndex:
    """Where the final rows of one run are; some 250 bytes each."""

    finals: dict[Place, int] = field(default_factory=dict)
    """Byte offset of the final row."""
    retried: set[str] = field(default_factory=set)
    """Attempts that ended infra and were not final."""
    tally: Counter[str] = field(default_factory=Counter)
    """Final rows by outcome, and under ``gate_error`` those without a gate decision."""

    def settle(self, place: Place, offset: int, outcome: str, gate_status: str) -> None:
        """Enter a final row; the unit must have none yet."""
        self.finals[place] = offset
        self.tally[outcome] += 1
        if gate_status == "gate_error":
            self.tally[gate_status] += 1


def index_rows(path: Path, run_id: str) -> EpisodeIndex:
    """Scan the rows of a run; an unfinished last line is left out. Empty where there is no file.

    Raises RunDirectoryError, naming the line, for a row that cannot be read or is another run's, and for a
    unit with two different final rows; equal ones count once (H3).
    """
    index = EpisodeIndex()
    for number, offset, line in _lines(path):
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
        known = index.finals.get(place)
        if known is None:
            index.settle(place, offset, row.outcome, row.gate_status)
        elif (first := read_row(path, known)) != decode(EpisodeRecord, line, f"{path}, line {number}"):
            raise RunDirectoryError(
                f"{path}, line {number}: a second, different final row of {first.unit.key} "
                f"(attempt {row.attempt}, before it {first.attempt}); a unit has exactly one, so the folder was "
                "mixed from two copies"
            )
    return index


def read_row(path: Path, offset: int) -> EpisodeRecord:
    """The row that starts at byte ``offset``. Raises RunDirectoryError."""
    with path.open("rb") as file:
        return _row_at(file, path, offset)


def read_rows_at(path: Path, offsets: Sequence[int]) -> dict[str, EpisodeRecord]:
    """The rows that start at these bytes, by unit key and in the order given. Raises RunDirectoryError."""
    if not offsets:
        return {}
    with path.open("rb") as file:
        rows = [_row_at(file, path, offset) for offset in offsets]
    return {row.unit.key: row for row in rows}


def read_rows(path: Path) -> Iterator[EpisodeRecord]:
    """Every finished attempt, oldest first. Raises RunDirectoryError."""
    for number, _, line in _lines(path):
        yield decode(EpisodeRecord, line, f"{path}, line {number}")


def _row_at(file: BinaryIO, path: Path, offset: int) -> EpisodeRecord:
    file.seek(offset)
    return decode(EpisodeRecord, file.readline(), f"{path}, the row at byte {offset}")


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """1-based line number, byte offset and bytes of every finished line."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        offset = 0
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, offset, line
            offset += len(line)
