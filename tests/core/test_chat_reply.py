"""What a reply over the wire means: completion, classified error, and what may go back into a history."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.canonical import canonical_json
from chime_dist.core.chat_reply import (
    EXCERPT_CHARACTERS,
    assistant_message,
    classify_failure,
    fitting_max_tokens,
    read_completion,
)
from chime_dist.core.episode import Usage
from chime_dist.core.model_call import ChatReply, ToolCall
from chime_dist.errors import BackboneError


def completion(message: Any, finish: Any = "stop", **more: Any) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], **more}).encode()


def calling(*calls: Any) -> bytes:
    return completion({"role": "assistant", "content": None, "tool_calls": list(calls)}, "tool_calls")


def call(arguments: Any, name: Any = "search", identity: Any = "c1") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_plain_completion_is_read_with_its_usage() -> None:
    body = completion(
        {"role": "assistant", "content": "Paris"},
        usage={"prompt_tokens": 12, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}},
    )
    usage = Usage(calls=1, prompt_tokens=12, completion_tokens=1, cached_tokens=8)
    assert read_completion(body) == ChatReply(text="Paris", usage=usage)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage(calls=1)),
        ([], Usage(calls=1)),
        ({"prompt_tokens": None, "completion_tokens": True}, Usage(calls=1)),
        ({"prompt_tokens": -4, "completion_tokens": "7"}, Usage(calls=1)),
        ({"prompt_tokens": 10**400, "completion_tokens": 10**9}, Usage(calls=1)),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 5}, Usage(calls=1, prompt_tokens=9, cached_tokens=5)),
        ({"prompt_tokens": 9, "prompt_tokens_details": None}, Usage(calls=1, prompt_tokens=9)),
    ],
)
def test_usage_that_is_missing_or_odd_counts_as_zero(usage: Any, expected: Usage) -> None:
    """A4: bookkeeping never fails a usable completion."""
    assert read_completion(completion({"content": "x"}, usage=usage)).usage == expected


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("content_filter", "content_filter"),
        ("eos", "stop"),
        ("max_tokens", "length"),
        ("function_call", "tool_calls"),
        (None, "stop"),
        (7, "stop"),
        ("novel", "stop"),
    ],
)
def test_finish_reasons_are_told_in_four_words(finish: Any, expected: str) -> None:
    """B8: a reply cut by the length limit stays recognisable."""
    assert read_completion(completion({"content": "x"}, finish)).finish_reason == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": []}',
        b'{"error": {"message": "backend said no", "code": 1}}',
        b"<html><body>502 Bad Gateway</body></html>",
        b'{"choices": [{"message": null, "finish_reason": "stop"}]}',
        b'{"choices": null}',
        b'{"choices": [null]}',
        b'{"choices": {"0": 1}}',
        b'{"choices": [{}]}',
        b'"just a string"',
        b"null",
        b"",
        b'{"choices": [{"message": {"content": "cut',
        b"[" * 100_000,
        b"\xff\xfe\x00",
        completion({"content": "half an ans"}, "abort"),
        completion({"content": None}, "error"),
    ],
)
def test_a_200_without_a_usable_choice_is_one_retriable_empty_completion(body: bytes) -> None:
    """A4: one typed error with a short excerpt; never IndexError, AttributeError or TypeError."""
    with pytest.raises(BackboneError) as caught:
        read_completion(body)
    error = caught.value
    assert (error.code, error.status, error.retriable) == ("empty_completion", 200, True)
    assert len(error.message) < EXCERPT_CHARACTERS + 100


def test_the_excerpt_of_an_empty_completion_shows_what_came() -> None:
    """A4: a short body excerpt is in the trace."""
    with pytest.raises(BackboneError, match="502 Bad Gateway"):
        read_completion(b"<html>\n\n  502   Bad Gateway</html>")


def test_a_context_overflow_hidden_under_200_is_still_one() -> None:
    """A6: by code and message, not by status alone."""
    with pytest.raises(BackboneError) as caught:
        read_completion(b'{"error": {"message": "This model\'s maximum context length is 4096 tokens."}}')
    assert (caught.value.code, caught.value.retriable) == ("context_overflow", False)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": ""}, ""),
        ({"content": None}, ""),
        ({}, ""),
        ({"content": 5}, ""),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "image"}, "x", {"type": "text", "text": "b"}]},
            "ab",
        ),
        ({"content": [{"type": "text", "text": None}]}, ""),
        ({"content": None, "refusal": "I cannot."}, "I cannot."),
        ({"content": "", "reasoning_content": "so 42"}, ""),
        ({"content": None, "reasoning": "so 42"}, ""),
        ({"content": "<think>\nso 42\n</think>\n\nIt is 42."}, "It is 42."),
        ({"content": "<think>cut in the middle of"}, ""),
        ({"content": "use <think> tags"}, "use <think> tags"),
        ({"content": "so 42\n</think>\n\nIt is 42."}, "It is 42."),
        ({"content": "<think>and </think> then</think>"}, "then</think>"),
        ({"content": "put <think> before </think>"}, "put <think> before </think>"),
        ({"content": '{"answer": "it ends with </think>"}'}, '{"answer": "it ends with </think>"}'),
        ({"content": "broken \ud83d end"}, "broken � end"),
    ],
)
def test_the_text_is_the_visible_answer_only(message: dict[str, Any], text: str) -> None:
    """R35: reasoning is not the answer; an empty answer is a reply, not an error."""
    assert read_completion(completion(message)).text == text


def test_half_an_emoji_is_replaced_wherever_a_reply_has_one() -> None:
    """What is made of a reply is journalled and sent back as UTF-8, which has no half characters."""
    bad, good = call('{"q": ["cut \\ud83d", 1]}', identity="c\ud83d"), call({"q": "\ud83d"}, identity="c2")
    bad["function"]["name"] = "search\ud83d"
    reply = read_completion(completion({"content": "cut \ud83d", "tool_calls": [bad, good]}))
    assert reply.text == "cut �"
    assert [(c.id, c.name, c.arguments, c.error) for c in reply.tool_calls] == [
        ("c�", "search�", {"q": ["cut �", 1]}, None),
        ("c2", "search", {"q": "�"}, None),
    ]
    canonical_json(reply.model_dump()).encode()
    canonical_json(assistant_message(reply)).encode()


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "", "reasoning_content": "so 42"}, "so 42"),
        ({"content": None, "reasoning": "so 42"}, "so 42"),
        ({"content": "<think>so 42</think>"}, "so 42"),
        ({"content": "so 42</think>"}, "so 42"),
        ({"content": "42", "reasoning": "so"}, "42"),
        ({"content": None, "reasoning": None}, ""),
    ],
)
def test_reasoning_stands_in_for_a_missing_answer_only_where_configured(
    message: dict[str, Any], text: str
) -> None:
    assert read_completion(completion(message), reasoning_is_text=True).text == text


def test_good_and_bad_tool_calls_of_one_reply_are_kept_apart() -> None:
    """A2: a bad call is a typed error beside the good ones."""
    good, bad = read_completion(calling(call('{"q": 1}'), call('{"q": 1', identity="c2"))).tool_calls
    assert good == ToolCall(id="c1", name="search", arguments={"q": 1}, raw='{"q": 1}')
    assert (bad.arguments, bad.raw) == (None, '{"q": 1')
    assert "not valid JSON" in (bad.error or "")


def test_arguments_that_arrive_decoded_are_accepted() -> None:
    """A2."""
    (only,) = read_completion(calling(call({"q": "ü"}))).tool_calls
    assert (only.arguments, only.raw, only.error) == ({"q": "ü"}, '{"q": "ü"}', None)


@pytest.mark.parametrize("name", [None, "", "  ", 7])
def test_a_call_without_a_name_is_an_error_too(name: Any) -> None:
    """A2: the kind, not the one input."""
    (only,) = read_completion(calling(call("{}", name=name))).tool_calls
    assert (only.name, only.arguments, only.error) == ("", None, "the tool call names no tool")


@pytest.mark.parametrize("item", [None, "search", {}, {"function": None}, {"function": "search"}])
def test_a_call_of_the_wrong_shape_is_an_error_too(item: Any) -> None:
    """A2, A4: no AttributeError or TypeError reaches the worker."""
    (only,) = read_completion(calling(item)).tool_calls
    assert (only.id, only.name, only.arguments) == ("call_0", "", None)


def test_missing_and_repeated_call_ids_are_made_unique() -> None:
    """A1: a tool result must be able to name its call."""
    body = calling(call("{}", identity="call_1"), call("{}", identity=None), call("{}", identity="call_1"))
    assert [c.id for c in read_completion(body).tool_calls] == ["call_1", "call_1_", "call_1__"]


@pytest.mark.parametrize("calls", ["search", {"name": "search"}, 1])
def test_tool_calls_that_are_no_list_are_an_unusable_reply(calls: object) -> None:
    """A4, R42: dropped silently, they would read as a deliberate "no call"."""
    with pytest.raises(BackboneError) as caught:
        read_completion(completion({"content": "x", "tool_calls": calls}))
    assert (caught.value.code, caught.value.retriable) == ("empty_completion", True)


def test_null_tool_calls_are_none() -> None:
    """A4."""
    assert read_completion(completion({"content": "x", "tool_calls": None})).tool_calls == ()


def test_the_history_form_of_a_text_reply_is_plain() -> None:
    assert assistant_message(ChatReply(text="hello")) == {"role": "assistant", "content": "hello"}


def test_the_history_form_of_broken_calls_is_always_valid_json() -> None:
    """A1: the raw text stays out of the history, so the next turn is not refused with 400."""
    reply = read_completion(calling(call('{"cmd": "ls'), call("[]", name="", identity="c2")))
    sent = assistant_message(reply)["tool_calls"]
    assert [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in sent] == [
        ("c1", "search", "{}"),
        ("c2", "unnamed", "{}"),
    ]
    assert [c.raw for c in reply.tool_calls] == ['{"cmd": "ls', "[]"]


@given(st.text() | st.none() | st.integers() | st.dictionaries(st.text(max_size=3), st.text(), max_size=3))
def test_whatever_a_model_sends_as_arguments_the_history_stays_sendable(arguments: Any) -> None:
    """A1."""
    message = assistant_message(read_completion(calling(call(arguments))))
    sent = json.loads(json.dumps(message).encode())
    assert isinstance(json.loads(sent["tool_calls"][0]["function"]["arguments"]), dict)


OVERFLOWS = [
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (1000 in the "
    "messages, 4000 in the completion). Please reduce the length of the messages or completion.",
    "You passed 5000 input tokens and requested 10 output tokens. However, the model's context length is only "
    "4096 tokens.",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "request (3031 tokens) exceeds the available context size (2048 tokens), try increasing it",
    "max_tokens must be at least 1, got -904.",
    "max_completion_tokens must be at least 1, got -904.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "Input is too long for requested model.",
    "Your input exceeds the context window of this model.",
    "Range of input length should be [1, 129024]",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 10 `max_new_tokens`",
    "Input validation error: `inputs` must have less than 512 tokens. Given: 600",
    "input (600 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
]


@pytest.mark.parametrize("sentence", OVERFLOWS)
@pytest.mark.parametrize("status", [400, 422, 500])
def test_a_context_overflow_is_recognised_by_its_sentence_under_any_status(sentence: str, status: int) -> None:
    """A6: 400 and 500 alike, never retriable."""
    error = classify_failure(status, json.dumps({"error": {"message": sentence, "code": status}}).encode())
    assert (error.code, error.status, error.retriable) == ("context_overflow", status, False)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "too big", "code": "context_length_exceeded"}},
        {"error": {"message": "too big", "type": "exceed_context_size_error", "code": 400}},
        {"object": "error", "message": OVERFLOWS[0], "code": 400},
        {"error": OVERFLOWS[0]},
        {"detail": OVERFLOWS[0]},
    ],
)
def test_a_context_overflow_is_recognised_in_every_spelling_of_an_error(body: Any) -> None:
    """A6."""
    assert classify_failure(400, json.dumps(body).encode()).code == "context_overflow"


def test_a_context_overflow_in_plain_text_is_recognised_behind_a_long_preamble() -> None:
    """A6: the excerpt is cut, the search is not."""
    assert classify_failure(500, b"x" * 500 + OVERFLOWS[0].encode()).code == "context_overflow"


@pytest.mark.parametrize(
    ("status", "body", "code", "retriable"),
    [
        (400, {"error": {"message": "messages[2]: invalid arguments"}}, "bad_request", False),
        (400, {"error": {"message": "max_tokens is too large"}}, "bad_request", False),
        (302, {}, "bad_request", False),
        (404, {"error": {"message": "no such model"}}, "bad_request", False),
        (401, {"error": {"message": "bad key"}}, "auth", False),
        (402, {"error": {"message": "Insufficient Balance"}}, "auth", False),
        (403, {}, "auth", False),
        (408, {}, "timeout", True),
        (409, {}, "server_error", True),
        (429, {"error": {"message": "slow down"}}, "rate_limited", True),
        (
            429,
            {"error": {"message": "Rate limit: maximum context length tokens per minute"}},
            "rate_limited",
            True,
        ),
        (429, {"error": {"message": "quota", "code": "insufficient_quota"}}, "auth", False),
        (500, {"error": {"message": "CUDA error"}}, "server_error", True),
        (503, {"error": None}, "server_error", True),
    ],
)
def test_other_failures_are_classified_by_status_code_and_message(
    status: int, body: Any, code: str, retriable: bool
) -> None:
    """R37, C4."""
    error = classify_failure(status, json.dumps(body).encode(), retry_after_s=3.0)
    assert (error.code, error.status, error.retriable) == (code, status, retriable)
    assert error.retry_after_s == 3.0


@pytest.mark.parametrize("body", [b"", b"[1]", b"\x00\xff", b"<html>", b"{" * 100_000])
def test_a_failure_with_any_body_is_an_error_with_some_text(body: bytes) -> None:
    """A4."""
    assert classify_failure(502, body).message


def test_a_validation_error_shows_its_sentences_and_not_the_prompt_it_echoes() -> None:
    """H6: servers repeat the request in such replies."""
    body = {"detail": [{"msg": "field required", "input": "SECRET PROMPT"}, "odd"]}
    error = classify_failure(422, json.dumps(body).encode())
    assert error.message == "field required"


def test_errors_cross_a_process_border() -> None:
    """C4."""
    error = classify_failure(429, b"{}", retry_after_s=2.0)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.status, copy.retriable, copy.retry_after_s) == ("rate_limited", 429, True, 2.0)


VLLM = (
    "maximum context length is {} tokens. However, you requested {} output tokens and your prompt contains {} "
    "input tokens"
)


@pytest.mark.parametrize(
    ("message", "requested", "fitting"),
    [
        (OVERFLOWS[0], 4000, 3096),
        (OVERFLOWS[1], 10, None),
        (VLLM.format(4096, 1000, 3900), 1000, 196),
        (VLLM.format(4096, 1000, 4000), 1000, None),
        (VLLM.format(4096, 1000, "at least 3097"), 1000, 250),
        (VLLM.format(4096, 1000, 3000), 1000, None),
        (VLLM.format(4096, 1, 4096), 1, None),
        ("prompt is too long", 1000, None),
        ("maximum context length is 4096 tokens", 1000, None),
    ],
)
def test_a_smaller_output_limit_is_offered_where_the_prompt_leaves_room(
    message: str, requested: int, fitting: int | None
) -> None:
    """A6: one attempt with smaller max_tokens, where that can help at all."""
    assert fitting_max_tokens(message, requested) == fitting
