"""The scripted agent of ``credit_world`` behind HTTP, and ways in which a server of models is not well."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from chime_dist.adapters.models.credit_world_agent import CreditWorldAgent
from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.core.model_call import ChatRequest


class ServedModel:
    """``async with ServedModel() as model``: answers at ``model.url``."""

    def __init__(self) -> None:
        self.url = ""
        self.asked = 0
        """Requests so far."""
        self.refused = 0
        """How many of them were refused, or left without an answer."""
        self.hangs = range(0)
        """Numbers of requests (0-based) that get no answer."""
        self.refuses = range(0)
        """Numbers of requests that are told to come back later."""
        self.held = 0
        """How many wait for ``release``."""
        self._open = asyncio.Event()
        self._open.set()
        self._model = ScriptedBackbone(script=CreditWorldAgent())
        self._runner = web.AppRunner(self._app(), shutdown_timeout=0.01, handler_cancellation=True)

    async def __aenter__(self) -> ServedModel:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def hold(self) -> None:
        """Let every request of an episode wait; those of the bank's owner, behind which no lease stands, pass."""
        self._open.clear()

    def release(self) -> None:
        """Undo ``hold``."""
        self._open.set()

    def _app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        return app

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        number, self.asked = self.asked, self.asked + 1
        if number in self.hangs:
            self.refused += 1
            await asyncio.Event().wait()
        if number in self.refuses:
            self.refused += 1
            return web.json_response({"error": {"message": "slow down"}}, status=429)
        wanted = _request(body)
        if wanted.schema_name != "merge":
            await self._released()
        reply = await self._model.complete(wanted, 60.0)
        message = {"role": "assistant", "content": reply.text}
        usage = {"prompt_tokens": reply.usage.prompt_tokens, "completion_tokens": reply.usage.completion_tokens}
        choice = {"message": message, "finish_reason": reply.finish_reason}
        return web.json_response({"choices": [choice], "usage": usage})

    async def _released(self) -> None:
        self.held += 1
        try:
            await self._open.wait()
        finally:
            self.held -= 1


def _request(body: dict[str, Any]) -> ChatRequest:
    schema = body.get("response_format", {}).get("json_schema", {})
    return ChatRequest(
        messages=tuple(body["messages"]),
        response_schema=schema.get("schema"),
        schema_name=schema.get("name", "reply"),
        temperature=body["temperature"],
        max_tokens=body["max_tokens"],
        session_id="served",
    )
