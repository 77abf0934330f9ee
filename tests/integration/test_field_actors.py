"""Ray actors as they fail elsewhere: names that are taken, errors that do not survive the way back (group C)."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.models.chat import ChatBackbone
from chime_dist.adapters.models.chat_request import ChatSettings
from chime_dist.adapters.ray.actors import EmbedderActor, ExecutorActor, WorkerActor
from chime_dist.adapters.ray.calls import called
from chime_dist.adapters.ray.cluster import RayCluster
from chime_dist.adapters.ray.deaths import Life, killed_by_memory_monitor
from chime_dist.adapters.ray.handles import RayBank, RayModels, RayWorkers
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.config.models import BackboneModel
from chime_dist.core.episode import EndReason, EpisodeRecord, Outcome, Role, Unit
from chime_dist.core.model_call import Turn
from chime_dist.core.retry import RetryPolicy
from chime_dist.engine.episode import EpisodeRunner, RunServices
from chime_dist.engine.outage import Outages
from chime_dist.engine.roles import RoleRunner
from chime_dist.engine.worker import Delivery
from chime_dist.errors import BackboneError, EmbeddingError, FencedError, ServiceError, TurnOverError
from chime_dist.methods.no_plan.method import NoPlan, NoPlanOptions
from chime_dist.ports import Embedder
from chime_dist.wiring.registry import prompts
from tests.adapters.stub_server import StubServer, answers, has_context_limit
from tests.integration.hungry import KEYS, LEASE_S, UNIT, Factory
from tests.integration.launching import EMBEDDER
from tests.integration.test_field_benchmarks import EmptyBank, Talk

pytestmark = pytest.mark.slow

NAMESPACE = "field"
PROMPT = Turn(
    template="no_plan/execute",
    variables={"view": {"policy": "", "tools": []}, "list_tools": False},
    conversation=({"role": "user", "content": "Change my flight."},),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """One Ray session for this module."""
    joined = RayCluster.connect("session", None, 2, NAMESPACE)
    yield joined
    joined.leave()


class Counter:
    """An actor that knows whose it is."""

    def __init__(self, config: str) -> None:
        self._config = config

    def config(self) -> str:
        """What it was built with."""
        return self._config


RACER = """\
import sys
from chime_dist.adapters.ray.cluster import RayCluster
from chime_dist.errors import ServiceError
from tests.integration.test_field_actors import Counter
cluster = RayCluster.connect("raced", sys.argv[1], None, sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
try:
    print("won", cluster.actor(Counter, "bank", sys.argv[3]), flush=True)
except ServiceError as error:
    print("refused", error, flush=True)
sys.stdin.readline()
cluster.leave()
"""


def test_of_drivers_that_race_for_one_launch_one_gets_the_actor(cluster: RayCluster) -> None:
    """C3: three processes at once; one actor and one writer come of it, the others are told the name and why."""
    address = ray.get_runtime_context().gcs_address
    words = [sys.executable, "-c", RACER, address, NAMESPACE]
    drivers = [
        subprocess.Popen(
            [*words, f"config {n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for n in range(3)
    ]
    try:
        for driver in drivers:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "ready\n"
        answers = []
        for driver in drivers:
            assert driver.stdin is not None
            driver.stdin.write("go\n")
            driver.stdin.flush()
        for driver in drivers:
            assert driver.stdout is not None
            answers.append(driver.stdout.readline())
        winner = next(n for n, answer in enumerate(answers) if answer.startswith("won"))
        assert answers[winner] == "won chime-raced-bank\n"
        refused = [answer for answer in answers if answer.startswith("refused")]
        assert len(refused) == 2
        assert all("chime-raced-bank" in text and "another driver runs this launch" in text for text in refused)
        held: object = ray.get(ray.get_actor("chime-raced-bank", namespace=NAMESPACE).config.remote())
        assert held == f"config {winner}", "nobody was silently given another's state"
    finally:
        for driver in drivers:
            driver.communicate("bye\n", timeout=60)


def test_another_launch_of_the_same_sweep_never_meets_the_first_ones_actors(cluster: RayCluster) -> None:
    """C3: names carry the launch, so a stale bank of a crashed run with another config is never attached to, and a
    second driver of a living launch is refused."""
    first, second = RayCluster("crashed"), RayCluster("afresh")
    stale = first.actor(Counter, "bank", "window 1")
    fresh = second.actor(Counter, "bank", "window 16")
    assert stale != fresh
    assert ray.get([ray.get_actor(name).config.remote() for name in (stale, fresh)]) == ["window 1", "window 16"]
    with pytest.raises(ServiceError, match=r"actor chime-crashed-bank: .*another driver runs this launch"):
        RayCluster("crashed").actor(Counter, "bank", "window 16")
    for name in (stale, fresh):
        ray.kill(ray.get_actor(name))


@dataclass(frozen=True)
class Executor:
    """Builds the executor's role over a real HTTP client in the actor's process."""

    url: str
    timeout_s: float = 30.0
    retries: int = 2

    def __call__(self) -> RoleRunner:
        """Called in the actor."""
        settings = ChatSettings(
            name="m",
            base_url=self.url,
            model="m",
            max_output_tokens=100,
            retry=RetryPolicy(timeout_s=self.timeout_s, max_retries=self.retries, base_interval_s=0.01),
        )
        model = BackboneModel(name="m", model="m", max_output_tokens=100)
        return RoleRunner(Role.EXECUTOR, model, ChatBackbone(settings, SystemClock()), prompts(["no_plan"]))


async def _hashing() -> Embedder:
    return EMBEDDER


def models_over(cluster: RayCluster, name: str, executor: Executor) -> RayModels:
    """The executor and the embedder as actors."""
    roles = {Role.EXECUTOR: cluster.actor(ExecutorActor, f"executor-{name}", executor)}
    return RayModels(roles, cluster.actor(EmbedderActor, f"embedder-{name}", _hashing))


@pytest.mark.parametrize(
    ("status", "code", "retriable", "requests"),
    [(400, "bad_request", False, 1), (503, "server_error", True, 3)],
)
async def test_an_error_inside_an_actor_arrives_as_itself(
    cluster: RayCluster, status: int, code: str, retriable: bool, requests: int
) -> None:
    """C4: class, code, status, message and retriable survive two process borders; what is not retriable was sent
    once."""
    async with StubServer([answers({"error": {"message": "no such luck"}}, status=status)]) as server:
        models = models_over(cluster, code, Executor(server.url))
        with pytest.raises(BackboneError, match="no such luck") as caught:
            await models.turn(Role.EXECUTOR, PROMPT, "session", 30.0)
        assert len(server.received) == requests
    assert type(caught.value) is BackboneError
    assert (caught.value.code, caught.value.status, caught.value.retriable) == (code, status, retriable)
    assert pickle.loads(pickle.dumps(caught.value)).code == code


async def test_errors_of_the_embedder_arrive_as_themselves(cluster: RayCluster) -> None:
    """C4: an own error without extra arguments, through the same door."""
    models = models_over(cluster, "embedding", Executor("http://127.0.0.1:9/v1"))
    with pytest.raises(EmbeddingError):
        await models.embed([" "], "document")


async def test_a_context_overflow_inside_an_actor_ends_the_episode_as_one(cluster: RayCluster) -> None:
    """C4: the worker sees context_overflow and scores the episode; the prompt that does not fit is not sent again
    and again."""
    async with StubServer([has_context_limit(limit=4096, prompt_tokens=5000)]) as server:
        models = models_over(cluster, "overflow", Executor(server.url))
        services = RunServices(NoPlan(NoPlanOptions()), Talk(["plain-0"]), models, 30.0)
        clock = SystemClock()
        runner = EpisodeRunner({"r": services}, EmptyBank(), clock, Outages(clock, 60.0), "worker-0")
        unit = Unit(run_id="r", phase="eval", epoch=1, position=0, task="plain-0", read_version=0)
        record = (await runner.run(unit, 1)).record
        assert len(server.received) == 1
    assert (record.end_reason, record.outcome, record.final) == (EndReason.CONTEXT_OVERFLOW, Outcome.SUCCESS, True)


async def test_a_task_that_takes_all_memory_is_given_up_with_that_reason(redis_url: str, tmp_path: Path) -> None:
    """C8, D9: Ray's memory monitor kills the worker, which looks like any other death to the driver's call; the
    record says oom, because Ray wrote down whom it killed and the queue knew what that worker held."""
    words = [sys.executable, "-m", "tests.integration.hungry", redis_url, str(tmp_path)]
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = await asyncio.wait_for(process.communicate(), 240.0)
    assert process.returncode == 0, output.decode()
    [record] = map(EpisodeRecord.model_validate_json, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert (record.end_reason, record.outcome, record.delivery) == (EndReason.OOM, Outcome.INFRA, 2)
    assert record.unreported
    assert "killed for want of memory" in record.detail


async def test_a_death_by_kill_alone_is_not_taken_for_want_of_memory(cluster: RayCluster) -> None:
    """D9: SIGKILL proves nothing; both witnesses are asked and both say no."""
    actor: Any = ray.remote(Alive).options(max_restarts=-1, num_cpus=0).remote()
    life: Life = await actor.life.remote()
    os.kill(await actor.pid.remote(), signal.SIGKILL)
    assert not await killed_by_memory_monitor(life)
    successor: Life = await called("the actor", actor.life.remote)
    assert not life.ended_by_kernel(successor)
    ray.kill(actor)


class Replaced:
    """A bank's owner on a host that was cut off: fenced, until the handle leads to its successor."""

    def __init__(self) -> None:
        self._asked = 0

    def digest(self, run_id: str) -> str:
        """Of the third asking."""
        self._asked += 1
        if self._asked < 3:
            raise FencedError(f"run {run_id}: a newer owner than fence 1 holds the bank")
        return "digest"


async def test_a_read_that_reaches_a_replaced_owner_is_asked_again(cluster: RayCluster) -> None:
    """R7, D2: a worker that was cut off together with the old owner still asks that one when the link is back; its
    unit's deliveries must not be spent on the answer."""
    bank = RayBank(cluster.actor(Replaced, "replaced"))
    assert await bank.digest("r") == "digest"


async def test_the_workers_of_a_replaced_driver_end_and_touch_nothing(
    cluster: RayCluster, redis_url: str, tmp_path: Path
) -> None:
    """D2: their driver is frozen, so nobody ends them, and another host has the launch. They stop claiming, also
    after Ray has started them again, and the next driver's unit keeps all its deliveries."""
    connection = RedisConnection(redis_url)
    queue, successor = (RedisQueue(connection, KEYS, LEASE_S, DriverTurn()) for _ in range(2))
    turn = await queue.reset()

    async def held(consumer: str) -> frozenset[Delivery]:
        return frozenset()

    name = cluster.actor(WorkerActor, "late-worker", NAMESPACE, Factory(redis_url, tmp_path, turn))
    workers = RayWorkers({name: lambda: "late"}, held)
    working = asyncio.create_task(workers.run())
    while not (await connection.commands.info("clients"))["blocked_clients"]:
        assert not working.done(), working.exception()
        await asyncio.sleep(0.01)
    await successor.reset()
    await successor.admit(UNIT)
    with pytest.raises(TurnOverError, match="another driver has started a turn"):
        await asyncio.wait_for(working, 60)
    ray.kill(ray.get_actor(name), no_restart=False)
    with pytest.raises(TurnOverError):
        await asyncio.wait_for(workers.run(), 60)
    (lease,) = await successor.claim("in time", 1, 0.0)
    assert (lease.unit, lease.delivery) == (UNIT, 1)
    assert not await asyncio.to_thread((tmp_path / "rows.jsonl").exists)
    await connection.close()


class Alive:
    """An actor that can be killed."""

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def life(self) -> Life:
        """See ``Life``."""
        return Life.own()


def test_the_kernels_count_convicts_where_it_rose_in_the_place_of_the_dead() -> None:
    """D9: another control group's count, another node's, or none at all says nothing."""
    dead = Life("w", "n", ("memory:/a", 3))
    kills = [("n", ("memory:/a", 4)), ("n", ("memory:/a", 3)), ("n", ("memory:/b", 9)), ("n", None)]
    after = [Life("x", node, count) for node, count in [*kills, ("m", ("memory:/a", 4))]]
    assert [dead.ended_by_kernel(life) for life in after] == [True, False, False, False, False]
    assert not Life("w", "n", None).ended_by_kernel(after[0])
