"""A projection read back from either Qdrant engine and compared with the journal, point by point. Read-only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from chime_dist.adapters.qdrant.points import cursor_id, cursor_payload, point_id, point_payload
from chime_dist.core.bank import Entry
from chime_dist.core.canonical import canonical_json
from chime_dist.core.projection import OPEN_END, PointKey, Versions
from chime_dist.core.projection_audit import ExpectedPoint, PointFault, ProjectionAudit, expected_points
from chime_dist.ports import EmbedderFingerprint, Namespace

VECTOR_TOLERANCE = 1e-5
"""Largest difference of a component from the journal's: an engine scales vectors once more, in float32 (E2)."""

_SPANS = TypeAdapter(tuple[tuple[int, int], ...])


@dataclass(frozen=True, slots=True)
class StoredPoint:
    """A point as the engine gives it back."""

    payload: Mapping[str, Any]
    vector: npt.NDArray[np.float32]
    """Shape ``(dim,)``."""


def audited(
    namespace: Namespace, dim: int, stored: Mapping[str, StoredPoint], entries: Sequence[Entry]
) -> ProjectionAudit:
    """Compare what is ``stored``, by point id, with what the whole journal ``entries`` calls for.

    Raises what ``core.projection.Projection.plan`` raises for a journal that cannot be projected.
    """
    cursor = stored.get(cursor_id(namespace))
    versions, fault = _versions(namespace, cursor, len(entries))
    points = {place: point for place, point in stored.items() if place != cursor_id(namespace)}
    if fault is not None:
        return ProjectionAudit(fence=namespace.fence, head=0, points=len(points), faults=(fault,))
    half_written = _half_written(points.values(), versions.head, len(entries))
    expected = expected_points(entries, versions, half_written, dim, f"bank {namespace}")
    faults = tuple(_faults(namespace, expected, points))
    return ProjectionAudit(fence=namespace.fence, head=versions.head, points=len(points), faults=faults)


def _versions(namespace: Namespace, cursor: StoredPoint | None, head: int) -> tuple[Versions, PointFault | None]:
    """What the cursor says, or why that cannot be right."""
    nothing = Versions()
    if cursor is None:
        what = "the cursor, which says what versions there are, is not there; no other point can be judged"
        return nothing, PointFault(kind="missing", what=what)
    try:
        spans = _SPANS.validate_python(cursor.payload.get("spans"))
        gone = _SPANS.validate_python(cursor.payload.get("gone"))
        fingerprint = EmbedderFingerprint.model_validate(cursor.payload.get("embedder"))
    except ValidationError as error:
        return nothing, PointFault(kind="altered", what=f"the cursor cannot be read: {error}")
    flat, let_go = ([version for span in ranges for version in span] for ranges in (spans, gone))
    ordered = flat == sorted(flat) and let_go == sorted(let_go)
    if not spans or flat[0] != 0 or not ordered or any(not 0 < version < flat[-1] for version in let_go):
        what = f"the cursor holds versions that cannot be: {spans} without {gone}"
        return nothing, PointFault(kind="altered", what=what)
    versions = Versions(spans, gone)
    expected = cursor_payload(namespace, fingerprint, versions)
    if canonical_json(dict(cursor.payload)) != canonical_json(expected):
        return nothing, PointFault(kind="altered", what=f"the cursor is {dict(cursor.payload)}, not {expected}")
    if versions.head > head:
        what = f"it is at version {versions.head}, but the journal ends at {head}: it is ahead of the truth"
        return nothing, PointFault(kind="extra", what=what)
    return versions, None


def _half_written(points: Iterable[StoredPoint], projected: int, committed: int) -> int | None:
    """The version that its owner was writing when it ended, if any point tells of one.

    Commits are projected one by one; only an owner's first step, from the empty bank, may be a long one.
    """
    told = {point.payload.get(key) for point in points for key in ("valid_from", "valid_to")}
    last = committed if projected == 0 else min(committed, projected + 1)
    return min((v for v in told if isinstance(v, int) and projected < v <= last), default=None)


def _faults(
    namespace: Namespace, expected: Mapping[PointKey, ExpectedPoint], stored: Mapping[str, StoredPoint]
) -> Iterator[PointFault]:
    by_id = {point_id(namespace, key): key for key in expected}
    for place, key in by_id.items():
        found, right = stored.get(place), expected[key]
        if found is not None:
            differences = [*_payload_differences(namespace, key, right, found), *_vector_difference(right, found)]
            if differences:
                yield _fault("altered", key, "; ".join(differences))
        elif right.certain:
            yield _fault("missing", key, "it is not there")
    for place, found in stored.items():
        if place not in by_id:
            yield _extra(found, place)


def _payload_differences(
    namespace: Namespace, key: PointKey, right: ExpectedPoint, found: StoredPoint
) -> Iterator[str]:
    wanted: dict[str, Any] = {**point_payload(namespace, key), "valid_to": None}
    for name in sorted(wanted.keys() | found.payload.keys()):
        value = found.payload.get(name)
        if name == "valid_to":
            if type(value) is not int or value not in right.valid_to:
                yield f"{name} is {_end(value)}, not {' or '.join(_end(end) for end in sorted(right.valid_to))}"
        elif name not in wanted:
            yield f"{name} is {value!r}, not absent"
        elif type(value) is not type(wanted[name]) or value != wanted[name]:
            yield f"{name} is {value!r}, not {wanted[name]!r}"


def _end(version: object) -> str:
    return "open" if version == OPEN_END else repr(version)


def _vector_difference(right: ExpectedPoint, found: StoredPoint) -> Iterator[str]:
    if found.vector.shape != right.unit.shape:
        yield f"its vector has {found.vector.size} components, not {right.unit.size}"
        return
    furthest = float(np.abs(found.vector - right.unit).max())
    # Written so that a component that is no number counts as altered.
    if not furthest <= VECTOR_TOLERANCE:
        yield f"its vector is off by up to {furthest:.6f} in a component"


def _fault(kind: Literal["altered", "missing"], key: PointKey, what: str) -> PointFault:
    return PointFault(
        kind=kind,
        collection=key.collection,
        item=key.item,
        vector=key.vector_name,
        version=key.valid_from,
        what=what,
    )


def _extra(found: StoredPoint, place: str) -> PointFault:
    told = found.payload
    names = {"collection": told.get("collection"), "item": told.get("item"), "vector": told.get("vector")}
    version = told.get("valid_from")
    if all(isinstance(name, str) for name in names.values()) and isinstance(version, int):
        what = f"the journal calls for no such point ({place})"
        return PointFault(kind="extra", version=version, what=what, **names)
    return PointFault(kind="extra", what=f"{place} holds {dict(told)}, which is no point of a bank")
