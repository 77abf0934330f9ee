"""The artifacts of an episode: their names, sums and stored forms."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from chime_dist.core.episode import (
    INFRA_REASONS,
    Candidate,
    EndReason,
    Recall,
    Trajectory,
    Unit,
    Usage,
)
from chime_dist.core.task import Task, TaskView


def test_a_unit_is_named_by_its_place_not_by_its_epoch() -> None:
    """Positions count across epochs; eval units of two checkpoints are two units (R47)."""
    train = Unit(run_id="r", phase="train", epoch=1, position=12, task="t", read_version=9)
    held_out = Unit(run_id="r", phase="eval", epoch=2, position=3, task="t", read_version=40)
    assert train.key == "r:train:12"
    assert held_out.key == "r:eval:v40:3"
    assert held_out.model_copy(update={"read_version": 20}).key == "r:eval:v20:3"


def test_usage_adds_up() -> None:
    one = Usage(calls=1, requests=2, prompt_tokens=30, completion_tokens=4, cached_tokens=5)
    assert one + one == Usage(calls=2, requests=4, prompt_tokens=60, completion_tokens=8, cached_tokens=10)
    assert one + Usage() == one


def test_a_recall_knows_its_candidates() -> None:
    """R17: each candidate is recorded, selected or not."""
    candidate = Candidate(
        id="3-0",
        item_version=1,
        sim=0.8,
        adjusted_value=0.0,
        score=0.8,
        rank_before=0,
        rank_after=0,
        selected=False,
    )
    recall = Recall(collection="plan", query="q", version=4, candidates=(candidate,))
    assert recall.candidate("3-0") == candidate
    assert recall.candidate("4-0") is None


def test_ends_that_are_the_agents_doing_are_never_infra() -> None:
    """Design "Outcomes": step and error caps, malformed or empty output, overflow and a working agent's
    deadline are scored."""
    assert set(EndReason) - INFRA_REASONS == {
        EndReason.SCORED,
        EndReason.STEP_CAP,
        EndReason.ERROR_CAP,
        EndReason.MALFORMED_OUTPUT,
        EndReason.EMPTY_OUTPUT,
        EndReason.CONTEXT_OVERFLOW,
        EndReason.AGENT_DEADLINE,
    }


def test_artifacts_are_closed_and_immutable() -> None:
    """A misspelt or unknown field is an error where the artifact is made, not later."""
    task = Task(id="t", domain="airline")
    with pytest.raises(ValidationError, match="frozen"):
        task.id = "u"  # type: ignore[misc]  # the assignment must fail at run time too
    with pytest.raises(ValidationError, match="answer"):
        Task.model_validate({"id": "t", "domain": "airline", "answer": "42"})


def test_a_trajectory_survives_its_json_form() -> None:
    """Resume and every later gate read it back from disk."""
    trajectory = Trajectory(view=TaskView(request="book", messages=({"role": "user", "content": "订票"},)))
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory
