"""Endpoints of kind vllm for tests: of the stub, and of the real engine with the tiny model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from chime_dist.config.serving import VllmEndpoint

STUB = (sys.executable, str(Path(__file__).with_name("stub_vllm.py")))


def stub_endpoint(**keys: Any) -> VllmEndpoint:
    """The stub, which takes next to nothing of a cluster; ``keys`` are the endpoint's."""
    usual = {"gpus": 0, "cpus": 0.1, "start_timeout_s": 60.0, "placement_timeout_s": 60.0, "command": STUB}
    return VllmEndpoint.model_validate({"kind": "vllm", **usual, **keys})


def tiny_endpoint(environment: Path, model: Path, **keys: Any) -> dict[str, Any]:
    """vLLM's CPU build out of ``environment`` with ``model``, as a config has it."""
    return {
        "kind": "vllm",
        "model": str(model),
        "gpus": 0,
        "cpus": 0.5,
        "context_tokens": 8192,
        "tool_parser": "hermes",
        "flags": {"enforce-eager": True, "dtype": "bfloat16", "max-num-seqs": 8},
        "env": {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            # Two servers on one machine would pin the same core.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # And wait for each other's threads: a token then takes a hundred times as long.
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "DO_NOT_TRACK": "1",
        },
        "command": [str(environment / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"],
        "router": {"command": [str(environment / "bin" / "vllm-router")]},
        "start_timeout_s": 400,
        **keys,
    }
