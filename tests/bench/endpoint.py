"""A chat endpoint in a process of its own that answers every request after a given time, and its bare client.

As a program (``python -m tests.bench.endpoint SECONDS SIGMA``) it prints its URL and serves until its input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import numpy as np
from aiohttp import web

from chime_dist.core.frozen import Frozen
from tests.bench.canned import canned_completion

_SAMPLED = 100
"""Bodies among which the largest is kept."""


class Seen(Frozen):
    """What an endpoint was asked so far."""

    calls: int
    largest: str
    """The largest of the first bodies."""
    seconds: dict[str, float]
    """How long the calls of each session took together, by the endpoint's own draw."""


@dataclass(frozen=True, slots=True)
class Served:
    """A running endpoint."""

    url: str
    """The base URL, with the version."""

    async def seen(self) -> Seen:
        """What it was asked so far."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/seen") as response:
            return Seen.model_validate_json(await response.read())


@asynccontextmanager
async def endpoint(latency_s: float, sigma: float = 0.0) -> AsyncIterator[Served]:
    """Start the endpoint. A session's calls all take ``latency_s``, or with ``sigma`` a lognormal time that
    follows from the session's id and has that mean."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.endpoint",
        str(latency_s),
        str(sigma),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Served((await process.stdout.readline()).decode().strip())
    finally:
        process.stdin.close()
        await process.wait()


async def bare_calls(url: str, body: bytes, calls: int, in_flight: int) -> None:
    """The floor: ``calls`` equal requests by ``in_flight`` loops that do nothing but ask and parse."""
    left = iter(range(calls))
    headers = {"Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def loop() -> None:
            for _ in left:
                async with session.post(f"{url}/chat/completions", data=body, headers=headers) as response:
                    json.loads(await response.read())

        await asyncio.gather(*(loop() for _ in range(in_flight)))


def lognormal(session: str, mean: float, sigma: float) -> float:
    """A draw that follows from the session's id."""
    generator = np.random.default_rng(list(session.encode()))
    return float(mean * np.exp(sigma * generator.standard_normal() - sigma**2 / 2))


class _Endpoint:
    def __init__(self, latency_s: float, sigma: float) -> None:
        self._latency_s = latency_s
        self._sigma = sigma
        self._calls = 0
        self._largest = b""
        self._seconds: defaultdict[str, float] = defaultdict(float)

    async def complete(self, request: web.Request) -> web.Response:
        data = await request.read()
        self._calls += 1
        if self._calls <= _SAMPLED:
            self._largest = max(self._largest, data, key=len)
        seconds = self._latency_s
        if self._sigma:
            session = request.headers["x-session-id"]
            seconds = lognormal(session, self._latency_s, self._sigma)
            self._seconds[session] += seconds
        await asyncio.sleep(seconds)
        return web.json_response(canned_completion(json.loads(data)))

    async def seen(self, request: web.Request) -> web.Response:
        told = Seen(calls=self._calls, largest=self._largest.decode(), seconds=dict(self._seconds))
        return web.json_response(text=told.model_dump_json())


async def _serve(latency_s: float, sigma: float) -> None:
    served = _Endpoint(latency_s, sigma)
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", served.complete)
    app.router.add_get("/v1/seen", served.seen)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=3600)
    await runner.setup()
    # The backlog takes a thousand connections at once; the default of 128 would delay the others by a second.
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    host, port = runner.addresses[0][:2]
    sys.stdout.write(f"http://{host}:{port}/v1\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]), float(sys.argv[2])))
