"""A backbone without a model: every reply is a pure function of (seed, request).

It ships so that whole sweeps run deterministically, without network and in milliseconds per turn. What it says is
meaningless but well-formed: a response schema gets a valid instance, tools get valid calls, and all words come
from the request's last user message, so similar tasks get similar text. The session id is no part of the
function: a redelivered episode gets the same replies, whatever the timing or concurrency.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pydantic import Field, model_validator

from chime_dist.adapters.models.schema_instance import HashDraws, InstanceBuilder, SchemaError
from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import Json, Usage
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import ChatReply, ChatRequest, Message, ToolCall
from chime_dist.errors import BackboneError

Script = Callable[[ChatRequest], ChatReply | None]
"""Decides a reply itself, or returns None to leave it to the hash."""


class ScriptedSettings(Frozen):
    """How the double behaves."""

    seed: int = 0
    latency_s: tuple[float, float] = (0.0, 0.0)
    """Shortest and longest pretended latency in seconds; each request's own is drawn from its hash."""
    failure_rate: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of requests, chosen by hash, that fail for good each time they are asked."""
    tool_call_rate: float = Field(default=0.5, ge=0.0, le=1.0)
    """Share of requests with tools that are answered by a tool call rather than text."""

    @model_validator(mode="after")
    def _latency_is_a_range(self) -> ScriptedSettings:
        low, high = self.latency_s
        if not 0 <= low <= high:
            raise ValueError(f"latency_s is (shortest, longest) in seconds, got {self.latency_s}")
        return self


class ScriptedBackbone:
    """Implements ``ports.Backbone``. Reads no clock; ``sleep`` is used only where a latency is configured."""

    def __init__(
        self,
        settings: ScriptedSettings | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        script: Script | None = None,
    ) -> None:
        self._settings = settings or ScriptedSettings()
        self._sleep = sleep
        self._script = script

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """The one reply to ``request``; ``latency_s`` is the pretended one.

        Raises BackboneError ``budget`` where the pretended latency exceeds ``budget_s``, ``server_error`` for a
        request chosen by ``failure_rate``, and ``bad_request`` for a schema that is not understood.
        """
        identity = canonical_json(request.model_dump(exclude={"session_id"}))
        low, high = self._settings.latency_s
        latency_s = low + (high - low) * self._draws("latency", identity).unit()
        if high > 0:
            await self._sleep(min(latency_s, budget_s))
        if latency_s > budget_s or budget_s <= 0:
            raise BackboneError(f"no reply within the budget of {budget_s:.1f} s", "budget")
        if self._draws("failure", identity).unit() < self._settings.failure_rate:
            raise BackboneError("failure asked for by failure_rate", "server_error")
        scripted = self._script(request) if self._script is not None else None
        reply = scripted if scripted is not None else self._reply(request, identity)
        return reply.model_copy(update={"latency_s": latency_s})

    async def close(self) -> None:
        """Nothing is held."""

    def _reply(self, request: ChatRequest, identity: str) -> ChatReply:
        draws = self._draws("reply", identity)
        words = _last_user_words(request.messages)
        text = ""
        calls: tuple[ToolCall, ...] = ()
        try:
            if request.response_schema is not None:
                text = canonical_json(InstanceBuilder(request.response_schema, draws, words).build())
            elif request.tools and draws.unit() < self._settings.tool_call_rate:
                calls = (_tool_call(request.tools[draws.below(len(request.tools))], draws, words),)
            else:
                text = InstanceBuilder({}, draws, words).text()
        except SchemaError as error:
            raise BackboneError(str(error), "bad_request", 400) from None
        said = text or calls[0].raw
        asked = sum(len(_content(message).split()) for message in request.messages)
        return ChatReply(
            text=text,
            tool_calls=calls,
            finish_reason="tool_calls" if calls else "stop",
            usage=Usage(calls=1, requests=1, prompt_tokens=asked, completion_tokens=len(said.split())),
        )

    def _draws(self, purpose: str, identity: str) -> HashDraws:
        return HashDraws(f"{purpose}\n{self._settings.seed}\n{identity}".encode("utf-8", "surrogatepass"))


def _tool_call(tool: dict[str, Json], draws: HashDraws, words: list[str]) -> ToolCall:
    function = tool["function"]
    arguments = InstanceBuilder(function.get("parameters") or {"type": "object"}, draws, words).build()
    if not isinstance(arguments, dict):
        raise SchemaError(f"the parameters of tool {function['name']!r} do not describe an object")
    identity = f"call_{draws.below(2**48):012x}"
    return ToolCall(id=identity, name=function["name"], arguments=arguments, raw=canonical_json(arguments))


def _last_user_words(messages: tuple[Message, ...]) -> list[str]:
    asked = [message for message in messages if message.get("role") == "user"]
    return _content(asked[-1]).split() if asked else []


def _content(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
