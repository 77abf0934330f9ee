"""What a chat completion's HTTP reply means: a usable ``ChatReply`` or a classified ``BackboneError``.

Pure reading of the OpenAI-compatible wire format as servers really speak it: several spell errors, reasoning and
finish reasons their own way, and a 200 may hold no completion at all (A4). The history-safe form of a reply lives
here too, because it answers the same question for the next turn: what may be sent back (A1). Half an emoji, which
servers do send, has no UTF-8: it becomes U+FFFD here, so that all that is made of a reply can be sent and stored.
"""

from __future__ import annotations

import json
import re
from typing import Any

from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import Json, Usage
from chime_dist.core.model_call import ChatReply, Message, ToolCall
from chime_dist.core.retry import retriable_status
from chime_dist.core.text import whole_characters
from chime_dist.core.tool_arguments import read_arguments
from chime_dist.errors import BackboneError

EXCERPT_CHARACTERS = 300
"""Longest piece of a server's reply that enters an error message."""

_READ_BYTES = 10_000
"""How much of a reply that is not JSON is searched for a reason."""

_MOST_TOKENS = 10**8
"""More is no count of one reply's, and would be held against a backbone's allowance for days."""

_FINISH_REASONS = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
}
_BROKEN_OFF = frozenset({"abort", "aborted", "error", "cancelled", "insufficient_system_resource"})
"""Finish reasons by which a server says that the text is not what the model would have said."""

_OVERFLOW_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"})
_OVERFLOW_SENTENCE = re.compile(
    r"""maximum\ context\ length
      | context\ (?:length|size|window).{0,80}\ exceed | exceed\w*\ .{0,80}context\ (?:length|size|window)
      | context\ length\ is\ only
      | longer\ than\ the\ (?:maximum\ model|model's\ context)\ length
      | (?:prompt|input)\ (?:\(.{0,40}\)\ )?is\ too\ long
      | range\ of\ input\ length\ should\ be
      | max_(?:completion_)?tokens\ must\ be\ at\ least\ 1,\ got\ -
      | `inputs`\ (?:tokens\ \+\ `max_new_tokens`\ must\ be|must\ have\ less\ than)
      | is\ too\ large\ to\ process""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_NO_QUOTA = re.compile(r"insufficient[_ ](?:quota|balance)|exceeded your current quota|arrearage", re.IGNORECASE)
_CONTEXT_LIMIT = re.compile(r"context length is (?:only )?(\d+)", re.IGNORECASE)
_PROMPT_TOKENS = re.compile(
    r"(at least )?(\d+) (?:input tokens|tokens? in the (?:messages|input|prompt)|in the messages)", re.IGNORECASE
)
_THOUGHT_OPENS, _THOUGHT_ENDS = "<think>", "</think>"


def read_completion(body: bytes, *, reasoning_is_text: bool = False) -> ChatReply:
    """Read the body of a reply with status 200. ``usage.requests`` and ``latency_s`` are the caller's to fill.

    Only a missing completion is an error; a completion with neither text nor tool calls is a reply (the agent's
    empty output). Reasoning is not the answer: where a model fills only its reasoning field the text stays
    empty, unless ``reasoning_is_text``.

    Raises BackboneError ``empty_completion`` (retriable) where there is no usable choice, and
    ``context_overflow`` where an error object under 200 says so.
    """
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        raise _empty("the reply is not JSON", body) from None
    if not isinstance(payload, dict):
        raise _empty("the reply is not a JSON object", body)
    choices = payload.get("choices")
    if not isinstance(choices, list) or not choices:
        if payload.get("error") and _is_overflow(*_error_words(payload)):
            raise classify_failure(200, body)
        raise _empty("the reply holds no choice", body)
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise _empty("the reply's first choice holds no message", body)
    finish = choice.get("finish_reason")
    if finish in _BROKEN_OFF:
        raise _empty(f"the server broke the completion off (finish_reason {finish})", body)
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise _empty("the reply's tool_calls are not a list", body)
    return ChatReply(
        text=_visible_text(message, reasoning_is_text),
        tool_calls=tuple(_tool_calls(calls or [])),
        finish_reason=_FINISH_REASONS.get(finish, "stop") if isinstance(finish, str) else "stop",
        usage=usage_of(payload),
    )


def classify_failure(status: int, body: bytes, retry_after_s: float | None = None) -> BackboneError:
    """The error that a reply with any other status means, by status, code and message (A6).

    A context overflow is recognised by its sentence, under 400 as under 500, and is never retriable; a spent
    quota under 429 is not retriable either.
    """
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        payload = None
    code, message = _error_words(payload) if isinstance(payload, dict) else ("", "")
    words = message or body[:_READ_BYTES].decode("utf-8", "replace")
    excerpt = _excerpt(words) or "no explanation"

    def error(kind: str, *, retriable: bool) -> BackboneError:
        return BackboneError(excerpt, kind, status, retriable, retry_after_s)

    if status != 429 and _is_overflow(code, words):
        return error("context_overflow", retriable=False)
    if status in (401, 402, 403) or (status == 429 and _NO_QUOTA.search(f"{code} {words}")):
        return error("auth", retriable=False)
    if status == 429:
        return error("rate_limited", retriable=True)
    if status == 408:
        return error("timeout", retriable=True)
    if retriable_status(status):
        return error("server_error", retriable=True)
    return error("bad_request", retriable=False)


def fitting_max_tokens(message: str, requested: int) -> int | None:
    """A smaller output limit with which the same prompt may fit, read from an overflow's sentence (A6).

    None where the sentence holds no figures, or where the prompt alone leaves less than an eighth of
    ``requested``: then only a shorter history helps. Servers that stop counting the prompt at the limit say
    "at least N input tokens"; a quarter of ``requested`` is offered for those.
    """
    limit, prompt = _CONTEXT_LIMIT.search(message), _PROMPT_TOKENS.search(message)
    if limit is None or prompt is None:
        return None
    room = int(limit[1]) - int(prompt[2])
    fitting = min(room, requested // 4) if prompt[1] else room
    return fitting if requested / 8 <= fitting < requested and fitting >= 1 else None


def tokens_too_many(message: str, output_tokens: int) -> int | None:
    """By how many tokens a prompt must shrink for its output to have room, read from an overflow's sentence (R36).

    Room is ``output_tokens``, or a quarter of the context where that is less. None where the sentence holds no
    figures, or only says "at least".
    """
    limit, prompt = _CONTEXT_LIMIT.search(message), _PROMPT_TOKENS.search(message)
    if limit is None or prompt is None or prompt[1]:
        return None
    context = int(limit[1])
    return max(1, int(prompt[2]) + min(output_tokens, context // 4) - context)


def assistant_message(reply: ChatReply) -> Message:
    """The reply as it may stand in a history: arguments are always valid JSON, names never empty (A1).

    Arguments that could not be read are sent as ``{}``; their raw text stays in ``ToolCall.raw`` for the trace.
    """
    message: Message = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name or "unnamed", "arguments": canonical_json(call.arguments or {})},
            }
            for call in reply.tool_calls
        ]
    return message


def _visible_text(message: dict[str, Json], reasoning_is_text: bool) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    text = content if isinstance(content, str) else ""
    thought, text = _thought_apart(text)
    if not text and isinstance(message.get("refusal"), str):
        text = message["refusal"]
    if not text and reasoning_is_text:
        named = (message.get("reasoning_content"), message.get("reasoning"), thought)
        text = next((words for words in named if isinstance(words, str) and words), "")
    return whole_characters(text)


def _thought_apart(text: str) -> tuple[str, str]:
    """(the thought that a text begins with, the rest). One that is never closed takes all of it.

    Many chat templates open the thought at the end of the prompt, so that a reply only closes it. Where a reply
    begins as JSON, the mark is a part of some string in it.
    """
    start = text.lstrip()
    before, ends, after = start.removeprefix(_THOUGHT_OPENS).partition(_THOUGHT_ENDS)
    opens = start.startswith(_THOUGHT_OPENS)
    if opens or (ends and _THOUGHT_OPENS not in before and not start.startswith(("{", "["))):
        return before.strip(), after.lstrip()
    return "", text


def _tool_calls(received: list[Any]) -> list[ToolCall]:
    calls: list[ToolCall] = []
    taken: set[str] = set()
    for index, item in enumerate(received):
        call = item if isinstance(item, dict) else {}
        function = call.get("function")
        if not isinstance(function, dict):
            function = {}
        arguments = read_arguments(function.get("arguments"))
        name, identity = function.get("name"), call.get("id")
        usable_name = isinstance(name, str) and bool(name.strip())
        identity = whole_characters(identity) if isinstance(identity, str) and identity else f"call_{index}"
        while identity in taken:
            identity += "_"
        taken.add(identity)
        calls.append(
            ToolCall(
                id=identity,
                name=whole_characters(name) if isinstance(name, str) and usable_name else "",
                arguments=arguments.value if usable_name else None,
                raw=arguments.raw,
                error=arguments.error if usable_name else "the tool call names no tool",
            )
        )
    return calls


def usage_of(payload: dict[str, Json]) -> Usage:
    """What the body of a reply tells of one call's tokens; 0 of what it does not tell, or tells as no count."""
    received = payload.get("usage")
    if not isinstance(received, dict):
        return Usage(calls=1)
    details = received.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        calls=1,
        prompt_tokens=_count(received.get("prompt_tokens")),
        completion_tokens=_count(received.get("completion_tokens")),
        cached_tokens=_count(cached) or _count(received.get("prompt_cache_hit_tokens")),
    )


def _count(value: Json) -> int:
    counted = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return value if counted else 0


def _error_words(payload: dict[str, Json]) -> tuple[str, str]:
    """(code and type, message) of an error body in any of the spellings in use; empty where absent."""
    source = payload.get("error")
    if isinstance(source, str):
        return "", source
    if not isinstance(source, dict):
        source = payload
    message = source.get("message") or source.get("detail") or ""
    if isinstance(message, list):
        # Validation errors repeat the offending input, which is a prompt: only their sentences are taken.
        message = "; ".join(str(item.get("msg", "")) for item in message if isinstance(item, dict))
    return f"{source.get('code', '')} {source.get('type', '')}", str(message)


def _is_overflow(code: str, message: str) -> bool:
    return not _OVERFLOW_CODES.isdisjoint(code.split()) or _OVERFLOW_SENTENCE.search(message) is not None


def _empty(reason: str, body: bytes) -> BackboneError:
    excerpt = _excerpt(body[: 4 * EXCERPT_CHARACTERS].decode("utf-8", "replace"))
    return BackboneError(f"{reason}: {excerpt or 'empty body'}", "empty_completion", 200, retriable=True)


def _excerpt(text: str) -> str:
    words = whole_characters(" ".join(text.split()))
    return words if len(words) <= EXCERPT_CHARACTERS else f"{words[:EXCERPT_CHARACTERS]}..."
