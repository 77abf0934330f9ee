"""The bank's projection in the real Qdrant engine, in this process (``qdrant-edge-py``).

One shard per run and fence. It is rebuilt from the journal by whoever opens it and removed when it is closed.

Every engine call of a shard runs in that shard's one thread: calls keep their order, the event loop stays free,
and a cancelled caller never leaves two threads in one shard. The engine is never asked to optimise: that
blocks, and makes search approximate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import structlog

from chime_dist.adapters.qdrant.audit import audited
from chime_dist.adapters.qdrant.edge_audit import stored_points
from chime_dist.adapters.qdrant.edge_directory import ShardDirectory
from chime_dist.adapters.qdrant.points import (
    INTEGER_KEYS,
    KEYWORD_KEYS,
    Selection,
    batches,
    best,
    cursor_id,
    cursor_move,
    cursor_payload,
    cursor_vector,
    first_ask,
    next_ask,
    point_id,
    point_payload,
    standing_at,
    unread,
)
from chime_dist.core.bank import BankState, Entry
from chime_dist.core.projection import Projection, Versions, score_floor
from chime_dist.core.projection_audit import ProjectionAudit
from chime_dist.core.vector import Vector
from chime_dist.errors import MissingExtraError, ServiceError
from chime_dist.ports import EmbedderFingerprint, Namespace

try:
    import qdrant_edge
except ImportError:
    if TYPE_CHECKING:
        raise
    qdrant_edge = None

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class QdrantEdgeStore:
    """A ``BankStore`` over shards below ``state_dir``, a folder on a local disk.

    Raises MissingExtraError where the engine is not installed.
    """

    def __init__(self, state_dir: Path) -> None:
        if qdrant_edge is None:
            raise MissingExtraError(
                "the embedded bank store needs qdrant-edge-py: pip install 'chime-dist[edge]'"
                " (or configure the memory or the server store)"
            )
        self._state_dir = state_dir
        self._shards: dict[Namespace, _Shard] = {}
        self._opening = asyncio.Lock()

    async def open(self, namespace: Namespace, fingerprint: EmbedderFingerprint) -> None:
        """Start an empty shard and remove what nobody holds of older fences of the run.

        Raises BankMismatchError where the run's bank was built with another embedder (nothing is touched
        then, E4) and ServiceError where another process has the shard open, naming it (E7).
        """
        async with self._opening:
            if namespace not in self._shards:
                self._shards[namespace] = _Shard(self._state_dir, namespace)
            shard = self._shards[namespace]
            try:
                await shard.call(lambda: shard.start(fingerprint))
            except Exception:
                if not shard.started:
                    del self._shards[namespace]
                    shard.thread.shutdown(wait=False)
                raise

    async def project(self, namespace: Namespace, version: int, before: BankState, after: BankState) -> None:
        """Follow the bank from ``before`` to ``after``; see ``core.projection.Projection.plan`` for errors."""
        shard = self._shard(namespace)
        await shard.call(lambda: shard.project(version, before, after))

    async def candidates(
        self,
        namespace: Namespace,
        version: int,
        collection: str,
        vector_name: str,
        vector: Vector,
        limit: int,
        min_similarity: float,
    ) -> list[str]:
        """Ids at ``version`` that may be among the best ``limit``, about best first.

        Raises ServiceError for a namespace that is not open or a version that is not projected.
        """
        shard = self._shard(namespace)
        floor = score_floor(min_similarity)
        return await shard.call(lambda: shard.search(version, collection, vector_name, vector, limit, floor))

    async def compact(self, namespace: Namespace, keep: Sequence[int]) -> None:
        """See ``ports.BankStore``; raises ServiceError for a namespace that is not open."""
        shard = self._shard(namespace)
        await shard.call(lambda: shard.compact(keep))

    async def audit(self, namespace: Namespace, dim: int, entries: Sequence[Entry]) -> ProjectionAudit:
        """Compare an open shard with its whole journal; ``dim`` is the journal's. Writes nothing.

        Raises ServiceError for a namespace that is not open.
        """
        shard = self._shard(namespace)
        return await shard.call(lambda: shard.audit(dim, entries))

    async def close(self) -> None:
        """Close every shard and remove its directory: the next owner rebuilds it from the journal."""
        async with self._opening:
            while self._shards:
                _, shard = self._shards.popitem()
                await shard.call(shard.stop)
                shard.thread.shutdown(wait=False)

    def _shard(self, namespace: Namespace) -> _Shard:
        if namespace not in self._shards:
            raise ServiceError(f"bank {namespace}: it is not open in this store; open and project it first")
        return self._shards[namespace]


class _Shard:
    """One shard. All but ``call`` and ``started`` runs in ``thread``."""

    def __init__(self, state_dir: Path, namespace: Namespace) -> None:
        self._namespace = namespace
        self._where = f"bank {namespace}"
        self._directory = ShardDirectory(state_dir, namespace)
        self._live: tuple[qdrant_edge.EdgeShard, Projection] | None = None
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="qdrant-edge")

    @property
    def started(self) -> bool:
        return self._live is not None

    async def call(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self.thread, work)

    def start(self, fingerprint: EmbedderFingerprint) -> None:
        try:
            self._directory.check_embedder(fingerprint)
            self.stop()
            self._directory.take()
            self._live = (self._create(fingerprint), Projection(fingerprint.dim, self._where))
        except OSError as error:
            raise ServiceError(
                f"{self._where}: cannot use {self._directory.path}: {error}; check the state directory"
            ) from error
        finally:
            if self._live is None:
                self._directory.release()
        _log.info("bank_store.opened", namespace=self._namespace.model_dump(), path=str(self._directory.path))

    def stop(self) -> None:
        if self._live is not None:
            engine, _ = self._live
            self._live = None
            with self._engine_errors("close"):
                engine.close()
        self._directory.release()

    def project(self, version: int, before: BankState, after: BankState) -> None:
        engine, projection = self._running()
        step = projection.plan(version, before, after)
        if step is None:
            return
        update = qdrant_edge.UpdateOperation
        with self._engine_errors(f"write version {version}"):
            for batch in batches(step.opened):
                points = [
                    qdrant_edge.Point(
                        point_id(self._namespace, key), unit.tolist(), dict(point_payload(self._namespace, key))
                    )
                    for key, unit in batch
                ]
                # A redelivery must not touch a stored vector, not even its last bits (E2).
                engine.update(update.upsert_points(points, update_mode=qdrant_edge.UpdateMode.InsertOnly))
            if step.closed:
                closed: list[qdrant_edge.PointId] = [point_id(self._namespace, key) for key in step.closed]
                engine.update(update.set_payload(closed, {"valid_to": version}))
            cursor: list[qdrant_edge.PointId] = [cursor_id(self._namespace)]
            engine.update(update.set_payload(cursor, cursor_move(projection.versions.then(version))))
        projection.advance(step)

    def search(
        self, version: int, collection: str, vector_name: str, vector: Vector, limit: int, floor: float
    ) -> list[str]:
        engine, projection = self._running()
        projection.versions.require(version, self._where)
        query = qdrant_edge.Query.Nearest(projection.unit(vector, "the query").tolist())
        chosen = _filter_of(standing_at(version, collection, vector_name))
        asked: int | None = first_ask(limit) if limit > 0 else None
        hits: list[tuple[str, float]] = []
        while asked is not None:
            request = qdrant_edge.QueryRequest(
                limit=asked,
                query=query,
                filter=chosen,
                with_payload=["item"],
                score_threshold=floor,
                params=qdrant_edge.SearchParams(exact=True),
            )
            with self._engine_errors(f"search version {version}"):
                points = engine.query(request)
            hits = [((point.payload or {})["item"], point.score) for point in points]
            asked = next_ask([score for _, score in hits], asked, limit)
        return best(hits, limit)

    def compact(self, keep: Sequence[int]) -> None:
        engine, projection = self._running()
        versions = projection.let_go(keep)
        if versions is None:
            return
        update = qdrant_edge.UpdateOperation
        with self._engine_errors(f"compact up to version {versions.head}"):
            # The cursor first: whoever finds a half-done compaction must not take its gaps for damage.
            engine.update(update.set_payload([cursor_id(self._namespace)], cursor_move(versions)))
            for selection in unread(versions):
                engine.update(update.delete_points_by_filter(_filter_of(selection)))
        projection.swept(versions)

    def audit(self, dim: int, entries: Sequence[Entry]) -> ProjectionAudit:
        engine, _ = self._running()
        with self._engine_errors("read its points"):
            stored = stored_points(engine)
        return audited(self._namespace, dim, stored, entries)

    def _running(self) -> tuple[qdrant_edge.EdgeShard, Projection]:
        if self._live is None:
            raise ServiceError(f"{self._where}: it is not open in this store; open and project it first")
        return self._live

    def _create(self, fingerprint: EmbedderFingerprint) -> qdrant_edge.EdgeShard:
        dim = fingerprint.dim
        vectors = qdrant_edge.EdgeVectorParams(size=dim, distance=qdrant_edge.Distance.Cosine)
        config = qdrant_edge.EdgeConfig(vectors=vectors, wal_enabled=True)
        kinds = dict.fromkeys(KEYWORD_KEYS, qdrant_edge.PayloadSchemaType.Keyword)
        kinds |= dict.fromkeys(INTEGER_KEYS, qdrant_edge.PayloadSchemaType.Integer)
        with self._engine_errors("create the shard"):
            engine = qdrant_edge.EdgeShard.create(str(self._directory.path), config)
            for name, kind in kinds.items():
                engine.update(qdrant_edge.UpdateOperation.create_field_index(name, kind))
            payload = cursor_payload(self._namespace, fingerprint, Versions())
            cursor = qdrant_edge.Point(cursor_id(self._namespace), cursor_vector(dim), payload)
            engine.update(qdrant_edge.UpdateOperation.upsert_points([cursor]))
        return engine

    @contextmanager
    def _engine_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # The engine raises bare Exception, so nothing narrower can be caught.
            raise ServiceError(
                f"{self._where}: the engine could not {what} in {self._directory.path}: {error};"
                " check the disk, then start again (the bank is rebuilt from its journal)"
            ) from error


def _filter_of(selection: Selection) -> qdrant_edge.Filter:
    """A selection as the engine takes it."""
    must: list[qdrant_edge.ConditionType] = [
        qdrant_edge.FieldCondition(name, match=qdrant_edge.MatchValue(value))
        for name, value in selection.equal.items()
    ]
    must += [
        qdrant_edge.FieldCondition(name, range=qdrant_edge.RangeFloat(**bounds))
        for name, bounds in selection.within.items()
    ]
    return qdrant_edge.Filter(must=must)
