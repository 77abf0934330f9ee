"""Calling an actor: our own errors come back as themselves, and a restart is waited out.

Ray restarts an actor but does not say when it is back; a call meanwhile raises ActorUnavailableError. Every
call made through here is safe to repeat (reads, idempotent writes, model turns), so it is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stamina
from ray import ObjectRef
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from chime_dist.errors import ChimeDistError, ServiceError

RESTART_WAIT_S = 120.0
"""How long a restarting actor is waited for, in seconds."""


async def called(what: str, call: Callable[[], ObjectRef[Any]]) -> Any:
    """The result of ``call()``; ``what`` names the actor in errors.

    Raises the actor's own ChimeDistError as it was raised there, or ServiceError when the actor is gone.
    """
    try:
        async for attempt in stamina.retry_context(
            on=ActorUnavailableError, attempts=None, timeout=RESTART_WAIT_S, wait_initial=0.1, wait_max=2.0
        ):
            with attempt:
                return await call()
    except RayTaskError as error:
        if isinstance(error.cause, ChimeDistError):
            raise error.cause from None
        raise
    except (ActorUnavailableError, ActorDiedError) as error:
        raise ServiceError(f"{what} is gone and did not come back in {RESTART_WAIT_S:.0f} s: {error}") from error
    raise AssertionError("unreachable: the retry either returns or raises")
