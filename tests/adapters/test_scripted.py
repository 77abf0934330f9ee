"""The scripted backbone: deterministic, well-formed, and never dependent on timing."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from chime_dist.adapters.models.schema_instance import HashDraws, InstanceBuilder, SchemaError
from chime_dist.adapters.models.scripted import ScriptedBackbone, ScriptedSettings
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.errors import BackboneError

QUESTION = "Book a table for two people near the old harbour on Friday evening at seven"


def ask(content: Any = QUESTION, session: str = "s", **more: Any) -> ChatRequest:
    messages = ({"role": "system", "content": "You plan."}, {"role": "user", "content": content})
    return ChatRequest(messages=messages, session_id=session, **more)


def reply_to(request: ChatRequest, **options: Any) -> ChatReply:
    return asyncio.run(ScriptedBackbone(ScriptedSettings(**options)).complete(request, budget_s=60))


@st.composite
def bounds(draw: st.DrawFn, low: int, high: int) -> tuple[int, int]:
    first = draw(st.integers(low, high))
    return first, draw(st.integers(first, high))


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    low, high = draw(bounds(-50, 50))
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["integer", "number"]))}
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = high + 10
    if draw(st.booleans()):
        schema["multipleOf"] = draw(st.integers(1, 4))
    return schema


@st.composite
def strings(draw: st.DrawFn) -> dict[str, Any]:
    low, high = draw(bounds(0, 60))
    return {
        "type": "string",
        **draw(st.sampled_from([{}, {"minLength": low}, {"maxLength": high}])),
        "format": "x",
    }


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    low, high = draw(bounds(0, 3))
    limits = draw(
        st.sampled_from([{}, {"minItems": low}, {"maxItems": high}, {"minItems": low, "maxItems": high}])
    )
    return {"type": "array", "items": draw(inner), **limits}


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    properties = draw(st.dictionaries(st.sampled_from(["a", "b", "步骤"]), inner, max_size=3))
    required = [name for name in properties if draw(st.booleans())]
    closed = draw(st.sampled_from([{}, {"additionalProperties": False}]))
    return {"type": "object", "properties": properties, "required": required, **closed}


leaves: st.SearchStrategy[dict[str, Any]] = (
    numbers()
    | strings()
    | st.sampled_from(
        [
            {"type": "boolean"},
            {"type": "null"},
            {"enum": ["planning", "execution", None, 3]},
            {"const": {"x": [1]}},
            {"type": ["string", "null"]},
            {"$ref": "#/$defs/label"},
            {"$ref": "#/$defs/label", "description": "d"},
            {},
        ]
    )
)
schemas: st.SearchStrategy[dict[str, Any]] = st.recursive(
    leaves,
    lambda inner: (
        arrays(inner)
        | objects(inner)
        | st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
        | st.builds(
            lambda a, b: {"properties": {"a": a}, "allOf": [{"properties": {"b": b}, "required": ["a", "b"]}]},
            inner,
            inner,
        )
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(schema=schemas, seed=st.integers(0, 1000), words=st.lists(st.sampled_from(["a", "bb", "ccc", "东西"])))
def test_every_structured_reply_satisfies_its_schema(schema: Any, seed: int, words: list[str]) -> None:
    """Design "Roles and backbones": the double answers any turn with a valid instance."""
    document = {"$defs": {"label": {"enum": ["x", "y"]}}, **schema}
    reply = reply_to(ask(" ".join(words), response_schema=document), seed=seed)
    jsonschema.validate(json.loads(reply.text), document)


@settings(max_examples=60, deadline=None)
@given(schema=objects(schemas), seed=st.integers(0, 1000))
def test_every_tool_call_satisfies_its_tool(schema: Any, seed: int) -> None:
    document = {"$defs": {"label": {"enum": ["x", "y"]}}, **schema}
    tools = ({"type": "function", "function": {"name": "search", "parameters": document}},)
    reply = reply_to(ask(tools=tools), seed=seed, tool_call_rate=1.0)
    (call,) = reply.tool_calls
    assert (call.name, call.error, reply.text, reply.finish_reason) == ("search", None, "", "tool_calls")
    assert json.loads(call.raw) == call.arguments
    jsonschema.validate(call.arguments, document)


GATE = {
    "type": "object",
    "properties": {
        "label": {"enum": ["planning", "execution", "both", "none"]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "scenario": {"type": "string", "minLength": 1},
        "misleading": {"type": "array", "items": {"type": "string"}, "maxItems": 3, "uniqueItems": True},
    },
    "required": ["label", "confidence", "scenario", "misleading"],
}


def test_a_reply_depends_on_seed_and_request_and_not_on_the_session() -> None:
    """R34: runs with equal inputs are byte-identical, a redelivery included."""
    first = reply_to(ask(response_schema=GATE, session="delivery-1"))
    assert reply_to(ask(response_schema=GATE, session="delivery-2")) == first
    assert reply_to(ask(response_schema=GATE), seed=1) != first
    assert reply_to(ask(QUESTION + " sharp", response_schema=GATE)) != first
    assert reply_to(ask(response_schema=GATE, temperature=0.6)) != first


async def test_order_and_concurrency_change_no_reply() -> None:
    """What lets equality tests run at any number of slots."""
    requests = [ask(f"{QUESTION} number {i}", response_schema=GATE) for i in range(50)]
    alone = [await ScriptedBackbone().complete(r, budget_s=60) for r in requests]
    shuffled = list(range(50))
    random.Random(3).shuffle(shuffled)
    together = ScriptedBackbone()
    replies = await asyncio.gather(*(together.complete(requests[i], budget_s=60) for i in shuffled))
    assert [replies[shuffled.index(i)] for i in range(50)] == alone


def test_strings_are_consecutive_words_of_the_last_user_message() -> None:
    """So that similar tasks get similar text, and memories of them are near each other."""
    scenario = json.loads(reply_to(ask(response_schema=GATE)).text)["scenario"]
    assert scenario in QUESTION
    assert reply_to(ask()).text in QUESTION


def test_the_labels_of_a_gate_are_all_drawn() -> None:
    """A double that never says "both" would leave that path untested."""
    labels = {json.loads(reply_to(ask(f"{QUESTION} {i}", response_schema=GATE)).text)["label"] for i in range(40)}
    assert labels == {"planning", "execution", "both", "none"}


def test_requests_with_tools_get_calls_or_text() -> None:
    tools = ({"type": "function", "function": {"name": "stop"}},)
    replies = [reply_to(ask(f"{QUESTION} {i}", tools=tools)) for i in range(20)]
    assert {bool(r.tool_calls) for r in replies} == {True, False}
    assert all(bool(r.text) is not bool(r.tool_calls) for r in replies)
    assert all(call.arguments == {} for r in replies for call in r.tool_calls)


@pytest.mark.parametrize("content", ["", None, [], [{"type": "image"}, "x"]])
def test_a_request_without_words_is_answered_too(content: Any) -> None:
    assert reply_to(ask(content)).text == "ok"
    assert reply_to(ChatRequest(messages=(), session_id="s")).text == "ok"


def test_words_are_read_from_content_parts() -> None:
    assert reply_to(ask([{"type": "text", "text": "hello"}])).text == "hello"


def test_usage_is_counted_in_words() -> None:
    reply = reply_to(ask("one two three"))
    assert (reply.usage.calls, reply.usage.requests, reply.usage.prompt_tokens) == (1, 1, 5)
    assert reply.usage.completion_tokens == len(reply.text.split())


async def test_latency_is_drawn_from_the_request_and_slept_through_the_injected_sleep() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    backbone = ScriptedBackbone(ScriptedSettings(latency_s=(1.0, 3.0)), sleep)
    replies = [await backbone.complete(ask(f"{QUESTION} {i}"), budget_s=60) for i in (0, 1, 0)]
    assert [r.latency_s for r in replies] == slept
    assert slept[0] == slept[2] != slept[1]
    assert all(1 <= seconds <= 3 for seconds in slept)
    with pytest.raises(BackboneError, match="budget"):
        await backbone.complete(ask(), budget_s=0.5)
    assert slept[-1] == 0.5


async def test_without_a_latency_nothing_is_slept() -> None:
    async def sleep(seconds: float) -> None:
        raise AssertionError("slept")

    await ScriptedBackbone(sleep=sleep).complete(ask(), budget_s=1)
    with pytest.raises(BackboneError, match="budget"):
        await ScriptedBackbone(sleep=sleep).complete(ask(), budget_s=0)


async def test_failures_hit_the_same_requests_every_time() -> None:
    """For tests of infra outcomes: a retry of the same request does not help."""
    backbone = ScriptedBackbone(ScriptedSettings(failure_rate=0.3))

    requests = [ask(f"{QUESTION} {i}") for i in range(100)]

    async def outcomes() -> list[ChatReply | BaseException]:
        return await asyncio.gather(*(backbone.complete(r, budget_s=1) for r in requests), return_exceptions=True)

    first, second = await outcomes(), await outcomes()
    failed = [o for o in first if isinstance(o, BackboneError)]
    assert 15 < len(failed) < 45
    assert {(e.code, e.retriable) for e in failed} == {("server_error", False)}
    assert [type(o) for o in first] == [type(o) for o in second]


async def test_a_script_may_decide_some_replies() -> None:
    def script(request: ChatRequest) -> ChatReply | None:
        return ChatReply(text="scripted") if request.temperature > 0 else None

    backbone = ScriptedBackbone(script=script)
    assert (await backbone.complete(ask(temperature=0.6), budget_s=1)).text == "scripted"
    assert await backbone.complete(ask(), budget_s=1) == await ScriptedBackbone().complete(ask(), budget_s=1)
    await backbone.close()


async def test_a_scripted_reply_takes_the_pretended_time_of_its_request() -> None:
    """What a script says is slept for like any other reply, and says so."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    timing = ScriptedSettings(latency_s=(1.0, 3.0))
    backbone = ScriptedBackbone(timing, sleep, script=lambda _: ChatReply(text="scripted"))
    reply = await backbone.complete(ask(), budget_s=60)
    hashed = await ScriptedBackbone(timing, sleep).complete(ask(), budget_s=60)
    assert (reply.text, reply.latency_s) == ("scripted", hashed.latency_s)
    assert slept == [reply.latency_s, hashed.latency_s]


TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                "note": {"type": ["object", "null"], "properties": {"n": {"$ref": "#/$defs/node"}}},
            },
            "required": ["name", "next", "children", "note"],
        }
    },
    "$ref": "#/$defs/node",
}


def instance(schema: Any, key: int = 0) -> Any:
    return InstanceBuilder(schema, HashDraws(str(key).encode()), QUESTION.split()).build()


@pytest.mark.parametrize("key", range(10))
def test_recursive_schemas_end(key: int) -> None:
    jsonschema.validate(instance(TREE, key), TREE)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": False},
        {"prefixItems": [{"const": 1}], "minItems": 3, "maxItems": 3},
        {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "uniqueItems": True},
        {"type": "array", "items": {"enum": [1]}, "maxItems": 3, "uniqueItems": True},
        {"required": ["x", "y"], "additionalProperties": {"type": "integer"}},
        {"minimum": 0.25, "maximum": 0.25},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-9},
        {"type": "integer", "exclusiveMinimum": 0.5, "exclusiveMaximum": 1.5},
        {"type": "integer", "minimum": 10**30},
        {
            "allOf": [{"$ref": "#/$defs/p"}, {"properties": {"b": {"const": 2}}, "required": ["b"]}],
            "$defs": {"p": {"type": "object", "properties": {"a~/": {"const": 1}}, "required": ["a~/"]}},
        },
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}},
        {"oneOf": [True]},
        {"properties": {"a": {"title": "x"}}, "allOf": [{"properties": {"a": {"const": 1, "title": "y"}}}]},
        {"type": "object", "allOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}]},
        {"type": "string", "minLength": 200, "maxLength": 201},
    ],
)
@pytest.mark.parametrize("key", range(4))
def test_less_common_schemas_are_satisfied(schema: Any, key: int) -> None:
    jsonschema.validate(instance(schema, key), schema)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            {"properties": {"a": {"type": "string", "pattern": "^x$"}}, "required": ["a"]},
            "#/a: the keyword 'pattern'",
        ),
        ({"minimum": 1, "allOf": [{"minimum": 2}]}, "'minimum' given twice"),
        ({"type": "dict"}, "the type 'dict' is not understood"),
        ({"enum": []}, "nothing to choose from"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "at least 2 and at most 1"),
        ({"type": "number", "minimum": 2, "maximum": 1}, "at least 2.0 and at most 1.0"),
        ({"type": "string", "minLength": 2, "maxLength": 1}, "between 2 and 1"),
        ({"type": "number", "multipleOf": 0.1}, "multipleOf"),
        ({"type": "array", "items": {"const": 1}, "minItems": 2, "uniqueItems": True}, "2 different items"),
        ({"type": "array", "items": False, "minItems": 1}, "at least 1 and at most 0"),
        ({"required": ["a"], "additionalProperties": False}, "#/a: nothing satisfies False"),
        ({"$ref": "#/$defs/gone"}, "leads nowhere"),
        ({"$ref": "https://elsewhere"}, "leads nowhere"),
        ({"$ref": "#/$defs/a/b", "$defs": {"a": 3}}, "leads nowhere"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "without end"),
    ],
)
def test_a_schema_that_cannot_be_met_is_refused_by_place_and_reason(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        instance(schema)
    assert reason in str(caught.value)
    with pytest.raises(BackboneError) as refused:
        reply_to(ask(response_schema=schema))
    assert (refused.value.code, refused.value.retriable) == ("bad_request", False)


def test_a_tool_whose_parameters_are_no_object_is_refused() -> None:
    tools = ({"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}},)
    with pytest.raises(BackboneError, match="'f' do not describe an object"):
        reply_to(ask(tools=tools), tool_call_rate=1.0)


@pytest.mark.parametrize("latency", [(2.0, 1.0), (-1.0, 1.0)])
def test_a_latency_that_is_no_range_is_refused(latency: tuple[float, float]) -> None:
    with pytest.raises(ValidationError, match="shortest, longest"):
        ScriptedSettings(latency_s=latency)
