"""How an executor's reply becomes an action: native tool calls, or one JSON object (``action_mode``)."""

from __future__ import annotations

import json

from chime_dist.core.episode import Json
from chime_dist.core.json_schema import bounded_text, closed
from chime_dist.core.model_call import ChatReply, ToolCall
from chime_dist.core.text import whole_characters
from chime_dist.core.tool_arguments import read_arguments
from chime_dist.ports import Action

MAX_CALLS = 8
"""Most tool calls in one JSON action."""
MAX_STRING = 400
"""Longest string of a JSON action, in characters; a small model that loops must not fill the context."""
UNPARSED_CALLS = (
    *("<tool_call>", "<function=", "<function_call>", "[TOOL_CALLS]", "<|python_tag|>", "<|python_start|>"),
    *(
        "<\uff5cDSML\uff5c",
        "<\uff5ctool\u2581calls\u2581begin\uff5c>",
        "<|tool_calls_section_begin|>",
        "<minimax:tool_call>",
    ),
)
"""What models of the common families put before a tool call; in a visible text it is a call gone wrong."""
_CLOSED_UNION = 16
"""Up to this many tools the schema spells out each tool's arguments; beyond it, any object is allowed."""


def action_schema(tools: tuple[dict[str, Json], ...]) -> dict[str, Json]:
    """JSON schema of ``{"calls": [{"name", "arguments"}], "answer": str}`` for these OpenAI tools."""
    call: dict[str, Json]
    if not tools:
        calls: dict[str, Json] = {"type": "array", "maxItems": 0, "items": {"type": "object"}}
    else:
        if len(tools) <= _CLOSED_UNION:
            variants = [_call_schema(tool["function"]) for tool in tools]
            call = variants[0] if len(variants) == 1 else {"anyOf": variants}
        else:
            names = [tool["function"]["name"] for tool in tools]
            call = closed({"name": {"type": "string", "enum": names}, "arguments": {"type": "object"}})
        calls = {"type": "array", "minItems": 0, "maxItems": MAX_CALLS, "items": call}
    # Words are asked for even beside calls: with no call they are what makes the reply a deliberate "none fits".
    return closed({"calls": calls, "answer": bounded_text(MAX_STRING, least=1)})


def _call_schema(function: dict[str, Json]) -> dict[str, Json]:
    name = {"type": "string", "enum": [function["name"]]}
    return closed({"name": name, "arguments": bounded(function.get("parameters") or {"type": "object"})})


def bounded(schema: Json) -> Json:
    """The same schema with every string and array bounded and prose (descriptions, defaults) left out."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    if "properties" in kept:
        kept["properties"] = {name: bounded(sub) for name, sub in kept["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in kept:
            kept[key] = bounded(kept[key])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in kept:
            kept[key] = [bounded(sub) for sub in kept[key]]
    if kept.get("type") == "string" and "enum" not in kept:
        kept.setdefault("maxLength", MAX_STRING)
    if kept.get("type") == "array":
        kept.setdefault("maxItems", MAX_CALLS)
    return kept


_KEPT = frozenset(
    (
        *("type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf"),
        *("additionalProperties", "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength"),
    )
)


def native_action(reply: ChatReply) -> Action:
    """An action out of native tool calls. A reply cut at the output limit is malformed: its end is missing."""
    malformed = None
    if reply.finish_reason in ("length", "content_filter"):
        malformed = f"the reply was cut (finish_reason {reply.finish_reason})"
    elif reply.finish_reason == "tool_calls" and not reply.tool_calls:
        malformed = "the server announced tool calls and sent none"
    elif not reply.tool_calls and any(mark in reply.text for mark in UNPARSED_CALLS):
        malformed = "a tool call stands in the text: the server did not parse it (check its tool-call parser)"
    return Action(text=reply.text, tool_calls=reply.tool_calls, malformed=malformed)


def json_action(reply: ChatReply) -> Action:
    """An action out of a reply that follows ``action_schema``; anything else is malformed, never guessed at."""
    try:
        if reply.finish_reason == "length":
            raise ValueError("the reply was cut at the output limit")
        value = json.loads(reply.text, object_pairs_hook=_without_repeats)
        if not isinstance(value, dict) or not isinstance(value.get("calls"), list):
            raise ValueError("the reply is not an object with a list of calls")
        calls = tuple(_call(index, call) for index, call in enumerate(value["calls"]))
    except (ValueError, RecursionError) as error:
        return Action(text=reply.text, malformed=str(error))
    answer = value.get("answer", "")
    # The reply was whole text, but an escape in its JSON may still be half an emoji.
    return Action(text=whole_characters(answer) if isinstance(answer, str) else "", tool_calls=calls)


def _without_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("the reply gives a key more than once")
    return value


def _call(index: int, value: Json) -> ToolCall:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError(f"call {index} is not an object with a name")
    # Written out again, because text in the place of an object is no object here.
    arguments = read_arguments(json.dumps(value.get("arguments", {}), ensure_ascii=False))
    return ToolCall(
        id=f"call_{index}",
        name=whole_characters(value["name"]),
        arguments=arguments.value,
        raw=arguments.raw,
        error=arguments.error,
    )
