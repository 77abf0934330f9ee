"""Searching one version exactly: the same numbers whoever proposes, and whatever else is compared."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.bank import BankState, ItemId, Record
from chime_dist.core.exact_search import Found, best, cosines, proposed
from chime_dist.core.vector import Vector, at_least, products, similarities, unit_rows
from chime_dist.errors import BankMismatchError, EmbeddingError

EAST, NORTH = Vector.of([2, 0]), Vector.of([0, 2])


class Asked(NamedTuple):
    """A query."""

    vector: Vector
    limit: int = 5
    min_similarity: float = -1.0
    withheld: tuple[str, ...] = ()
    collection: str = "plan"
    vector_name: str = "c"


def _bank(*vectors: Vector, collection: str = "plan") -> BankState:
    records = {
        f"0-{k}": Record(collection=collection, id=f"0-{k}", version=0, payload={"k": k}, vectors={"c": vector})
        for k, vector in enumerate(vectors)
    }
    return BankState(1, records)


def _ids(found: list[Found]) -> list[str]:
    return [hit.record.id for hit in found]


_NUMBERS = st.lists(st.integers(-3, 3), min_size=3, max_size=3).filter(any).map(Vector.of)


@given(
    vectors=st.lists(_NUMBERS, max_size=12),
    query=_NUMBERS,
    limit=st.integers(0, 5),
    floor=st.sampled_from([-1.0, 0.0, 0.3, 0.88]),
    withheld=st.sets(st.integers(0, 12), max_size=3),
)
def test_the_best_are_those_of_a_brute_force_in_total_order(
    vectors: list[Vector], query: Vector, limit: int, floor: float, withheld: set[int]
) -> None:
    """R11, R12, R13, R17: cosine descending, then id; the threshold is inclusive; withheld ids are not there."""
    state = _bank(*vectors)
    hidden = tuple(f"0-{k}" for k in withheld)
    sims = dict(zip(state.records, similarities(query, unit_rows(vectors)), strict=True)) if vectors else {}
    right = sorted(
        (item for item in sims if item not in hidden and at_least(sims[item], floor)),
        key=lambda item: (-sims[item], ItemId.parse(item)),
    )[:limit]
    asked = Asked(query, limit, floor, hidden)
    assert _ids(best(state, asked)) == right
    assert best(state, asked) == best(state, asked, list(state.records)) == best(state, asked, right)
    shown = state.records.keys() - hidden
    assert best(state, asked) == best(state, asked._replace(withheld=()), proposed(state, asked, among=shown))


def _random(seed: int, count: int, dim: int) -> list[Vector]:
    generator = np.random.default_rng(seed)
    return [Vector.of(generator.standard_normal(dim)) for _ in range(count)]


@pytest.mark.parametrize("dim", [1, 3, 384, 1024])
@pytest.mark.parametrize("count", [2, 5, 33])
def test_a_row_s_cosine_does_not_depend_on_its_neighbours(dim: int, count: int) -> None:
    """Bit for bit, before rounding too: what the owner recomputes for 20 candidates, a worker does for 23."""
    query, *vectors = _random(7, count + 1, dim)
    rows = unit_rows(vectors)
    together = np.add.reduce(rows * unit_rows([query])[0], axis=1)
    alone = np.concatenate([np.add.reduce(rows[k : k + 1] * unit_rows([query])[0], axis=1) for k in range(count)])
    assert together.tobytes() == alone.tobytes()
    assert cosines(query, rows) == [cosines(query, unit_rows([vector]))[0] for vector in vectors]
    assert cosines(query, rows) == pytest.approx(similarities(query, rows), abs=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_proposing_scores_are_dot_products(kind: Any) -> None:
    rows = np.arange(12, dtype=kind).reshape(4, 3)
    vector = np.array([1, 2, 3], dtype=kind)
    assert products(rows, vector).tolist() == (rows @ vector).tolist()
    assert products(rows[:0], vector).tolist() == []


def test_an_empty_collection_or_an_unknown_vector_has_nothing() -> None:
    assert best(_bank(), Asked(EAST)) == []
    assert best(_bank(EAST), Asked(EAST, collection="exec")) == []
    assert best(_bank(EAST), Asked(EAST, vector_name="e")) == []


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (Asked(Vector.of([1, 0, 0])), BankMismatchError),
        (Asked(Vector.of([0, 0])), EmbeddingError),
        (Asked(EAST, min_similarity=float("nan")), ValueError),
    ],
    ids=["dimension", "zero", "threshold"],
)
def test_a_query_that_cannot_be_compared_is_refused_as_a_store_refuses_it(
    asked: Asked, error: type[Exception]
) -> None:
    with pytest.raises(error):
        best(_bank(EAST, NORTH), asked)
