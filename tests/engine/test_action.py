"""From an executor's JSON reply to an action."""

from __future__ import annotations

import json

import pytest

from chime_dist.core.model_call import ChatReply
from chime_dist.engine.action import json_action

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


def test_half_an_emoji_that_a_json_escape_brought_in_is_replaced() -> None:
    """The reply's text was whole; what its JSON says was not."""
    text = r'{"calls": [{"name": "p\ud83day", "arguments": {"to": ["\ud83d"]}}], "answer": "cut \ud83d"}'
    action = json_action(ChatReply(text=text))
    (call,) = action.tool_calls
    assert (action.text, call.name, call.arguments, call.raw) == ("cut �", "p�ay", {"to": ["�"]}, '{"to": ["�"]}')
