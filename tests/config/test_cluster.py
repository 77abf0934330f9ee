"""Where and how fast."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from chime_dist.config.cluster import (
    ClusterConfig,
    HttpEndpoint,
    LlamaCppEndpoint,
    QdrantConfig,
    RedisConfig,
    ScriptedEndpoint,
    unreachable,
    with_environment,
)
from chime_dist.errors import ConfigError
from tests.config.conftest import SWEEP, Load


def test_the_default_cluster_is_this_process() -> None:
    cluster = ClusterConfig()
    assert (cluster.execution, cluster.slots, cluster.workers) == ("local", 16, 1)
    assert (cluster.lease_s, cluster.max_deliveries, cluster.stop_after_infra) == (60.0, 3, 3)
    assert cluster.redelivery_pause_s == 1.0
    assert (cluster.redis.mode, cluster.qdrant.mode, cluster.runs_dir) == ("local", "memory", "runs")
    assert unreachable(cluster) is None


@pytest.mark.parametrize(
    ("written", "mode", "url"),
    [
        ("local", "local", None),
        ("embedded", "embedded", None),
        ("redis://h:6379/0", "server", "redis://h:6379/0"),
        ("unix:///run/r.sock", "server", "unix:///run/r.sock"),
        ({"url": "rediss://h"}, "server", "rediss://h"),
        ({"mode": "server", "url": "redis://h", "assume_durable": True}, "server", "redis://h"),
        ({"assume_durable": True}, "local", None),
    ],
)
def test_redis_is_a_mode_or_a_url(written: Any, mode: str, url: str | None) -> None:
    redis = RedisConfig.model_validate(written)
    assert redis.mode == mode
    assert (redis.url.reveal() if redis.url else None) == url
    assert RedisConfig.model_validate(redis.model_dump()) == redis


@pytest.mark.parametrize(
    "written", ["remote", "http://h", {"mode": "server"}, {"mode": "local", "url": "redis://h"}]
)
def test_a_redis_that_is_neither_is_refused(written: Any) -> None:
    with pytest.raises(ValidationError):
        RedisConfig.model_validate(written)


def test_qdrant_is_a_mode_or_a_url() -> None:
    assert QdrantConfig.model_validate("edge").mode == "edge"
    server = QdrantConfig.model_validate({"url": "http://q:6333", "api_key": "k"})
    assert (server.mode, server.api_key and server.api_key.reveal()) == ("server", "k")
    for wrong in ("redis://h", {"mode": "edge", "url": "http://q"}, "disk"):
        with pytest.raises(ValidationError):
            QdrantConfig.model_validate(wrong)


FILES = {"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client-key.pem"}


def test_certificates_go_with_tls() -> None:
    """Paths are no secrets: they are shown and stored as they are."""
    redis = RedisConfig.model_validate({"url": "rediss://h", **FILES})
    assert redis.model_dump(mode="json") | FILES == redis.model_dump(mode="json")
    both_in_one = RedisConfig.model_validate({"url": "rediss://h", "cert_file": "both.pem"})
    assert (both_in_one.cert_file, both_in_one.key_file) == ("both.pem", None)
    qdrant = QdrantConfig.model_validate({"url": "https://q", "ca_file": "ca.pem"})
    assert qdrant.ca_file == "ca.pem"
    waiting = ClusterConfig.model_validate({"redis": FILES, "qdrant": {"ca_file": "ca.pem"}})
    found = with_environment(waiting, {"CHIME_REDIS_URL": "rediss://h", "CHIME_QDRANT_URL": "https://q"})
    assert (found.redis, found.qdrant) == (
        redis.model_copy(update={"url": found.redis.url}),
        qdrant.model_copy(update={"url": found.qdrant.url}),
    )


@pytest.mark.parametrize(
    ("part", "written", "message"),
    [
        (RedisConfig, {"url": "redis://h", "ca_file": "c"}, "ca_file: of use with a rediss:// url only"),
        (RedisConfig, {"mode": "embedded", **FILES}, "ca_file and cert_file and key_file: of use"),
        (RedisConfig, {"url": "rediss://h", "key_file": "k"}, "key_file is the key of cert_file: set cert_file"),
        (RedisConfig, {"url": "rediss://h", "ca_file": ""}, "at least 1 character"),
        (QdrantConfig, {"url": "http://q", "ca_file": "c"}, "ca_file: of use with a https:// url only"),
        (QdrantConfig, {"mode": "edge", "ca_file": "c"}, "ca_file: of use with a https:// url only"),
    ],
)
def test_certificates_without_tls_are_refused(part: type[BaseModel], written: Any, message: str) -> None:
    """Whoever named a certificate did not want to send in the clear."""
    with pytest.raises(ValidationError, match=message):
        part.model_validate(written)


def test_the_environment_changes_the_address_and_keeps_the_certificates() -> None:
    cluster = ClusterConfig.model_validate(
        {"redis": {"url": "rediss://old", **FILES}, "qdrant": {"url": "https://old", "ca_file": "ca.pem"}}
    )
    moved = with_environment(cluster, {"CHIME_REDIS_URL": "rediss://new", "CHIME_QDRANT_URL": "https://new"})
    assert moved.redis.model_dump(include=set(FILES)) == FILES
    assert moved.qdrant.ca_file == "ca.pem"
    with pytest.raises(ConfigError, match=r"CHIME_REDIS_URL: .*of use with a rediss:// url only"):
        with_environment(cluster, {"CHIME_REDIS_URL": "redis://new"})


def test_endpoints_are_told_apart_by_kind() -> None:
    cluster = ClusterConfig.model_validate(
        {
            "endpoints": {
                "a": {"url": "http://h/v1"},
                "b": {"kind": "scripted", "latency_s": [0.1, 0.5]},
                "c": {"kind": "llamacpp"},
                "d": HttpEndpoint.model_validate({"kind": "http", "url": "https://h/v1"}),
            }
        }
    )
    a, b, c, d = (cluster.endpoints[name] for name in "abcd")
    assert isinstance(a, HttpEndpoint)
    assert isinstance(d, HttpEndpoint)
    assert b == ScriptedEndpoint(kind="scripted", latency_s=(0.1, 0.5))
    assert c == LlamaCppEndpoint(kind="llamacpp", slots=4, slot_tokens=2048, threads=1)
    assert ClusterConfig.model_validate(cluster.model_dump(mode="json")) == cluster


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("{kind: scripte}", "unknown kind; expected one of 'http', 'scripted', 'llamacpp'"),
        (
            "{kind: scripted, url: 'http://h'}",
            "url: unknown key; known here: kind, latency_s",
        ),
        ("{kind: scripted, latency_s: [2, 1]}", r"latency_s is \[shortest, longest\] in seconds, got \[2, 1\]"),
        ("{url: 'redis://h'}", "the url starts with none of http://, https://"),
        ("{kind: http}", "url: is missing"),
        ("http://h/v1", "text: expected a mapping"),
    ],
)
def test_a_wrong_endpoint_names_its_key(load: Load, endpoint: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(SWEEP.replace("{kind: scripted}", endpoint))
    assert 'cluster.endpoints."qwen3.5-flash"' in str(caught.value)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"url": "http://u:pw@h/v1", "api_key": "k"}, "url and in api_key"),
        ({"url": "http://token@h/v1", "api_key": "k"}, "url and in api_key"),
        ({"url": "http://:@h/v1", "headers": {"AUTHORIZATION": "k"}}, "url and in headers.AUTHORIZATION"),
        ({"url": "http://h/v1", "api_key": "k", "headers": {"authorization": "l"}}, "api_key and in headers"),
        ({"url": "http://u:pw@h", "api_key": "k", "headers": {"Authorization": "l"}}, "url and in api_key and in"),
    ],
)
def test_credentials_in_two_places_are_refused_and_the_places_named(load: Load, more: Any, named: str) -> None:
    """H6: the HTTP client refuses some of these pairs at run time, and of the others one would win silently."""
    with pytest.raises(ConfigError, match=f"credentials are in {named}") as caught:
        load(SWEEP.replace("{kind: scripted}", json.dumps(more)))
    assert 'cluster.endpoints."qwen3.5-flash"' in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    "written",
    [
        {"url": "http://u:pw@h/v1", "headers": {"X-Team": "t"}},
        {"url": "http://h/v1?q=a@b", "api_key": "k", "headers": {"X-Team": "t"}},
        {"url": "http://h/v1", "headers": {"Authorization": "Basic dTpw"}},
    ],
)
def test_credentials_in_one_place_are_fine(written: Any) -> None:
    assert isinstance(HttpEndpoint.model_validate(written), HttpEndpoint)


def test_environment_variables_replace_what_the_config_says() -> None:
    cluster = ClusterConfig.model_validate(
        {
            "redis": {"assume_durable": True},
            "qdrant": {"url": "http://old", "api_key": "k"},
            "ray": {"num_cpus": 2},
        }
    )
    environ = {
        "CHIME_REDIS_URL": "redis://:pw@new:6379/1",
        "CHIME_QDRANT_URL": "https://new:6333",
        "RAY_ADDRESS": "new:6379",
    }
    moved = with_environment(cluster, environ)
    assert moved.redis.url is not None
    assert (moved.redis.mode, moved.redis.url.reveal()) == ("server", "redis://:pw@new:6379/1")
    assert (moved.redis.assume_durable, str(moved.redis.url)) == (True, "${CHIME_REDIS_URL}")
    assert moved.qdrant.url is not None
    assert (moved.qdrant.mode, moved.qdrant.url.reveal()) == ("server", "https://new:6333")
    assert moved.qdrant.api_key == cluster.qdrant.api_key
    assert (moved.ray.address, moved.ray.num_cpus, moved.ray.remote) == ("new:6379", 2, True)
    assert with_environment(cluster, {}) == cluster
    assert with_environment(cluster, dict.fromkeys(environ, "")) == cluster


@pytest.mark.parametrize("variable", ["CHIME_REDIS_URL", "CHIME_QDRANT_URL"])
@pytest.mark.parametrize("value", ["canary-1", "canary-1:canary-2", "ftp://canary-1", "http://[canary-1"])
def test_a_bad_url_in_the_environment_names_the_variable(variable: str, value: str) -> None:
    """H6: and not the value."""
    with pytest.raises(ConfigError, match=variable) as caught:
        with_environment(ClusterConfig(), {variable: value})
    assert "canary" not in str(caught.value)


def test_loading_applies_the_environment(load: Load) -> None:
    sweep = load(environ={"CHIME_REDIS_URL": "redis://h"})
    assert sweep.cluster.redis.mode == "server"


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ("{execution: ray}", "cluster.redis is 'local', inside this process"),
        ("{execution: ray, redis: embedded, ray: {address: auto}}", "set CHIME_REDIS_URL or cluster.redis.url"),
    ],
)
def test_workers_that_could_not_reach_the_queue_are_refused(load: Load, cluster: str, message: str) -> None:
    """Design "The queue": with a remote Ray and no CHIME_REDIS_URL, a start error that names the fix."""
    with pytest.raises(ConfigError, match=message):
        load(overrides=[f"cluster={cluster[:-1]}, endpoints: {{qwen3.5-flash: {{kind: scripted}}}}}}"])
    reachable = load(
        overrides=["cluster.execution=ray"], environ={"CHIME_REDIS_URL": "redis://h", "RAY_ADDRESS": "x"}
    )
    assert unreachable(reachable.cluster) is None


def test_a_ray_on_this_machine_reaches_an_embedded_redis() -> None:
    assert unreachable(ClusterConfig.model_validate({"execution": "ray", "redis": "embedded"})) is None


def test_workers_share_the_slots(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"cluster: workers \(4\) cannot outnumber slots \(2\)"):
        load(overrides=["cluster.slots=2", "cluster.workers=4"])
