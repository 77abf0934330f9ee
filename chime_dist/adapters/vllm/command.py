"""Command lines and environments of vLLM and its router, from their config. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chime_dist.config.serving import VllmEndpoint
from chime_dist.core.episode import Json

PLUGIN = "chime_dist_lifeline"
"""The name under which vLLM finds our plugin."""

_DEFAULT_FLAGS: Mapping[str, Json] = {
    "enable-prefix-caching": True,
    # So that a reply says how much of its prompt was in the cache.
    "enable-prompt-tokens-details": True,
    # Without the second key a small model fills its whole output with white space.
    "structured-outputs-config": {"backend": "xgrammar", "disable_any_whitespace": True},
}
_GENERATE_ONLY = ("structured-outputs-config", "enable-prompt-tokens-details")

_ROUTER_FLAGS: Mapping[str, Json] = {
    # Its defaults notice a dead replica after a minute, and a recovered one after two.
    "worker-startup-check-interval": 1,
    "health-check-interval-secs": 2,
    "health-check-timeout-secs": 2,
    "health-failure-threshold": 1,
    "health-success-threshold": 1,
    "cb-failure-threshold": 2,
    "cb-timeout-duration-secs": 5,
    # Above the longest request (R37), which has a deadline of its own.
    "request-timeout-secs": 3600,
    # Below that it logs every request.
    "log-level": "warning",
}

_NOT_INHERITED = (
    # Ray's default of one thread is for its own tasks.
    "OMP_NUM_THREADS",
    # vLLM may live in another environment than this package.
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
)


@dataclass(frozen=True, slots=True)
class NodeRank:
    """One machine's part of a replica that spans several."""

    rank: int
    """0-based; rank 0 answers requests."""
    nodes: int
    master_host: str
    master_port: int


def engine_command(
    endpoint: VllmEndpoint, served_model: str, host: str, port: int, node: NodeRank | None = None
) -> list[str]:
    """The command that serves ``endpoint`` under the name ``served_model`` at ``host:port``.

    ``node`` is None for a replica on one machine. Other ranks than 0 answer no requests.
    """
    model = endpoint.model or served_model
    words = [*endpoint.command, *([model] if endpoint.command[-1] == "serve" else ["--model", model])]
    own: dict[str, Json] = {"served-model-name": served_model}
    if node is None or node.rank == 0:
        own |= {"host": host, "port": port}
    own |= {
        "tensor-parallel-size": endpoint.tensor_parallel,
        "pipeline-parallel-size": endpoint.pipeline_parallel,
        "max-model-len": endpoint.context_tokens,
        "reasoning-parser": endpoint.reasoning_parser,
        "default-chat-template-kwargs": endpoint.chat_template_kwargs or None,
    }
    if endpoint.tool_parser is not None:
        own |= {"enable-auto-tool-choice": True, "tool-call-parser": endpoint.tool_parser}
    if endpoint.runner != "generate":
        own["runner"] = endpoint.runner
    if node is not None:
        own |= {
            "nnodes": node.nodes,
            "node-rank": node.rank,
            "master-addr": node.master_host,
            "master-port": node.master_port,
        }
        if node.rank > 0:
            own["headless"] = True
    defaults = dict(_DEFAULT_FLAGS)
    if endpoint.runner != "generate":
        for name in _GENERATE_ONLY:
            del defaults[name]
    return [*words, *flag_words(own), *flag_words({**defaults, **_dashed(endpoint.flags)})]


def engine_environment(inherited: Mapping[str, str], endpoint: VllmEndpoint, plugin_folder: str) -> dict[str, str]:
    """The server's environment: what the actor has, without what is Ray's or this package's, and the config's."""
    kept = {name: value for name, value in inherited.items() if name not in _NOT_INHERITED}
    asked = {**endpoint.env, **{name: value.reveal() for name, value in endpoint.secret_env.items()}}
    environment = {**kept, **asked}
    paths = [plugin_folder, *filter(None, [asked.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = ":".join(paths)
    if environment.get("VLLM_PLUGINS"):
        # A list of allowed plugins leaves out all others.
        environment["VLLM_PLUGINS"] += f",{PLUGIN}"
    return environment


def router_command(endpoint: VllmEndpoint, host: str, port: int, metrics_port: int) -> list[str]:
    """The router's command; replicas are added when they are ready."""
    own: dict[str, Json] = {"host": host, "port": port, "prometheus-port": metrics_port, "policy": endpoint.policy}
    given = _dashed(endpoint.router.flags)
    return [*endpoint.router.command, *flag_words({**own, **_ROUTER_FLAGS, **given})]


def flag_words(flags: Mapping[str, Json]) -> list[str]:
    """Command-line words; see ``VllmEndpoint.flags`` for what each kind of value means."""
    words: list[str] = []
    for name, value in flags.items():
        words += _words(name, value)
    return words


def _words(name: str, value: Json) -> Sequence[str]:
    if value is None:
        return ()
    if isinstance(value, bool):
        return (f"--{name}",) if value else (f"--no-{name}",)
    if isinstance(value, list):
        return (f"--{name}", *map(_word, value))
    return f"--{name}", _word(value)


def _word(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _dashed(flags: Mapping[str, Json]) -> dict[str, Json]:
    return {name.replace("_", "-"): value for name, value in flags.items()}
