"""Which points a searchable projection of the bank must open and close to follow it from version to version.

A point is one vector of one record for as long as that vector stands: valid from the version that set it up to,
and not including, the version that replaced or dropped it. Search answers with ids only, so a commit that moves
values and texts but no vector opens and closes nothing: it costs no vector write at all.

Pure bookkeeping: a store asks ``plan`` what to write, writes it, and then calls ``advance``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from chime_dist.core.bank import BankState, Record
from chime_dist.core.vector import Vector, unit_rows
from chime_dist.errors import BankMismatchError, EmbeddingError, JournalError, ServiceError

OPEN_END = 2**53 - 1
"""``valid_to`` of a point that still stands: above every version, and exact in float64 as well."""

SLACK = 1e-4
"""How far a store's float32 score may lie from the recomputed similarity; far above any rounding error.

Thresholds are lowered by it and ties widened by it, so that a store proposes too much, never too little.
"""


class PointKey(NamedTuple):
    """Who a point is. Unique in one projection: a vector is set at most once per record and version."""

    collection: str
    item: str
    vector_name: str
    valid_from: int


@dataclass(frozen=True, slots=True)
class Step:
    """The writes that bring a projection to ``version``."""

    version: int
    opened: tuple[tuple[PointKey, npt.NDArray[np.float32]], ...]
    """New points with their unit vectors, shape ``(dim,)``."""
    closed: tuple[PointKey, ...]
    """Open points whose ``valid_to`` becomes ``version``."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that a projection can be read at: version 0 (empty) and every one it was brought to, without
    those that a compaction let go."""

    spans: tuple[tuple[int, int], ...] = ((0, 0),)
    """What it was brought to: inclusive ranges, ascending, with gaps where several commits were projected in one
    step."""
    gone: tuple[tuple[int, int], ...] = ()
    """What was let go: inclusive ranges, ascending, apart. They may cover gaps of ``spans`` too, and never the
    head."""

    @property
    def head(self) -> int:
        """The newest."""
        return self.spans[-1][1]

    def __contains__(self, version: int) -> bool:
        return self.reached(version) and not _within(version, self.gone)

    def __str__(self) -> str:
        pieces = [piece for span in self.spans for piece in _without(span, self.gone)]
        return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in pieces)

    def reached(self, version: int) -> bool:
        """Whether the projection was ever brought to ``version``, let go or not."""
        return _within(version, self.spans)

    def then(self, version: int) -> Versions:
        """These and the later ``version``."""
        first, last = self.spans[-1]
        if version == last + 1:
            return replace(self, spans=(*self.spans[:-1], (first, version)))
        return replace(self, spans=(*self.spans, (version, version)))

    def keeping(self, keep: Iterable[int]) -> Versions:
        """What is left when, up to the head, only ``keep`` can still be read.

        Version 0, which is empty, and the head always stay; what was let go before never comes back.
        """
        left = sorted({0, self.head, *(version for version in keep if version in self)})
        gone = ((before + 1, after - 1) for before, after in pairwise(left) if after > before + 1)
        return replace(self, gone=tuple(gone))

    def read(self, valid_from: int, valid_to: int) -> bool:
        """Whether any version that can be read, now or later, sees a point that stands from ``valid_from`` up to
        and not including ``valid_to``."""
        return not any(first <= valid_from and valid_to <= last + 1 for first, last in self.gone)

    def require(self, version: int, where: str) -> None:
        """Raise ServiceError naming ``where`` unless ``version`` can be read."""
        if version in self:
            return
        if _within(version, self.gone):
            raise ServiceError(
                f"{where}: version {version} was let go by a compaction (it holds {self}); replay the journal to"
                " read it"
            )
        raise ServiceError(
            f"{where}: version {version} is not projected (it holds {self}); project it before reading it"
        )


def _within(version: int, spans: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= version <= last for first, last in spans)


def _without(span: tuple[int, int], gone: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int]]:
    """The parts of ``span`` that no range of ``gone`` covers."""
    first, last = span
    for start, end in gone:
        if first <= min(start - 1, last):
            yield first, min(start - 1, last)
        first = max(first, end + 1)
    if first <= last:
        yield first, last


class Projection:
    """The bookkeeping of one projection; starts empty at version 0.

    ``where`` names the projection in errors; ``dim`` is the number of components of its vectors.
    """

    def __init__(self, dim: int, where: str) -> None:
        self.dim = dim
        self.where = where
        self.versions = Versions()
        self._swept: tuple[tuple[int, int], ...] = ()
        self._open: dict[tuple[str, str], PointKey] = {}

    def plan(self, version: int, before: BankState, after: BankState) -> Step | None:
        """What to write to follow the bank from ``before`` to ``after``; None where that was done already.

        Several commits may be projected in one step; the versions between cannot be read then.
        Raises JournalError where ``before`` is not what is projected, BankMismatchError for a vector of
        another dimension, EmbeddingError for a zero vector; nothing may be written in any of these cases.
        """
        if version != after.version:
            raise ValueError(
                f"{self.where}: asked for version {version} with the state of version {after.version}"
            )
        if self.versions.reached(version):
            return None
        if before.version != self.versions.head or version < before.version:
            raise JournalError(
                f"{self.where}: it is at version {self.versions.head}, so it cannot be brought from"
                f" {before.version} to {version}; open it again and project the bank from version 0"
            )
        changes = after.changes_since(before).values()
        closed = []
        for record, name, _ in (held for old, new in changes for held in _only(old, new)):
            key = self._open.get((record.id, name))
            if key is None:
                raise JournalError(
                    f"{self.where}: record {record.id} of version {before.version} was never projected;"
                    " this is the state of another bank"
                )
            closed.append(key)
        opened = [
            (
                PointKey(record.collection, record.id, name, version),
                self.unit(vector, f"vector {name!r} of {record.id}"),
            )
            for old, new in changes
            for record, name, vector in _only(new, old)
        ]
        return Step(version, tuple(opened), tuple(closed))

    def advance(self, step: Step) -> None:
        """Note that ``step`` was written."""
        for key in step.closed:
            del self._open[key.item, key.vector_name]
        for key, _ in step.opened:
            self._open[key.item, key.vector_name] = key
        self.versions = self.versions.then(step.version)

    def let_go(self, keep: Iterable[int]) -> Versions | None:
        """From now on refuse every version up to the head but ``keep``; None where nothing is left to remove.

        A store that serves other processes tells them first, then removes every point that ``Versions.read``
        denies, then calls ``swept``: what it did not get to is unreadable, and removed by the next compaction.
        """
        self.versions = self.versions.keeping(keep)
        return None if self.versions.gone == self._swept else self.versions

    def swept(self, versions: Versions) -> None:
        """Note that the points which ``versions`` cannot read were removed."""
        self._swept = versions.gone

    def unit(self, vector: Vector, what: str) -> npt.NDArray[np.float32]:
        """See the module function."""
        return unit_vector(vector, self.dim, f"{self.where}, {what}")


def unit_vector(vector: Vector, dim: int, where: str) -> npt.NDArray[np.float32]:
    """``vector`` scaled to length 1, shape ``(dim,)``.

    Scaled here, in float64, because engines scale in float32 and leave very short vectors as they are.
    Raises BankMismatchError for another dimension and EmbeddingError for a zero vector, naming ``where``.
    """
    if vector.dim != dim:
        raise BankMismatchError(
            f"{where}: it has dimension {vector.dim}, the bank was opened with dimension {dim};"
            " use the embedder that the bank was built with"
        )
    if not vector.array.any():
        raise EmbeddingError(f"{where}: a zero vector has no direction, so nothing can be compared with it")
    unit: npt.NDArray[np.float32] = unit_rows([vector])[0].astype(np.float32)
    return unit


def score_floor(min_similarity: float) -> float:
    """The lowest store score that may belong to a similarity of ``min_similarity`` (inclusive, R12).

    Raises ValueError where that is not a finite number.
    """
    if not math.isfinite(min_similarity):
        raise ValueError(f"a similarity threshold is a finite number, got {min_similarity}")
    return min_similarity - SLACK


def _only(one: Record | None, other: Record | None) -> Iterator[tuple[Record, str, Vector]]:
    """Every vector that ``one`` holds and ``other``, the same record at another version, does not."""
    if one is None:
        return
    same_place = other is not None and other.collection == one.collection
    for name, vector in one.vectors.items():
        if not (same_place and other is not None and other.vectors.get(name) == vector):
            yield one, name, vector
