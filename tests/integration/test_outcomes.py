"""Infra, outages and pauses: nothing is learnt from our own failures, and nothing is lost to them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chime_dist.adapters.clock import SystemClock
from chime_dist.core.episode import Outcome
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.engine import context, outage
from chime_dist.engine.driver import Ending
from chime_dist.errors import BackboneError, BenchmarkError
from chime_dist.ports import Action, Observation
from tests.integration import launching
from tests.integration.launching import models_on
from tests.integration.processes import rows_of
from tests.integration.test_stream_semantics import local_launch
from tests.integration.toy import JitteryBackbone, ToyBenchmark, ToyEnvironment


class DownFor:
    """The toy's model, down for a number of requests from the ``start``-th on."""

    def __init__(self, start: int, requests: int) -> None:
        self._inner = JitteryBackbone(0.0, 0)
        self._down = range(start, start + requests)
        self.asked = 0

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """Fails while it is down."""
        self.asked += self.counts(request)
        if self.counts(request) and self.asked in self._down:
            raise BackboneError("no healthy upstream", "server_error", 503)
        return await self._inner.complete(request, budget_s)

    def counts(self, request: ChatRequest) -> bool:
        """Whether this request is one of those that fail."""
        return True

    async def close(self) -> None:
        """Nothing is held."""


class FailsOneAction(DownFor):
    """Fails the executor once, and is well otherwise."""

    def counts(self, request: ChatRequest) -> bool:
        """Only the executor has tools."""
        return bool(request.tools)


@pytest.fixture(autouse=True)
def _quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "LONGEST_PAUSE_S", 0.05)
    monkeypatch.setattr(outage, "SPREAD_S", 0.01)


@pytest.mark.parametrize("start", [1, 40, 42, 43])
async def test_an_outage_delays_a_launch_and_changes_nothing_else(tmp_path: Path, start: int) -> None:
    """A9: whichever role it hits first, deliveries are not used up and the content is an undisturbed run's."""
    calm = local_launch(tmp_path / "calm", window=4)
    await calm.run()
    launch = local_launch(tmp_path / "down", window=4, slots=4)
    launch.backbone = DownFor(start, 30)
    assert await launch.run() is Ending.COMPLETE
    assert [e.content_hash for e in await launch.entries()] == [e.content_hash for e in await calm.entries()]
    assert {row["delivery"] for row in rows_of(launch.directory.path)} == {1}


class FailingTasks(ToyBenchmark):
    """The toy with tasks whose evaluator crashes until it is ``mended``."""

    def __init__(self, size: int, broken: set[int]) -> None:
        super().__init__(size)
        self._broken = {task.id for task in self.tasks() if int(task.id.partition("-")[2]) in broken}
        self.mended = False

    async def open(self, task_id: str) -> ToyEnvironment:
        """See ``ports.Benchmark``."""
        if task_id in self._broken and not self.mended:
            raise BenchmarkError(f"the simulator of {task_id} crashed")
        return await super().open(task_id)


async def test_an_infra_position_is_committed_empty_after_its_last_delivery(tmp_path: Path) -> None:
    """D9, G4: one broken task costs one position; no event, no value, no count, and the others go on."""
    launch = local_launch(tmp_path, window=4)
    launch.benchmark = FailingTasks(40, {7, 20})
    assert await launch.run() is Ending.COMPLETE
    entries = await launch.entries()
    empty = {e.position: (e.outcome, e.events, e.diagnosis, e.empty_reason) for e in entries if e.empty_reason}
    assert empty == dict.fromkeys((7, 20), (Outcome.INFRA, (), None, "infra:benchmark"))
    rows = [row for row in rows_of(launch.directory.path) if row["outcome"] == "infra"]
    assert sorted((row["unit"]["position"], row["delivery"]) for row in rows) == [
        (p, d) for p in (7, 20) for d in (1, 2, 3)
    ]
    assert not any(row["final"] for row in rows)


async def test_too_many_infra_positions_in_a_row_pause_the_launch_before_the_last_is_committed(
    tmp_path: Path,
) -> None:
    """Design "Outcomes": the third position in a row is held back, and a later resume tries it again."""
    launch = local_launch(tmp_path, window=4)
    benchmark = FailingTasks(40, {5, 6, 7, 8})
    launch.benchmark = benchmark
    assert await launch.run() is Ending.PAUSED
    entries = await launch.entries()
    assert [e.position for e in entries if e.outcome is Outcome.INFRA] == [5, 6]
    assert len(entries) == 7
    benchmark.mended = True
    await launch.queue.forget(launch.plan.run_id, 7)
    await launch.queue.forget(launch.plan.run_id, 8)
    assert await launch.run() is Ending.COMPLETE
    outcomes = [e.outcome for e in await launch.entries()]
    assert len(outcomes) == 40
    assert [p for p, outcome in enumerate(outcomes) if outcome is Outcome.INFRA] == [5, 6]


async def test_a_failing_request_with_healthy_models_is_the_attempts_own_failure(tmp_path: Path) -> None:
    """A9: a probe that succeeds means no outage; the queue delivers again."""
    launch = local_launch(tmp_path, window=1, slots=1)
    launch.backbone = FailsOneAction(10, 1)
    assert await launch.run() is Ending.COMPLETE
    deliveries = [row["delivery"] for row in rows_of(launch.directory.path)]
    assert sorted(set(deliveries)) == [1, 2]


class BrieflyBroken(ToyBenchmark):
    """The toy with one task whose simulator's server is gone for half a second from when it is first asked."""

    asked_at: float | None = None

    async def open(self, task_id: str) -> ToyEnvironment:
        """See ``ports.Benchmark``."""
        if task_id.endswith("-7"):
            now = asyncio.get_running_loop().time()
            self.asked_at = now if self.asked_at is None else self.asked_at
            if now < self.asked_at + 0.5:
                raise BenchmarkError("the simulator's server does not answer")
        return await super().open(task_id)


async def test_a_fault_of_half_a_second_does_not_use_up_the_deliveries(tmp_path: Path) -> None:
    """D9: the unit rests before it is delivered again, so a later delivery finds the server well."""
    launch = local_launch(tmp_path, window=4)
    launch.benchmark, launch.redelivery_pause_s = BrieflyBroken(40), 0.3
    assert await launch.run() is Ending.COMPLETE
    assert not [e.position for e in await launch.entries() if e.empty_reason]
    rows = [row for row in rows_of(launch.directory.path) if row["unit"]["position"] == 7]
    assert [row["final"] for row in rows] == [False] * (len(rows) - 1) + [True]
    assert rows[-1]["delivery"] in (2, 3)


class Hanging:
    """The toy's model with a server that takes requests and answers none, for a number of requests."""

    def __init__(self, start: int, requests: int) -> None:
        self._inner = JitteryBackbone(0.0, 0)
        self._hangs = range(start, start + requests)
        self.asked = 0

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """As the chat adapter does it: no failure, only a budget that ends."""
        self.asked += 1
        if self.asked in self._hangs:
            raise BackboneError("no reply within the budget", "budget")
        return await self._inner.complete(request, budget_s)

    async def close(self) -> None:
        """Nothing is held."""


async def test_a_server_that_hangs_is_an_outage_and_not_a_slow_agent(tmp_path: Path) -> None:
    """A9, design "Outcomes": the deadline passed while the model was down, so nobody is blamed for it."""
    calm = local_launch(tmp_path / "calm", window=4)
    await calm.run()
    launch = local_launch(tmp_path / "hung", window=4, slots=4)
    launch.backbone = Hanging(31, 25)
    assert await launch.run() is Ending.COMPLETE
    assert [e.content_hash for e in await launch.entries()] == [e.content_hash for e in await calm.entries()]
    assert {row["delivery"] for row in rows_of(launch.directory.path)} == {1}


class BadlyClosed(ToyEnvironment):
    """An environment whose clean-up fails."""

    async def close(self) -> None:
        """Fails."""
        raise RuntimeError("the simulator would not end")


class BadlyClosedBenchmark(ToyBenchmark):
    """The toy with clean-ups that fail."""

    async def open(self, task_id: str) -> ToyEnvironment:
        """See ``ports.Benchmark``."""
        return BadlyClosed(task_id)


async def test_a_clean_up_that_fails_costs_nothing(tmp_path: Path) -> None:
    """G4: the outcome stands whatever closing the environment does."""
    launch = local_launch(tmp_path, window=4)
    launch.benchmark = BadlyClosedBenchmark(40)
    assert await launch.run() is Ending.COMPLETE
    assert {e.outcome for e in await launch.entries()} <= {Outcome.SUCCESS, Outcome.FAILURE}


class InvisibleRequest(ToyBenchmark):
    """The toy with one request that no embedder takes (there is one in BFCL-v4)."""

    async def open(self, task_id: str) -> ToyEnvironment:
        """See ``ports.Benchmark``."""
        environment = await super().open(task_id)
        if task_id.endswith("-30"):
            message = {"role": "user", "content": "\x16 returns"}
            view = {"request": "\x16", "messages": (message,)}
            environment.view = environment.view.model_copy(update=view)
        return environment


async def test_a_request_without_a_visible_character_is_like_no_other(tmp_path: Path) -> None:
    """F7, R12: such a query recalls nothing, and the episode is scored like any other."""
    launch = local_launch(tmp_path, window=4)
    launch.benchmark = InvisibleRequest(40)
    assert await launch.run() is Ending.COMPLETE
    assert not [e.position for e in await launch.entries() if e.outcome is Outcome.INFRA]


async def test_work_that_fails_after_a_stop_waits_for_no_outage() -> None:
    """H9: a drain must not wait for a backbone that is down; the unit goes back to the queue."""
    waits = outage.Outages(SystemClock(), 60.0)
    waits.abandon()
    with pytest.raises(outage.AbandonedError):
        await waits.waited_out("run", models_on(DownFor(1, 10)))


class NeverAnswers(ToyEnvironment):
    """A simulator that hangs."""

    async def act(self, action: Action) -> Observation:
        """Waits for ever."""
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def test_a_benchmark_that_hangs_frees_its_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G6, G10: our own part did not answer, so it is infra; the slot is free again and the others go on."""
    monkeypatch.setattr(context, "GRACE_S", 0.05)
    monkeypatch.setattr(launching, "DEADLINE_S", 0.4)
    launch = local_launch(tmp_path, window=4)
    launch.benchmark = HangingTask(40)
    assert await launch.run() is Ending.COMPLETE
    entries = await launch.entries()
    assert [e.position for e in entries if e.empty_reason == "infra:benchmark"] == [11]


class HangingTask(ToyBenchmark):
    """The toy with one task that hangs."""

    async def open(self, task_id: str) -> ToyEnvironment:
        """See ``ports.Benchmark``."""
        return NeverAnswers(task_id) if task_id.endswith("-11") else await super().open(task_id)
