"""The right to drive a launch whose queue no other host sees."""

from __future__ import annotations

import asyncio


class LocalDriverToken:
    """Implements ``ports.DriverToken``: whoever has the lock of the run directory has the token too."""

    async def take(self) -> None:
        """See ``ports.DriverToken``. Nobody else can have it."""

    async def keep(self) -> None:
        """See ``ports.DriverToken``."""
        await asyncio.Event().wait()

    async def leave(self) -> None:
        """See ``ports.DriverToken``."""
