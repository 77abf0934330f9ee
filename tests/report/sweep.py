"""Results of small sweeps, built record by record as a run directory would hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from chime_dist.core.episode import EndReason, EpisodeRecord, Outcome, Unit, Usage
from chime_dist.report.document import ReportOptions
from chime_dist.report.results import RunResults

OUTCOMES = {"+": Outcome.SUCCESS, "-": Outcome.FAILURE, "!": Outcome.INFRA}
"""How a split's ends are written in tests: one sign per position, ``.`` for an episode that is missing."""

LABELS = ("planning", "execution", "both", "none")

OPTIONS = ReportOptions(orderings=(0, 1, 2), directory="runs/demo/l1")


def record(
    run_id: str,
    phase: Literal["train", "eval"],
    position: int,
    outcome: Outcome,
    *,
    epoch: int = 0,
    version: int = 0,
    task: str | None = None,
    label: str | None = None,
    gate_error: bool = False,
) -> EpisodeRecord:
    """A finished attempt of 2 s (train) or 1 s (eval) with two planner calls."""
    unit = Unit(
        run_id=run_id,
        phase=phase,
        epoch=epoch,
        position=position,
        task=task or f"task-{position}",
        read_version=version,
    )
    return EpisodeRecord(
        unit=unit,
        attempt=f"{phase}-{position}-a1",
        delivery=1,
        final=True,
        outcome=outcome,
        end_reason=EndReason.BACKBONE if outcome is Outcome.INFRA else EndReason.SCORED,
        gate_status="gate_error" if gate_error else "decided" if label else "off",
        label=label,
        started_at="2026-11-01T00:00:00+00:00",
        duration_s=2.0 if phase == "train" else 1.0,
        steps=3,
        usage={"planner": Usage(calls=2, requests=3, prompt_tokens=100, completion_tokens=10, cached_tokens=40)},
    )


def run(
    train: Sequence[str] = ("+-",),
    held_out: str = "+-",
    *,
    ordering: int = 0,
    benchmark: str = "toy",
    method: str = "chime",
    deviations: dict[str, str] | None = None,
    gate: bool = True,
    committed: int | None = None,
) -> RunResults:
    """A run with one string of ends per train epoch and one for eval, e.g. ``run(["+-!", "++."], "+.")``."""
    run_id = f"{benchmark}-{method}-{ordering}"
    size = len(train[0]) if train else 0
    version = size * len(train)
    records = [
        record(
            run_id,
            "train",
            epoch * size + k,
            OUTCOMES[end],
            epoch=epoch,
            task=f"train-{k}",
            label=LABELS[k % len(LABELS)] if gate and end in "+-" else None,
        )
        for epoch, ends in enumerate(train)
        for k, end in enumerate(ends)
        if end != "."
    ]
    records += [
        record(run_id, "eval", k, OUTCOMES[end], epoch=len(train), version=version)
        for k, end in enumerate(held_out)
        if end != "."
    ]
    return RunResults(
        benchmark=benchmark,
        backbone="scripted",
        method=method,
        ordering=ordering,
        run_id=run_id,
        deviations=deviations or {},
        train_size=size,
        epochs=len(train),
        eval_size=len(held_out),
        eval_version=version,
        attempts=tuple(f"train-{n}-a1" for n in range(version if committed is None else committed)),
        records=tuple(records),
        has_bank=gate,
        bank_size=10 + ordering if gate else None,
        bank_digest_before_eval="d" * 64 if gate else None,
        bank_digest_after_eval="d" * 64 if gate else None,
    )
