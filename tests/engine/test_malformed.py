"""Replies that only look like a deliberate "no tool fits" are malformed (R42: they never pass irrelevance)."""

from __future__ import annotations

import pytest

from chime_dist.core.model_call import ChatReply
from chime_dist.engine.action import json_action, native_action


@pytest.mark.parametrize(
    "reply",
    [
        ChatReply(text="none fits", finish_reason="length"),
        ChatReply(text="none fits", finish_reason="content_filter"),
        ChatReply(text="", finish_reason="tool_calls"),
        ChatReply(text='<tool_call>{"name": "act"'),
        ChatReply(text='[TOOL_CALLS][{"name": "act"}]'),
    ],
)
def test_a_reply_that_is_cut_or_holds_an_unparsed_call_is_malformed(reply: ChatReply) -> None:
    assert native_action(reply).malformed is not None


def test_plain_words_are_a_well_formed_action() -> None:
    assert native_action(ChatReply(text="none of the tools fits")).malformed is None


def test_a_json_action_with_a_repeated_key_is_malformed() -> None:
    """B7: the last one must not silently win."""
    text = '{"calls": [{"name": "act", "arguments": {}}], "calls": [], "answer": "none fits"}'
    assert json_action(ChatReply(text=text)).malformed is not None
