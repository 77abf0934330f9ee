"""The work queue of one process: leases, redelivery and fenced completion, without a server.

It gives the same answers as the Redis queue (one contract suite runs over both), but forgets everything with the
process. What a finished episode wants committed is then taken from the run directory again.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from chime_dist.adapters.lease_token import LeaseToken, check_consumer, check_proposal
from chime_dist.adapters.local.change_feed import ChangeFeed, Wakeup
from chime_dist.core.episode import Proposal, Unit
from chime_dist.ports import Change, Clock, Completed, Lease


@dataclass(slots=True)
class _Entry:
    """An admitted unit that is not completed. ``token`` is its newest delivery's, None while nobody's."""

    id: int
    unit: Unit
    delivery: int = 0
    token: str | None = None
    released: str | None = None
    """The newest delivery's token after it was given back."""
    since: float = -math.inf
    """When the lease was given or renewed, by the clock's monotonic time in seconds."""


class LocalQueue:
    """Implements ``ports.Queue`` for the coroutines of one event loop.

    A unit that a cancelled claim took is handed out again when its lease runs out; a reply cannot be lost
    otherwise, so there is nothing to sweep for a consumer before that.
    """

    def __init__(self, clock: Clock, feed: ChangeFeed, lease_s: float) -> None:
        """``lease_s``: seconds without renewal after which a unit is handed to the next consumer."""
        self._clock = clock
        self._feed = feed
        self._lease_s = lease_s
        self._work = Wakeup(clock)
        self._turn = ""
        self._last_id = 0
        self._open: dict[str, _Entry] = {}
        """By unit key, in the order of admission."""
        self._done: dict[str, str] = {}
        """Completed units' keys and the token that completed each."""
        self._proposals: dict[tuple[str, int], Proposal] = {}

    async def reset(self) -> str:
        """See ``ports.Queue``. Whoever shares this queue is in the new turn: there is no other process."""
        self._turn = uuid.uuid4().hex
        self._open.clear()
        self._done.clear()
        return self._turn

    async def admit(self, unit: Unit) -> bool:
        """See ``ports.Queue``."""
        if unit.key in self._open or unit.key in self._done:
            return False
        self._last_id += 1
        self._open[unit.key] = _Entry(self._last_id, unit)
        self._work.wake()
        return True

    async def outstanding(self) -> set[str]:
        """See ``ports.Queue``."""
        return set(self._open)

    async def claim(self, consumer: str, count: int, wait_s: float) -> list[Lease]:
        """See ``ports.Queue``. Raises ValueError for an empty name or one that starts with ``~``."""
        check_consumer(consumer)
        deadline = self._clock.monotonic() + wait_s
        while True:
            now = self._clock.monotonic()
            if (leases := self._take(consumer, count, now)) or now >= deadline or count < 1:
                return leases
            expiry = min((e.since + self._lease_s for e in self._open.values() if e.delivery), default=math.inf)
            await self._work.wait(min(deadline, expiry) - now)

    def _take(self, consumer: str, count: int, now: float) -> list[Lease]:
        entries = self._open.values()
        # Before the new ones, as a server does that keeps delivered entries apart.
        expired = [e for e in entries if e.delivery and now - e.since >= self._lease_s]
        new = [e for e in entries if not e.delivery]
        return [self._deliver(entry, consumer, now) for entry in (expired + new)[: max(count, 0)]]

    def _deliver(self, entry: _Entry, consumer: str, now: float) -> Lease:
        entry.delivery += 1
        entry.released = None
        entry.since = now
        entry.token = str(LeaseToken(self._turn, str(entry.id), entry.delivery, consumer))
        return Lease(unit=entry.unit, token=entry.token, delivery=entry.delivery)

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """See ``ports.Queue``."""
        lost = []
        for lease in leases:
            entry = self._leased(lease)
            if entry is None:
                lost.append(lease)
            else:
                entry.since = self._clock.monotonic()
        return lost

    async def complete(self, lease: Lease, proposal: Proposal | None) -> Completed:
        """See ``ports.Queue``. Raises ValueError for a proposal of another unit."""
        check_proposal(lease.unit, proposal)
        key = lease.unit.key
        if self._leased(lease) is None:
            return Completed.ALREADY_SAME if self._done.get(key) == lease.token else Completed.LOST
        del self._open[key]
        self._done[key] = lease.token
        if proposal is not None:
            self._proposals.setdefault((proposal.run_id, proposal.position), proposal)
        self._feed.publish(Change(kind="completed", run_id=lease.unit.run_id, unit=key))
        return Completed.STORED

    async def release(self, lease: Lease) -> bool:
        """See ``ports.Queue``."""
        entry = self._leased(lease)
        if entry is None:
            given_back = self._open.get(lease.unit.key)
            return given_back is not None and given_back.released == lease.token
        entry.token, entry.released = None, entry.token
        entry.since = -math.inf
        self._work.wake()
        return True

    def _leased(self, lease: Lease) -> _Entry | None:
        entry = self._open.get(lease.unit.key)
        return entry if entry is not None and entry.token == lease.token else None

    async def submit(self, proposal: Proposal) -> None:
        """See ``ports.Queue``."""
        place = (proposal.run_id, proposal.position)
        if place not in self._proposals:
            self._proposals[place] = proposal
            self._feed.publish(Change(kind="completed", run_id=proposal.run_id))

    async def proposal(self, run_id: str, position: int) -> Proposal | None:
        """See ``ports.Queue``."""
        return self._proposals.get((run_id, position))

    async def forget(self, run_id: str, position: int) -> None:
        """See ``ports.Queue``."""
        self._proposals.pop((run_id, position), None)

    async def changes(self, since: str, timeout_s: float) -> tuple[str, list[Change]]:
        """See ``ports.Queue``."""
        return await self._feed.after(since, timeout_s)

    async def close(self) -> None:
        """Nothing to release."""
