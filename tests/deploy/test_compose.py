"""deploy/compose.yaml as a document: it holds together, and agrees with our own code."""

from __future__ import annotations

import re
from pathlib import Path

from ray.scripts.scripts import start as ray_start

from chime_dist.adapters.ray.cluster import _ENVIRONMENT
from chime_dist.adapters.vllm.need import need_of
from chime_dist.config.serving import VllmEndpoint
from tests.deploy.documents import DEPLOY, REFERENCE, Tree, compose, sweep_in_place, versions

TEXT = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
SWEEP = (DEPLOY / "sweep.yaml").read_text(encoding="utf-8")
RAY_SERVICES = ("head", "worker", "gpu")


def services() -> dict[str, Tree]:
    found: dict[str, Tree] = compose()["services"]
    return found


def test_every_service_is_waited_for_until_it_is_healthy() -> None:
    for name, service in services().items():
        assert service["healthcheck"]["test"], name
        for needed, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}, name
            assert needed in services()


def test_what_must_be_kept_is_on_named_volumes() -> None:
    mounts = {name: service.get("volumes", []) for name, service in services().items()}
    kept = {
        name: [mount.split(":")[0] for mount in found if not mount.startswith("./")]
        for name, found in mounts.items()
    }
    assert kept == {"redis": ["redis"], "qdrant": ["qdrant"], "head": ["data"], "worker": [], "gpu": ["models"]}
    assert set(compose()["volumes"]) == {"redis", "qdrant", "data", "models"}
    for found in mounts.values():
        for mount in found:
            assert not mount.startswith("./") or (DEPLOY / mount.split(":")[0]).is_file()


def test_ray_is_set_up_alike_in_every_container() -> None:
    """A token here and none there is a cluster that does not form."""
    wanted = {**_ENVIRONMENT, "RAY_AUTH_MODE": "token", "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor"}
    tokens = set()
    for name in RAY_SERVICES:
        environment = services()[name]["environment"]
        assert wanted.items() <= environment.items(), name
        tokens.add(environment["RAY_AUTH_TOKEN"])
        assert services()[name]["shm_size"]
    assert len(tokens) == 1


def test_ray_is_started_with_options_that_it_has() -> None:
    options = {option for parameter in ray_start.params for option in parameter.opts}
    for name in RAY_SERVICES:
        service = services()[name]
        assert service["entrypoint"] == ["ray", "start"]
        assert {word.partition("=")[0] for word in service["command"]} <= options


def test_no_secret_is_written_out_and_every_variable_is_asked_for() -> None:
    """H6: a missing one stops the start, with a word about where to look."""
    for name, default in re.findall(r"(?<!\$)\$\{([A-Z_]+)([^}]*)\}", TEXT):
        assert name in versions() or default.startswith(":?"), name


def test_the_sweep_finds_the_services_and_its_secrets_where_it_runs(tmp_path: Path) -> None:
    needed = set(REFERENCE.findall(SWEEP))
    assert needed <= services()["head"]["environment"].keys()
    sweep = sweep_in_place(SWEEP, tmp_path, dict.fromkeys(needed, "canary"))
    cluster = sweep.cluster
    assert cluster.ray.remote
    assert cluster.redis.url is not None
    assert cluster.redis.url.reveal() == "redis://:canary@redis:6379/0"
    assert cluster.qdrant.url is not None
    assert cluster.qdrant.url.reveal() == "http://qdrant:6333"
    assert cluster.qdrant.api_key is not None
    assert sweep.warnings() == []
    assert cluster.runs_dir.startswith("/data/")
    assert "data:/data" in services()["head"]["volumes"]
    assert "./sweep.yaml:/etc/chime-dist/sweep.yaml:ro" in services()["head"]["volumes"]


def test_there_are_as_many_gpus_as_the_sweep_serves_replicas_on(tmp_path: Path) -> None:
    sweep = sweep_in_place(SWEEP, tmp_path, dict.fromkeys(REFERENCE.findall(SWEEP), "canary"))
    served = [endpoint for endpoint in sweep.cluster.endpoints.values() if isinstance(endpoint, VllmEndpoint)]
    needed = sum(need_of(endpoint).per_node["GPU"] * endpoint.replicas for endpoint in served)
    [device] = services()["gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert f"--num-gpus={device['count']}" in services()["gpu"]["command"]
    assert needed == device["count"]


def test_nothing_is_reachable_from_other_machines() -> None:
    for service in services().values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
