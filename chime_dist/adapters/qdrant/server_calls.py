"""What every part of the server adapter needs of qdrant-client: connection, filters, checked answers."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version as installed

import httpx
import stamina
import structlog
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.common.version_check import is_compatible, parse_version
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from chime_dist.adapters.qdrant.points import Selection
from chime_dist.errors import ConfigError, ServiceError

_log = structlog.get_logger(__name__)

BANK_PREFIX = "chime-bank-"
"""How the names of our collections begin; a hash of the embedding fingerprint follows."""

PATIENCE_S = 30.0
"""How long a request is repeated while the server is away or overloaded, in seconds."""

OLDEST_SERVER = (1, 17)
"""Older servers overwrite points where they are told to insert only (E2)."""

_LONGEST_ANSWER = 300
_REFUSED = (401, 403)
_PASSING = (429, 502, 503, 504)


def connected(
    url: str,
    api_key: str | None = None,
    ca_file: str | None = None,
    timeout_s: int = 30,
    patience_s: float = PATIENCE_S,
) -> AsyncQdrantClient:
    """A client of the server at ``url``; nothing is sent yet.

    ``ca_file`` is the PEM of an authority that is trusted besides this machine's. ``timeout_s`` seconds for one
    request; it is repeated for ``patience_s`` seconds where the server is unreachable or says that it is busy,
    which is safe because every write of ours means the same when it is done twice. Raises ConfigError for a
    ``ca_file`` that cannot be used.
    """
    client = AsyncQdrantClient(
        url=url, api_key=api_key, timeout=timeout_s, check_compatibility=False, verify=_trusted(ca_file)
    )
    client.http.client.add_middleware(_Patient(patience_s))
    return client


def _trusted(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:
            raise ConfigError(
                f"qdrant.ca_file {ca_file}: {error.strerror or error}; expected the PEM file of the authority that"
                " signed the server's certificate, on every machine of the launch"
            ) from error
    return context


class _BusyError(Exception):
    """The server said that it cannot answer now."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class _Patient:
    """Sends a request again while the reason to fail may pass."""

    def __init__(self, patience_s: float) -> None:
        self._again = stamina.AsyncRetryingCaller(
            attempts=None, timeout=patience_s, wait_initial=0.1, wait_max=3.0, wait_jitter=0.1
        ).on(_may_pass)

    async def __call__(
        self, request: httpx.Request, send: Callable[[httpx.Request], Awaitable[httpx.Response]]
    ) -> httpx.Response:
        async def attempt() -> httpx.Response:
            response = await send(request)
            if response.status_code in _PASSING:
                raise _BusyError(response)
            return response

        try:
            return await self._again(attempt)
        except _BusyError as error:
            return error.response


def _may_pass(error: Exception) -> bool:
    if isinstance(error, ResponseHandlingException):
        return isinstance(error.source, httpx.TransportError) and _untrusted(error) is None
    return isinstance(error, _BusyError)


def _untrusted(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """What TLS said of the server's certificate, if that is what went wrong."""
    return next((cause for cause in _causes(error) if isinstance(cause, ssl.SSLCertVerificationError)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = getattr(error, "source", None) or error.__cause__ or error.__context__


@asynccontextmanager
async def answers(where: str) -> AsyncIterator[None]:
    """Turn what qdrant-client raises into a ServiceError that names ``where``, and the setting to look at."""
    try:
        yield
    except (ApiException, QdrantException) as error:
        if isinstance(error, UnexpectedResponse) and error.status_code in _REFUSED:
            # Not the server's words, which may repeat the key.
            raise ServiceError(
                f"{where}: the Qdrant server refused the key (HTTP {error.status_code}); set qdrant.api_key to one"
                " that may read and write its collections"
            ) from None
        if (distrust := _untrusted(error)) is not None:
            raise ServiceError(
                f"{where}: the Qdrant server's certificate is not trusted: {distrust.verify_message}; set"
                " qdrant.ca_file to the PEM file of the authority that signed it, or call the server by a name"
                " that its certificate holds"
            ) from error
        if isinstance(lost := getattr(error, "source", None), httpx.TransportError):
            raise ServiceError(
                f"{where}: the Qdrant server cannot be reached ({type(lost).__name__}: {lost}); check that it"
                " runs, and its URL, then start again (the bank is rebuilt from its journal)"
            ) from error
        raise ServiceError(
            f"{where}: the Qdrant server did not do what was asked: {_reason(error)};"
            " check its URL, key and log, then start again (the bank is rebuilt from its journal)"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, UnexpectedResponse):
        said = error.content.decode(errors="replace")[:_LONGEST_ANSWER]
        return f"HTTP {error.status_code} {error.reason_phrase}: {said}"
    return repr(getattr(error, "source", error))


async def check_version(client: AsyncQdrantClient, where: str) -> str:
    """The server's version; one that the client was not made for is logged.

    Raises ServiceError, naming both versions, for one that lacks what a bank needs.
    """
    server, ours = (await client.info()).version, installed("qdrant-client")
    try:
        major, minor, _ = parse_version(server)
    except ValueError:
        _log.warning("bank_store.server_version_unknown", server=server, client=ours)
        return server
    if (major, minor) < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        raise ServiceError(
            f"{where}: the Qdrant server is version {server}, but a bank needs {oldest} or newer"
            f" (qdrant-client here is {ours}): upgrade the server"
        )
    if not is_compatible(ours, server):
        _log.warning("bank_store.server_version", server=server, client=ours)
    return server


async def tried_collection(client: AsyncQdrantClient) -> None:
    """Make a collection of nobody's and remove it again, as proof that the key may."""
    name = f"chime-doctor-{uuid.uuid4().hex}"
    smallest = models.VectorParams(size=1, distance=models.Distance.COSINE)
    await client.create_collection(name, vectors_config=smallest)
    await client.delete_collection(name)


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
