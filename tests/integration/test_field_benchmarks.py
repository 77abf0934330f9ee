"""Benchmarks that talk back, hang, raise and never end: each costs its own episode and nothing else (group G)."""

from __future__ import annotations

import asyncio
import os
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import pytest
from rich.console import Console

from chime_dist.adapters.clock import SystemClock
from chime_dist.cli.episode_view import episode_view
from chime_dist.core.bank import BankState
from chime_dist.core.episode import INFRA_REASONS, EndReason, EpisodeTrace, Outcome, Unit
from chime_dist.core.model_call import ChatReply, ChatRequest, ToolCall
from chime_dist.core.spending import Spent
from chime_dist.core.task import Task, TaskView
from chime_dist.engine.driver import Ending
from chime_dist.engine.episode import EpisodeRunner, RunServices
from chime_dist.engine.outage import Outages
from chime_dist.errors import BenchmarkError
from chime_dist.methods.no_plan.method import NoPlan, NoPlanOptions
from chime_dist.ports import Action, BankQuery, Hit, Observation
from tests.integration.launching import RUN, models_on, plan_of
from tests.integration.processes import rows_of
from tests.integration.test_stream_semantics import local_launch

PATIENCE_S = 30.0
"""Longest wait for an attempt that must end by itself; only a broken build waits this long."""

_TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
}


class Talk:
    """Tasks of several turns. A task's id says how its user behaves: BEHAVIOUR-NUMBER."""

    name = "talk"
    action_mode: Literal["tools", "json_schema"] = "tools"
    usual_steps = 4

    def __init__(self, ids: list[str], max_steps: int = 12) -> None:
        self._ids = ids
        self.max_steps = max_steps
        self.opened = self.closed = 0

    def tasks(self) -> list[Task]:
        """As given."""
        return [Task(id=task_id, domain="talk") for task_id in self._ids]

    def fingerprint(self) -> dict[str, str]:
        """Nothing upstream."""
        return {}

    async def open(self, task_id: str) -> Conversation:
        """See ``ports.Benchmark``."""
        self.opened += 1
        return Conversation(self, task_id.partition("-")[0])


class Conversation:
    """One user and what they want."""

    view = TaskView(
        request="Change my flight.", messages=({"role": "user", "content": "Change my flight."},), tools=(_TOOL,)
    )

    def __init__(self, talk: Talk, behaviour: str) -> None:
        self._talk = talk
        self._behaviour = behaviour
        self._turns = 0

    async def act(self, action: Action) -> Observation:
        """What the user or the tools say next."""
        self._turns += 1
        if self._behaviour in {reason.value for reason in EndReason}:
            return Observation(done=True, end_reason=EndReason(self._behaviour))
        if self._behaviour == "missing":
            return Observation(done=True)
        if self._behaviour == "unknown_word":
            return Observation.model_validate({"done": True, "end_reason": "cosmic_ray"})
        if self._behaviour == "empty" and not action.text and not action.tool_calls:
            return Observation(done=True, end_reason=EndReason.EMPTY_OUTPUT)
        if self._behaviour == "stops_early" and self._turns == 2:
            said = {"role": "user", "content": "Yes, please do that. ###STOP###"}
            flags = ("premature_user_stop",)
            return Observation(done=True, end_reason=EndReason.SCORED, messages=(said,), flags=flags)
        if self._behaviour == "too_big":
            bytearray(1 << 62)
        if self._behaviour == "greedy":
            await self._eat()
        if self._behaviour in ("plain", "grader_raises", "empty") and self._turns == 2:
            return Observation(done=True, end_reason=EndReason.SCORED)
        await asyncio.sleep(0.002)
        return Observation(done=False, messages=(self._answer(action),))

    async def _eat(self) -> None:
        """Take memory until somebody stops it; a few GB at most, lest it be the machine that does."""
        eaten: list[bytes] = []
        while len(eaten) < 100:
            eaten.append(os.urandom(1 << 20) * 64)
            await asyncio.sleep(0.02)

    def _answer(self, action: Action) -> dict[str, Any]:
        if action.tool_calls:
            return {"role": "tool", "tool_call_id": action.tool_calls[0].id, "content": "Nothing there."}
        return {"role": "user", "content": "Thank you!"}

    async def score(self) -> bool:
        """A conversation that the user ended is a success, unless the write never happened."""
        if self._behaviour == "grader_raises":
            raise BenchmarkError("the grader lost its head")
        return self._behaviour == "plain"

    async def close(self) -> None:
        """Counted."""
        self._talk.closed += 1


class Polite:
    """A model that thanks back, or keeps calling a tool; both are valid turns for ever."""

    def __init__(self, calls: bool = False, empty_for: str | None = None) -> None:
        self._calls = calls
        self._empty_for = empty_for
        self.turns = 0

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """See ``ports.Backbone``."""
        if not request.tools:
            return ChatReply(text='{"label": "none", "confidence": 0.9}')
        self.turns += 1
        if self._empty_for is not None and self._empty_for in request.session_id:
            return ChatReply(text="")
        if self._calls:
            call = ToolCall(id=f"c{self.turns}", name="look", arguments={"at": "it"}, raw='{"at": "it"}')
            return ChatReply(tool_calls=(call,), finish_reason="tool_calls")
        return ChatReply(text="Thank you!")

    async def close(self) -> None:
        """Nothing is held."""


class EmptyBank:
    """Nothing was learnt yet."""

    async def search(self, query: BankQuery) -> list[Hit]:
        """Finds nothing."""
        return []

    async def export(self, run_id: str, version: int) -> BankState:
        """Empty."""
        return BankState(version)


async def attempted(talk: Talk, task: str, model: Polite | None = None, deadline_s: float = 60.0) -> EpisodeTrace:
    """One eval attempt by an agent without memory."""
    services = RunServices(NoPlan(NoPlanOptions()), talk, models_on(model or Polite()), deadline_s)
    clock = SystemClock()
    runner = EpisodeRunner({RUN: services}, EmptyBank(), clock, Outages(clock, 60.0), "worker-0")
    unit = Unit(run_id=RUN, phase="eval", epoch=1, position=0, task=task, read_version=0)
    trace = await asyncio.wait_for(runner.run(unit, 1), PATIENCE_S)
    assert (talk.opened, talk.closed) == (1, 1), "whatever happens, what was opened is closed"
    return trace


END_REASONS = {
    EndReason.SCORED: Outcome.FAILURE,
    EndReason.STEP_CAP: Outcome.FAILURE,
    EndReason.ERROR_CAP: Outcome.FAILURE,
    EndReason.MALFORMED_OUTPUT: Outcome.FAILURE,
    EndReason.EMPTY_OUTPUT: Outcome.FAILURE,
    EndReason.CONTEXT_OVERFLOW: Outcome.FAILURE,
    EndReason.AGENT_DEADLINE: Outcome.FAILURE,
    EndReason.BACKBONE: Outcome.INFRA,
    EndReason.OUTAGE: Outcome.INFRA,
    EndReason.EMBEDDER: Outcome.INFRA,
    EndReason.BENCHMARK: Outcome.INFRA,
    EndReason.WORKER_LOST: Outcome.INFRA,
    EndReason.OOM: Outcome.INFRA,
    EndReason.UNKNOWN: Outcome.INFRA,
}
"""What an end reason means when the evaluator, where it is asked, says no."""


@pytest.mark.parametrize("reason", EndReason)
async def test_every_end_reason_is_either_scored_or_tried_again(reason: EndReason) -> None:
    """G2: one table for all benchmarks; an aborted run is never stored like a good one."""
    trace = await attempted(Talk([f"{reason.value}-0"]), f"{reason.value}-0")
    assert (trace.record.outcome, trace.record.end_reason) == (END_REASONS[reason], reason)
    assert trace.record.final is (reason not in INFRA_REASONS)


@pytest.mark.parametrize("behaviour", ["missing", "unknown_word"])
async def test_an_end_without_a_reason_or_with_an_unknown_one_is_infra(behaviour: str) -> None:
    """G2: nothing is filled in for a reason that is not there; the unit stays owed."""
    trace = await attempted(Talk([f"{behaviour}-0"]), f"{behaviour}-0")
    assert (trace.record.outcome, trace.record.end_reason) == (Outcome.INFRA, EndReason.UNKNOWN)
    assert not trace.record.final


async def test_a_user_who_stops_too_early_is_scored_as_the_benchmark_scores_and_can_be_seen() -> None:
    """G6: the stop word in a confirmation ends the conversation, as upstream has it; the trace shows that the user
    spoke last and what they said, and the benchmark's flag is beside it and in the record. No gate sees it."""
    trace = await attempted(Talk(["stops_early-0"]), "stops_early-0")
    assert (trace.record.outcome, trace.record.end_reason) == (Outcome.FAILURE, EndReason.SCORED)
    last = trace.trajectory.steps[-1]
    assert (last.kind, last.data["role"], last.content) == (
        "observation",
        "user",
        "Yes, please do that. ###STOP###",
    )
    assert last.data["flags"] == ["premature_user_stop"]
    assert trace.record.flags == trace.trajectory.flags == ("premature_user_stop",)
    assert EpisodeTrace.model_validate_json(trace.model_dump_json()) == trace
    console = Console(file=StringIO(), width=100)
    console.print(*episode_view(trace, None, Spent({}, {}, 0.0)))
    assert isinstance(console.file, StringIO)
    assert "flags: ['premature_user_stop']" in console.file.getvalue()
    assert (await attempted(Talk(["plain-0"]), "plain-0")).record.flags == ()


async def test_endless_thanks_end_at_the_step_cap() -> None:
    """G6: with a reason of its own, scored, and with the trajectory of every turn."""
    trace = await attempted(Talk(["thanks-0"], max_steps=7), "thanks-0")
    assert (trace.record.outcome, trace.record.end_reason) == (Outcome.FAILURE, EndReason.STEP_CAP)
    assert [step.kind for step in trace.trajectory.steps] == ["action", "observation"] * 7


async def test_endless_thanks_end_at_the_deadline_where_steps_are_cheap() -> None:
    """G6, R37: wall clock bounds what steps do not; the agent was working, so it is a scored failure."""
    trace = await attempted(Talk(["thanks-0"], max_steps=1_000_000), "thanks-0", deadline_s=0.15)
    assert (trace.record.outcome, trace.record.end_reason) == (Outcome.FAILURE, EndReason.AGENT_DEADLINE)
    assert trace.record.final
    assert len(trace.trajectory.steps) > 2


def launch_of(folder: Path, ids: list[str], model: Polite, *, slots: int, max_steps: int = 12) -> Any:
    """A launch whose train stream is these conversations."""
    launch = local_launch(folder, window=16, slots=slots)
    launch.benchmark = Talk(ids, max_steps)
    launch.plan = plan_of(launch.benchmark, 16)
    launch.backbone = model
    return launch


async def test_a_model_that_always_makes_a_valid_call_is_stopped_at_the_cap_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    """G10: a scored failure, its slot free again, the other entries finished meanwhile."""
    ids = ["endless-0", *(f"plain-{n}" for n in range(1, 10))]
    launch = launch_of(tmp_path, ids, Polite(calls=True), slots=2, max_steps=400)
    assert await launch.run() is Ending.COMPLETE
    rows = {row["unit"]["task"]: row for row in rows_of(launch.directory.path)}
    endless = rows.pop("endless-0")
    assert (endless["outcome"], endless["end_reason"], endless["final"]) == ("failure", "step_cap", True)
    assert {row["outcome"] for row in rows.values()} == {"success"}
    finished = [row["unit"]["task"] for row in rows_of(launch.directory.path)]
    assert finished.index("endless-0") > finished.index("plain-3"), "the other slot was never held up"
    assert launch.benchmark.opened == launch.benchmark.closed == 10


async def test_a_grader_that_raises_and_an_agent_that_says_nothing_cost_one_episode_each(tmp_path: Path) -> None:
    """G4: ten conversations, the grader raises on the fourth, the agent is silent in the eighth: eight good rows,
    one infra with its error's text, one scored failure with its reason, in an unchanged order of commits."""
    ids = [{3: "grader_raises-3", 7: "empty-7"}.get(n, f"plain-{n}") for n in range(10)]
    launch = launch_of(tmp_path, ids, Polite(empty_for=f"{RUN}:train:7"), slots=4)
    assert await launch.run() is Ending.COMPLETE
    entries = await launch.entries()
    assert [entry.task for entry in entries] == ids
    told = {entry.task: (entry.outcome, entry.empty_reason) for entry in entries}
    assert told.pop("grader_raises-3") == (Outcome.INFRA, "infra:benchmark")
    assert told.pop("empty-7") == (Outcome.FAILURE, None)
    assert set(told.values()) == {(Outcome.SUCCESS, None)}
    rows = {row["unit"]["task"]: row for row in rows_of(launch.directory.path)}
    assert rows["grader_raises-3"]["detail"] == "the grader lost its head"
    assert rows["empty-7"]["end_reason"] == "empty_output"


async def test_an_episode_that_wants_more_memory_than_there_is_costs_itself_only(tmp_path: Path) -> None:
    """C8, D9: MemoryError in one of four open episodes: its row says oom, its neighbours in the same worker have
    their results, and it is tried again as often as any other infra end."""
    ids = ["too_big-0", *(f"plain-{n}" for n in range(1, 8))]
    launch = launch_of(tmp_path, ids, Polite(), slots=4)
    assert await launch.run() is Ending.COMPLETE
    rows = [row for row in rows_of(launch.directory.path) if row["unit"]["task"] == "too_big-0"]
    assert [(row["outcome"], row["end_reason"], row["delivery"]) for row in rows] == [
        ("infra", "oom", delivery) for delivery in (1, 2, 3)
    ]
    assert all("MemoryError" in row["detail"] and row["duration_s"] > 0 for row in rows)
    told = {entry.task: entry.empty_reason for entry in await launch.entries()}
    assert told.pop("too_big-0") == "infra:oom"
    assert set(told.values()) == {None}
