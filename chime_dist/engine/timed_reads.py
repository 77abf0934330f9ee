"""Reads of the bank, with a look at the clock around each."""

from __future__ import annotations

from chime_dist.core.bank import BankState
from chime_dist.engine.meters import Meters
from chime_dist.engine.metrics import READ_SECONDS
from chime_dist.ports import BankQuery, BankReader, Hit


class TimedReads:
    """``ports.BankReader`` of what ``bank`` answers. Raises what it raises."""

    def __init__(self, bank: BankReader, meters: Meters) -> None:
        self._bank = bank
        self._meters = meters

    async def search(self, query: BankQuery) -> list[Hit]:
        """See ``ports.BankReader``."""
        with self._meters.timed(READ_SECONDS, query.run_id):
            return await self._bank.search(query)

    async def export(self, run_id: str, version: int) -> BankState:
        """See ``ports.BankReader``."""
        return await self._bank.export(run_id, version)
