"""One process's connections to Redis, and the one place where its errors are retried and translated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import stamina
import structlog
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis, SSLConnection
from redis.asyncio.connection import RedisSSLContext
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from chime_dist.adapters.redis.refusals import LOST, REPLACED, explained, says, transient
from chime_dist.adapters.redis.tls import TlsFiles
from chime_dist.errors import ConfigError, ServiceError, TurnOverError

T = TypeVar("T")

log = structlog.get_logger()

PATIENCE_S = 30.0
"""How long a command is sent again before it counts as failed, in seconds."""

MAX_BLOCK_S = 1.0
"""Longest time one blocking command waits in the server, in seconds; longer waits are several commands.

It is also how long a waiting caller overlooks what wakes no blocked reader: an old entry that became claimable, or
keys that are gone.
"""

_CONNECT_TIMEOUT_S = 5.0
_REPLY_TIMEOUT_S = 10.0
_BREATH_S = 0.05
_POOL_SIZE = 64
"""Connections for commands; more coroutines than that wait for a free one instead of failing."""

_NO_FILES = TlsFiles()


class RedisConnection:
    """Two clients of one server: one for commands, one for reads that block.

    redis-py's own retries are off in both: they re-send any command whose reply was lost, for every connection
    attempt again, and without a limit in time. ``run`` re-sends instead, within ``patience_s`` of wall clock; so
    everything given to it must mean the same when it is executed twice. A blocking group read does not (its
    reply carries deliveries), hence ``wait``, which asks once and leaves lost replies to the caller's sweep.
    """

    def __init__(
        self,
        url: str,
        patience_s: float = PATIENCE_S,
        *,
        files: TlsFiles = _NO_FILES,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """``url``: redis://, rediss:// or unix://; ``files`` only with rediss://. Connects at first use. ``tell``
        hears, in words for people, that the server is waited for.

        Raises ConfigError for another URL and for files that cannot be used.
        """
        certificates = files.options()
        self._patience_s = patience_s
        self._tell = tell
        self._waiting = False
        self._again = stamina.AsyncRetryingCaller(
            attempts=None, timeout=patience_s, wait_initial=0.05, wait_max=2.0, wait_jitter=0.1
        )
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_POOL_SIZE,
                timeout=patience_s,
                **_options(_REPLY_TIMEOUT_S),
                **certificates,
            )
            # Unlimited: a process blocks one connection per consumer and per follower of changes.
            blocking = ConnectionPool.from_url(
                url, max_connections=2**20, **_options(MAX_BLOCK_S + _REPLY_TIMEOUT_S), **certificates
            )
            self._tls = issubclass(pool.connection_class, SSLConnection)
            if self._tls:
                context = SSLConnection(**pool.connection_kwargs).ssl_context
                for each in (pool, blocking):
                    each.connection_class = _TlsConnection
                    each.connection_kwargs["context"] = context
        except (ValueError, RedisError):
            # Neither the URL nor redis-py's words, which may repeat it: it can hold a password.
            raise ConfigError(
                "the Redis URL cannot be read; expected redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix:///PATH"
            ) from None
        self.commands: Redis = Redis.from_pool(pool)
        self.blocking: Redis = Redis.from_pool(blocking)
        place = pool.connection_kwargs
        self.address: str = place.get("path") or f"{place.get('host', 'localhost')}:{place.get('port', 6379)}"
        """Where the server is, without credentials."""

    async def run(self, doing: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Await ``ask()``, again after a broken connection, a late reply, or a server at its memory limit.

        At the memory limit (D7) Redis refuses a script before its first write, so waiting for others to drain is
        safe. Raises ServiceError, which says what was being done; TurnOverError where another driver has begun a
        turn.
        """
        try:
            try:
                return await _cancellable(ask)
            except RedisError as error:
                if not transient(error):
                    raise
                self._say_waiting(doing, error)
            try:
                return await self._again(transient, _cancellable, ask)
            finally:
                self._waiting = False
        except RedisError as error:
            raise self._service_error(doing, error) from error

    async def wait(self, doing: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Await ``ask()`` once; None where it failed in a way that the next command judges better.

        The connection broke (its reply, if any, is lost), or what it waited for was removed or replaced.
        """
        try:
            return await _cancellable(ask)
        except RedisError as error:
            if not (transient(error) or says(error, LOST)):
                raise self._service_error(doing, error) from error
        # Its callers ask again at once, and a server that refuses more connections would be hammered.
        await asyncio.sleep(_BREATH_S)
        return None

    async def close(self) -> None:
        """Close every connection; may be called again."""
        await self.commands.aclose()
        await self.blocking.aclose()

    def _say_waiting(self, doing: str, error: RedisError) -> None:
        """Once for all that wait at a time: half a minute of silence reads as a process that hangs."""
        if self._waiting:
            return
        self._waiting = True
        reason, patience_s = str(error).rstrip("."), self._patience_s
        log.warning("redis.waited_for", address=self.address, doing=doing, patience_s=patience_s, reason=reason)
        if self._tell is not None:
            self._tell(f"Redis at {self.address}, {doing}: {reason}. It is tried again for up to {patience_s:g} s")

    def _service_error(self, doing: str, error: RedisError) -> ServiceError:
        kind = TurnOverError if says(error, REPLACED) else ServiceError
        return kind(f"Redis at {self.address}, {doing}: {explained(error, self._tls)}")


class _TlsConnection(SSLConnection):
    """Shares its context: loading what a machine trusts takes 40 ms, in which nothing else runs."""

    def __init__(self, context: RedisSSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context = context


async def _cancellable(ask: Callable[[], Awaitable[T]]) -> T:
    """Await ``ask()``, and end with CancelledError where the task was cancelled meanwhile.

    redis-py sends under ``asyncio.wait_for``, which before Python 3.12 forgets a cancellation that comes in the
    same turn of the loop as the end of what it waits for; whoever cancelled would then wait for ever. What the
    command did stands, as after a lost reply.
    """
    task = asyncio.current_task()
    assert task is not None
    cancelled = task.cancelling()
    try:
        return await ask()
    finally:
        if task.cancelling() > cancelled:
            raise asyncio.CancelledError


def _options(reply_timeout_s: float) -> dict[str, object]:
    return {
        # RESP2: the replies' shapes do not depend on redis-py's version, and no push messages arrive.
        "protocol": 2,
        "decode_responses": True,
        # CLIENT SETINFO only decorates the server's lists, and a limited user may not send it.
        "driver_info": None,
        "socket_timeout": reply_timeout_s,
        "socket_connect_timeout": _CONNECT_TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
    }
