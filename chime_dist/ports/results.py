"""What is kept: the run directory's writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from chime_dist.core.episode import EpisodeTrace, Unit


class RecordStore(Protocol):
    """The run directory's writer. One per launch; the arbiter of which attempt of a unit is final."""

    async def write(self, trace: EpisodeTrace) -> EpisodeTrace:
        """Store record and trajectory durably; returns the unit's final trace, which may be an earlier one.

        A trace that is not final (an infra attempt that will be tried again) is stored as history.
        """
        ...

    async def final(self, unit: Unit) -> EpisodeTrace | None:
        """The unit's final trace, or None."""
        ...

    async def settled(self, run_id: str) -> frozenset[str]:
        """Keys of the run's units that have a final record."""
        ...

    async def tally(self, run_id: str) -> Mapping[str, int]:
        """Settled episodes of a run by outcome (``success``, ``failure``, ``infra``), and ``gate_error``."""
        ...
