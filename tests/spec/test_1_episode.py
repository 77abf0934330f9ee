"""First stop: one episode. Recall, plan, recall, act, score, diagnose, commit; and who may know what."""

from __future__ import annotations

from pathlib import Path

import pytest

from chime_dist.core.bank import replay
from chime_dist.core.episode import Outcome, Role
from chime_dist.core.memory import Stage
from chime_dist.methods.no_plan.method import NoPlan, NoPlanOptions
from tests.spec.parts import PLAN, REQUEST, RUN, Memory, touring, verdict

LESSONS = (Memory(Stage.PLAN, 0.9), Memory(Stage.EXEC, 0.8))


async def test_an_episode_recalls_plans_recalls_again_acts_is_scored_and_is_diagnosed(tmp_path: Path) -> None:
    """R2: the order of S0 Eq. 4, each step once; the second recall asks with the task and the plan."""
    async with touring(tmp_path, LESSONS) as tour:
        trace = await tour.learn()
    assert tour.happened == [
        "recall plan @1",
        "planner",
        "recall exec @1",
        "executor",
        "act",
        "score",
        "gate",
    ]
    plan_recall, exec_recall = trace.trajectory.recalls
    assert plan_recall.query == REQUEST
    assert exec_recall.query == f"{REQUEST}\n\n{PLAN}"


async def test_each_stage_is_shown_the_lessons_of_its_own_bank(tmp_path: Path) -> None:
    """R2, R10: plan memories reach the planner, exec memories the executor, and the gate sees both with ids."""
    async with touring(tmp_path, LESSONS) as tour:
        await tour.learn()
    [planner], [executor], [gate] = (tour.asked(role) for role in (Role.PLANNER, Role.EXECUTOR, Role.GATE))
    assert ("lesson number 0" in planner, "lesson number 1" in planner) == (True, False)
    assert ("lesson number 0" in executor, "lesson number 1" in executor) == (False, True)
    assert "Find a courier" in executor
    assert "0-0 (plan)" in gate
    assert "0-1 (exec)" in gate


async def test_nothing_of_an_episode_reaches_the_bank_but_through_its_own_entry(tmp_path: Path) -> None:
    """R1: M(t+1) = U(M(t), x, tau, s). The next bank is the last one and one journal entry, nothing else."""
    async with touring(tmp_path, LESSONS) as tour:
        before = await tour.bank()
        await tour.learn(verdict=verdict("planning", plan=("parcels with a deadline", "read 'before' strictly")))
        after, entries = await tour.bank(), await tour.entries()
    assert (before.version, after.version, len(entries)) == (1, 2, 2)
    assert entries[1].task == "parcel-1"
    assert replay(entries[:1]).digest() == before.digest()
    assert replay(entries).digest() == after.digest()


@pytest.mark.parametrize(("success", "word"), [(True, "success"), (False, "failure")])
async def test_the_gate_is_told_one_word_about_the_outcome_and_is_asked_after_a_success_too(
    tmp_path: Path, success: bool, word: str
) -> None:
    """R8, R18, R20: one structured call with task, plan, trajectory and the binary outcome; a success is credited
    and may teach (S0 Eq. 10) as a failure may."""
    async with touring(tmp_path) as tour:
        trace = await tour.learn(
            success=success, verdict=verdict("execution", exec_=("booking couriers", "arrival comes as HH:MM"))
        )
        memories = await tour.memories()
    [(_, request)] = [(role, request) for role, request in tour.requests if role is Role.GATE]
    said = str(request.messages[-1]["content"])
    assert f"has called it a {word}. It gave no\nreason" in said
    assert REQUEST in said
    assert "Find a courier" in said
    assert "The courier is booked." in said
    assert request.response_schema is not None
    assert trace.record.outcome is (Outcome.SUCCESS if success else Outcome.FAILURE)
    assert [memory.experience for memory in memories.values()] == ["arrival comes as HH:MM"]


async def test_a_frozen_bank_is_read_and_nothing_else(tmp_path: Path) -> None:
    """R5: an eval episode is the same up to the score; the gate is not asked, nothing is proposed, and no value
    or count moves."""
    async with touring(tmp_path, LESSONS) as tour:
        digest = (await tour.bank()).digest()
        trace = await tour.evaluate(version=1)
        assert tour.happened == ["recall plan @1", "planner", "recall exec @1", "executor", "act", "score"]
        assert trace.trajectory.recalls[0].selected
        assert (trace.proposal, trace.record.gate_status) == (None, "off")
        assert await tour.queue.proposal(RUN, 1) is None
        assert (await tour.bank()).digest() == digest


async def test_an_agent_without_memory_is_given_the_same_task_and_tools_and_nothing_more(tmp_path: Path) -> None:
    """R9: methods share runtimes, tools and evaluators. No-Plan's one call carries what CHIME's executor gets,
    minus plan and lessons; its position is committed empty."""
    async with touring(tmp_path / "chime", LESSONS) as chime:
        await chime.learn()
    async with touring(tmp_path / "no_plan", LESSONS, method=NoPlan(NoPlanOptions())) as alone:
        await alone.learn()
        entries = await alone.entries()
    assert alone.happened == ["executor", "act", "score"]
    [(_, theirs)] = [(role, request) for role, request in chime.requests if role is Role.EXECUTOR]
    [(_, ours)] = alone.requests
    assert ours.tools == theirs.tools
    assert (ours.temperature, ours.max_tokens) == (theirs.temperature, theirs.max_tokens)
    assert REQUEST in ours.model_dump_json()
    assert "lesson number" not in ours.model_dump_json()
    assert entries[1].events == ()
