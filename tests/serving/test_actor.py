"""The actor's insides, without Ray: a server that is started, waited for, asked and ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from secrets import token_hex

import pytest

from chime_dist.adapters.vllm.actor import ReplicaActor, work_folder
from chime_dist.adapters.vllm.child import processes_in
from chime_dist.adapters.vllm.command import NodeRank
from chime_dist.adapters.vllm.engine_api import EngineApi
from chime_dist.errors import ServingError
from tests.chaos.patience import eventually
from tests.serving.endpoints import stub_endpoint
from tests.serving.waiting import until_true


@pytest.fixture
async def actor(tmp_path: Path) -> AsyncIterator[ReplicaActor]:
    """One that has started nothing yet; its folder is ``folder``'s."""
    actor = ReplicaActor(token_hex(8), "m-0", tmp_path / "m-0.log", "127.0.0.1")
    yield actor
    await actor.stop()


async def test_a_started_server_has_answered_and_says_how_it_does(actor: ReplicaActor, tmp_path: Path) -> None:
    """A9: answering is what readiness means."""
    url = await actor.start(stub_endpoint(context_tokens=1234), "m", None)
    assert url is not None
    api = EngineApi(url)
    assert await api.answers("m", "generate")
    assert await api.context_tokens("m") == 1234
    assert await api.context_tokens("another") is None
    metrics = await api.metrics()
    assert metrics is not None
    assert (metrics.in_flight, metrics.hit_rate, metrics.kv_cache_used) == (0, 0.6, 0.25)
    assert await api.idle(5.0)
    with pytest.raises(ServingError, match="there is no model another"):
        await api.answers("another", "generate")


async def test_an_embedding_server_is_asked_for_an_embedding(actor: ReplicaActor) -> None:
    url = await actor.start(stub_endpoint(runner="pooling"), "m", None)
    assert url is not None
    assert await EngineApi(url).answers("m", "pooling")


async def test_a_server_that_ends_while_it_starts_is_an_error_with_its_last_lines(actor: ReplicaActor) -> None:
    with pytest.raises(ServingError, match=r"(?s)m-0 ended with code 1; .*CUDA out of memory"):
        await actor.start(stub_endpoint(env={"STUB_FAILS": "1"}), "m", None)


async def test_a_server_that_never_answers_is_an_error_after_its_time(actor: ReplicaActor) -> None:
    silent = stub_endpoint(command=["sleep", "600"], start_timeout_s=0.3)
    with pytest.raises(ServingError, match=r"gave no token within 0.3 s \(start_timeout_s\)"):
        # `sleep` takes flags for times and ends; a shell takes them for its positional parameters.
        await actor.start(silent.model_copy(update={"command": ("sh", "-c", "sleep 600")}), "m", None)


async def test_other_parts_of_a_wide_replica_answer_nobody(actor: ReplicaActor) -> None:
    host, port = await actor.address()
    shell = stub_endpoint(tensor_parallel=2, gpus=2, nodes=2, command=["sh", "-c", "sleep 600"])
    assert await actor.start(shell, "m", NodeRank(1, 2, host, port)) is None
    ending = asyncio.create_task(actor.ended())
    os.kill(await actor.pid(), signal.SIGKILL)
    assert (await ending).startswith("its server ended with code -9")


async def test_a_stopped_actor_leaves_no_process(tmp_path: Path) -> None:
    launch = token_hex(8)
    actor = ReplicaActor(launch, "m-0", tmp_path / "m-0.log", "127.0.0.1")
    await actor.start(stub_endpoint(), "m", None)
    await eventually(lambda: "engine runs" in (tmp_path / "m-0.log").read_text())
    await actor.stop()
    assert processes_in(work_folder(launch, "m-0")) == []
    assert (await actor.ended()).startswith("its server ended with code -15")


async def test_a_run_directory_that_is_not_there_leaves_the_log_on_the_node(tmp_path: Path) -> None:
    launch = token_hex(8)
    actor = ReplicaActor(launch, "m-0", tmp_path / "none" / "m-0.log", "127.0.0.1")
    with pytest.raises(ServingError, match=str(work_folder(launch, "m-0.log"))):
        await actor.start(stub_endpoint(env={"STUB_FAILS": "1"}), "m", None)
    await actor.stop()
    work_folder(launch, "m-0.log").unlink()


async def test_who_does_not_answer_tells_nothing() -> None:
    api = EngineApi("http://127.0.0.1:9")
    assert not await api.answers("m", "generate")
    assert await api.metrics() is None
    assert await api.context_tokens("m") is None
    with pytest.raises(ServingError, match="does not answer a question"):
        await api.thoughts({"model": "m"})
    assert await api.idle(1.0), "nothing is in flight where nobody is"


async def test_requests_in_flight_are_waited_for_within_a_bound(actor: ReplicaActor) -> None:
    url = await actor.start(stub_endpoint(env={"STUB_LATENCY_S": "1.0"}), "m", None)
    assert url is not None
    api = EngineApi(url)
    asked = asyncio.create_task(api.thoughts({"model": "m", "messages": []}))

    async def in_flight() -> bool:
        metrics = await api.metrics()
        assert metrics is not None
        return metrics.in_flight > 0

    await until_true(in_flight)
    assert not await api.idle(0.1)
    assert await api.idle(30.0)
    assert await asked == ""
