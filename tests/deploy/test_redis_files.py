"""The Redis files of deploy/ and k8s/ hold what a launch demands of a server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import stamina
from ruamel.yaml import YAML

from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.preflight import preflight
from chime_dist.adapters.redis.server import find_redis_server
from chime_dist.errors import ServiceError
from tests.deploy.documents import compose

ROOT = Path(__file__).parents[2]
CONF = ROOT / "deploy" / "redis.conf"
OURS = ("bind", "port", "dir", "protected-mode")
"""Settings that differ by place."""


async def test_a_server_with_the_shipped_settings_passes_the_preflight(tmp_path: Path) -> None:
    """D7, D10: a real server started from deploy/redis.conf is accepted as it is."""
    async with served(tmp_path, [str(CONF)]) as port:
        await accepted(f"redis://127.0.0.1:{port}/0")


async def test_the_composed_server_passes_the_preflight_with_its_password(tmp_path: Path) -> None:
    """D7, D10, H6: what compose.yaml changes of redis.conf is the address and the password, no guarantee."""
    here = {"/etc/redis/redis.conf": str(CONF), "/data": str(tmp_path), "0.0.0.0": "127.0.0.1"}
    command = [here.get(word, word) for word in compose()["services"]["redis"]["command"]]
    assert command[0] == "redis-server"
    assert command[-2:] == ["--requirepass", "${REDIS_PASSWORD:?see the head of this file}"]
    async with served(tmp_path, [*command[1:-1], "open-sesame"]) as port:
        await accepted(f"redis://:open-sesame@127.0.0.1:{port}/0")
        with pytest.raises(ServiceError, match=r"(?i)auth"):
            await refused(f"redis://127.0.0.1:{port}/0")


@asynccontextmanager
async def served(folder: Path, words: list[str]) -> AsyncIterator[int]:
    """A redis-server in ``folder`` with these arguments; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(find_redis_server()), *words, "--port", str(port), "--dir", str(folder)]
    server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        server.terminate()
        await server.wait()


async def accepted(url: str) -> None:
    """Once the server answers, the preflight has nothing against it."""
    connection = RedisConnection(url, patience_s=10.0)
    try:
        async for attempt in stamina.retry_context(on=ServiceError, attempts=20, wait_initial=0.05):
            with attempt:
                await preflight(connection)
    finally:
        await connection.close()


async def refused(url: str) -> None:
    """One preflight of a server that answers."""
    connection = RedisConnection(url, patience_s=1.0)
    try:
        await preflight(connection)
    finally:
        await connection.close()


def test_the_cluster_file_has_the_same_settings() -> None:
    """One truth in two places: durability and eviction settings must not drift apart."""
    documents = list(YAML(typ="safe").load_all((ROOT / "k8s" / "base" / "redis.yaml").read_text()))
    [config] = [d for d in documents if d["kind"] == "ConfigMap"]
    assert _settings(config["data"]["redis.conf"]) == _settings(CONF.read_text())


def test_the_stateful_set_mounts_what_the_settings_name() -> None:
    documents = {
        d["kind"]: d for d in YAML(typ="safe").load_all((ROOT / "k8s" / "base" / "redis.yaml").read_text())
    }
    [container] = documents["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["data"] in documents["ConfigMap"]["data"]["redis.conf"]
    assert f"redis-server {mounts['config']}/redis.conf" in container["command"][-1]
    claims = [claim["metadata"]["name"] for claim in documents["StatefulSet"]["spec"]["volumeClaimTemplates"]]
    assert claims == ["data"]


def _settings(text: str) -> dict[str, str]:
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return {key: value for key, value in pairs if key not in OURS}
