"""One driver per launch, wherever it runs: a token in Redis beside the run directory's lock.

The lock does not reach another host that works on a copy of the directory, nor a shared disk without locks. The
token names its holder, is renewed by it, and runs out by the server's clock when its holder is gone. It decides
who may start; what a frozen driver still sends after its token ran out is refused by turn and fence.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Self

import structlog
from pydantic import ValidationError

from chime_dist.adapters.process_identity import ProcessIdentity
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.scripts import DriverScripts
from chime_dist.core.frozen import Frozen
from chime_dist.errors import RunDirectoryError, ServiceError

log = structlog.get_logger()

_LOOK_AGAIN_S = 1.0
_RENEWALS = 3
"""In the time that a token lasts."""
_ROUNDING_MS = 20
"""By which two looks at a token that nobody renewed may differ from the time between them."""


class Driver(Frozen):
    """What the token says of its holder."""

    process: ProcessIdentity
    since: str
    """UTC with offset, by the server's clock: when the token was taken."""
    nonce: str
    """Tells two drivers of one process apart."""

    def __str__(self) -> str:
        return f"{self.process} since {self.since}"

    @classmethod
    def parsed(cls, token: str) -> Self | None:
        """What a token says; None for one of another version of this program."""
        try:
            return cls.model_validate_json(token)
        except ValidationError:
            return None


class RedisDriverToken:
    """Implements ``ports.DriverToken``. ``take`` it before anything of the launch is changed."""

    def __init__(
        self, connection: RedisConnection, keys: RedisKeys, lasts_s: float, process: ProcessIdentity | None = None
    ) -> None:
        """``lasts_s``: seconds without renewal after which the token runs out. ``process`` None is this one."""
        self._connection = connection
        self._launch = keys.launch
        self._lasts_ms = max(1, round(lasts_s * 1000))
        self._process = process or ProcessIdentity.ours()
        self._scripts = DriverScripts(connection.commands, keys)
        self._ours = ""

    async def take(self) -> None:
        """See ``ports.DriverToken``.

        A holder on this machine that has ended is replaced at once. Of one elsewhere nobody can tell but by its
        renewals: it is refused at its next one, or replaced when its token has run out.
        """
        ours, dead = await self._our_value(), ""
        seen, ends_by = "", 0.0
        while True:
            asked = time.monotonic()
            holder, left_ms = await self._hold("taking the driver's token", ours, dead)
            if holder == ours:
                self._ours = ours
                return
            driver = Driver.parsed(holder)
            # Whether this very process still drives by another token, only renewals tell.
            gone = None if driver is None or driver.process == self._process else driver.process.gone()
            renewed = holder == seen and asked + (left_ms - _ROUNDING_MS) / 1000 > ends_by
            if renewed or gone is False:
                raise self._refusal(driver)
            if gone:
                log.warning("driver.replaced", launch=self._launch, dead=str(driver))
                dead = holder
                continue
            if holder != seen:
                log.warning(
                    "driver.waiting",
                    launch=self._launch,
                    holder=str(driver),
                    at_most_s=round(left_ms / 1000, 1),
                    why="it may be dead, but it is not this machine's: its token has to run out or to be renewed",
                )
            seen, ends_by = holder, time.monotonic() + left_ms / 1000
            await asyncio.sleep(min(_LOOK_AGAIN_S, (left_ms + 1) / 1000))

    async def keep(self) -> None:
        """See ``ports.DriverToken``. A token that was lost with the server's data is taken again."""
        while True:
            await asyncio.sleep(self._lasts_ms / 1000 / _RENEWALS)
            holder, _ = await self._hold("renewing the driver's token", self._ours)
            if holder != self._ours:
                raise ServiceError(
                    f"launch {self._launch}: this driver was silent for more than {self._lasts_ms / 1000:g} s,"
                    f" and {Driver.parsed(holder) or 'another driver'} has the launch now. Leave the launch to it"
                )

    async def leave(self) -> None:
        """See ``ports.DriverToken``. Asked once: a token that cannot be given back runs out."""
        ours, self._ours = self._ours, ""
        if ours:
            await self._connection.wait("giving the driver's token back", lambda: self._scripts.leave(ours))

    async def _hold(self, doing: str, ours: str, dead: str = "") -> tuple[str, int]:
        # Sent again after a lost reply it finds its own value (D4).
        return await self._connection.run(doing, lambda: self._scripts.hold(ours, self._lasts_ms, dead))

    async def _our_value(self) -> str:
        seconds, micros = await self._connection.run("asking for the time", self._connection.commands.time)
        since = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)
        return Driver(
            process=self._process, since=since.isoformat(timespec="seconds"), nonce=uuid.uuid4().hex
        ).model_dump_json()

    def _refusal(self, driver: Driver | None) -> RunDirectoryError:
        end = f"there (kill {driver.process.pid})" if driver is not None else "there"
        return RunDirectoryError(
            f"launch {self._launch} is driven by {driver or 'a driver of another version'}, which is alive and"
            f" has its token in Redis at {self._connection.address}. Leave the launch to it; or end it {end}, wait"
            " for its end, and resume"
        )
