"""Waiting for what must happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 120.0
"""Longest wait, in seconds; only a broken build waits this long."""


def until(what: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Return when it has happened."""
    deadline = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < deadline, f"it did not happen within {patience_s:g} s"
        time.sleep(0.01)


async def eventually(what: Callable[[], bool]) -> None:
    """Like ``until``, while this process serves others."""
    await asyncio.to_thread(until, what)
