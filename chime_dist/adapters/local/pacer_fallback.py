"""A shared pace where it can be asked, and this process's share of the limits where it cannot.

Pacing is politeness towards a server: no result depends on it. So a call neither fails nor waits for long because
nobody can say whether it may be sent.
"""

from __future__ import annotations

import structlog

from chime_dist.errors import ServiceError
from chime_dist.ports import Clock, Pacer

log = structlog.get_logger()

AGAIN_S = 30.0
"""So long after a failure the shared pace is asked again, in seconds."""


class FallbackPacer:
    """Implements ``ports.Pacer`` over a ``shared`` one, whose methods may raise ServiceError."""

    def __init__(self, backbone: str, shared: Pacer, share: Pacer, clock: Clock) -> None:
        """``share`` paces the callers of this process to their part of the limits."""
        self._backbone = backbone
        self._shared = shared
        self._share = share
        self._clock = clock
        self._alone_until: float | None = None
        """When the shared pace is asked again; None while it answers."""
        self._let_in_alone: set[str] = set()
        self._untold: dict[str, int] = {}
        """Calls that may hold a place in the shared pace and are over, or are in here alone; by what each cost
        beyond what was thought."""

    async def enter(self, call: str, tokens: int, lasts_s: float) -> float:
        """See ``ports.Pacer``."""
        if self._may_ask:
            try:
                await self._settle()
                wait_s = await self._shared.enter(call, tokens, lasts_s)
            except ServiceError as error:
                self._go_alone(error)
                # The word that it is in may have been lost.
                self._untold[call] = -tokens
            else:
                self._go_together()
                return wait_s
        wait_s = await self._share.enter(call, tokens, lasts_s)
        if wait_s <= 0:
            self._let_in_alone.add(call)
        return wait_s

    async def leave(self, call: str, tokens_beyond: int, slow_down: float | None, *, answered: bool) -> None:
        """See ``ports.Pacer``."""
        if call in self._let_in_alone:
            self._let_in_alone.remove(call)
            await self._share.leave(call, tokens_beyond, slow_down, answered=answered)
            return
        if self._may_ask:
            try:
                await self._shared.leave(call, tokens_beyond, slow_down, answered=answered)
            except ServiceError as error:
                self._go_alone(error)
            else:
                return
        # Not what the server asked for: told later, it would be a pause for nothing.
        self._untold[call] = tokens_beyond

    @property
    def _may_ask(self) -> bool:
        return self._alone_until is None or self._clock.monotonic() >= self._alone_until

    async def _settle(self) -> None:
        while self._untold:
            call, tokens_beyond = next(iter(self._untold.items()))
            await self._shared.leave(call, tokens_beyond, None, answered=False)
            self._untold.pop(call, None)

    def _go_alone(self, error: ServiceError) -> None:
        if self._alone_until is None:
            log.warning("backbone.paced_alone", backbone=self._backbone, reason=str(error))
        self._alone_until = self._clock.monotonic() + AGAIN_S

    def _go_together(self) -> None:
        if self._alone_until is not None:
            log.info("backbone.paced_together", backbone=self._backbone)
        self._alone_until = None
