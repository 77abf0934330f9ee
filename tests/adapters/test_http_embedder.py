"""The HTTP embedder against an endpoint that refuses, shuffles, forgets and lies."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr, ValidationError
from structlog.testing import capture_logs

from chime_dist.adapters.embedding.http import HttpEmbedder, HttpEmbedderSettings
from chime_dist.config.cluster import ClusterConfig, HttpEndpoint
from chime_dist.config.models import BackboneModel, EmbedderModel
from chime_dist.config.run import RunConfig
from chime_dist.config.schema import Component
from chime_dist.config.secrets import Secret, SecretUrl
from chime_dist.core.retry import RetryPolicy
from chime_dist.core.vector import Vector
from chime_dist.errors import ConfigError, EmbeddingError
from chime_dist.ports import EmbedderFingerprint
from chime_dist.wiring import embedders, services

Answer = Callable[[list[str]], web.StreamResponse]


def entry(index: int, text: str) -> dict[str, Any]:
    """A vector that says which text it is of."""
    return {"object": "embedding", "index": index, "embedding": [float(len(text)), 1.0, -0.5]}


def entries(texts: list[str]) -> list[dict[str, Any]]:
    return [entry(index, text) for index, text in enumerate(texts)]


def well(texts: list[str]) -> web.StreamResponse:
    return web.json_response({"object": "list", "data": entries(texts)})


def data(change: Callable[[list[dict[str, Any]]], Any]) -> Answer:
    """A reply with status 200 whose ``data`` was tampered with."""

    def answer(texts: list[str]) -> web.StreamResponse:
        return web.json_response({"data": change(entries(texts))})

    return answer


def embedding(value: Any) -> Answer:
    """A reply in which the second text has ``value`` for a vector."""
    return data(lambda items: [*items[:1], {**items[1], "embedding": value}, *items[2:]])


def says(status: int, body: str = "", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda texts: web.Response(status=status, text=body, headers=named)


class SkippingClock:
    """Time passes for real, and at once when slept on; remembers what was waited for."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> datetime:
        """A fixed instant."""
        return datetime(2026, 11, 6, 10, 0, 0, tzinfo=UTC)

    def monotonic(self) -> float:
        """Real seconds plus those slept."""
        return time.monotonic() + sum(self.waits)

    async def sleep(self, seconds: float) -> None:
        """Return at once."""
        self.waits.append(seconds)
        await asyncio.sleep(0)


class Endpoint:
    """Answers are taken in order; the last one is repeated. Everything received is kept."""

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        self.answers = answers
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """The next answer."""
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization"))
        return self.answers[min(len(self.bodies), len(self.answers)) - 1](body["input"])

    @property
    def asked(self) -> list[list[str]]:
        """Texts of each request."""
        return [body["input"] for body in self.bodies]


@asynccontextmanager
async def listening(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """The base URL of a server on a free loopback port."""
    app = web.Application()
    app.router.add_post("/v1/embeddings", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def talking_to(
    *answers: Answer, **settings: Any
) -> AsyncIterator[tuple[HttpEmbedder, Endpoint, SkippingClock]]:
    endpoint, clock = Endpoint(answers), SkippingClock()
    async with listening(endpoint.handle) as url:
        known = {"base_url": url, "model": "m", "dim": 3, "retry": RetryPolicy(jitter=False)}
        yield HttpEmbedder(HttpEmbedderSettings(**(known | settings)), clock), endpoint, clock


def vector(text: str) -> Vector:
    return Vector.of([float(len(text)), 1.0, -0.5])


async def test_texts_come_back_as_vectors_in_order_and_in_batches() -> None:
    """R11: at most ``batch_size`` texts in one request."""
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    async with talking_to(well, batch_size=2, api_key=SecretStr("canary")) as (embedder, endpoint, _):
        assert await embedder.embed(texts, "document") == [vector(text) for text in texts]
        assert await embedder.embed([], "document") == []
    assert endpoint.asked == [["a", "bb"], ["ccc", "dddd"], ["eeeee"]]
    assert endpoint.bodies[0] == {"model": "m", "input": ["a", "bb"]}
    assert endpoint.keys == ["Bearer canary"] * 3


def telling(usage: Any) -> Answer:
    """A good reply with this ``usage``; None is for a token a character."""

    def answer(texts: list[str]) -> web.StreamResponse:
        told = {"prompt_tokens": sum(map(len, texts))} if usage is None else usage
        return web.json_response({"data": entries(texts), "usage": told})

    return answer


async def test_the_tokens_of_all_requests_come_with_the_vectors() -> None:
    """Batches, and texts that were asked for one by one, are summed; what was refused was not told."""
    refused = says(400, json.dumps({"error": {"message": "maximum context length is 5 tokens"}}))
    async with talking_to(telling(None), refused, telling(None), batch_size=2) as (embedder, endpoint, _):
        told = await embedder.embed(["a", "bb", "ccc", "dddd"], "document")
    assert endpoint.asked == [["a", "bb"], ["ccc", "dddd"], ["ccc"], ["dddd"]]
    assert (told, told.prompt_tokens) == ([vector(text) for text in ("a", "bb", "ccc", "dddd")], 10)


@pytest.mark.parametrize(
    "usage", [{}, [], "7", {"prompt_tokens": -1}, {"prompt_tokens": True}, {"prompt_tokens": "7"}]
)
async def test_what_is_no_count_of_tokens_counts_as_none(usage: Any) -> None:
    async with talking_to(telling(usage)) as (embedder, _, _):
        assert (await embedder.embed(["a"], "document")).prompt_tokens == 0


async def test_the_prompt_is_put_before_queries_only() -> None:
    """F1: same text stored and queried; the prompt is part of what may not change under a bank."""
    async with talking_to(well, query_prompt="query: ") as (embedder, endpoint, _):
        await embedder.embed(["x"], "query")
        await embedder.embed(["x"], "document")
    assert endpoint.asked == [["query: x"], ["x"]]
    assert embedder.fingerprint == EmbedderFingerprint(model="m", dim=3, query_prompt="query: ")


async def test_the_index_decides_which_vector_belongs_to_which_text() -> None:
    texts = ["a", "bb", "ccc"]
    async with talking_to(data(lambda items: items[::-1])) as (embedder, _, _):
        assert await embedder.embed(texts, "document") == [vector(text) for text in texts]


async def test_a_busy_endpoint_is_asked_again_after_the_time_it_names() -> None:
    """R37: 429 and 5xx are retried, Retry-After is a floor under the wait."""
    async with talking_to(says(429, Retry_After="70"), says(503), well) as (embedder, endpoint, clock):
        assert await embedder.embed(["bb"], "document") == [vector("bb")]
    assert len(endpoint.asked) == 3
    assert clock.waits == [70.0, 100.0]


async def test_a_batch_that_failed_is_repeated_alone() -> None:
    async with talking_to(well, says(500), well, batch_size=1) as (embedder, endpoint, _):
        assert len(await embedder.embed(["a", "bb"], "document")) == 2
    assert endpoint.asked == [["a"], ["bb"], ["bb"]]


async def test_a_refused_request_fails_at_once() -> None:
    """R37: 4xx other than 408, 409 and 429 is not retried; secrets stay out of errors and logs (H6)."""
    refusal = says(400, json.dumps({"error": {"message": "no model for canary here"}}))
    async with talking_to(refusal, api_key=SecretStr("canary")) as (embedder, endpoint, clock):
        with capture_logs() as logs, pytest.raises(EmbeddingError, match=r"m: bad_request: no model for \*\*\*"):
            await embedder.embed(["confidential"], "document")
    assert (len(endpoint.asked), clock.waits) == (1, [])
    assert [event["event"] for event in logs] == ["embedding.failed"]
    assert "canary" not in str(logs)
    assert "confidential" not in str(logs)


async def test_retries_end_with_the_budget_or_their_number() -> None:
    """A7: attempts and waits together stay inside the budget."""
    async with talking_to(says(503), budget_s=200.0) as (embedder, endpoint, clock):
        with pytest.raises(EmbeddingError, match="server_error"):
            await embedder.embed(["a"], "document")
    assert clock.waits == [50.0, 100.0]
    assert len(endpoint.asked) == 3
    async with talking_to(says(503), retry=RetryPolicy(jitter=False, max_retries=1)) as (embedder, endpoint, _):
        with pytest.raises(EmbeddingError, match="after 2 failed requests"):
            await embedder.embed(["a"], "document")
    assert len(endpoint.asked) == 2


async def test_nobody_listens() -> None:
    settings = HttpEmbedderSettings(
        base_url="http://127.0.0.1:9", model="m", dim=3, retry=RetryPolicy(jitter=False, max_retries=2)
    )
    clock = SkippingClock()
    with pytest.raises(EmbeddingError, match="unreachable"):
        await HttpEmbedder(settings, clock).embed(["a"], "document")
    assert clock.waits == [50.0, 100.0]


async def test_an_endpoint_that_hangs_is_cut_off() -> None:
    """A7: one wall-clock timeout over connecting, waiting and reading."""

    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    retry = RetryPolicy(timeout_s=0.05, max_retries=0)
    async with listening(hang) as url:
        embedder = HttpEmbedder(HttpEmbedderSettings(base_url=url, model="m", dim=3, retry=retry), SkippingClock())
        with pytest.raises(EmbeddingError, match=r"timeout: no complete reply within 0\.05 s"):
            await embedder.embed(["a"], "document")


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        pytest.param(data(lambda items: items[:-1]), "lacks entries for 1 of 3 texts", id="missing item"),
        pytest.param(data(lambda items: [items[0], items[0], items[2]]), "index '0' for 3 texts", id="twice"),
        pytest.param(data(lambda items: [*items, entry(3, "x")]), "index '3' for 3 texts", id="one too many"),
        pytest.param(data(lambda items: [{"embedding": [1, 2, 3]}] * 3), "index 'None'", id="no index"),
        pytest.param(data(lambda items: None), "no list 'data'", id="no data"),
        pytest.param(says(200, "<html>"), "not JSON", id="not JSON"),
        pytest.param(embedding([1.0, 2.0]), "text 1: the server gives 2 components, expected 3", id="wrong dim"),
        pytest.param(embedding([[1.0, 2.0, 3.0]]), "text 1: .*shape", id="nested"),
        pytest.param(embedding([1.0, [2.0], 3.0]), "text 1: .*not one list of numbers", id="ragged"),
        pytest.param(embedding([1.0, None, 3.0]), "text 1: .*not one list of numbers", id="null"),
        pytest.param(embedding("AAAA"), "text 1: .*not one list of numbers", id="base64"),
        pytest.param(embedding([1.0, float("nan"), 3.0]), "text 1: .*not finite", id="NaN"),
        pytest.param(embedding([1.0, 1e300, 3.0]), "text 1: .*not finite", id="too large for float32"),
        pytest.param(embedding([0, 0, 0]), "text 1: .*zero vector", id="zero"),
    ],
)
async def test_a_reply_without_one_usable_vector_per_text_is_refused(answer: Answer, complaint: str) -> None:
    """F4, F7: nothing is guessed, padded or cut, and the same question is not asked again."""
    async with talking_to(answer) as (embedder, endpoint, _):
        with pytest.raises(EmbeddingError, match=complaint):
            await embedder.embed(["a", "bb", "ccc"], "document")
    assert len(endpoint.asked) == 1


async def test_the_index_in_an_error_counts_over_all_batches() -> None:
    async with talking_to(well, data(lambda items: [{**items[0], "embedding": []}]), batch_size=2) as (
        embedder,
        _,
        _,
    ):
        with pytest.raises(EmbeddingError, match="m, text 2: "):
            await embedder.embed(["a", "b", "c"], "document")


async def test_unembeddable_texts_are_refused_before_anything_is_sent() -> None:
    async with talking_to(well) as (embedder, endpoint, _):
        with pytest.raises(EmbeddingError, match="text 1 of 2"):
            await embedder.embed(["a", "\u200b"], "query")
    assert endpoint.asked == []


async def test_what_is_longer_than_the_limit_is_cut_and_counted() -> None:
    """F5, R11: a quarter of the ASCII characters and all others, prompt included; no text enters a log."""
    async with talking_to(well, max_tokens=4, query_prompt="q: ") as (embedder, endpoint, _):
        with capture_logs() as logs:
            assert len(await embedder.embed(["x" * 16, "y" * 17, "长" * 5], "document")) == 3
            await embedder.embed(["z" * 14], "query")
    assert endpoint.asked == [["x" * 16, "y" * 16, "长" * 4], ["q: " + "z" * 13]]
    assert embedder.truncated == 3
    assert [event["event"] for event in logs] == ["embedding.truncated"] * 3
    assert "yyyy" not in str(logs)


def takes(characters: int) -> Answer:
    """A server with a context of so many characters."""

    def answer(texts: list[str]) -> web.StreamResponse:
        if all(len(text) <= characters for text in texts):
            return well(texts)
        message = f"This model's maximum context length is {characters} tokens."
        return web.json_response({"error": {"message": message}}, status=400)

    return answer


async def test_a_text_that_the_server_finds_too_long_is_halved_and_its_company_is_not() -> None:
    """F3, F5: a text has the same vector alone and in any batch."""
    texts = ["a", "b" * 40, "ccc"]
    async with talking_to(takes(10), batch_size=3) as (embedder, endpoint, clock):
        together = await embedder.embed(texts, "document")
        alone = [vector for text in texts for vector in await embedder.embed([text], "document")]
    assert together == alone == [vector("a"), vector("b" * 10), vector("ccc")]
    assert endpoint.asked[:6] == [texts, ["a"], ["b" * 40], ["b" * 20], ["b" * 10], ["ccc"]]
    assert (embedder.truncated, clock.waits) == (4, [])


async def test_a_server_that_finds_everything_too_long_is_given_up() -> None:
    async with talking_to(takes(0)) as (embedder, endpoint, _):
        with pytest.raises(EmbeddingError, match="m: context_overflow"):
            await embedder.embed(["bbbb"], "document")
    assert endpoint.asked == [["bbbb"], ["bb"], ["b"]]


async def test_an_endless_reply_is_refused() -> None:
    async with talking_to(well, max_response_bytes=20) as (embedder, _, _):
        with pytest.raises(EmbeddingError, match="exceeds 20 bytes"):
            await embedder.embed(["a"], "document")


def test_the_url_must_be_http() -> None:
    with pytest.raises(ValidationError, match="must start with http"):
        HttpEmbedderSettings(base_url="ftp://host", model="m", dim=3)


async def test_a_launch_builds_it_from_its_config(tmp_path: Path) -> None:
    """R11, R37: the sweep says which model and how patiently, the cluster says where."""
    run = RunConfig(
        benchmark=Component(name="b"),
        method=Component(name="m"),
        backbone=BackboneModel(name="x", model="x"),
        embedder=EmbedderModel(kind="http", model="m", dim=3, query_prompt="q: ", batch_size=1, max_length=2),
        ordering=0,
    )
    endpoint = Endpoint((well,))
    async with listening(endpoint.handle) as url:
        here = HttpEndpoint(url=SecretUrl.of(url), api_key=Secret.of("key"))
        cluster = ClusterConfig(endpoints={"embedder": here})
        spec = services.LaunchSpec("launch", tmp_path, tmp_path, {"run": run}, cluster, {})
        embedder = await embedders.embedder(spec)
        assert await embedder.embed(["a", "bb" * 9], "query") == [vector("q: a"), vector("q: bbbbb")]
    assert (endpoint.asked, endpoint.keys[0]) == ([["q: a"], ["q: bbbbb"]], "Bearer key")
    assert embedder.fingerprint == EmbedderFingerprint(model="m", dim=3, query_prompt="q: ")
    nowhere = services.LaunchSpec("launch", tmp_path, tmp_path, {"run": run}, ClusterConfig(), {})
    with pytest.raises(ConfigError, match=r"cluster\.endpoints\.embedder"):
        await embedders.embedder(nowhere)
