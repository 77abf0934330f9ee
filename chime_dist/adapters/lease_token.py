"""What a lease's opaque token is made of, and what may be completed with it. Shared by the queues."""

from __future__ import annotations

from dataclasses import dataclass

from chime_dist.core.episode import Proposal, Unit


@dataclass(frozen=True, slots=True)
class LeaseToken:
    """One delivery of one queue entry. No two deliveries of a launch have equal tokens."""

    turn: str
    """Name of the driver's turn, without a colon; a lease of an older turn is void."""
    entry: str
    """The queue's id of the entry; holds no colon."""
    delivery: int
    """1-based."""
    consumer: str

    def __str__(self) -> str:
        return f"{self.turn}:{self.entry}:{self.delivery}:{self.consumer}"

    @classmethod
    def parse(cls, text: str) -> LeaseToken:
        """Inverse of ``str``; raises ValueError for a text that no queue made."""
        turn, entry, delivery, consumer = text.split(":", 3)
        return cls(turn, entry, int(delivery), consumer)


def check_consumer(consumer: str) -> None:
    """Raise ValueError for a name that the queues keep for themselves."""
    if not consumer or consumer.startswith("~"):
        raise ValueError(f"a consumer's name is not empty and does not start with '~', got {consumer!r}")


def check_proposal(unit: Unit, proposal: Proposal | None) -> None:
    """Raise ValueError for a proposal that is not this unit's: committed, it would land at a wrong position."""
    if proposal is None:
        return
    if unit.phase != "train" or (proposal.run_id, proposal.position) != (unit.run_id, unit.position):
        raise ValueError(
            f"unit {unit.key} cannot complete with the proposal of run {proposal.run_id}, "
            f"position {proposal.position}"
        )
