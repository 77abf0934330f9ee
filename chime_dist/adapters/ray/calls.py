"""Calling an actor: our own errors come back as themselves, and a restart is waited out.

Ray restarts an actor but does not say when it is back; a call meanwhile raises ActorUnavailableError. On a host
that was cut off, the handle may lead to the old process for a while after Ray has started another one elsewhere;
a bank's owner then answers FencedError. Every call made through here is safe to repeat (reads, idempotent writes,
model turns), so it is repeated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import stamina
import structlog
from ray import ObjectRef
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from chime_dist.errors import ChimeDistError, FencedError, ServiceError

RESTART_WAIT_S = 120.0
"""How long a restarting actor is waited for, in seconds."""
STEADY_S = 10.0
"""An actor that worked this long before it failed counts as one that was well, in seconds."""
RETRY_S = 0.3

_AWAY = (ActorUnavailableError, FencedError)
"""What a call raises while its actor is being replaced."""

log = structlog.get_logger()


async def called(what: str, call: Callable[[], ObjectRef[Any]]) -> Any:
    """The result of ``call()``; ``what`` names the actor in errors.

    Raises the actor's own ChimeDistError as it was raised there, or ServiceError when the actor is gone, or was
    replaced and its successor is out of reach.
    """
    try:
        async for attempt in stamina.retry_context(
            on=_AWAY, attempts=None, timeout=RESTART_WAIT_S, wait_initial=0.1, wait_max=2.0
        ):
            with attempt:
                return await _result(call)
    except (*_AWAY, ActorDiedError) as error:
        raise _gone(what, error) from error
    raise AssertionError("unreachable: the retry either returns or raises")


async def kept_up(
    what: str, call: Callable[[], ObjectRef[Any]], died: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Like ``called`` for a call that lasts as long as the launch: a restarted actor is told again, every time.

    ``died`` is awaited after each death, before that. Raises ServiceError where the actor keeps failing for
    ``RESTART_WAIT_S``.
    """
    failing_since: float | None = None
    while True:
        started = time.monotonic()
        try:
            await _result(call)
            return
        except ActorDiedError as error:
            raise _gone(what, error) from error
        except ActorUnavailableError as error:
            now = time.monotonic()
            if failing_since is None or now - started > STEADY_S:
                failing_since = now
            if now - failing_since > RESTART_WAIT_S:
                raise _gone(what, error) from error
            log.warning("actor.restarting", actor=what)
            if died is not None:
                await died()
            await asyncio.sleep(RETRY_S)


async def _result(call: Callable[[], ObjectRef[Any]]) -> Any:
    try:
        return await call()
    except RayTaskError as error:
        if isinstance(error.cause, ChimeDistError):
            raise error.cause from None
        raise


def _gone(what: str, error: Exception) -> ServiceError:
    return ServiceError(f"{what} is gone and did not come back in {RESTART_WAIT_S:.0f} s: {error}")
