"""What every part of the server adapter needs of qdrant-client: connection, filters, checked answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException

from chime_dist.adapters.qdrant.points import Selection
from chime_dist.errors import ServiceError

BANK_PREFIX = "chime-bank-"
"""How the names of our collections begin; a hash of the embedding fingerprint follows."""


def connected(url: str, api_key: str | None, timeout_s: int) -> AsyncQdrantClient:
    """A client of the server at ``url``; ``timeout_s`` seconds for one request. Nothing is sent yet."""
    return AsyncQdrantClient(url=url, api_key=api_key, timeout=timeout_s, check_compatibility=False)


@asynccontextmanager
async def answers(where: str) -> AsyncIterator[None]:
    """Turn what qdrant-client raises into a ServiceError that names ``where``."""
    try:
        yield
    except (ApiException, QdrantException) as error:
        reason = getattr(error, "source", error)
        raise ServiceError(
            f"{where}: the Qdrant server did not do what was asked: {reason!r};"
            " check its URL, key and log, then start again (the bank is rebuilt from its journal)"
        ) from error


async def bank_collections(client: AsyncQdrantClient, prefix: str) -> list[str]:
    """Names of the collections that hold banks."""
    found = await client.get_collections()
    return [c.name for c in found.collections if c.name.startswith(prefix)]


def filter_of(selection: Selection) -> models.Filter:
    """A selection as the server takes it."""
    must: list[models.Condition] = [
        models.FieldCondition(key=key, match=models.MatchValue(value=value))
        for key, value in selection.equal.items()
    ]
    must += [
        models.FieldCondition(key=key, range=models.Range(**bounds)) for key, bounds in selection.within.items()
    ]
    return models.Filter(must=must)


def check(result: models.UpdateResult, where: str) -> None:
    """Raise ServiceError unless a write is complete (E1)."""
    if result.status != models.UpdateStatus.COMPLETED:
        raise ServiceError(
            f"{where}: the Qdrant server answered {result.status} to a write that waits for completion;"
            " it is overloaded or shutting down: start again when it is well"
        )
