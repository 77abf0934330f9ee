"""What a run will do, before anything runs: its stream, its splits, its units."""

from __future__ import annotations

from dataclasses import dataclass

from chime_dist.core.episode import Unit, unit_key
from chime_dist.core.window import StreamShape


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run's tasks in stream order. ``train`` is one epoch; it is replayed in the same order (R6)."""

    run_id: str
    shape: StreamShape
    train: tuple[str, ...]
    """Task ids of one epoch."""
    eval: tuple[str, ...]
    """Task ids of the eval split."""
    pools: tuple[str, ...] = ()
    """What its episodes share with other runs and may be capped: ``benchmark:NAME``, ``backbone:NAME``."""
    left_at: int | None = None
    """The first position at which a fork left it; None where none did."""

    def train_unit(self, position: int) -> Unit:
        """The unit of a 0-based train position, counted across epochs."""
        epoch, index = divmod(position, len(self.train))
        return Unit(
            run_id=self.run_id,
            phase="train",
            epoch=epoch,
            position=position,
            task=self.train[index],
            read_version=self.shape.read_version(position),
        )

    def eval_keys(self) -> list[str]:
        """The keys of all eval units, by index, without the units: there may be hundreds of thousands."""
        return [unit_key(self.run_id, "eval", self.shape.total, index) for index in range(len(self.eval))]

    def eval_unit(self, index: int) -> Unit:
        """The unit of a 0-based eval index, pinned at the version after the last epoch (R5)."""
        return Unit(
            run_id=self.run_id,
            phase="eval",
            epoch=self.shape.epochs,
            position=index,
            task=self.eval[index],
            read_version=self.shape.total,
        )
