"""Checkpoints: versions of a run's bank that have a name (R6, R47)."""

from __future__ import annotations

from chime_dist.core.frozen import Frozen

EPOCH = "epoch-"
"""What the name of the checkpoint at an epoch's end starts with; its 1-based number follows."""
QUARTERS = (25, 50, 75, 100)
"""Percents of the train stream at which RQ2 of S0 freezes the bank (R47)."""


class Checkpoint(Frozen):
    """A name and its version."""

    name: str
    version: int
    """Commits so far."""


def share_of_stream(percent: int, total: int) -> int:
    """The version after ``percent`` percent of ``total`` positions, rounded up, in integers (R47)."""
    return -(-percent * total // 100)


def checkpoints(epoch_size: int, epochs: int) -> tuple[Checkpoint, ...]:
    """The checkpoints of a planned train stream of ``epochs`` passes over ``epoch_size`` tasks, by version.

    ``epoch-1`` is the bank after the first pass; ``25%`` to ``100%`` count positions of all passes together, so
    they move when a run is made longer. Raises ValueError for a stream without positions.
    """
    if epoch_size < 1 or epochs < 1:
        raise ValueError(f"a stream has at least one task and one epoch, got {epoch_size} and {epochs}")
    named = [Checkpoint(name=f"{EPOCH}{k}", version=k * epoch_size) for k in range(1, epochs + 1)]
    named += [Checkpoint(name=f"{p}%", version=share_of_stream(p, epochs * epoch_size)) for p in QUARTERS]
    return tuple(sorted(named, key=lambda checkpoint: checkpoint.version))
