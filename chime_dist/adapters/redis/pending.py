"""Who holds which unit of a launch: what its queue knows, for whoever asks why nothing happens. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.keys import NOBODY, RedisKeys
from chime_dist.core.episode import Unit

_MOST = 1_000


@dataclass(frozen=True, slots=True)
class PendingUnit:
    """A unit that was delivered and is not completed."""

    unit: str
    """Its key."""
    consumer: str | None
    """The worker that holds the lease, alive or not; None where the unit was given back."""
    silent_s: float
    """Since the delivery or the last renewal, by the server's clock. More than the lease: the worker is dead, cut
    off or frozen, and the next claim of another one takes the unit over."""
    delivery: int
    """1-based."""
    admitted_at: datetime
    """UTC, by the server's clock."""


async def pending_units(connection: RedisConnection, keys: RedisKeys) -> list[PendingUnit]:
    """At most 1,000, in the order of their admission.

    Raises ServiceError where Redis cannot be reached, or the launch's keys are not there.
    """
    client = connection.commands

    async def pending_now() -> Any:
        turn = await client.get(keys.turn) or ""
        return await client.xpending_range(keys.ready, turn, "-", "+", _MOST)

    pending = await connection.run("listing leases", pending_now)
    found = []
    for lease in cast("list[dict[str, Any]]", pending):
        entry = str(lease["message_id"])
        rows = await connection.run("reading a unit", lambda: client.xrange(keys.ready, entry, entry))  # noqa: B023
        for _, fields in cast("list[Any]", rows):
            found.append(
                PendingUnit(
                    unit=Unit.model_validate_json(fields["unit"]).key,
                    consumer=None if lease["consumer"] == NOBODY else str(lease["consumer"]),
                    silent_s=float(lease["time_since_delivered"]) / 1000,
                    delivery=int(lease["times_delivered"]),
                    admitted_at=datetime.fromtimestamp(int(entry.partition("-")[0]) / 1000, UTC),
                )
            )
    return found
