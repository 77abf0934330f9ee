"""A chat endpoint that misbehaves on request: it delays, drips, cuts, refuses and lies.

Replies are taken from a list in order; the last one is repeated. Everything received is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

Behaviour = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def completion(text: str | None = "ok", finish: str = "stop", **message: Any) -> dict[str, Any]:
    """A well-formed reply body."""
    return {
        "choices": [{"message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }


def answers(body: Any = None, status: int = 200, **headers: str) -> Behaviour:
    """A JSON reply; header names are given with underscores."""

    async def behave(request: web.Request, payload: dict[str, Any]) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(completion() if body is None else body, status=status, headers=named)

    return behave


def answers_together(parties: int) -> Behaviour:
    """Answers nobody until ``parties`` requests are in flight at once."""
    barrier = asyncio.Barrier(parties)

    async def behave(request: web.Request, payload: dict[str, Any]) -> web.StreamResponse:
        await barrier.wait()
        return web.json_response(completion())

    return behave


def text(body: str, content_type: str = "text/html", status: int = 200, **headers: str) -> Behaviour:
    """A reply that is not JSON."""

    async def behave(request: web.Request, payload: dict[str, Any]) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(text=body, content_type=content_type, status=status, headers=named)

    return behave


def hangs() -> Behaviour:
    """Reads the request and never answers."""

    async def behave(request: web.Request, payload: dict[str, Any]) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return behave


def drips(interval_s: float, times: int) -> Behaviour:
    """Status 200 at once, then one space every ``interval_s``, then a good body (A7)."""

    async def behave(request: web.Request, payload: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(times):
            await asyncio.sleep(interval_s)
            await response.write(b" ")
        await response.write(json.dumps(completion()).encode())
        return response

    return behave


def sends_raw(*pieces: bytes) -> Behaviour:
    """Writes bytes to the connection as they are, then closes it."""

    async def behave(request: web.Request, payload: dict[str, Any]) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        for piece in pieces:
            transport.write(piece)
        transport.close()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return behave


def refuses_broken_histories(first: dict[str, Any]) -> Behaviour:
    """``first`` for a history without an answer; then 400 while any sent arguments are not valid JSON (A1)."""

    async def behave(request: web.Request, payload: dict[str, Any]) -> web.StreamResponse:
        said = [m for m in payload["messages"] if m["role"] == "assistant"]
        if not said:
            return web.json_response(first)
        for call in (c for m in said for c in m.get("tool_calls", [])):
            try:
                json.loads(call["function"]["arguments"])
            except ValueError:
                return web.json_response({"error": {"message": "invalid tool arguments"}}, status=400)
        return web.json_response(completion("second turn"))

    return behave


def has_context_limit(limit: int, prompt_tokens: int, status: int = 400) -> Behaviour:
    """Refuses what does not fit into ``limit`` tokens with the usual sentence (A6)."""

    async def behave(request: web.Request, payload: dict[str, Any]) -> web.StreamResponse:
        wanted = payload["max_tokens"]
        if prompt_tokens + wanted <= limit:
            return web.json_response(completion("fits"))
        sentence = (
            f"This model's maximum context length is {limit} tokens. However, you requested "
            f"{prompt_tokens + wanted} tokens ({prompt_tokens} in the messages, {wanted} in the completion)."
        )
        return web.json_response({"error": {"message": sentence, "code": status}}, status=status)

    return behave


@dataclass(slots=True)
class Received:
    """One request as it came in."""

    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(slots=True)
class StubServer:
    """``async with StubServer([...]) as server``: listens on a free loopback port."""

    behaviours: list[Behaviour]
    port: int = 0
    """0 picks a free one."""
    received: list[Received] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the first request."""
    url: str = ""
    in_flight: int = 0
    most_in_flight: int = 0
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        payload = json.loads(await request.read())
        self.received.append(Received(dict(request.headers), payload))
        self.reached.set()
        behaviour = self.behaviours[min(len(self.received), len(self.behaviours)) - 1]
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await behaviour(request, payload)
        finally:
            self.in_flight -= 1
