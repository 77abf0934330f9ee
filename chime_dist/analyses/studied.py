"""What every analysis is given: one run of a launch, with what it wrote, read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chime_dist.config.run import RunConfig
from chime_dist.core.bank import BankState
from chime_dist.core.episode import EpisodeRecord, EpisodeTrace


@dataclass(frozen=True, slots=True)
class StudiedRun:
    """A run that is over: every planned episode has a record."""

    run_id: str
    config: RunConfig
    train: tuple[EpisodeRecord, ...]
    """The final records of all epochs, by position."""
    eval: tuple[EpisodeRecord, ...]
    """The final records at the last version, by index."""
    trace: Callable[[EpisodeRecord], EpisodeTrace]
    """The trace of a final record; raises RunDirectoryError where it is missing or damaged."""
    bank: Callable[[int], BankState]
    """The bank at a version; raises JournalError where there is no such version, or a bad entry before it."""

    @property
    def version(self) -> int:
        """The bank's last version, at which eval reads."""
        return len(self.train)
