"""What a replica is asked besides chats: whether it answers, how long its context is, how it does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import aiohttp

from chime_dist.adapters.vllm.metrics import EngineMetrics, read_metrics
from chime_dist.core.episode import Json
from chime_dist.errors import ServingError

ASK_S = 10.0
"""How long a server may take to say how it does, in seconds."""
FIRST_ANSWER_S = 300.0
"""How long its first token may take once it listens: kernels are compiled by it."""
_POLL_S = 0.2
_THOUGHT_MARKS = ("<think>", "</think>")
_UNREACHED = (aiohttp.ClientError, OSError, TimeoutError)


class EngineApi:
    """A vLLM server at ``url``, without a path. Each call has its own connection."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def answers(self, model: str, runner: str) -> bool:
        """Whether it completes a token, or embeds a word: healthy servers that do not answer exist (A9).

        Raises ServingError where it refuses for good, e.g. because the model is of the other kind.
        """
        path, body = (
            ("/v1/embeddings", {"input": ["hi"]})
            if runner == "pooling"
            else ("/v1/completions", {"prompt": "hi", "max_tokens": 1, "temperature": 0.0})
        )
        try:
            async with (
                _session(FIRST_ANSWER_S) as session,
                session.post(f"{self.url}{path}", json={"model": model, **body}) as response,
            ):
                if 400 <= response.status < 500 and response.status not in (408, 429):
                    raise ServingError(
                        f"{self.url}{path} refuses a request for {model!r}: {await response.text()}"
                    )
                return response.status == 200
        except _UNREACHED:
            return False

    async def first_answer(self, model: str, runner: str, timeout_s: float) -> float:
        """Wait for an answer; returns the seconds it took. Raises TimeoutError, or like ``answers``."""
        started = time.monotonic()
        async with asyncio.timeout(timeout_s):
            while True:
                if await self.answers(model, runner):
                    return time.monotonic() - started
                await asyncio.sleep(_POLL_S)

    async def metrics(self) -> EngineMetrics | None:
        """None where it does not tell."""
        try:
            async with _session(ASK_S) as session, session.get(f"{self.url}/metrics") as response:
                return read_metrics(await response.text()) if response.status == 200 else None
        except _UNREACHED:
            return None

    async def context_tokens(self, model: str) -> int | None:
        """Prompt and output together, as ``model`` is served; None where it does not tell."""
        try:
            async with _session(ASK_S) as session, session.get(f"{self.url}/v1/models") as response:
                return _context_of(await response.json(content_type=None), model)
        except (*_UNREACHED, ValueError):
            return None

    async def thoughts(self, body: Mapping[str, Json]) -> str:
        """What the model thinks before it answers this chat request, told apart or not; empty where it does not.

        Raises ServingError where the server does not answer.
        """
        try:
            async with (
                _session(FIRST_ANSWER_S) as session,
                session.post(f"{self.url}/v1/chat/completions", json=body) as response,
            ):
                if response.status != 200:
                    raise ServingError(
                        f"{self.url} answers a question with {response.status}: {await response.text()}"
                    )
                return _thoughts_of(await response.json(content_type=None))
        except (*_UNREACHED, ValueError) as error:
            raise ServingError(f"{self.url} does not answer a question: {type(error).__name__}") from error

    async def idle(self, timeout_s: float) -> bool:
        """Wait until no request is in flight; False where some are after ``timeout_s`` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    metrics = await self.metrics()
                    if metrics is None or not metrics.in_flight:
                        return True
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            return False


def _context_of(listed: Json, model: str) -> int | None:
    entries = listed.get("data") if isinstance(listed, Mapping) else None
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("id") == model:
            limit = entry.get("max_model_len")
            return limit if isinstance(limit, int) else None
    return None


def _thoughts_of(reply: Json) -> str:
    message = reply["choices"][0]["message"]
    apart = message.get("reasoning") or message.get("reasoning_content")
    text = message.get("content") or ""
    mixed = text if any(mark in text for mark in _THOUGHT_MARKS) else ""
    return str(apart or mixed)


def _session(timeout_s: float) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s))
