"""What a launch says it spent is what its servers counted: episodes, merges at commits, and embeddings."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp import web

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.embedding.hashing import hashed_vector
from chime_dist.adapters.models.credit_world_agent import CreditWorldAgent
from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.core.episode import Usage
from chime_dist.core.model_call import ChatRequest
from chime_dist.core.spending import Payer, Spent
from chime_dist.wiring.following import spent_so_far
from chime_dist.wiring.results import launch_report
from tests.integration.processes import finish, kill_tree, launch_below, start, wait_for_rows
from tests.spec.sweeps import launched

SWEEP = """\
name: counted
benchmarks: [{name: credit_world, families: 2, tasks_per_family: 10, steps: 1, action_mode: json_schema}]
methods: [chime]
backbones: [m]
orderings: [0]
embedder: EMBEDDER
protocol: {epochs: 2, window: 4}
cluster:
  slots: 4
  endpoints:
    m: {kind: http, url: URL, price: {input: 1.0, output: 2.0}}
    embedder: {kind: http, url: URL, price: {input: 0.5, output: 0.0}}
"""
DIM = 64
PROBES = {"probe", "doctor"}
"""Sessions and texts by which a launch finds out whether a model answers; they are in no books."""


@dataclass
class CountingServer:
    """``async with CountingServer() as server``: the agent of credit_world and an embedder, who write down what
    they answered, probes left out."""

    url: str = ""
    asked: Usage = field(default_factory=Usage)
    """Of all chats."""
    merged: Usage = field(default_factory=Usage)
    """Of those that commits asked for."""
    read: int = 0
    """Tokens of texts that were embedded."""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/embeddings", self._embed)
        self._model = ScriptedBackbone(script=CreditWorldAgent())
        self._runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        schema = body.get("response_format", {}).get("json_schema", {})
        wanted = ChatRequest(
            messages=tuple(body["messages"]),
            response_schema=schema.get("schema"),
            schema_name=schema.get("name", "reply"),
            temperature=body.get("temperature"),
            max_tokens=body["max_tokens"],
            session_id="any",
        )
        reply = await self._model.complete(wanted, 60.0)
        told = {"prompt_tokens": reply.usage.prompt_tokens, "completion_tokens": reply.usage.completion_tokens}
        session = request.headers["x-session-id"]
        if session.partition(":")[0] not in PROBES:
            usage = Usage(calls=1, requests=1, **told)
            self.asked += usage
            self.merged += usage if session.startswith("merge:") else Usage()
        choice = {"message": {"role": "assistant", "content": reply.text}, "finish_reason": reply.finish_reason}
        return web.json_response({"choices": [choice], "usage": told})

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        texts = (await request.json())["input"]
        tokens = sum(len(text.split()) for text in texts)
        if texts[0] not in PROBES:
            self.read += tokens
        data: list[dict[str, Any]] = [
            {"index": index, "embedding": hashed_vector(text, DIM).array.tolist()}
            for index, text in enumerate(texts)
        ]
        return web.json_response({"data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})


def text_for(server: CountingServer, embedder: str) -> str:
    """The sweep on this server."""
    return SWEEP.replace("URL", server.url).replace("EMBEDDER", embedder)


def of_chats(spent: Spent) -> Usage:
    """What the backbone answered."""
    return sum((used for who, used in spent.usage.items() if who.endpoint == "m"), Usage())


async def test_books_and_report_are_what_the_servers_counted(tmp_path: Path) -> None:
    async with CountingServer() as server:
        launch = await launched(tmp_path, text_for(server, f"{{kind: http, model: e, dim: {DIM}}}"))
        spent, report = spent_so_far(launch), launch_report(launch)
        assert of_chats(spent) == server.asked
        embedded = {who.purpose: used for who, used in spent.usage.items() if who.endpoint == "embedder"}
        assert sum(used.prompt_tokens for used in embedded.values()) == server.read
        assert embedded.keys() == {"episodes", "commits"}
        assert spent.usage[Payer("m", "gate", "commits")] == server.merged
        assert server.merged.calls > 0
        assert report.total.usage == sum(spent.usage.values(), Usage())
        tokens = server.asked.prompt_tokens + 2 * server.asked.completion_tokens + 0.5 * server.read
        assert report.total.cost == pytest.approx(tokens / 1_000_000)
        [row] = report.rows
        assert sum(cost.cost or 0.0 for _, cost in row.spending) == pytest.approx(report.total.cost)


@pytest.mark.slow
async def test_what_a_killed_launch_spent_is_neither_lost_nor_doubled(tmp_path: Path) -> None:
    """C1: kill -9 and resume. The books are those of a launch that nobody disturbed, to the token: what was
    answered again is in the rows and the journal once. Beyond them the server has what nothing came of."""
    embedder = f"{{kind: hashing, dim: {DIM}}}"
    async with CountingServer() as calm:
        undisturbed = of_chats(spent_so_far(await launched(tmp_path / "calm", text_for(calm, embedder))))
        assert undisturbed == calm.asked
    async with CountingServer() as server:
        places = "  runs_dir: runs\n  state_dir: state\n"
        (tmp_path / "sweep.yaml").write_text(text_for(server, embedder) + places)
        process = await asyncio.to_thread(start, ["sweep", "sweep.yaml"], tmp_path)
        await asyncio.to_thread(wait_for_rows, process, tmp_path / "runs", 12)
        await asyncio.to_thread(kill_tree, process)
        launch = launch_below(tmp_path / "runs")
        process = await asyncio.to_thread(start, ["resume", str(launch)], tmp_path)
        assert await asyncio.to_thread(finish, process, tmp_path) == 0, (tmp_path / "output.txt").read_text()
    spent = spent_so_far(LaunchDirectory.open(launch))
    assert of_chats(spent) == undisturbed
    assert server.asked.calls >= undisturbed.calls
    assert launch_report(LaunchDirectory.open(launch)).total.usage == sum(spent.usage.values(), Usage())
