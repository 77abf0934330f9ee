"""Which version a position reads, and which position may start or commit next (R7).

Everything that decides admission and commit order lives here; nothing here owns a task, a client or a clock.
Positions are 0-based and counted across epochs; version n is the bank after n commits.
"""

from __future__ import annotations

from dataclasses import dataclass

from chime_dist.core.episode import Outcome


def read_version(position: int, window: int, epoch_size: int) -> int:
    """Version read at ``position``: ``max(s, t - W + 1)`` with s the start of its epoch (R7).

    An epoch is a barrier: no position reads across its start, so no task overlaps its own replay.
    Raises ValueError for a negative position or a window or epoch size below 1.
    """
    if position < 0:
        raise ValueError(f"position is 0-based, got {position}")
    if window < 1 or epoch_size < 1:
        raise ValueError(f"window and epoch size are at least 1, got {window} and {epoch_size}")
    epoch_start = position - position % epoch_size
    return max(epoch_start, position - window + 1)


@dataclass(frozen=True, slots=True)
class StreamShape:
    """The fixed geometry of one run's train stream."""

    epoch_size: int
    """Train tasks in one pass; at least 1."""
    epochs: int
    window: int
    """W of R7, in positions."""

    @property
    def total(self) -> int:
        """Positions in all epochs together; also the version evaluated at the end."""
        return self.epoch_size * self.epochs

    def read_version(self, position: int) -> int:
        """See the module function."""
        return read_version(position, self.window, self.epoch_size)


@dataclass(frozen=True, slots=True)
class Admission:
    """Immutable admission state of one run: ``next_position`` is the first one not yet admitted."""

    shape: StreamShape
    next_position: int = 0
    head: int = 0
    """Committed versions so far."""

    def ready(self) -> int | None:
        """The next position if its read version is committed, else None."""
        if self.next_position >= self.shape.total:
            return None
        return self.next_position if self.shape.read_version(self.next_position) <= self.head else None

    def admitted(self) -> Admission:
        """State after the ready position was handed to the queue; raises ValueError when none was ready."""
        if self.ready() is None:
            raise ValueError(f"position {self.next_position} is not admissible at head {self.head}")
        return Admission(self.shape, self.next_position + 1, self.head)

    def committed(self, head: int) -> Admission:
        """State after the journal reached ``head``; raises ValueError if the head would move back."""
        if head < self.head:
            raise ValueError(f"the head went back from {self.head} to {head}")
        return Admission(self.shape, max(self.next_position, head), head)

    @property
    def done(self) -> bool:
        """Whether every position is committed."""
        return self.head >= self.shape.total


@dataclass(frozen=True, slots=True)
class InfraStreak:
    """How many positions in a row were committed empty as infra, and when that is too many."""

    limit: int
    """The position that would be the ``limit``-th in a row is held back; at least 1."""
    length: int = 0

    def then(self, outcome: Outcome) -> InfraStreak:
        """After a commit with this outcome."""
        return InfraStreak(self.limit, self.length + 1 if outcome is Outcome.INFRA else 0)

    @property
    def at_the_edge(self) -> bool:
        """Whether the next infra position is held back."""
        return self.length + 1 >= self.limit

    def holds(self, outcome: Outcome) -> bool:
        """Whether a position that ended so is held back."""
        return outcome is Outcome.INFRA and self.at_the_edge
