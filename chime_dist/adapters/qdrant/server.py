"""The bank's projection on a Qdrant server (``qdrant-client``).

One collection per embedding fingerprint, shared by runs: points carry launch, run and fence, all indexed. Through
the cursors any process can search a namespace that another one opened, and never sees half a commit.

Every write waits and its status is checked (E1). Searches are exact: the collection builds no HNSW graph.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import structlog
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from chime_dist.adapters.qdrant.points import (
    CURSOR,
    INTEGER_KEYS,
    KEYWORD_KEYS,
    Payload,
    Selection,
    batches,
    best,
    cursor_id,
    cursor_move,
    cursor_payload,
    cursor_vector,
    first_ask,
    next_ask,
    owner_payload,
    point_id,
    point_payload,
    standing_at,
    unread,
)
from chime_dist.adapters.qdrant.server_calls import (
    BANK_PREFIX,
    answers,
    bank_collections,
    check,
    check_version,
    connected,
    filter_of,
)
from chime_dist.core.bank import BankState
from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.projection import Projection, Step, Versions, score_floor, unit_vector
from chime_dist.core.vector import Vector
from chime_dist.errors import BankMismatchError, ServiceError
from chime_dist.ports import EmbedderFingerprint, Namespace

_log = structlog.get_logger(__name__)

_CONFLICT = 409


@dataclass(frozen=True, slots=True)
class _View:
    """What a reader knows of a projection."""

    collection: str
    dim: int
    versions: Versions


@dataclass(slots=True)
class _Owned:
    """What the owner of a projection knows besides."""

    collection: str
    projection: Projection
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class QdrantServerStore:
    """A ``BankStore`` on a server; collections are called ``PREFIX`` and a hash of the fingerprint.

    Projections stay on the server when the store closes, also those of older fences: workers may still read
    them. Takes over ``client`` and closes it.
    """

    def __init__(self, client: AsyncQdrantClient, prefix: str = BANK_PREFIX) -> None:
        self._client = client
        self._prefix = prefix
        self._views: dict[Namespace, _View] = {}
        self._owned: dict[Namespace, _Owned] = {}

    @classmethod
    def connect(
        cls, url: str, api_key: str | None = None, ca_file: str | None = None, timeout_s: int = 30
    ) -> Self:
        """A store on the server at ``url``; see ``server_calls.connected``, which raises ConfigError."""
        return cls(connected(url, api_key, ca_file, timeout_s))

    async def open(self, namespace: Namespace, fingerprint: EmbedderFingerprint) -> None:
        """Start an empty projection, removing only points of this very namespace.

        Raises BankMismatchError, before anything is written, where the run has points of another embedder or
        the collection was changed by hand (E4); ServiceError where the server cannot be used.
        """
        where = f"bank {namespace}"
        collection = f"{self._prefix}{sha256_hex(canonical_json(fingerprint.model_dump()))[:16]}"
        async with answers(where):
            await check_version(self._client, where)
            await self._refuse_other_embedder(namespace, fingerprint, collection, where)
            await self._ensure_collection(collection, fingerprint, where)
            owner = models.FilterSelector(filter=filter_of(Selection(owner_payload(namespace), {})))
            check(await self._client.delete(collection, points_selector=owner, wait=True), where)
            cursor = models.PointStruct(
                id=cursor_id(namespace),
                vector=cursor_vector(fingerprint.dim),
                payload=cursor_payload(namespace, fingerprint, Versions()),
            )
            check(await self._client.upsert(collection, points=[cursor], wait=True), where)
        self._owned[namespace] = _Owned(collection, Projection(fingerprint.dim, where))
        _log.info("bank_store.opened", namespace=namespace.model_dump(), collection=collection)

    async def project(self, namespace: Namespace, version: int, before: BankState, after: BankState) -> None:
        """Follow the bank from ``before`` to ``after``; see ``core.projection.Projection.plan`` for errors.

        An ordinary commit is one request. Raises ServiceError where a write did not complete; projecting the
        version again is safe then.
        """
        owned = self._own(namespace)
        projection = owned.projection
        async with owned.writing:
            step = await asyncio.to_thread(projection.plan, version, before, after)
            if step is None:
                return
            versions = projection.versions.then(version)
            async with answers(projection.where):
                for operations in _requests(namespace, step, versions):
                    results = await self._client.batch_update_points(owned.collection, operations, wait=True)
                    for result in results:
                        check(result, projection.where)
            projection.advance(step)

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

        The namespace may have been opened by another process. Raises ServiceError where no server knows it,
        or the version is not projected.
        """
        where = f"bank {namespace}"
        floor = score_floor(min_similarity)
        hits: list[tuple[str, float]] = []
        async with answers(where):
            view = await self._view(namespace, version)
            view.versions.require(version, where)
            query = unit_vector(vector, view.dim, f"{where}, the query").tolist()
            asked: int | None = first_ask(limit) if limit > 0 else None
            selection = standing_at(version, collection, vector_name)
            chosen = filter_of(replace(selection, equal=selection.equal | owner_payload(namespace)))
            while asked is not None:
                answer = await self._client.query_points(
                    view.collection,
                    query=query,
                    query_filter=chosen,
                    limit=asked,
                    with_payload=["item"],
                    score_threshold=floor,
                    search_params=models.SearchParams(exact=True),
                )
                hits = [((point.payload or {})["item"], point.score) for point in answer.points]
                asked = next_ask([score for _, score in hits], asked, limit)
            await self._still_there(namespace, version)
        return best(hits, limit)

    async def compact(self, namespace: Namespace, keep: Sequence[int]) -> None:
        """See ``ports.BankStore``. One request, the cursor first: readers elsewhere look at it after their search,
        so one that the removal overtook finds its version refused.

        Raises ServiceError where a write did not complete.
        """
        owned = self._own(namespace)
        projection = owned.projection
        async with owned.writing:
            versions = projection.let_go(keep)
            if versions is None:
                return
            owner = owner_payload(namespace)
            removals: list[models.UpdateOperation] = [
                models.DeleteOperation(
                    delete=models.FilterSelector(filter=filter_of(replace(selection, equal=owner)))
                )
                for selection in unread(versions)
            ]
            operations = [_set([cursor_id(namespace)], cursor_move(versions)), *removals]
            async with answers(projection.where):
                for result in await self._client.batch_update_points(owned.collection, operations, wait=True):
                    check(result, projection.where)
            projection.swept(versions)

    async def close(self) -> None:
        """Close the connection; what is on the server stays."""
        self._owned.clear()
        self._views.clear()
        await self._client.close()

    def _own(self, namespace: Namespace) -> _Owned:
        if namespace not in self._owned:
            raise ServiceError(f"bank {namespace}: it was not opened by this store; only its owner writes to it")
        return self._owned[namespace]

    async def _still_there(self, namespace: Namespace, version: int) -> None:
        """Raise ServiceError where a compaction let ``version`` go while it was searched."""
        view = self._owned_view(namespace) or await self._look(namespace)
        view.versions.require(version, f"bank {namespace}")

    async def _view(self, namespace: Namespace, version: int) -> _View:
        """What is known of a projection, asking the server only where that does not cover ``version``."""
        if (owned := self._owned_view(namespace)) is not None:
            return owned
        view = self._views.get(namespace)
        return view if view is not None and version in view.versions else await self._look(namespace)

    def _owned_view(self, namespace: Namespace) -> _View | None:
        owned = self._owned.get(namespace)
        if owned is None:
            return None
        return _View(owned.collection, owned.projection.dim, owned.projection.versions)

    async def _look(self, namespace: Namespace) -> _View:
        """What another process's projection says of itself now."""
        view = self._views.get(namespace)
        for collection in (
            [view.collection] if view is not None else await bank_collections(self._client, self._prefix)
        ):
            found = await self._client.retrieve(collection, ids=[cursor_id(namespace)], with_payload=True)
            for record in found:
                self._views[namespace] = _read_cursor(collection, record.payload or {})
                return self._views[namespace]
        raise ServiceError(
            f"bank {namespace}: it is not on the server; its owner has to open and project it first"
        )

    async def _refuse_other_embedder(
        self, namespace: Namespace, fingerprint: EmbedderFingerprint, own: str, where: str
    ) -> None:
        run: Payload = {"launch": namespace.launch, "run": namespace.run_id, **CURSOR}
        for collection in await bank_collections(self._client, self._prefix):
            if collection == own:
                continue
            found, _ = await self._client.scroll(collection, scroll_filter=filter_of(Selection(run, {})), limit=1)
            if found:
                recorded = EmbedderFingerprint.model_validate((found[0].payload or {})["embedder"])
                raise BankMismatchError(
                    f"{where}: it was built with {recorded}, not with {fingerprint} (collection {collection});"
                    " configure that embedder again, or start a new launch"
                )

    async def _ensure_collection(self, name: str, fingerprint: EmbedderFingerprint, where: str) -> None:
        wanted = models.VectorParams(size=fingerprint.dim, distance=models.Distance.COSINE)
        if not await self._client.collection_exists(name):
            try:
                await self._client.create_collection(
                    name,
                    vectors_config=wanted,
                    hnsw_config=models.HnswConfigDiff(m=0),
                    # A projection is rebuilt from the journal, and one copy never disagrees with itself.
                    replication_factor=1,
                    metadata={"embedder": fingerprint.model_dump()},
                )
            except UnexpectedResponse as error:
                if error.status_code != _CONFLICT:
                    raise
        params = (await self._client.get_collection(name)).config.params.vectors
        if not isinstance(params, models.VectorParams) or (params.size, params.distance) != (
            wanted.size,
            wanted.distance,
        ):
            raise BankMismatchError(
                f"{where}: collection {name} holds vectors of {params}, the embedder {fingerprint} needs {wanted};"
                " the collection was changed by hand: rename it or use another server"
            )
        kinds = dict.fromkeys((*KEYWORD_KEYS, "launch", "run", "kind"), models.PayloadSchemaType.KEYWORD)
        kinds |= dict.fromkeys((*INTEGER_KEYS, "fence"), models.PayloadSchemaType.INTEGER)
        for key, kind in kinds.items():
            check(await self._client.create_payload_index(name, key, field_schema=kind, wait=True), where)


def _requests(namespace: Namespace, step: Step, versions: Versions) -> list[list[models.UpdateOperation]]:
    """The writes of a step, request by request; the cursor moves last."""
    requests: list[list[models.UpdateOperation]] = [
        [
            models.UpsertOperation(
                upsert=models.PointsList(
                    points=[
                        models.PointStruct(
                            id=point_id(namespace, key),
                            vector=unit.tolist(),
                            payload=dict(point_payload(namespace, key)),
                        )
                        for key, unit in batch
                    ],
                    # A redelivery must not touch a stored vector, not even its last bits (E2).
                    update_mode=models.UpdateMode.INSERT_ONLY,
                )
            )
        ]
        for batch in batches(step.opened)
    ]
    last = requests.pop() if requests else []
    if step.closed:
        last.append(_set([point_id(namespace, key) for key in step.closed], {"valid_to": step.version}))
    last.append(_set([cursor_id(namespace)], cursor_move(versions)))
    return [*requests, last]


def _set(ids: Sequence[str], payload: Mapping[str, Any]) -> models.SetPayloadOperation:
    return models.SetPayloadOperation(set_payload=models.SetPayload(payload=dict(payload), points=list(ids)))


def _read_cursor(collection: str, payload: Mapping[str, Any]) -> _View:
    fingerprint = EmbedderFingerprint.model_validate(payload["embedder"])
    spans = tuple((int(first), int(last)) for first, last in payload["spans"])
    gone = tuple((int(first), int(last)) for first, last in payload["gone"])
    return _View(collection, fingerprint.dim, Versions(spans, gone))
