"""Looking at projections on a Qdrant server from outside: which there are, and whether they are right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

import numpy as np
from qdrant_client import AsyncQdrantClient, models

from chime_dist.adapters.qdrant.audit import StoredPoint, audited
from chime_dist.adapters.qdrant.points import CURSOR, Payload, Selection, cursor_id, owner_payload, point_id
from chime_dist.adapters.qdrant.server_calls import (
    BANK_PREFIX,
    answers,
    bank_collections,
    check,
    connected,
    filter_of,
)
from chime_dist.core.bank import Entry
from chime_dist.core.projection import PointKey
from chime_dist.core.projection_audit import PointFault, ProjectionAudit
from chime_dist.ports import EmbedderFingerprint, Namespace

_PAGE = 512
"""Points per request: about 10 MB of JSON at 1,024 dimensions."""
PATIENCE_S = 3.0
"""How long a server that is away is waited for: somebody sits before the screen, and the journal can be checked
without it."""


class QdrantServerAudit:
    """Reads the projections that ``QdrantServerStore`` writes. Takes over ``client`` and closes it.

    Methods raise ServiceError where the server cannot be used.
    """

    def __init__(self, client: AsyncQdrantClient, prefix: str = BANK_PREFIX) -> None:
        self._client = client
        self._prefix = prefix

    @classmethod
    def connect(
        cls, url: str, api_key: str | None = None, ca_file: str | None = None, timeout_s: int = 30
    ) -> Self:
        """Of the server at ``url``; see ``server_calls.connected``, which raises ConfigError."""
        return cls(connected(url, api_key, ca_file, timeout_s, patience_s=PATIENCE_S))

    async def newest(self, launch: str, run_id: str) -> Namespace | None:
        """The newest owner's projection of a run; None where there is none."""
        fences = await self._cursors(launch, run_id)
        return Namespace(launch=launch, run_id=run_id, fence=max(fences)) if fences else None

    async def embedder(self, launch: str, run_id: str) -> EmbedderFingerprint | None:
        """What the run's newest projection was built with; None where there is none."""
        fences = await self._cursors(launch, run_id)
        return fences[max(fences)] if fences else None

    async def audit(self, namespace: Namespace, dim: int, entries: Sequence[Entry]) -> ProjectionAudit:
        """Compare a projection, whoever opened it, with its whole journal. Writes nothing.

        ``dim`` is the number of components of the journal's vectors.
        """
        async with answers(f"bank {namespace}"):
            stored = {
                str(record.id): _stored(record)
                async for record in self._points(owner_payload(namespace), with_vectors=True)
            }
            audit = await asyncio.to_thread(audited, namespace, dim, stored, entries)
            if astray := await self._by_id([_id_of(namespace, fault) for fault in audit.faults if _gone(fault)]):
                # Their payloads no longer say whose they are: altered, not missing.
                audit = await asyncio.to_thread(audited, namespace, dim, stored | astray, entries)
        return audit

    async def forget(self, namespace: Namespace) -> None:
        """Remove every point of one owner's projection, and nothing else."""
        owner = models.FilterSelector(filter=filter_of(Selection(owner_payload(namespace), {})))
        where = f"bank {namespace}"
        async with answers(where):
            for collection in await bank_collections(self._client, self._prefix):
                check(await self._client.delete(collection, points_selector=owner, wait=True), where)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def _cursors(self, launch: str, run_id: str) -> dict[int, EmbedderFingerprint]:
        """By fence."""
        run: Payload = {"launch": launch, "run": run_id, **CURSOR}
        async with answers(f"run {run_id} of {launch}"):
            payloads = [record.payload or {} async for record in self._points(run, with_vectors=False)]
        return {int(p["fence"]): EmbedderFingerprint.model_validate(p["embedder"]) for p in payloads}

    async def _points(self, equal: Payload, *, with_vectors: bool) -> AsyncIterator[models.Record]:
        chosen = filter_of(Selection(equal, {}))
        for collection in await bank_collections(self._client, self._prefix):
            offset: Any = None
            while True:
                page, offset = await self._client.scroll(
                    collection, scroll_filter=chosen, limit=_PAGE, offset=offset, with_vectors=with_vectors
                )
                for record in page:
                    yield record
                if offset is None:
                    break

    async def _by_id(self, ids: Sequence[str]) -> dict[str, StoredPoint]:
        found: dict[str, StoredPoint] = {}
        for collection in await bank_collections(self._client, self._prefix) if ids else ():
            for start in range(0, len(ids), _PAGE):
                chunk = list(ids[start : start + _PAGE])
                records = await self._client.retrieve(collection, ids=chunk, with_payload=True, with_vectors=True)
                found |= {str(record.id): _stored(record) for record in records}
        return found


def _gone(fault: PointFault) -> bool:
    return fault.kind == "missing"


def _id_of(namespace: Namespace, fault: PointFault) -> str:
    if fault.collection is None or fault.item is None or fault.vector is None or fault.version is None:
        return cursor_id(namespace)
    return point_id(namespace, PointKey(fault.collection, fault.item, fault.vector, fault.version))


def _stored(record: models.Record) -> StoredPoint:
    vector = np.asarray(record.vector if isinstance(record.vector, list) else [], dtype=np.float32)
    return StoredPoint(record.payload or {}, vector)
