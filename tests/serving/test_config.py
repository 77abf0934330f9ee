"""Backbones of our own in a config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from chime_dist.config.cluster import ClusterConfig, RayConfig
from chime_dist.config.serving import VllmEndpoint
from chime_dist.config.serving_file import load_served
from chime_dist.errors import ConfigError

FILE = """\
backbones: [{name: qwen, model: Qwen/Qwen3.5-Flash}, other]
benchmarks: [{name: credit_world, seed: "${SEED}"}]
cluster:
  slots: 64
  runs_dir: results
  redis: ${NO_SUCH_REDIS}
  ray: {address: "10.0.0.1:6379"}
  endpoints:
    qwen: {kind: vllm, replicas: 2, secret_env: {HF_TOKEN: "${HF_TOKEN}"}}
    plain: {kind: vllm, model: /weights/plain}
    other: {url: "${NO_SUCH_URL}"}
"""


def test_the_smallest_endpoint_is_one_replica_on_one_gpu() -> None:
    endpoint = VllmEndpoint(kind="vllm")
    assert (endpoint.replicas, endpoint.nodes, endpoint.gpus_per_node) == (1, 1, 1)
    assert endpoint.command == ("vllm", "serve")
    assert endpoint.policy == "consistent_hash"
    assert ClusterConfig.model_validate({"endpoints": {"m": {"kind": "vllm"}}}).endpoints["m"] == endpoint


@pytest.mark.parametrize(
    ("keys", "per_node"),
    [
        ({"tensor_parallel": 8}, 8),
        ({"tensor_parallel": 8, "pipeline_parallel": 2, "nodes": 2}, 8),
        ({"gpus": 0}, 0),
        ({"gpus": 8, "flags": {"data-parallel-size": 8}}, 8),
    ],
)
def test_gpus_follow_the_ranks_unless_they_are_given(keys: dict[str, Any], per_node: int) -> None:
    assert VllmEndpoint.model_validate({"kind": "vllm", **keys}).gpus_per_node == per_node


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"tensor_parallel": 3, "nodes": 2}, "3 GPUs cannot be shared evenly by 2 nodes"),
        ({"flags": {"--dtype": "auto"}}, "without the dashes"),
        ({"router": {"flags": {"--port": 1}}}, "without the dashes"),
        ({"flags": {"max_model_len": 5}}, "max-model-len is decided by the endpoint's other keys"),
        ({"command": []}, "at least 1 item"),
        ({"replicas": 0}, "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_served_is_refused(keys: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        VllmEndpoint.model_validate({"kind": "vllm", **keys})


def test_a_written_out_secret_of_the_server_is_named_and_not_stored() -> None:
    endpoint = {"kind": "vllm", "secret_env": {"HF_TOKEN": "hf_written_out"}}
    cluster = ClusterConfig.model_validate({"endpoints": {"m": endpoint}})
    assert cluster.written_out_secrets() == ["endpoints.m.secret_env.HF_TOKEN"]
    assert "hf_written_out" not in cluster.model_dump_json()


def written(folder: Path, text: str = FILE) -> Path:
    file = folder / "sweep.yaml"
    file.write_text(text)
    return file


def test_one_backbone_of_a_sweep_is_read_and_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    served = load_served("qwen", written(tmp_path), environ={"HF_TOKEN": "hf_1"})
    assert (served.name, served.model, served.endpoint.replicas) == ("qwen", "Qwen/Qwen3.5-Flash", 2)
    assert served.endpoint.secret_env["HF_TOKEN"].reveal() == "hf_1"
    assert (served.cluster.ray.address, served.cluster.runs_dir) == ("10.0.0.1:6379", "results")
    assert list(served.cluster.endpoints) == ["qwen"]


def test_the_embedder_is_called_what_the_sweep_calls_it(tmp_path: Path) -> None:
    text = (
        "embedder: {kind: http, model: Qwen/E}\ncluster: {endpoints: {embedder: {kind: vllm, runner: pooling}}}\n"
    )
    served = load_served("embedder", written(tmp_path, text), environ={})
    assert (served.model, served.endpoint.policy) == ("Qwen/E", "round_robin")


def test_overrides_and_the_environment_count_and_the_model_may_be_the_endpoints(tmp_path: Path) -> None:
    file = written(tmp_path)
    changed = ["cluster.endpoints.plain.replicas=3"]
    served = load_served("plain", file, changed, environ={"RAY_ADDRESS": "10.0.0.9:6379"})
    assert (served.model, served.endpoint.replicas) == ("/weights/plain", 3)
    assert served.cluster.ray == RayConfig(address="10.0.0.9:6379")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("qwem", FILE, "did you mean 'qwen'"),
        ("other", FILE.replace("${NO_SUCH_URL}", "http://h"), "kind 'http'; only 'vllm' is ours to serve"),
        ("qwen", FILE, "HF_TOKEN is not set"),
        ("plain", FILE.replace("model: /weights", "modle: /weights"), "modle"),
        ("qwen", "cluster: 5", "no cluster.endpoints.qwen"),
        ("qwen", "backbones: [qwen]", "no cluster.endpoints.qwen"),
    ],
)
def test_what_cannot_be_read_says_where_and_why(tmp_path: Path, name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_served(name, written(tmp_path, text), environ={})
