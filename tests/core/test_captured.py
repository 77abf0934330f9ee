"""Captured prompts: word for word, without known secrets, and never longer than agreed."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.captured import CapturedCall, captured
from chime_dist.core.model_call import ChatReply, ChatRequest, Message, ToolCall
from chime_dist.errors import BackboneError


def request(*texts: str) -> ChatRequest:
    """A request with these words of the user's."""
    messages: tuple[Message, ...] = tuple({"role": "user", "content": text} for text in texts)
    return ChatRequest(messages=messages, tools=({"type": "function"},), session_id="s")


REPLY = ChatReply(text="seen", tool_calls=(ToolCall(id="1", name="n", arguments={"a": 1}, raw='{"a": 1}'),))


def same(text: str) -> str:
    """Nothing is hidden."""
    return text


def kept(call: CapturedCall) -> list[str]:
    """The texts of a call's messages."""
    assert call.request is not None
    return [message["content"] for message in call.request.messages]


def test_a_short_call_is_kept_as_it_was() -> None:
    call = captured("gate", "chime/gate", request("one", "two"), REPLY, "", same)
    assert (call.request, call.reply, call.cut) == (request("one", "two"), REPLY, 0)


def test_what_is_hidden_is_hidden_wherever_it_stands() -> None:
    """H6."""
    reply = ChatReply(
        text="the KEY", tool_calls=(ToolCall(id="1", name="n", arguments={"a": ["KEY"]}, raw="KEY"),)
    )
    call = captured("gate", "t", request("a KEY"), reply, "refused KEY", lambda text: text.replace("KEY", "***"))
    assert "KEY" not in call.model_dump_json()
    assert kept(call) == ["a ***"]


def test_the_longest_texts_are_cut_and_say_so() -> None:
    call = captured("planner", "t", request("short", "x" * 4_000), None, "", same, longest=1_000)
    short, long = kept(call)
    assert short == "short"
    assert long.startswith("xxx")
    assert long.endswith("more characters)")
    assert call.cut == 4_000 - long.count("x")


@given(st.lists(st.text(max_size=400), max_size=6), st.integers(64, 600))
def test_no_call_is_longer_than_agreed(texts: list[str], longest: int) -> None:
    call = captured("planner", "t", request(*texts), ChatReply(), "", same, longest)
    notes = sum(len(text) for text in kept(call)) - sum(len(text) for text in texts) + call.cut
    assert sum(len(text) for text in kept(call)) - max(0, notes) <= longest
    assert (call.cut == 0) == (kept(call) == texts)


def test_an_error_brings_what_was_sent_through_a_process_border() -> None:
    error = BackboneError("no", "timeout")
    error.sent = request("one")
    assert pickle.loads(pickle.dumps(error)).sent == request("one")
