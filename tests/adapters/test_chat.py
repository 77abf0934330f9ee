"""The chat backbone against an endpoint that delays, drips, cuts, refuses and lies."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from structlog.testing import capture_logs

from chime_dist.adapters.local.pacer import LocalPacer
from chime_dist.adapters.models.chat import ChatBackbone
from chime_dist.adapters.models.chat_request import ChatSettings, request_body
from chime_dist.core.chat_reply import assistant_message
from chime_dist.core.episode import Usage
from chime_dist.core.model_call import ChatRequest
from chime_dist.core.pacing import RAMP_GAP_S, PaceLimits, Pauses
from chime_dist.core.retry import RetryPolicy
from chime_dist.errors import BackboneError
from tests.adapters.stub_server import (
    Behaviour,
    StubServer,
    answers,
    answers_together,
    completion,
    drips,
    hangs,
    has_context_limit,
    refuses_broken_histories,
    sends_raw,
    text,
)

ASK = ChatRequest(messages=({"role": "user", "content": "Where is Paris?"},), session_id="run:train:12")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}


class SkippingClock:
    """Time passes for real, and at once when slept on; remembers what was waited for."""

    def __init__(self) -> None:
        self.skipped = 0.0
        self.waits: list[float] = []

    def now(self) -> datetime:
        """A fixed instant."""
        return datetime(2026, 11, 6, 10, 0, 0, tzinfo=UTC)

    def monotonic(self) -> float:
        """Real seconds plus those slept."""
        return time.monotonic() + self.skipped

    async def sleep(self, seconds: float) -> None:
        """Return at once."""
        self.waits.append(seconds)
        self.skipped += seconds
        await asyncio.sleep(0)


@asynccontextmanager
async def talking_to(
    *behaviours: Behaviour,
    uniform: Callable[[], float] = lambda: 0.0,
    limits: PaceLimits | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[ChatBackbone, StubServer, SkippingClock]]:
    clock = SkippingClock()
    async with StubServer(list(behaviours)) as server:
        known = {"name": "stub", "base_url": server.url, "model": "m", "retry": RetryPolicy(jitter=False)}
        pacer = LocalPacer(clock, limits or PaceLimits(), Pauses())
        backbone = ChatBackbone(ChatSettings(**(known | settings)), clock, uniform, pacer)
        try:
            yield backbone, server, clock
        finally:
            await backbone.close()


async def test_one_request_one_reply() -> None:
    """R38: model, session and usage travel; latency and requests are counted."""
    async with talking_to(answers(), api_key=SecretStr("canary")) as (backbone, server, _):
        reply = await backbone.complete(ASK, budget_s=10)
    assert (reply.text, reply.finish_reason) == ("ok", "stop")
    assert reply.usage == Usage(calls=1, requests=1, prompt_tokens=7, completion_tokens=2)
    assert 0 < reply.latency_s < 10
    (sent,) = server.received
    assert sent.headers["x-session-id"] == "run:train:12"
    assert sent.headers["Authorization"] == "Bearer canary"
    assert sent.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Where is Paris?"}],
        "temperature": 0.0,
        "stream": False,
        "max_tokens": 16384,
        "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
    }


async def test_a_cut_off_tool_call_does_not_poison_the_conversation() -> None:
    """A1: the call is a tool error, the history that is sent is valid JSON, turn 2 is 200."""
    broken = completion(
        None, "tool_calls", tool_calls=[{"id": "c1", "function": {"name": "sh", "arguments": '{"cmd": "ls'}}]
    )
    async with talking_to(refuses_broken_histories(broken)) as (backbone, server, _):
        first = await backbone.complete(ASK, budget_s=10)
        (call,) = first.tool_calls
        assert (call.arguments, call.raw) == (None, '{"cmd": "ls')
        assert call.error is not None
        tool_result = {"role": "tool", "tool_call_id": call.id, "content": call.error}
        history = (*ASK.messages, assistant_message(first), tool_result)
        second = await backbone.complete(ASK.model_copy(update={"messages": history}), budget_s=10)
    assert second.text == "second turn"
    assert len(server.received) == 2


async def test_a_400_is_never_retried() -> None:
    """A1, R37."""
    refusal = answers({"error": {"message": "invalid tool arguments"}}, status=400)
    async with talking_to(refusal) as (backbone, server, clock):
        with pytest.raises(BackboneError, match="invalid tool arguments") as caught:
            await backbone.complete(ASK, budget_s=10_000)
    assert (caught.value.code, caught.value.status, caught.value.retriable) == ("bad_request", 400, False)
    assert (len(server.received), clock.waits) == (1, [])


@pytest.mark.parametrize(
    "behaviour",
    [
        answers({"choices": []}),
        answers({"error": {"message": "upstream failed"}}),
        text("<html>gateway</html>"),
        answers({"choices": [{"message": None}]}),
    ],
    ids=["no choices", "error object", "html", "null message"],
)
async def test_a_200_without_a_usable_choice_is_retried_as_one_kind_of_error(behaviour: Behaviour) -> None:
    """A4: all four become one retriable error; nothing else reaches the worker."""
    async with talking_to(behaviour, retry=RetryPolicy(max_retries=2, jitter=False)) as (backbone, server, clock):
        with pytest.raises(BackboneError) as caught:
            await backbone.complete(ASK, budget_s=10_000)
    assert (caught.value.code, caught.value.retriable) == ("empty_completion", True)
    assert (len(server.received), clock.waits) == (3, [50, 100])


async def test_an_empty_completion_followed_by_a_good_one_succeeds() -> None:
    """A4."""
    async with talking_to(answers({"choices": []}), answers()) as (backbone, _, _clock):
        reply = await backbone.complete(ASK, budget_s=10_000)
    assert (reply.text, reply.usage.requests) == ("ok", 2)
    assert reply.latency_s >= 50


@pytest.mark.parametrize("status", [400, 500])
async def test_an_output_limit_that_does_not_fit_is_lowered_once(status: int) -> None:
    """A6: one attempt with smaller max_tokens, under 400 and under 500, without waiting."""
    async with talking_to(has_context_limit(4096, 1000, status)) as (backbone, server, clock):
        reply = await backbone.complete(ASK.model_copy(update={"max_tokens": 4000}), budget_s=10_000)
    assert (reply.text, reply.usage.requests, clock.waits) == ("fits", 2, [])
    assert [r.body["max_tokens"] for r in server.received] == [4000, 3096]


@pytest.mark.parametrize("status", [400, 500])
async def test_a_prompt_that_does_not_fit_is_a_context_overflow_at_once(status: int) -> None:
    """A6: classified by code and message, not retried as transient."""
    async with talking_to(has_context_limit(4096, 5000, status)) as (backbone, server, clock):
        with pytest.raises(BackboneError) as caught:
            await backbone.complete(ASK, budget_s=10_000)
    assert (caught.value.code, caught.value.status, caught.value.retriable) == ("context_overflow", status, False)
    assert (len(server.received), clock.waits) == (1, [])


async def test_an_overflow_that_persists_is_asked_no_third_time() -> None:
    """A6: the sentence may promise room that is not there."""
    sentence = "maximum context length is 4096 tokens, 1000 in the messages"
    always = answers({"error": {"message": sentence}}, status=400)
    async with talking_to(always, max_output_tokens=None) as (backbone, server, _):
        with pytest.raises(BackboneError, match="context_overflow"):
            await backbone.complete(ASK.model_copy(update={"max_tokens": 4000}), budget_s=10_000)
        assert len(server.received) == 2
        with pytest.raises(BackboneError, match="context_overflow"):
            await backbone.complete(ASK, budget_s=10_000)
    assert len(server.received) == 3
    assert "max_tokens" not in server.received[2].body


async def test_a_dripping_server_is_ended_by_the_wall_clock() -> None:
    """A7a: bytes that keep coming do not stretch the timeout."""
    policy = RetryPolicy(timeout_s=0.15, max_retries=0)
    async with talking_to(drips(0.03, times=200), retry=policy) as (backbone, server, _):
        started = time.monotonic()
        with pytest.raises(BackboneError) as caught:
            await backbone.complete(ASK, budget_s=60)
        assert time.monotonic() - started < 3
    assert (caught.value.code, caught.value.retriable) == ("timeout", True)
    assert len(server.received) == 1


async def test_a_silent_server_gets_exactly_as_many_requests_as_the_policy_allows() -> None:
    """A7b: no hidden retry layer multiplies them."""
    policy = RetryPolicy(timeout_s=0.05, max_retries=2, jitter=False)
    async with talking_to(hangs(), retry=policy) as (backbone, server, clock):
        with pytest.raises(BackboneError, match="3 requests") as caught:
            await backbone.complete(ASK, budget_s=10_000)
    assert caught.value.code == "timeout"
    assert (len(server.received), clock.waits) == (3, [50, 100])


async def test_a_budget_that_ends_while_the_model_works_is_told_apart_from_a_failure() -> None:
    """A7c, R37: the attempt is cut at the episode's deadline, and nothing had failed before."""
    async with talking_to(hangs()) as (backbone, server, clock):
        with pytest.raises(BackboneError) as caught:
            await backbone.complete(ASK, budget_s=0.1)
    assert (caught.value.code, caught.value.retriable) == ("budget", False)
    assert (len(server.received), clock.waits) == (1, [])


async def test_a_budget_that_ends_after_failures_reports_the_failure() -> None:
    """Design "Outcomes": deadline reached while the last model call was failing is infra."""
    async with talking_to(answers({}, status=503), hangs()) as (backbone, server, _):
        with pytest.raises(BackboneError) as caught:
            await backbone.complete(ASK, budget_s=50.6)
    assert (caught.value.code, caught.value.status) == ("server_error", 503)
    assert len(server.received) == 2


async def test_a_spent_budget_sends_nothing() -> None:
    """R37."""
    async with talking_to(answers()) as (backbone, server, _):
        with pytest.raises(BackboneError, match="budget"):
            await backbone.complete(ASK, budget_s=0)
    assert server.received == []


async def test_a_wait_that_the_budget_cannot_pay_for_is_not_begun() -> None:
    """R37, A9: Retry-After is a floor; beyond the deadline it means giving up at once."""
    async with talking_to(answers({}, status=429, Retry_After="300")) as (backbone, server, clock):
        with pytest.raises(BackboneError) as caught:
            await backbone.complete(ASK, budget_s=200)
    assert (caught.value.code, caught.value.retry_after_s) == ("rate_limited", 300)
    assert (len(server.received), clock.waits) == (1, [])


@pytest.mark.parametrize(
    ("header", "wait"), [("120", 120.0), ("Fri, 06 Nov 2026 10:01:10 GMT", 70.0), ("2", 50.0)]
)
async def test_retry_after_is_a_floor_under_our_own_interval(header: str, wait: float) -> None:
    """R37, A9: both forms of the header."""
    async with talking_to(answers({}, status=429, Retry_After=header), answers()) as (backbone, _, clock):
        await backbone.complete(ASK, budget_s=10_000)
    assert clock.waits == [wait]


async def test_the_jitter_is_drawn_from_the_injected_source() -> None:
    """A9: retry instants are spread; a test can pin them."""
    draws = iter([0.0, 0.5])
    behaviours = (answers({}, status=500), answers({}, status=500), answers())
    async with talking_to(*behaviours, uniform=lambda: next(draws), retry=RetryPolicy()) as (backbone, _, clock):
        await backbone.complete(ASK, budget_s=10_000)
    assert clock.waits == [25.0, 75.0]


GOOD = json.dumps(completion()).encode()


@pytest.mark.parametrize(
    "behaviour",
    [
        sends_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + GOOD),
        sends_raw(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"cho\r\n'),
        sends_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + GOOD),
        sends_raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!"),
        sends_raw(b"HTTP/1.1 200 OK\r\nX-Broken"),
        sends_raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
        sends_raw(),
    ],
    ids=[
        "shorter than promised",
        "cut chunks",
        "longer than promised",
        "false gzip",
        "cut head",
        "not http",
        "closed",
    ],
)
async def test_a_broken_stream_is_retried_and_leaves_no_residue_behind(behaviour: Behaviour) -> None:
    """A4 and its kind: cut streams and lying lengths; the next request is not answered by leftovers."""
    async with talking_to(behaviour, answers(completion("clean")), answers()) as (backbone, server, clock):
        first = await backbone.complete(ASK, budget_s=10_000)
        second = await backbone.complete(ASK, budget_s=10_000)
    assert (first.text, second.text) == ("clean", "ok")
    assert (len(server.received), clock.waits) == (3, [50])


async def test_an_unreachable_server_is_named_and_retriable() -> None:
    """A9: the run pauses on an outage."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        async with talking_to(answers(), base_url=url, retry=RetryPolicy(max_retries=1)) as (backbone, _, clock):
            with pytest.raises(BackboneError, match="backbone 'stub'") as caught:
                await backbone.complete(ASK, budget_s=10_000)
    assert (caught.value.code, caught.value.retriable, len(clock.waits)) == ("unreachable", True, 1)
    assert "the connection failed (refused: nothing listens there) (2 requests in " in str(caught.value)


async def test_a_host_without_an_address_is_told_apart_from_a_server_that_is_down() -> None:
    url = "http://no-such-host.invalid/v1"
    async with talking_to(answers(), base_url=url, retry=RetryPolicy(max_retries=0)) as (backbone, _, _clock):
        with pytest.raises(BackboneError, match=r"\(its host has no known address\) \(1 request in "):
            await backbone.complete(ASK, budget_s=100)


async def test_a_host_that_accepts_no_connection_does_not_use_up_the_attempt() -> None:
    """R37: connecting has its own limit; the attempt's timeout is for the model."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        policy = RetryPolicy(timeout_s=60, max_retries=0)
        settings: dict[str, Any] = {"base_url": url, "connect_timeout_s": 0.05, "retry": policy}
        async with talking_to(answers(), **settings) as (backbone, _, _clock):
            with pytest.raises(BackboneError, match="no connection in time") as caught:
                await backbone.complete(ASK, budget_s=100)
    assert (caught.value.code, caught.value.retriable) == ("unreachable", True)


async def test_a_reply_beyond_the_size_limit_is_refused_without_retry() -> None:
    async with talking_to(answers(completion("x" * 5000)), max_response_bytes=1000) as (backbone, server, _):
        with pytest.raises(BackboneError, match="exceeds 1000 bytes") as caught:
            await backbone.complete(ASK, budget_s=10_000)
    assert not caught.value.retriable
    assert len(server.received) == 1


async def test_a_redirect_is_not_followed() -> None:
    """H6: a key must not travel to another host."""
    async with talking_to(text("", status=307, Location="/v1/chat/completions")) as (backbone, server, _):
        with pytest.raises(BackboneError) as caught:
            await backbone.complete(ASK, budget_s=10)
    assert (caught.value.code, caught.value.status) == ("bad_request", 307)
    assert len(server.received) == 1


async def test_a_request_that_json_cannot_hold_is_refused_before_it_is_sent() -> None:
    async with talking_to(answers()) as (backbone, server, _):
        with pytest.raises(BackboneError, match="written as JSON"):
            await backbone.complete(ASK.model_copy(update={"messages": ({"content": float("nan")},)}), budget_s=10)
    assert server.received == []


async def test_half_a_character_in_a_prompt_is_replaced() -> None:
    """A1: the kind: nothing we send can be refused for its bytes."""
    async with talking_to(answers()) as (backbone, server, _):
        await backbone.complete(ASK.model_copy(update={"messages": ({"content": "a\ud83d b 🙂"},)}), budget_s=10)
    assert server.received[0].body["messages"][0]["content"] == "a� b 🙂"


async def test_requests_in_flight_are_unlimited_by_default_and_limited_where_asked() -> None:
    async with talking_to(answers_together(120)) as (backbone, server, _):
        await asyncio.gather(*(backbone.complete(ASK, budget_s=60) for _ in range(120)))
        assert server.most_in_flight == 120
    async with talking_to(drips(0.001, times=2), max_connections=2) as (backbone, server, _):
        await asyncio.gather(*(backbone.complete(ASK, budget_s=60) for _ in range(8)))
        assert server.most_in_flight <= 2


async def test_one_refusal_makes_every_caller_wait() -> None:
    """A9: a 503 with Retry-After 2 pauses the backbone for all; callers who were not refused wait too, and then
    come one by one."""
    arrivals: list[float] = []
    refused = answers({"error": {"message": "busy"}}, status=503, Retry_After="2")
    async with talking_to(refused, answers(), retry=RetryPolicy(max_retries=0)) as (backbone, server, clock):
        with pytest.raises(BackboneError):
            await backbone.complete(ASK, budget_s=1000)
        began = clock.monotonic()

        async def ask() -> None:
            await backbone.complete(ASK, budget_s=1000)
            arrivals.append(clock.monotonic() - began)

        await asyncio.gather(*(ask() for _ in range(8)))
    assert len(server.received) == 9
    assert sum(clock.waits) == pytest.approx(2 + 7 * RAMP_GAP_S, rel=0.1)
    assert min(arrivals) > 1.9


async def test_limits_hold_for_all_callers_of_a_backbone() -> None:
    """24 requests a minute: two at once, then one about every 2.7 s; the third of three waits."""
    async with talking_to(answers(), limits=PaceLimits(requests_per_minute=24)) as (backbone, server, clock):
        await asyncio.gather(*(backbone.complete(ASK, budget_s=100) for _ in range(3)))
    assert len(server.received) == 3
    assert sum(clock.waits) == pytest.approx(60 / 22, rel=0.1)


async def test_tokens_that_a_reply_reports_are_settled() -> None:
    """A reply of 9 tokens, far more than the few bytes of this prompt suggest, holds back the next call."""
    limits = PaceLimits(tokens_per_minute=12)
    async with talking_to(answers(), limits=limits) as (backbone, _, clock):
        await backbone.complete(ASK, budget_s=1000)
        await backbone.complete(ASK, budget_s=1000)
    # A bucket of one token; 9 spent leave 8 owed, paid at 11/60 a second.
    assert sum(clock.waits) == pytest.approx(8 * 60 / 11, rel=0.05)


async def test_limits_without_room_in_time_are_named() -> None:
    """Ours to mend, so no blame of the agent: the code is ``rate_limited`` and the message names the setting."""
    limits = PaceLimits(max_in_flight=1)
    async with talking_to(hangs(), limits=limits) as (backbone, server, _):
        held = asyncio.create_task(backbone.complete(ASK, budget_s=1000))
        await server.reached.wait()
        with pytest.raises(BackboneError, match=r"raise them, or lower cluster\.slots") as caught:
            await backbone.complete(ASK, budget_s=5)
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)
        assert (caught.value.code, caught.value.retriable) == ("rate_limited", True)
        # The cancelled call gave its place back.
        with pytest.raises(BackboneError, match="budget"):
            await backbone.complete(ASK, budget_s=0.3)


def test_one_backbone_serves_several_event_loops() -> None:
    """Connections belong to a loop; the object does not."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    backbone = ChatBackbone(
        ChatSettings(name="stub", base_url=f"http://127.0.0.1:{port}/v1", model="m"), SkippingClock()
    )

    async def ask() -> str:
        async with StubServer([answers()], port=port):
            reply = await backbone.complete(ASK, budget_s=10)
            await backbone.close()
            await backbone.close()
            return reply.text

    assert [asyncio.run(ask()) for _ in range(2)] == ["ok", "ok"]


async def test_a_cancelled_call_stops_its_request() -> None:
    """H9: cancellation is not swallowed."""
    async with talking_to(hangs()) as (backbone, server, _):
        task = asyncio.create_task(backbone.complete(ASK, budget_s=60))
        await server.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_neither_keys_nor_prompts_enter_logs_or_errors() -> None:
    """H6: also where the server repeats the key in its refusal."""
    echo = answers({"error": {"message": "bad key canary-key and canary-header"}}, status=401)
    secrets: dict[str, Any] = {
        "api_key": SecretStr("canary-key"),
        "headers": {"x-org": SecretStr("canary-header")},
    }
    canary = ASK.model_copy(update={"messages": ({"role": "user", "content": "canary-prompt"},)})
    with capture_logs() as logs:
        async with talking_to(answers({}, status=500), answers(), echo, **secrets) as (backbone, server, _):
            await backbone.complete(canary, budget_s=1000)
            with pytest.raises(BackboneError, match=r"bad key \*\*\* and \*\*\*") as caught:
                await backbone.complete(canary, budget_s=1000)
    assert server.received[0].headers["x-org"] == "canary-header"
    assert "canary" not in f"{caught.value!r} {caught.value.__cause__!r} {logs} {backbone._settings!r}"
    assert [entry["event"] for entry in logs] == ["backbone.retrying", "backbone.replied", "backbone.failed"]
    assert (logs[1]["requests"], logs[1]["completion_tokens"], logs[1]["session"]) == (2, 2, "run:train:12")


def body_for(request: ChatRequest = ASK, **settings: Any) -> dict[str, Any]:
    known = {"name": "b", "base_url": "http://h/v1/", "model": "m", "thinking": None}
    return request_body(ChatSettings(**(known | settings)), request, max_tokens=9)


def test_a_schema_is_enforced_by_response_format() -> None:
    """Stack: ``guided_*`` fields are ignored by servers."""
    wanted = ASK.model_copy(update={"response_schema": SCHEMA, "schema_name": "plan"})
    assert body_for(wanted)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "plan", "schema": SCHEMA, "strict": True},
    }


def test_a_grammar_or_nothing_enforces_a_schema_where_configured_by_name() -> None:
    """Stack: a small model wastes its output on white space; the grammar forbids it for the gate only."""
    modes = {"gate": "llguidance", "free": "none"}
    gate = body_for(
        ASK.model_copy(update={"response_schema": SCHEMA, "schema_name": "gate"}),
        structured_output_by_schema=modes,
    )
    prefix = "%llguidance {}\nstart: %json "
    assert gate["grammar"].startswith(prefix)
    assert json.loads(gate["grammar"].removeprefix(prefix)) == {
        **SCHEMA,
        "x-guidance": {"whitespace_flexible": False},
    }
    assert "response_format" not in gate
    free = body_for(
        ASK.model_copy(update={"response_schema": SCHEMA, "schema_name": "free"}),
        structured_output_by_schema=modes,
    )
    assert not {"grammar", "response_format"} & free.keys()


def test_tools_are_sent_as_given_or_marked_strict() -> None:
    """Stack: arguments follow their schema only where a tool is strict."""
    wanted = ASK.model_copy(update={"tools": (TOOL,)})
    assert body_for(wanted)["tools"] == [TOOL]
    assert body_for(wanted, strict_tools=True)["tools"][0]["function"] == {
        "strict": True,
        "name": "search",
        "parameters": {"type": "object"},
    }


@pytest.mark.parametrize(
    ("field", "enabled", "sent"),
    [
        ("chat_template_kwargs", False, {"enable_thinking": False, "thinking": False}),
        ("enable_thinking", False, False),
        ("thinking", False, {"type": "disabled"}),
        ("thinking", True, {"type": "enabled"}),
    ],
)
def test_thinking_is_switched_in_the_servers_spelling(field: str, enabled: bool, sent: Any) -> None:
    """R35."""
    assert body_for(thinking=enabled, thinking_field=field)[field] == sent


def test_extra_fields_are_merged_into_objects_and_replace_everything_else() -> None:
    body = body_for(
        thinking=False,
        seed=7,
        extra_body={"chat_template_kwargs": {"x": 1}, "seed": 8, "top_p": 0.9},
        max_tokens_field="max_completion_tokens",
    )
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False, "x": 1}
    assert (body["seed"], body["top_p"], body["max_completion_tokens"]) == (8, 0.9, 9)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"base_url": "localhost:8000"}, "http://HOST"),
        ({"base_url": "http://"}, "http://HOST"),
        ({"extra_body": {"messages": []}}, "cannot set messages"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        body_for(**settings)
