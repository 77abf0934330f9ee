"""Waiting for what must happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

PATIENCE_S = 240.0
"""Longest wait, in seconds; only a broken build waits this long."""


class Running(Protocol):
    """A process that must not end meanwhile."""

    def code(self) -> int | None:
        """Its exit code; None while it lives."""
        ...

    @property
    def said(self) -> str:
        """Its output."""
        ...


def until(what: Callable[[], bool], patience_s: float = PATIENCE_S, meanwhile: Running | None = None) -> None:
    """Return when it has happened."""
    deadline = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < deadline, f"it did not happen within {patience_s:g} s"
        assert meanwhile is None or meanwhile.code() is None, meanwhile.said
        time.sleep(0.01)


async def eventually(what: Callable[[], bool], meanwhile: Running | None = None) -> None:
    """Like ``until``, while this process serves others."""
    await asyncio.to_thread(until, what, PATIENCE_S, meanwhile)
