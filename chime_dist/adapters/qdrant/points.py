"""The bank's points as both Qdrant adapters store and find them.

A point holds one vector, unnamed, of one record; its payload says which. So a method may use vector names that
nobody declared when the collection was made, and replacing one vector of a record leaves the others alone.

Each projection has one more point, its cursor, which says which versions it holds and which embedder it belongs
to. It is moved after the points of a version are in place, and no search finds it: it has no collection key.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from chime_dist.core.canonical import canonical_json
from chime_dist.core.projection import OPEN_END, SLACK, PointKey, Versions
from chime_dist.ports import EmbedderFingerprint, Namespace

Payload = dict[str, str | int]

KEYWORD_KEYS = ("collection", "vector")
"""Payload keys of a point that searches compare as text; they are indexed."""
INTEGER_KEYS = ("valid_from", "valid_to")
"""Payload keys of a point that searches compare as numbers; they are indexed."""

BATCH = 128
"""Points in one upsert: about 2 MB of JSON at 1,024 dimensions."""

_MARGIN = 16
_GROWTH = 4
_IDS = uuid.uuid5(uuid.NAMESPACE_OID, "chime_dist.bank")

_T = TypeVar("_T")


def stable_uuid(*parts: str | int) -> str:
    """The UUID of a key: the same parts give the same id everywhere, different parts never do (E5).

    Qdrant takes only unsigned integers and UUIDs as ids. The parts are joined as canonical JSON, so that no
    two keys are spelled alike whatever characters they hold.
    """
    return str(uuid.uuid5(_IDS, canonical_json(parts)))


def point_id(namespace: Namespace, key: PointKey) -> str:
    """The id of a point of one owner's projection."""
    return stable_uuid(namespace.launch, namespace.run_id, namespace.fence, *key)


def owner_payload(namespace: Namespace) -> Payload:
    """What every point of one owner's projection carries."""
    return {"launch": namespace.launch, "run": namespace.run_id, "fence": namespace.fence}


def point_payload(namespace: Namespace, key: PointKey) -> Payload:
    """The payload of a point that still stands: the parts of its id, and an open end."""
    return {
        **owner_payload(namespace),
        "collection": key.collection,
        "item": key.item,
        "vector": key.vector_name,
        "valid_from": key.valid_from,
        "valid_to": OPEN_END,
    }


CURSOR: Payload = {"kind": "cursor"}
"""What tells cursors from points."""


def cursor_id(namespace: Namespace) -> str:
    """The id of the cursor of one owner's projection."""
    return stable_uuid(namespace.launch, namespace.run_id, namespace.fence)


def cursor_vector(dim: int) -> list[float]:
    """Any direction: a cursor is never searched, but servers differ on points without a vector."""
    return [1.0] + [0.0] * (dim - 1)


def cursor_payload(namespace: Namespace, fingerprint: EmbedderFingerprint, versions: Versions) -> dict[str, Any]:
    """The payload of a cursor at ``versions``."""
    return {
        **owner_payload(namespace),
        **CURSOR,
        "embedder": fingerprint.model_dump(),
        **cursor_move(versions),
    }


def cursor_move(versions: Versions) -> dict[str, Any]:
    """What changes in a cursor's payload when a projection reaches, or is cut down to, ``versions``."""
    return {"spans": versions.spans, "gone": versions.gone}


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter: every payload key has its value in ``equal`` and lies within its bounds in ``within``.

    Bounds are spelled as both Qdrant APIs name them: ``lte``, ``gte``, ``gt``.
    """

    equal: Payload
    within: dict[str, dict[str, float]]


def standing_at(version: int, collection: str, vector_name: str) -> Selection:
    """The points of one vector of one collection that are valid at ``version``."""
    return Selection(
        equal={"collection": collection, "vector": vector_name},
        within={"valid_from": {"lte": version}, "valid_to": {"gt": version}},
    )


def unread(versions: Versions) -> list[Selection]:
    """The points that none of ``versions`` sees, range by range of what was let go."""
    return [
        Selection(equal={}, within={"valid_from": {"gte": first}, "valid_to": {"lte": last + 1}})
        for first, last in versions.gone
    ]


def first_ask(limit: int) -> int:
    """How many points to ask for first when the best ``limit`` are wanted."""
    return limit + _MARGIN


def next_ask(scores: Sequence[float], asked: int, limit: int) -> int | None:
    """How many to ask for instead, or None where the answer holds every point that may be among the best.

    ``scores`` is the answer to a request for ``asked``, best first. Equal scores come in any order, so the
    answer is complete only when it ends clearly below the ``limit``-th score, or is shorter than asked.
    """
    if len(scores) < asked or scores[-1] < scores[limit - 1] - SLACK:
        return None
    return asked * _GROWTH


def best(hits: Sequence[tuple[str, float]], limit: int) -> list[str]:
    """Items of (item, score) pairs, best first, that may be among the best ``limit``."""
    if len(hits) <= limit:
        return [item for item, _ in hits]
    floor = hits[limit - 1][1] - SLACK
    return [item for item, score in hits if score >= floor]


def batches(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """``items`` in runs of at most ``BATCH``."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
