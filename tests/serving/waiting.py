"""Waiting for what is asked over the network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

PATIENCE_S = 120.0
"""Longest wait, in seconds; only a broken build waits this long."""


async def until_true(what: Callable[[], Awaitable[bool]], patience_s: float = PATIENCE_S) -> None:
    """Return when it is so."""
    async with asyncio.timeout(patience_s):
        while True:
            if await what():
                return
            await asyncio.sleep(0.05)
