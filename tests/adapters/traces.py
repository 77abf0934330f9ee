"""Episodes for the run directory's tests."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.episode import (
    EndReason,
    EpisodeRecord,
    EpisodeTrace,
    Outcome,
    Proposal,
    Step,
    Trajectory,
    Unit,
    Usage,
)
from chime_dist.core.task import TaskView
from tests.stored import CONFIG

NOW = datetime(2026, 3, 7, 10, 15, 30, tzinfo=UTC)
RUN = "bfcl_v4-chime-o1-0a1b2c3d"


def unit(position: int, phase: Literal["train", "eval"] = "train", *, run_id: str = RUN, version: int = 0) -> Unit:
    return Unit(
        run_id=run_id, phase=phase, epoch=0, position=position, task=f"task-{position}", read_version=version
    )


def trace(
    of: Unit,
    attempt: str,
    *,
    outcome: Outcome = Outcome.SUCCESS,
    final: bool = True,
    detail: str = "",
    delivery: int = 1,
) -> EpisodeTrace:
    record = EpisodeRecord(
        unit=of,
        attempt=attempt,
        delivery=delivery,
        final=final,
        outcome=outcome,
        end_reason=EndReason.BACKBONE if outcome is Outcome.INFRA else EndReason.SCORED,
        detail=detail,
        started_at=NOW.isoformat(),
        duration_s=1.5,
        steps=5,
        usage={"planner": Usage(calls=1, requests=2, prompt_tokens=100)},
    )
    proposal = Proposal(
        run_id=of.run_id,
        position=of.position,
        task=of.task,
        attempt=attempt,
        read_version=of.read_version,
        outcome=outcome,
    )
    return EpisodeTrace(
        record=record,
        trajectory=Trajectory(
            view=TaskView(request=f"do {of.task} 请", messages=()),
            plan="look, then act",
            steps=tuple(Step(index=i, kind="action", content=f"step {i}") for i in range(5)),
        ),
        proposal=proposal if of.phase == "train" and final else None,
    )


def launch_in(runs_dir: Path, sweep: str = "smoke", now: datetime = NOW) -> LaunchDirectory:
    return LaunchDirectory.create(runs_dir, sweep, CONFIG, now=now)


def rows(launch: LaunchDirectory, run_id: str = RUN) -> list[str]:
    """Attempts of all whole rows, oldest first."""
    return [record.attempt for record in EpisodeArchive(launch).records(run_id)]
