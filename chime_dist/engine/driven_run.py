"""One run in its driver's hands: what is next of it, what is open, what displays show, what its end leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chime_dist.core.episode import Outcome, Unit
from chime_dist.core.frozen import Frozen
from chime_dist.core.window import Admission, InfraStreak
from chime_dist.engine.plan import RunPlan


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot of one run, for displays."""

    run_id: str
    position: int
    """Train positions admitted so far."""
    head: int
    """Bank version: train positions committed."""
    total: int
    evaluated: int
    eval_total: int
    in_flight: int
    outcomes: Mapping[str, int]
    """Settled episodes by outcome, positions committed empty among them, plus ``gate_error``."""


class RunEnd(Frozen):
    """What is worth keeping of a run that ended: R5's proof that eval did not touch the bank."""

    run_id: str
    version: int
    digest_before_eval: str
    digest_after_eval: str


@dataclass(slots=True)
class DrivenRun:
    """One run, as far as its driver has come with it."""

    plan: RunPlan
    admission: Admission
    infra: InfraStreak
    settled: frozenset[str] = frozenset()
    """Keys of units that have a final record from before this driver's turn."""
    owed: list[int] = field(default_factory=list)
    """Eval indexes not yet admitted, in order."""
    in_flight: dict[str, Unit] = field(default_factory=dict)
    evaluated: int = 0
    empty: set[int] = field(default_factory=set)
    """Positions that were committed as infra."""
    mirror_fence: int = 0
    mirrored: int = 0
    """Entries that the mirror held when this driver began: as in the journal, they were compared."""
    digest_before: str | None = None
    finished: bool = False
    lost: str = ""
    """Results that were there and are gone, in words; nothing more is done for such a run."""

    @property
    def waits(self) -> bool:
        """Whether ``next_unit`` may be admitted now."""
        if not self.admission.done:
            return self.admission.ready() is not None
        return bool(self.owed) and self.digest_before is not None

    def next_unit(self) -> Unit:
        """What is admitted next of a run that waits."""
        if not self.admission.done:
            return self.plan.train_unit(self.admission.next_position)
        return self.plan.eval_unit(self.owed[0])

    @property
    def progress(self) -> float:
        """Share of the units that were admitted or settled, 0 to 1."""
        units = self.plan.shape.total + len(self.plan.eval)
        return (self.admission.next_position + len(self.plan.eval) - len(self.owed)) / units

    def snapshot(self, settled: Mapping[str, int]) -> Progress:
        """For displays; ``settled`` counts the run's final records by outcome."""
        infra = Outcome.INFRA.value
        return Progress(
            run_id=self.plan.run_id,
            position=self.admission.next_position,
            head=self.admission.head,
            total=self.plan.shape.total,
            evaluated=self.evaluated,
            eval_total=len(self.plan.eval),
            in_flight=len(self.in_flight),
            # A position that was committed empty is settled, and has no final record.
            outcomes={**settled, infra: settled.get(infra, 0) + len(self.empty)},
        )
