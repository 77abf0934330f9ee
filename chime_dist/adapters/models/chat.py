"""A backbone behind an OpenAI-compatible chat endpoint, over aiohttp.

One call is a loop of attempts under ``core.retry``: every attempt is one POST whose connecting, waiting and body
are under a single wall-clock timeout (a dripping server cannot stretch it, A7), and attempts plus waits stay
inside the caller's budget. Before each attempt the backbone's ``Pacer`` lets it in: its limits hold for all
callers together, and one 429 or 503 makes them all wait (A9). What a reply means is ``core.chat_reply``'s
business.

Prompts, replies and keys never enter a log event.
"""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

import aiohttp
import structlog

from chime_dist.adapters.json_post import open_session, posted
from chime_dist.adapters.local.pacer import LocalPacer
from chime_dist.adapters.models.chat_request import ChatSettings, request_body
from chime_dist.core.chat_reply import fitting_max_tokens, read_completion
from chime_dist.core.deadline import Deadline
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.core.pacing import PaceLimits, Pauses
from chime_dist.core.retry import Attempt, GiveUp
from chime_dist.core.text import whole_characters
from chime_dist.errors import BackboneError
from chime_dist.ports import Clock, Pacer

log = structlog.get_logger()

BYTES_PER_TOKEN = 4
"""What a prompt is thought to cost before the server has counted it; the difference is settled afterwards."""
_SLOW_DOWN = frozenset({429, 503, 529})
"""Statuses by which a server asks all of its callers to wait."""
_NO_WORK_DONE = frozenset({408, 429})
"""Statuses of 4xx that do not say that the server read the request and judged it."""
_LEFT_S = 60.0
"""How long after its timeout an attempt stops counting as in flight where nobody could say that it ended."""

_NO_ROOM = BackboneError(
    "a pause that it asked for, or its limits (cluster.endpoints), left no room within the call's budget:"
    " raise them, or lower cluster.slots",
    "rate_limited",
    retriable=True,
)


class ChatBackbone:
    """Implements ``ports.Backbone``.

    Connections are pooled per event loop, so one instance may be used from several; ``close`` releases those of
    the loop it runs on. ``uniform`` draws the retry jitter from [0, 1). ``pacer`` is shared by all that call this
    backbone; None keeps a slow-down among the callers of this object.
    """

    def __init__(
        self,
        settings: ChatSettings,
        clock: Clock,
        uniform: Callable[[], float] = random.random,
        pacer: Pacer | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._uniform = uniform
        self._pacer = pacer or LocalPacer(clock, PaceLimits(), Pauses.beside(settings.retry))
        self._url = f"{settings.base_url}/chat/completions"
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """One completion within ``budget_s`` seconds, retries and waits included (R37).

        A prompt that fits while prompt plus output limit does not is asked once more with a smaller limit (A6).

        Raises BackboneError. Its code is ``budget`` where the budget ended before anything failed (the model
        was still working), else that of the last failure: so a caller can tell a slow agent from a broken
        endpoint. It is ``rate_limited`` where the backbone's limits left no room in time.
        """
        call = _Call(self._settings, request, Deadline.after(budget_s, self._clock.monotonic))
        while True:
            attempt = await self._let_in(call)
            try:
                reply = await self._attempt(call, attempt)
            except BackboneError as error:
                await self._recover(call, attempt, error)
            else:
                return self._replied(call, reply)

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None and here.session is not None:
            await here.session.close()

    async def _let_in(self, call: _Call) -> Attempt:
        """Wait until the backbone's pace lets the call's next attempt in; raises where the budget ends first.

        Callers ask in order, so that only the first of them polls.
        """
        try:
            tokens = call.thought_tokens()
        except BackboneError as error:
            raise self._failed(call, error, "not_retriable") from None
        if not call.paced:
            return self._next(call)
        try:
            async with asyncio.timeout(call.deadline.remaining_s), self._here().turnstile:
                while True:
                    attempt = self._next(call)
                    try:
                        wait_s = await self._pacer.enter(call.flight, tokens, attempt.timeout_s + _LEFT_S)
                    except asyncio.CancelledError:
                        # The word that it is in may have been on its way.
                        await self._leave(call, -tokens, None, answered=False)
                        raise
                    if wait_s <= 0:
                        return attempt
                    if wait_s >= call.deadline.remaining_s:
                        raise TimeoutError
                    await self._clock.sleep(wait_s)
        except TimeoutError:
            raise self._failed(call, call.last_error or _NO_ROOM, "budget_spent") from None

    def _next(self, call: _Call) -> Attempt:
        attempt = self._settings.retry.attempt(call.deadline.remaining_s)
        if isinstance(attempt, GiveUp):
            raise self._failed(call, call.budget_error(), attempt.reason)
        return attempt

    async def _recover(self, call: _Call, attempt: Attempt, error: BackboneError) -> None:
        """Prepare the next attempt after ``error``, or raise."""
        if attempt.bounded_by_budget and error.code == "timeout" and error.status is None:
            raise self._failed(call, call.budget_error(), "budget_spent") from None
        if error.code == "context_overflow" and call.shrink(error.message):
            log.warning("backbone.output_limit_lowered", **call.labels, max_tokens=call.max_tokens)
            return
        call.failures += 1
        call.last_error = error
        then = self._settings.retry.after_failure(
            call.failures,
            retriable=error.retriable,
            retry_after_s=error.retry_after_s,
            remaining_s=call.deadline.remaining_s,
            u=self._uniform(),
        )
        if isinstance(then, GiveUp):
            raise self._failed(call, error, then.reason) from None
        log.warning(
            "backbone.retrying",
            **call.labels,
            code=error.code,
            status=error.status,
            requests=call.requests,
            wait_s=round(then.seconds, 3),
        )
        await self._clock.sleep(then.seconds)

    async def _attempt(self, call: _Call, attempt: Attempt) -> ChatReply:
        """One request of a call that was let in."""
        beyond, slow_down, answered = 0, None, False
        try:
            reply = await self._post(call, attempt)
            answered = True
            beyond = reply.usage.prompt_tokens + reply.usage.completion_tokens - call.thought_tokens()
            return reply
        except BackboneError as error:
            if error.status is not None:
                beyond = -call.thought_tokens()
                answered = error.status // 100 in (2, 4) and error.status not in _NO_WORK_DONE
            if error.status in _SLOW_DOWN:
                slow_down = error.retry_after_s or 0.0
                log.warning("backbone.slowed_down", **call.labels, status=error.status, asked_s=slow_down)
            raise
        finally:
            if call.paced:
                await self._leave(call, beyond, slow_down, answered=answered)

    async def _leave(self, call: _Call, beyond: int, slow_down: float | None, *, answered: bool) -> None:
        await self._pacer.leave(call.flight, beyond, slow_down, answered=answered)
        call.flight = uuid.uuid4().hex

    async def _post(self, call: _Call, attempt: Attempt) -> ChatReply:
        body = call.body()
        call.requests += 1
        content = await posted(
            self._session(),
            self._url,
            body,
            timeout_s=attempt.timeout_s,
            most_bytes=self._settings.max_response_bytes,
            now=self._clock.now,
            headers=call.headers,
        )
        return read_completion(content, reasoning_is_text=self._settings.reasoning_is_text)

    def _session(self) -> aiohttp.ClientSession:
        here = self._here()
        if here.session is None or here.session.closed:
            settings = self._settings
            here.session = open_session(
                settings.api_key,
                settings.headers,
                connect_timeout_s=settings.connect_timeout_s,
                trust_env=settings.trust_env,
                connector=aiohttp.TCPConnector(
                    limit=settings.max_connections, keepalive_timeout=settings.keep_alive_s
                ),
            )
        return here.session

    def _here(self) -> _Loop:
        return self._loops.setdefault(asyncio.get_running_loop(), _Loop())

    def _replied(self, call: _Call, reply: ChatReply) -> ChatReply:
        latency_s = self._clock.monotonic() - call.started_at
        usage = reply.usage.model_copy(update={"requests": call.requests})
        log.debug(
            "backbone.replied",
            **call.labels,
            finish_reason=reply.finish_reason,
            latency_s=round(latency_s, 3),
            **usage.model_dump(exclude={"calls"}),
        )
        return reply.model_copy(update={"usage": usage, "latency_s": latency_s})

    def _failed(self, call: _Call, error: BackboneError, reason: str) -> BackboneError:
        """``error`` with the story of the whole call, secrets removed; also logged."""
        latency_s = self._clock.monotonic() - call.started_at
        log.warning(
            "backbone.failed",
            **call.labels,
            code=error.code,
            status=error.status,
            reason=reason,
            requests=call.requests,
            latency_s=round(latency_s, 3),
        )
        tried = f"{call.requests} request{'' if call.requests == 1 else 's'} in {latency_s:.1f} s"
        message = f"backbone {self._settings.name!r}: {error.message} ({tried})"
        for secret in self._settings.secrets:
            message = message.replace(secret, "***")
        return BackboneError(message, error.code, error.status, error.retriable, error.retry_after_s)


@dataclass(slots=True)
class _Loop:
    """What belongs to one event loop."""

    session: aiohttp.ClientSession | None = None
    turnstile: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Call:
    """What one ``complete`` remembers between its attempts."""

    def __init__(self, settings: ChatSettings, request: ChatRequest, deadline: Deadline) -> None:
        self.deadline = deadline
        self.started_at = deadline.monotonic()
        self.budget_s = deadline.remaining_s
        self.requests = 0
        self.failures = 0
        self.last_error: BackboneError | None = None
        limits = [limit for limit in (request.max_tokens, settings.max_output_tokens) if limit is not None]
        self.max_tokens = min(limits, default=None)
        self.labels: dict[str, Any] = {"backbone": settings.name, "session": request.session_id}
        self.headers = {"x-session-id": quote(request.session_id, safe=":/")}
        self.paced = request.paced
        self.flight = uuid.uuid4().hex
        """Names the next attempt, or the one in flight, to the pacer."""
        self._settings = settings
        self._request = request
        self._shrunk = False
        self._body: bytes | None = None

    def body(self) -> bytes:
        """The request's bytes; raises BackboneError where it holds what JSON cannot."""
        if self._body is None:
            try:
                body = request_body(self._settings, self._request, self.max_tokens)
                text = json.dumps(body, ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise BackboneError(f"the request cannot be written as JSON: {error}", "bad_request") from None
            self._body = whole_characters(text).encode()
        return self._body

    def thought_tokens(self) -> int:
        """What the prompt is thought to cost before the server has counted it; raises like ``body``."""
        return len(self.body()) // BYTES_PER_TOKEN

    def shrink(self, sentence: str) -> bool:
        """Lower the output limit to what an overflow's sentence leaves room for; at most once."""
        if self._shrunk or self.max_tokens is None:
            return False
        smaller = fitting_max_tokens(sentence, self.max_tokens)
        if smaller is None:
            return False
        self.max_tokens, self._shrunk, self._body = smaller, True, None
        return True

    def budget_error(self) -> BackboneError:
        """Why the call ends with its budget: the last failure, or that none came."""
        return self.last_error or BackboneError(f"no reply within the budget of {self.budget_s:.1f} s", "budget")
