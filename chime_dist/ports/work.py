"""Durable work and durable commits: the queue of a launch and the journal of a run."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, Protocol

from chime_dist.core.episode import Proposal, Unit
from chime_dist.core.frozen import Frozen


class Lease(Frozen):
    """A unit handed to one worker until its lease runs out; ``token`` proves ownership."""

    unit: Unit
    token: str
    """Opaque; changes with every delivery."""
    delivery: int
    """1-based, counted by the server, so a poison unit stops at K (D9)."""


class Completed(StrEnum):
    """The queue's answer to a completion."""

    STORED = "stored"
    ALREADY_SAME = "already_same"
    """This very lease completed before: a re-sent command after a lost reply (D4)."""
    LOST = "lost"
    """The lease is another worker's now; nothing was changed (D2)."""


class Change(Frozen):
    """Something happened. A hint to look, never the only copy of a fact."""

    kind: Literal["completed", "committed"]
    run_id: str
    unit: str = ""
    """The completed unit's key."""
    head: int = 0
    """The journal's length after a commit."""


class Queue(Protocol):
    """The durable work queue of one launch.

    A process that has another turn than the newest gets TurnOverError wherever it would change something, and from
    ``outstanding`` and ``changes``, so that it ends.
    """

    async def reset(self) -> str:
        """Begin a driver's turn: no unit is admitted, every older lease is void; proposals stay.

        Returns the turn's name, for those who work for this driver; no other turn of the launch ever has it.
        """
        ...

    async def admit(self, unit: Unit) -> bool:
        """Hand a unit to the workers once; False when its key was admitted since the last reset."""
        ...

    async def outstanding(self) -> set[str]:
        """Keys of units admitted and not completed."""
        ...

    async def claim(self, consumer: str, count: int, wait_s: float) -> list[Lease]:
        """Up to ``count`` units: own pending ones first, then expired leases, then new ones.

        Waits at most ``wait_s`` seconds for the first; may return an empty list.
        """
        ...

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Extend leases in one round trip; returns those that are lost."""
        ...

    async def complete(self, lease: Lease, proposal: Proposal | None) -> Completed:
        """Atomically: check the token, store the proposal (train), acknowledge, free the slot."""
        ...

    async def release(self, lease: Lease) -> bool:
        """Give a unit back for the next delivery at once; False when the lease was lost."""
        ...

    async def submit(self, proposal: Proposal) -> None:
        """Store the proposal of a finished episode found on disk (resume); the first stored one wins."""
        ...

    async def proposal(self, run_id: str, position: int) -> Proposal | None:
        """The stored proposal of a train position, or None."""
        ...

    async def forget(self, run_id: str, position: int) -> None:
        """Drop the proposal of a committed position."""
        ...

    async def changes(self, since: str, timeout_s: float) -> tuple[str, list[Change]]:
        """Changes after the cursor ``since`` ("" is: from now on), waiting at most ``timeout_s`` for one."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class DriverToken(Protocol):
    """The right to drive a launch, which one process has at a time, wherever it runs."""

    async def take(self) -> None:
        """Become the launch's driver; waits while a holder that may be dead has not run out.

        Raises RunDirectoryError, naming the holder and what to do, where another driver is alive.
        """
        ...

    async def keep(self) -> None:
        """Stay the driver until cancelled. Raises ServiceError where another one has the launch."""
        ...

    async def leave(self) -> None:
        """Give the token back; does nothing where it is another driver's."""
        ...


class Appended(StrEnum):
    """The journal's answer to an append."""

    APPENDED = "appended"
    ALREADY_SAME = "already_same"
    """The position holds the same line already."""
    CONFLICT = "conflict"
    """The position holds another line, or is not the head."""
    FENCED = "fenced"
    """A newer owner took a fence."""


class Journal(Protocol):
    """One append-only list of sealed lines per run, with a fence. See ``core.journal``."""

    async def take_fence(self, run_id: str) -> int:
        """A number greater than every one given before for this run; older owners can append no more.

        Raises TurnOverError, as ``append`` does, in a process whose driver was replaced.
        """
        ...

    async def append(self, run_id: str, fence: int, position: int, line: str) -> Appended:
        """Append atomically if ``fence`` is the newest and ``position`` the head; durable on return."""
        ...

    async def read(self, run_id: str, start: int = 0) -> list[str]:
        """Lines from position ``start`` on."""
        ...

    async def head(self, run_id: str) -> int:
        """Number of entries."""
        ...
