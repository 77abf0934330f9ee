"""From an executor's JSON reply to an action."""

from __future__ import annotations

import json

import pytest

from chime_dist.core.model_call import ChatReply, ToolCall
from chime_dist.engine.action import json_action, native_action

CALL = '{"calls": [{"name": "pay", "arguments": %s}], "answer": "done"}'


def test_a_reply_that_follows_the_schema_is_an_action() -> None:
    action = json_action(ChatReply(text=CALL % '{"to": "me", "n": 2}'))
    (call,) = action.tool_calls
    assert (action.text, action.malformed) == ("done", None)
    assert (call.name, call.arguments, call.error) == ("pay", {"to": "me", "n": 2}, None)
    assert json.loads(call.raw) == call.arguments


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("[]", "one JSON object, got a list"),
        ('"{}"', "one JSON object, got a string"),
        ("null", "one JSON object, got null"),
        ('{"n": NaN}', "not finite"),
        ('{"\\ud83d": 1}', "half a character"),
    ],
)
def test_arguments_are_read_by_the_same_rules_as_those_of_native_calls(arguments: str, reason: str) -> None:
    """A2: a bad call is beside the point of the reply, not the end of it."""
    (call,) = json_action(ChatReply(text=CALL % arguments)).tool_calls
    assert call.arguments is None
    assert reason in (call.error or "")


@pytest.mark.parametrize(
    "text",
    [
        'I look.\n<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>',
        "<tool_call>\n<function=look>\n</function>\n</tool_call>",
        '[TOOL_CALLS][{"name": "look", "arguments": {}}]',
        "<|python_tag|>look.call()",
        '<\uff5cDSML\uff5cfunction_calls>\n<\uff5cDSML\uff5cinvoke name="look">',
        "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>look<\uff5ctool\u2581sep\uff5c>{}<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>",
    ],
)
def test_a_tool_call_that_the_server_left_in_the_text_is_malformed(text: str) -> None:
    """A2, A9: it is no answer to the user, and never made into a call by us."""
    action = native_action(ChatReply(text=text))
    assert (action.tool_calls, action.text) == ((), text)
    assert "tool-call parser" in (action.malformed or "")
    made = native_action(ChatReply(text=text, tool_calls=(ToolCall(id="c", name="look", arguments={}, raw="{}"),)))
    assert made.malformed is None


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "was cut"), ("content_filter", "was cut"), ("tool_calls", "sent none")]
)
def test_a_reply_whose_end_or_calls_are_missing_is_malformed(finish: str, reason: str) -> None:
    """A4."""
    assert reason in (native_action(ChatReply(text="It is 4.", finish_reason=finish)).malformed or "")
    assert native_action(ChatReply(text="It is 4.")).malformed is None


def test_half_an_emoji_that_a_json_escape_brought_in_is_replaced() -> None:
    """The reply's text was whole; what its JSON says was not."""
    text = r'{"calls": [{"name": "p\ud83day", "arguments": {"to": ["\ud83d"]}}], "answer": "cut \ud83d"}'
    action = json_action(ChatReply(text=text))
    (call,) = action.tool_calls
    assert (action.text, call.name, call.arguments, call.raw) == ("cut �", "p�ay", {"to": ["�"]}, '{"to": ["�"]}')
