"""Reading embedded projections: an engine's points, and what a killed launch left on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from chime_dist.adapters.qdrant.audit import StoredPoint, audited
from chime_dist.adapters.qdrant.edge_directory import copied, newest_fence
from chime_dist.core.bank import Entry
from chime_dist.core.projection_audit import PointFault, ProjectionAudit
from chime_dist.errors import MissingExtraError, ServiceError
from chime_dist.ports import Namespace

try:
    import qdrant_edge
except ImportError:
    if TYPE_CHECKING:
        raise
    qdrant_edge = None

_PAGE = 1024


class QdrantEdgeAudit:
    """The shards below ``state_dir``, looked at without holding or changing them.

    A store removes its shard when it closes, so a shard that nobody holds was left by a killed process. Raises
    MissingExtraError where the engine is not installed.
    """

    def __init__(self, state_dir: Path) -> None:
        if qdrant_edge is None:
            raise MissingExtraError(
                "reading an embedded bank needs qdrant-edge-py: pip install 'chime-dist[edge]'"
            )
        self._state_dir = state_dir

    async def newest(self, launch: str, run_id: str) -> Namespace | None:
        """The newest owner's shard of a run, held or left behind; None where there is none."""
        fence = newest_fence(self._state_dir, launch, run_id)
        return None if fence is None else Namespace(launch=launch, run_id=run_id, fence=fence)

    async def audit(self, namespace: Namespace, dim: int, entries: Sequence[Entry]) -> ProjectionAudit:
        """Compare a shard that was left behind with its whole journal; ``dim`` is the journal's.

        A shard that the engine cannot load is a fault of its own. Raises ServiceError, naming the holder, where a
        process has it open.
        """
        return await asyncio.to_thread(self._audit, namespace, dim, entries)

    async def close(self) -> None:
        """Nothing is held."""

    def _audit(self, namespace: Namespace, dim: int, entries: Sequence[Entry]) -> ProjectionAudit:
        with copied(self._state_dir, namespace) as copy:
            try:
                stored = _loaded(copy)
            except ServiceError as error:
                fault = PointFault(kind="altered", what=str(error))
                return ProjectionAudit(fence=namespace.fence, head=0, points=0, faults=(fault,))
        return audited(namespace, dim, stored, entries)


def _loaded(path: Path) -> dict[str, StoredPoint]:
    try:
        engine = qdrant_edge.EdgeShard.load(str(path))
        stored = stored_points(engine)
        engine.close()
    except Exception as error:
        # The engine raises bare Exception, so nothing narrower can be caught.
        raise ServiceError(f"the engine cannot load the shard: {error}") from error
    return stored


def stored_points(engine: qdrant_edge.EdgeShard) -> dict[str, StoredPoint]:
    """Every point of a shard by its id; raises the engine's bare Exception."""
    stored: dict[str, StoredPoint] = {}
    offset: qdrant_edge.PointId | None = None
    while True:
        request = qdrant_edge.ScrollRequest(offset=offset, limit=_PAGE, with_payload=True, with_vector=True)
        page, offset = engine.scroll(request)
        for record in page:
            vector = record.vector if isinstance(record.vector, list) else []
            stored[str(record.id)] = StoredPoint(record.payload or {}, np.asarray(vector, dtype=np.float32))
        if offset is None:
            return stored
