"""A model double that uses a memory: it writes down all that a user says, and reads all of it out when asked."""

from __future__ import annotations

import json
from collections.abc import Sequence

from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.episode import Json, Usage
from chime_dist.core.model_call import ChatReply, ChatRequest, Message, ToolCall, Turn
from chime_dist.ports import Ask

EXECUTOR = "You are the executor."
"""In every method's own words to the executor; nowhere in a session."""


def call(name: str, arguments: dict[str, Json]) -> ToolCall:
    """A well-formed call."""
    return ToolCall(id="call_0", name=name, arguments=arguments, raw=json.dumps(arguments))


def said(reply: ChatReply, asked: list[Turn] | None = None) -> Ask:
    """A model that always says the same."""

    async def ask(turn: Turn) -> ChatReply:
        if asked is not None:
            asked.append(turn)
        return reply

    return ask


async def diligent(turn: Turn) -> ChatReply:
    """``ports.Ask`` of a session: every turn of the user is written down."""
    return _reply([*turn.conversation, *turn.history], native=bool(turn.tools))


def remembering(request: ChatRequest) -> ChatReply | None:
    """``adapters.models.scripted.Script``: the same in a launch, and the questions; other roles are left out."""
    native = bool(request.tools)
    if not native and request.schema_name != "action":
        return None
    return _reply(request.messages, native)


def _reply(messages: Sequence[Message], native: bool) -> ChatReply:
    text, calls = _decided(messages)
    usage = Usage(calls=1, requests=1)
    if native:
        return ChatReply(text=text, tool_calls=calls, finish_reason="tool_calls" if calls else "stop", usage=usage)
    plain = [{"name": made.name, "arguments": made.arguments} for made in calls]
    return ChatReply(text=canonical_json({"calls": plain, "answer": text or "Wait."}), usage=usage)


def _decided(messages: Sequence[Message]) -> tuple[str, tuple[ToolCall, ...]]:
    last = str(messages[-1]["content"])
    answers = _answers(messages)
    if not any(EXECUTOR in str(message["content"]) for message in messages):
        if answers:
            return "Noted.", ()
        return "", (call("archival_memory_add", {"key": f"note_{sha256_hex(last)[:16]}", "value": last}),)
    if not answers:
        return "", (call("archival_memory_list_keys", {}),)
    if keys := [key for answer in answers for key in answer.get("keys", ())]:
        return "", tuple(call("archival_memory_retrieve", {"key": key}) for key in keys)
    return " ".join(answer.get("value", "") for answer in answers) or "Nothing is known.", ()


def _answers(messages: Sequence[Message]) -> list[dict[str, Json]]:
    """What tools answered since the model spoke last; without tool calling the user says it, a line for each."""
    found: list[str] = []
    for message in reversed(messages):
        content = str(message["content"])
        if message["role"] == "tool":
            found.insert(0, content)
        elif message["role"] == "user" and content.startswith("archival_memory_"):
            found = [line.partition(": ")[2] for line in content.split("\n")]
        elif message["role"] == "assistant":
            break
    return [json.loads(text) for text in found]
