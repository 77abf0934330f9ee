"""Reads of a frozen bank, answered where they are asked.

In eval nothing is committed and a thousand episodes read one version (R5). It is fetched from the bank's owner
once per process and searched exactly by the function that the owner answers with: the same hits, and the owner
has nothing to do.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

import structlog

from chime_dist.core.bank import BankState
from chime_dist.engine.bank_answers import answer
from chime_dist.ports import BankQuery, BankReader, Hit

log = structlog.get_logger()

MOST_COMPONENTS = 2**27
"""Vector components that the copies of one process may hold together; each takes 4 bytes in the records and 4 more
once it was searched, so about 1 GB. One bank of 4,000 memories with two vectors of 1,024 dimensions is a
sixteenth."""
IDLE_READS = 1_000
"""A copy that was not asked for during this many reads makes room for another."""

_Pin = tuple[str, int]


class PinnedReads:
    """``ports.BankReader`` that copies the versions which frozen queries name, and asks ``owner`` the rest.

    Copies in use are not driven out by others: where the room is taken, the owner is asked.
    """

    def __init__(
        self, owner: BankReader, most_components: int = MOST_COMPONENTS, idle_reads: int = IDLE_READS
    ) -> None:
        self._owner = owner
        self._most_components = most_components
        self._idle_reads = idle_reads
        self._copies: dict[_Pin, BankState] = {}
        self._sizes: dict[_Pin, int] = {}
        """Of every version that was ever fetched."""
        self._last_read: dict[_Pin, int] = {}
        self._reads = 0
        self._fetching: defaultdict[_Pin, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def search(self, query: BankQuery) -> list[Hit]:
        """See ``ports.BankReader``; raises what the owner raises."""
        if not query.frozen:
            return await self._owner.search(query)
        pin = (query.run_id, query.version)
        self._reads += 1
        self._last_read[pin] = self._reads
        state = self._copies.get(pin) or await self._fetched(pin)
        if state is None:
            return await self._owner.search(query)
        return await asyncio.to_thread(answer, state, query)

    async def export(self, run_id: str, version: int) -> BankState:
        """See ``ports.BankReader``."""
        return await self._owner.export(run_id, version)

    async def _fetched(self, pin: _Pin) -> BankState | None:
        """The version, fetched once however many ask at once; None where there is no room for it."""
        async with self._fetching[pin]:
            if pin in self._copies or not self._has_room(self._sizes.get(pin, 0)):
                return self._copies.get(pin)
            state = await self._owner.export(*pin)
            self._sizes[pin] = size = _components(state)
            if not self._has_room(size):
                log.info("bank.copy_refused", run=pin[0], version=pin[1], components=size)
                return None
            self._copies[pin] = state
            log.info("bank.copied", run=pin[0], version=pin[1], items=len(state.records), components=size)
            return state

    def _has_room(self, size: int) -> bool:
        """Whether ``size`` more components fit; gives up idle copies where that makes them fit."""
        left = self._most_components - size - sum(self._sizes[pin] for pin in self._copies)
        idle = [pin for pin in self._copies if self._reads - self._last_read[pin] > self._idle_reads]
        if left + sum(self._sizes[pin] for pin in idle) < 0:
            return False
        for pin in sorted(idle, key=self._last_read.__getitem__):
            if left >= 0:
                break
            left += self._sizes[pin]
            del self._copies[pin]
        return True


def _components(state: BankState) -> int:
    return sum(vector.dim for record in state.records.values() for vector in record.vectors.values())
