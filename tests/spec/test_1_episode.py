"""First stop: one episode. Recall, plan, recall, act, score, diagnose, commit; and who may know what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chime_dist.core.bank import replay
from chime_dist.core.episode import EndReason, Outcome, Role
from chime_dist.core.memory import Stage
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.errors import BackboneError, BenchmarkError
from chime_dist.methods.chime.method import Chime, ChimeOptions
from chime_dist.methods.no_plan.method import NoPlan, NoPlanOptions
from chime_dist.ports import Action, Method, Observation
from tests.spec.parts import PLAN, REQUEST, RUN, Desk, DeskEnvironment, Memory, Speaker, touring, verdict

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
    """R2, R10, R18: plan memories reach the planner, exec memories the executor, the gate sees both with ids."""
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


async def test_what_a_benchmark_remarks_on_a_step_is_recorded_and_reaches_no_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: a remark may tell what was expected; the gate judges by the binary outcome."""

    async def remarking(_: DeskEnvironment, action: Action) -> Observation:
        return Observation(done=True, end_reason=EndReason.SCORED, flags=("wrong_courier",))

    monkeypatch.setattr(DeskEnvironment, "act", remarking)
    async with touring(tmp_path) as tour:
        trace = await tour.learn(success=False)
    assert trace.record.flags == ("wrong_courier",)
    assert [role for role, _ in tour.requests] == [Role.PLANNER, Role.EXECUTOR, Role.GATE]
    assert not any("wrong_courier" in request.model_dump_json() for _, request in tour.requests)


async def test_without_a_score_there_is_nothing_to_diagnose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1, R20: s is 0 or 1. Where our machinery failed it is neither, so the gate is not asked, and the position
    is committed empty."""

    async def crashed(_: DeskEnvironment) -> bool:
        raise BenchmarkError("the evaluator crashed")

    monkeypatch.setattr(DeskEnvironment, "score", crashed)
    async with touring(tmp_path, LESSONS) as tour:
        before = (await tour.bank()).digest()
        trace = await tour.learn()
        entry = (await tour.entries())[1]
        assert tour.happened == ["recall plan @1", "planner", "recall exec @1", "executor", "act"]
        assert (trace.record.gate_status, trace.record.label) == ("off", None)
        assert (entry.empty_reason, entry.diagnosis, entry.events) == ("infra:benchmark", None, ())
        assert (await tour.bank()).digest() == before


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
    """R9, R43: methods share runtimes, tools and evaluators. No-Plan's one call carries what CHIME's executor
    gets, minus plan and lessons; its position is committed empty."""
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


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
@pytest.mark.parametrize("method", [Chime(ChimeOptions()), NoPlan(NoPlanOptions())], ids=["chime", "no_plan"])
async def test_an_executor_is_told_of_its_tools_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Method, mode: str
) -> None:
    """R9: in the request where the server reads tools there, else in the prompt; without either it has none."""
    monkeypatch.setattr(Desk, "action_mode", mode)
    async with touring(tmp_path, method=method) as tour:
        await tour.learn()
    [request] = [request for role, request in tour.requests if role is Role.EXECUTOR]
    in_prompt = any("Book a courier." in str(message["content"]) for message in request.messages)
    assert (bool(request.tools), in_prompt) == (mode == "tools", mode == "json_schema")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """``failing(what, code)``: from now on, models fail so when asked for ``what`` (a schema's name)."""
    complete = Speaker.complete

    def fail(what: str, code: str) -> None:
        async def failed(speaker: Speaker, request: ChatRequest, budget_s: float) -> ChatReply:
            reply = await complete(speaker, request, budget_s)
            if request.schema_name == what:
                raise BackboneError("no", code)
            return reply

        monkeypatch.setattr(Speaker, "complete", failed)

    return fail


async def test_a_prompt_that_cannot_be_made_short_enough_is_the_agents_failure(
    tmp_path: Path, failing: Callable[[str, str], None]
) -> None:
    """R36: the task is scored as it was left, and the gate looks back at it; nothing of ours was broken."""
    failing("action", "context_overflow")
    async with touring(tmp_path) as tour:
        trace = await tour.learn(success=False)
    assert (trace.record.outcome, trace.record.end_reason) == (Outcome.FAILURE, EndReason.CONTEXT_OVERFLOW)
    assert tour.happened == ["planner", "executor", "score", "gate"]


async def test_a_gate_whose_model_fails_is_asked_three_times_in_all(
    tmp_path: Path, failing: Callable[[str, str], None]
) -> None:
    """R21: then it has given no decision; the attempt and its score stand."""
    failing("diagnosis", "server_error")
    async with touring(tmp_path) as tour:
        trace = await tour.learn(success=True)
    diagnoses = [request for _, request in tour.requests if request.schema_name == "diagnosis"]
    assert (len(diagnoses), trace.record.outcome, trace.record.gate_status) == (3, Outcome.SUCCESS, "gate_error")
