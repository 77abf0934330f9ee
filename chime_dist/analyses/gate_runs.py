"""What becomes of bank and success when the gate attributes worse: ``credit_world`` under gates of known accuracy.

Built into the world, and so no finding: how often the gate is wrong, and what it then advises. Measured: what the
methods make of it (what is stored, found, merged, pruned), and how often the agent then succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from chime_dist.analyses.credit_world_truth import is_right, right_label
from chime_dist.analyses.naming import method_names
from chime_dist.analyses.studied import StudiedRun
from chime_dist.core.episode import EpisodeRecord, Outcome, Role
from chime_dist.core.history import size_by_collection
from chime_dist.errors import ConfigError

MEMORIES = ("plan", "exec", "shared")
"""The collections that hold CHIME's memories, with and without its hierarchy."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    run_id: str
    method: str
    accuracy: float
    """The gate's, as it was configured, in [0, 1]."""
    ordering: int
    train_first: Fraction
    """Share of the first epoch that succeeded, in [0, 1]; the others likewise."""
    train_last: Fraction
    eval: Fraction
    bank: dict[str, int]
    """Records that eval read, by collection; an empty one may be absent."""
    right: Fraction | None
    """Share of CHIME's memories among them that help; None where there is none."""
    wrong: Fraction | None
    """Share of the gate's decisions whose label is not the true one; None where nobody attributes."""

    @property
    def size(self) -> int:
        """Records of all collections."""
        return sum(self.bank.values())


@dataclass(frozen=True, slots=True)
class Point:
    """One method under one gate: its runs, by ordering."""

    method: str
    accuracy: float
    runs: tuple[Measured, ...]

    def values(self, of: Callable[[Measured], Fraction | int | None]) -> tuple[Fraction, ...]:
        """A number of each run that has it."""
        return tuple(Fraction(value) for run in self.runs if (value := of(run)) is not None)


def measured(runs: Iterable[StudiedRun]) -> tuple[Point, ...]:
    """By method in the launch's order, then from the best gate to the worst.

    Raises ConfigError where a run is not on ``credit_world``, or its gate is no double of known accuracy; what
    ``StudiedRun`` raises for damaged records and journals.
    """
    given = list(runs)
    names = method_names([run.config.method for run in given])
    return _points(_measured(run, name) for run, name in zip(given, names, strict=True))


def _measured(run: StudiedRun, method: str) -> Measured:
    config, bank = run.config, run.bank(run.version)
    accuracy, world = _gate_accuracy(run), int(config.benchmark.options["seed"])
    right = [is_right(record, world) for record in bank.records.values() if record.collection in MEMORIES]
    judged = [record for record in run.train if record.label is not None]
    wrong = [right_label(run.trace(record)) != record.label for record in judged]
    first, last = run.train[0].unit.epoch, run.train[-1].unit.epoch
    return Measured(
        run_id=run.run_id,
        method=method,
        accuracy=accuracy,
        ordering=config.ordering,
        train_first=_success([record for record in run.train if record.unit.epoch == first]),
        train_last=_success([record for record in run.train if record.unit.epoch == last]),
        eval=_success(run.eval),
        bank=size_by_collection(bank),
        right=_share(right),
        wrong=_share(wrong),
    )


def _gate_accuracy(run: StudiedRun) -> float:
    gate = run.config.backbone_of(Role.GATE).scripted
    if run.config.benchmark.name != "credit_world" or gate is None or gate.script != "credit_world":
        raise ConfigError(
            f"{run.run_id}: this needs the benchmark credit_world and a gate of known accuracy, a backbone with "
            "scripted: {script: credit_world, gate_accuracy: ...}; configs/gate_accuracy.yaml is such a sweep"
        )
    return gate.gate_accuracy


def _success(records: Sequence[EpisodeRecord]) -> Fraction:
    return Fraction(sum(record.outcome is Outcome.SUCCESS for record in records), len(records))


def _share(found: Sequence[bool]) -> Fraction | None:
    return Fraction(sum(found), len(found)) if found else None


def _points(found: Iterable[Measured]) -> tuple[Point, ...]:
    runs: dict[str, dict[float, list[Measured]]] = {}
    for run in found:
        runs.setdefault(run.method, {}).setdefault(run.accuracy, []).append(run)
    return tuple(
        Point(method, accuracy, tuple(sorted(members, key=lambda run: run.ordering)))
        for method, by_accuracy in runs.items()
        for accuracy, members in sorted(by_accuracy.items(), reverse=True)
    )
