"""Vectors as they are journalled, and similarities that come out the same on every machine.

A vector is its float32 bytes: equality, hashing and the journal all use them, so nothing depends on how a
store or a BLAS rounds. Similarities are recomputed from those bytes in float64, rounded to six decimals, and
compared with a fixed tolerance (design "Similarities are reproducible").
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

_Float = TypeVar("_Float", np.float32, np.float64)

TOLERANCE = 1e-9
"""Every threshold of the spec is compared with this slack (R27)."""

SIMILARITY_DECIMALS = 6


class Vector:
    """An embedding: finite float32 components, little endian, immutable.

    ``array`` is a read-only ``(dim,)`` float32 view. Serialised to JSON as base64 of the bytes.
    """

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        if not data or len(data) % 4:
            raise ValueError(f"a vector is a non-empty run of 4-byte floats, got {len(data)} bytes")
        self._data = data
        if not np.isfinite(self.array).all():
            raise ValueError("a vector holds only finite numbers")

    @classmethod
    def of(cls, values: Sequence[float] | npt.NDArray[Any]) -> Vector:
        """Build from numbers, shape ``(dim,)``; they are cast to float32.

        Raises ValueError for another shape and for a number that float32 cannot hold.
        """
        with np.errstate(over="ignore"):
            array = np.asarray(values, dtype="<f4")
        if array.ndim != 1:
            raise ValueError(f"a vector has one axis, got shape {array.shape}")
        return cls(array.tobytes())

    @classmethod
    def from_base64(cls, text: str) -> Vector:
        """Inverse of ``to_base64``; raises ValueError where the text is not base64 of float32 bytes."""
        try:
            return cls(base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise ValueError(f"a stored vector is not base64: {error}") from None

    def to_base64(self) -> str:
        """The journal's form of the vector."""
        return base64.b64encode(self._data).decode("ascii")

    @property
    def array(self) -> npt.NDArray[np.float32]:
        """Read-only view, shape ``(dim,)``, float32."""
        return np.frombuffer(self._data, dtype="<f4")

    @property
    def dim(self) -> int:
        """Number of components."""
        return len(self._data) // 4

    @property
    def sha256(self) -> str:
        """Hex digest of the float32 bytes."""
        return hashlib.sha256(self._data).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def __repr__(self) -> str:
        return f"Vector(dim={self.dim}, sha256={self.sha256[:12]})"

    def __reduce__(self) -> tuple[type[Vector], tuple[bytes]]:
        return (Vector, (self._data,))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def parse(value: object) -> Vector:
            if isinstance(value, Vector):
                return value
            if isinstance(value, str):
                return cls.from_base64(value)
            raise ValueError(f"a vector is base64 text, got {type(value).__name__}")

        return core_schema.no_info_plain_validator_function(
            parse, serialization=core_schema.plain_serializer_function_ser_schema(cls.to_base64)
        )


def unit_rows(vectors: Sequence[Vector]) -> npt.NDArray[np.float64]:
    """L2-normalised float64 rows, shape ``(len(vectors), dim)``; raises ValueError for a zero vector."""
    rows = np.array([v.array for v in vectors], dtype=np.float64)
    norms = np.sqrt(np.add.reduce(rows * rows, axis=1, keepdims=True))
    if not (norms > 0).all():
        raise ValueError("cosine similarity is undefined for a zero vector")
    unit: npt.NDArray[np.float64] = rows / norms
    return unit


def similarities(query: Vector, rows: npt.NDArray[np.float64]) -> list[float]:
    """Cosine of ``query`` to each unit row of shape ``(n, dim)``, in [-1, 1], rounded to six decimals."""
    if rows.shape[0] == 0:
        return []
    if rows.shape[1] != query.dim:
        raise ValueError(f"the query has dimension {query.dim}, the bank {rows.shape[1]}")
    return rounded(products(rows, unit_rows([query])[0]))


def products(rows: npt.NDArray[_Float], vector: npt.NDArray[_Float]) -> npt.NDArray[_Float]:
    """Dot product of each row, shape ``(n, dim)``, with ``vector``, shape ``(dim,)``.

    Row by row, because a BLAS splits one matrix product over threads that wait for each other: on a machine whose
    cores are taken that turns a tenth of a millisecond into tens of them.
    """
    found: npt.NDArray[_Float] = np.matmul(rows[:, np.newaxis, :], vector[:, np.newaxis])[:, 0, 0]
    return found


def rounded(cosines: npt.NDArray[np.float64]) -> list[float]:
    """Cosines as they are compared and written down: within [-1, 1], to six decimals, zero without a sign."""
    # Adding 0.0 makes -0.0 plain zero: the sign of rounding noise differs between machines.
    similar: list[float] = (np.round(np.clip(cosines, -1.0, 1.0), SIMILARITY_DECIMALS) + 0.0).tolist()
    return similar


def at_least(value: float, threshold: float) -> bool:
    """``value >= threshold`` within the tolerance."""
    return value >= threshold - TOLERANCE


def above(value: float, threshold: float) -> bool:
    """``value > threshold``, strict beyond the tolerance."""
    return value > threshold + TOLERANCE


def below(value: float, threshold: float) -> bool:
    """``value < threshold``, strict beyond the tolerance."""
    return value < threshold - TOLERANCE
