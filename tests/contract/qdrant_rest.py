"""A Qdrant server over HTTP or TLS, as far as a bank needs one: requests go to qdrant-client's in-process engine.

It checks keys as the real one does, and can be told to be away, busy, or of another version.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.models import models as wire

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RestQdrant:
    """What it was sent and what it holds."""

    def __init__(self, api_key: str | None = None) -> None:
        self.api_key = api_key
        self.version = "1.20.0"
        self.keys: list[str | None] = []
        """The ``api-key`` header of every request."""
        self.refusals: list[int] = []
        """Statuses that the next requests are answered with."""
        self._engine = AsyncQdrantClient(":memory:")

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[str]:
        """Its URL while it is up, on ``port`` of 127.0.0.1 or on a free one."""
        app = web.Application(middlewares=[self._guarded], client_max_size=2**26)
        place = "/collections/{name}"
        app.add_routes(
            [
                web.get("/", self._info),
                web.get("/collections", self._collections),
                web.get(f"{place}/exists", self._exists),
                web.put(place, self._create),
                web.get(place, self._collection),
                web.delete(place, self._drop),
                web.put(f"{place}/index", self._index),
                web.put(f"{place}/points", self._upsert),
                web.post(f"{place}/points", self._retrieve),
                web.post(f"{place}/points/delete", self._delete),
                web.post(f"{place}/points/batch", self._batch),
                web.post(f"{place}/points/count", self._count),
                web.post(f"{place}/points/scroll", self._scroll),
                web.post(f"{place}/points/query", self._query),
            ]
        )
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
            await site.start()
            port = runner.addresses[0][1]
            yield f"https://localhost:{port}" if tls is not None else f"http://127.0.0.1:{port}"
        finally:
            await runner.cleanup()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        key = request.headers.get("api-key")
        self.keys.append(key)
        if self.refusals:
            return web.json_response({"status": {"error": "refused"}}, status=self.refusals.pop(0))
        # Anybody may ask a real server for its version.
        if self.api_key is not None and key != self.api_key and request.path != "/":
            return web.Response(
                status=401, text=f"Must provide an API key or an Authorization bearer token: {key}"
            )
        return await handler(request)

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response({"title": "qdrant - vector search engine", "version": self.version})

    async def _collections(self, request: web.Request) -> web.Response:
        return _answer(await self._engine.get_collections())

    async def _exists(self, request: web.Request) -> web.Response:
        return _answer({"exists": await self._engine.collection_exists(_name(request))})

    async def _create(self, request: web.Request) -> web.Response:
        asked = wire.CreateCollection.model_validate(await request.json())
        assert isinstance(asked.vectors, models.VectorParams)
        return _answer(await self._engine.create_collection(_name(request), vectors_config=asked.vectors))

    async def _collection(self, request: web.Request) -> web.Response:
        return _answer(await self._engine.get_collection(_name(request)))

    async def _drop(self, request: web.Request) -> web.Response:
        return _answer(await self._engine.delete_collection(_name(request)))

    async def _index(self, request: web.Request) -> web.Response:
        asked = wire.CreateFieldIndex.model_validate(await request.json())
        return _written(
            await self._engine.create_payload_index(_name(request), asked.field_name, asked.field_schema)
        )

    async def _upsert(self, request: web.Request) -> web.Response:
        asked = wire.PointsList.model_validate(await request.json())
        return _written(await self._engine.upsert(_name(request), points=asked.points))

    async def _retrieve(self, request: web.Request) -> web.Response:
        asked = wire.PointRequest.model_validate(await request.json())
        found = await self._engine.retrieve(
            _name(request), asked.ids, with_payload=True, with_vectors=bool(asked.with_vector)
        )
        return _answer([record.model_dump(mode="json") for record in found])

    async def _delete(self, request: web.Request) -> web.Response:
        asked = wire.FilterSelector.model_validate(await request.json())
        return _written(await self._engine.delete(_name(request), points_selector=asked))

    async def _batch(self, request: web.Request) -> web.Response:
        asked = wire.UpdateOperations.model_validate(await request.json())
        done = await self._engine.batch_update_points(_name(request), asked.operations)
        return _answer([{"operation_id": 0, "status": result.status} for result in done])

    async def _count(self, request: web.Request) -> web.Response:
        asked = wire.CountRequest.model_validate(await request.json())
        counted = await self._engine.count(_name(request), count_filter=asked.filter, exact=True)
        return _answer(counted.model_dump())

    async def _scroll(self, request: web.Request) -> web.Response:
        asked = wire.ScrollRequest.model_validate(await request.json())
        found, offset = await self._engine.scroll(
            _name(request),
            asked.filter,
            limit=asked.limit or 10,
            offset=asked.offset,
            with_vectors=bool(asked.with_vector),
        )
        points = [record.model_dump(mode="json") for record in found]
        return _answer({"points": points, "next_page_offset": offset})

    async def _query(self, request: web.Request) -> web.Response:
        asked = wire.QueryRequest.model_validate(await request.json())
        vector = TypeAdapter(list[float]).validate_python(
            asked.query.nearest if isinstance(asked.query, models.NearestQuery) else asked.query
        )
        found = await self._engine.query_points(
            _name(request),
            query=vector,
            query_filter=asked.filter,
            limit=asked.limit or 10,
            score_threshold=asked.score_threshold,
            with_payload=asked.with_payload or False,
        )
        return _answer(found)


def _name(request: web.Request) -> str:
    return request.match_info["name"]


def _answer(result: Any) -> web.Response:
    if hasattr(result, "model_dump"):
        result = result.model_dump(mode="json")
    return web.json_response({"result": result, "status": "ok", "time": 0.0})


def _written(result: models.UpdateResult) -> web.Response:
    return _answer({"operation_id": 0, "status": result.status})
