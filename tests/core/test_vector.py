"""Vectors and reproducible similarities."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from chime_dist.core.frozen import Frozen
from chime_dist.core.vector import Vector, above, at_least, below, similarities, unit_rows

_components = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=8)


class Holder(Frozen):
    """An artifact with a vector."""

    vector: Vector


@settings(deadline=None)
@given(_components)
def test_a_vector_is_its_float32_bytes(values: list[float]) -> None:
    """Journal, pickle and numbers give the same vector, bit for bit."""
    vector = Vector.of(values)
    assert vector.array.tolist() == values
    assert vector.dim == len(values)
    for copy in (
        Vector.from_base64(vector.to_base64()),
        pickle.loads(pickle.dumps(vector)),
        Holder.model_validate_json(Holder(vector=vector).model_dump_json()).vector,
    ):
        assert copy == vector
        assert (hash(copy), copy.sha256) == (hash(vector), vector.sha256)


def test_a_vector_is_immutable_and_names_itself() -> None:
    vector = Vector.of([1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        vector.array[0] = 5.0
    assert repr(vector).startswith("Vector(dim=2, sha256=")
    assert vector != [1.0, 2.0]


@pytest.mark.parametrize("values", [[], [float("nan")], [float("inf")], [1e300], [[1.0, 2.0], [3.0, 4.0]], 1.0])
def test_numbers_that_are_no_vector_are_refused(values: Any) -> None:
    """F4: a non-finite vector is never stored; 1e300 overflows float32; a matrix is not flattened."""
    with pytest.raises(ValueError, match="vector"):
        Vector.of(values)


@pytest.mark.parametrize("text", ["", "AAA", "AAAA", "not base64!", "AADAfw=="])
def test_text_that_is_no_vector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="vector"):
        Vector.from_base64(text)


def test_an_artifact_takes_vectors_and_base64_only() -> None:
    with pytest.raises(ValidationError, match="a vector is base64 text, got list"):
        Holder.model_validate({"vector": [1.0, 2.0]})


def test_similarity_is_the_cosine_rounded_to_six_decimals() -> None:
    """R11, R12."""
    rows = unit_rows([Vector.of([2.0, 0.0]), Vector.of([1.0, 1.0]), Vector.of([-3.0, 0.0])])
    assert rows.dtype == np.float64
    assert similarities(Vector.of([5.0, 0.0]), rows) == [1.0, 0.707107, -1.0]
    assert similarities(Vector.of([5.0, 0.0]), np.empty((0, 0))) == []


def test_a_zero_similarity_has_one_spelling() -> None:
    """-0.0 and 0.0 hash differently in the journal, and rounding noise decides between them."""
    rows = unit_rows([Vector.of([-1e-9, 1.0]), Vector.of([1e-9, 1.0])])
    assert [str(sim) for sim in similarities(Vector.of([1.0, 0.0]), rows)] == ["0.0", "0.0"]


def test_a_zero_vector_has_no_cosine() -> None:
    """F7."""
    with pytest.raises(ValueError, match="undefined for a zero vector"):
        unit_rows([Vector.of([0.0, 0.0])])


def test_a_query_of_another_dimension_is_refused() -> None:
    """E4."""
    with pytest.raises(ValueError, match="the query has dimension 3, the bank 2"):
        similarities(Vector.of([1.0, 0.0, 0.0]), unit_rows([Vector.of([1.0, 0.0])]))


def test_thresholds_have_a_tolerance() -> None:
    """R27: 1e-9, on the side that does not act on noise."""
    assert at_least(0.3 - 1e-10, 0.3)
    assert not at_least(0.3 - 1e-8, 0.3)
    assert above(0.88 + 1e-8, 0.88)
    assert not above(0.88 + 1e-10, 0.88)
    assert below(-0.1 - 1e-8, -0.1)
    assert not below(-0.1 - 1e-10, -0.1)
