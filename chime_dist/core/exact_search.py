"""The best records of a collection at one version, computed so that every process gets the same numbers.

A store, or a quick pass over the whole bank, only proposes: either may add up a sum in another order. What
counts is recomputed here from the journal's vectors, row by row, and ordered totally (R12, R13, R17).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from chime_dist.core.bank import BankState, ItemId, Record
from chime_dist.core.projection import SLACK, score_floor, unit_vector
from chime_dist.core.vector import Vector, at_least, rounded, unit_rows


class Found(NamedTuple):
    """A record and its similarity in [-1, 1], rounded to six decimals."""

    record: Record
    sim: float


class Query(Protocol):
    """What is looked for in one collection (``ports.BankQuery``)."""

    @property
    def collection(self) -> str:
        """Where."""
        ...

    @property
    def vector_name(self) -> str:
        """Which of a record's vectors is compared."""
        ...

    @property
    def vector(self) -> Vector:
        """What it is compared with."""
        ...

    @property
    def limit(self) -> int:
        """Most records to return."""
        ...

    @property
    def min_similarity(self) -> float:
        """Inclusive (R12)."""
        ...

    @property
    def withheld(self) -> tuple[str, ...]:
        """Ids that are treated as not there."""
        ...


class Search(NamedTuple):
    """A query of a commit, at the state that it is given."""

    collection: str
    vector_name: str
    vector: Vector
    limit: int
    min_similarity: float = -1.0
    withheld: tuple[str, ...] = ()


def best(state: BankState, query: Query, candidates: Sequence[str] | None = None) -> list[Found]:
    """At most ``limit`` records by (similarity descending, id ascending).

    ``candidates`` is a superset of their ids, in any order; with None the whole collection is searched. Raises
    BankMismatchError for a query of another dimension, EmbeddingError for a zero vector, and ValueError for a
    threshold that is no finite number.
    """
    if candidates is None:
        candidates = proposed(state, query)
    records = [state.records[item] for item in candidates if item not in query.withheld]
    if not records:
        return []
    rows = unit_rows([record.vectors[query.vector_name] for record in records])
    found = [
        Found(record, sim)
        for record, sim in zip(records, cosines(query.vector, rows), strict=True)
        if at_least(sim, query.min_similarity)
    ]
    found.sort(key=lambda hit: (-hit.sim, ItemId.parse(hit.record.id)))
    return found[: max(query.limit, 0)]


def cosines(query: Vector, rows: npt.NDArray[np.float64]) -> list[float]:
    """Cosine of ``query`` to each unit row of shape ``(n, dim)``, in [-1, 1], rounded to six decimals.

    Unlike ``core.vector.similarities`` a row's number never depends, not even in its last bit before rounding, on
    which other rows are there.
    """
    sums = np.add.reduce(rows * unit_rows([query])[0], axis=1)
    return rounded(sums)


def proposed(state: BankState, query: Query, among: Container[str] | None = None) -> list[str]:
    """Every id, or every one ``among`` those, that may belong to the best; raises what ``best`` raises."""
    floor = score_floor(query.min_similarity)
    matrix = state.matrix(query.collection, query.vector_name)
    if not matrix.ids or query.limit < 1:
        return []
    scores = matrix.scores(unit_vector(query.vector, matrix.dim, f"{query.collection}, the query"))
    near = np.flatnonzero(scores >= floor)
    if among is not None:
        near = near[np.fromiter((matrix.ids[row] in among for row in near), dtype=bool, count=len(near))]
    wanted = query.limit + len(query.withheld)
    if len(near) > wanted:
        last = np.partition(scores[near], -wanted)[-wanted]
        near = near[scores[near] >= last - SLACK]
    return [matrix.ids[row] for row in near]
