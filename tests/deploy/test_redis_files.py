"""The Redis files of deploy/ and k8s/ hold what a launch demands of a server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from pathlib import Path

import stamina
from ruamel.yaml import YAML

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.preflight import preflight
from chime_dist.adapters.redis.server import find_redis_server
from chime_dist.errors import ServiceError

ROOT = Path(__file__).parents[2]
OURS = ("bind", "port", "dir", "protected-mode")
"""Settings that differ by place."""


async def test_a_server_with_the_shipped_settings_passes_the_preflight(tmp_path: Path) -> None:
    """D7, D10: a real server started from deploy/redis.conf is accepted as it is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(find_redis_server()),
        str(ROOT / "deploy" / "redis.conf"),
        "--port",
        str(port),
        "--dir",
        str(tmp_path),
    ]
    server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    connection = RedisConnection(f"redis://127.0.0.1:{port}/0", patience_s=10.0)
    try:
        async for attempt in stamina.retry_context(on=ServiceError, attempts=20, wait_initial=0.05):
            with attempt:
                await preflight(connection)
    finally:
        await connection.close()
        server.terminate()
        await server.wait()


def test_the_cluster_file_has_the_same_settings() -> None:
    """One truth in two places: durability and eviction settings must not drift apart."""
    documents = list(YAML(typ="safe").load_all((ROOT / "k8s" / "redis.yaml").read_text()))
    [config] = [d for d in documents if d["kind"] == "ConfigMap"]
    assert _settings(config["data"]["redis.conf"]) == _settings((ROOT / "deploy" / "redis.conf").read_text())


def test_the_stateful_set_mounts_what_the_settings_name() -> None:
    documents = {d["kind"]: d for d in YAML(typ="safe").load_all((ROOT / "k8s" / "redis.yaml").read_text())}
    [container] = documents["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["data"] in documents["ConfigMap"]["data"]["redis.conf"]
    assert container["args"][1] == f"{mounts['config']}/redis.conf"
    claims = [claim["metadata"]["name"] for claim in documents["StatefulSet"]["spec"]["volumeClaimTemplates"]]
    assert claims == ["data"]


def _settings(text: str) -> dict[str, str]:
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return {key: value for key, value in pairs if key not in OURS}
