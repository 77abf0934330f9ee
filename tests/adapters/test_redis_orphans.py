"""What outlives its owner, or comes from another version: never two servers on one file, never an empty start."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chime_dist.adapters.redis import server_lock
from chime_dist.adapters.redis.server import EmbeddedRedis, find_redis_server
from chime_dist.adapters.redis.server_data import DIRECTORY, RECORD_NAME, DataRecord, ServerBinary
from chime_dist.adapters.redis.server_lock import LOCK_NAME, LockHolder
from chime_dist.errors import ServiceError
from tests.adapters.test_redis_server import alive, wait_for_death
from tests.contract.labs import RedisLab

OWNER = """
import asyncio, sys, time
from pathlib import Path
from chime_dist.adapters.redis import server as embedded
from tests.contract.labs import RedisLab

if sys.argv[2] == "unbound":
    embedded._LAUNCHER = "import os, sys; os.execv(sys.argv[2], sys.argv[2:])"

async def main():
    server = await embedded.EmbeddedRedis.start(Path(sys.argv[1]))
    lab = RedisLab(server.url)
    await lab.queue.reset()
    fence = await lab.journal.take_fence("run")
    await lab.journal.append("run", fence, 0, "line 0")
    print(f"PID={server.pid} KEYS={lab.keys.launch}", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def orphaned(state_dir: Path, how: str) -> tuple[int, str]:
    """The id of a server whose owner was killed, and the launch that it holds."""
    root = Path(__file__).parents[2]
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(state_dir), how], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert owner.stdout is not None
    with owner, owner.stdout:
        found = next(found for line in owner.stdout if (found := re.search(r"PID=(\d+) KEYS=(\S+)", line)))
        owner.kill()
    return int(found[1]), found[2]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_killed_owner_leaves_no_server(tmp_path: Path) -> None:
    """C7: kill -9, and nothing is left."""
    pid, _ = orphaned(tmp_path, "bound")
    wait_for_death(pid)


async def test_a_server_that_outlived_its_owner_is_stopped_and_named_and_its_data_stays(tmp_path: Path) -> None:
    """C7: where the kernel's signal did not come; one server on one append-only file, with all it acknowledged."""
    pid, launch = orphaned(tmp_path, "unbound")
    assert alive(pid)
    with capture_logs() as logs:
        server = await EmbeddedRedis.start(tmp_path, lock_s=0.1)
    assert not alive(pid)
    [stopped] = [entry for entry in logs if entry["event"] == "redis.orphan_stopped"]
    assert (stopped["pid"], stopped["state_dir"]) == (pid, str(tmp_path))
    lab = RedisLab(server.url)
    assert await lab.connection.commands.lrange(f"chime:{{{launch}}}:journal:run", 0, -1) == ["line 0"]
    await lab.queue.close()
    await server.stop()


async def test_an_orphan_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_lock, "_STOP_PATIENCE_S", 0.2)
    pid, _ = orphaned(tmp_path, "unbound")
    os.kill(pid, signal.SIGSTOP)
    server = await EmbeddedRedis.start(tmp_path, lock_s=0.1)
    assert not alive(pid)
    await server.stop()


async def test_a_server_whose_owner_cannot_be_judged_is_left_alone(tmp_path: Path) -> None:
    """In another process namespace the owner's id says nothing: the directory is refused, nobody is stopped."""
    server = await EmbeddedRedis.start(tmp_path)
    lock = tmp_path / LOCK_NAME
    holder = LockHolder.model_validate_json(lock.read_bytes())
    owner = holder.owner.model_copy(update={"machine": "another namespace", "pid": 7})
    write(lock, holder.model_copy(update={"owner": owner}).model_dump_json())
    with pytest.raises(ServiceError, match=rf"process {server.pid}, started by process 7 on .*is alive"):
        await EmbeddedRedis.start(tmp_path, lock_s=0.1)
    write(lock, "")
    with pytest.raises(ServiceError, match=r"process unknown\) is alive"):
        await EmbeddedRedis.start(tmp_path, lock_s=0.1)
    assert alive(server.pid)
    await server.stop()


async def test_who_wrote_the_data_is_recorded(tmp_path: Path) -> None:
    server = await EmbeddedRedis.start(tmp_path)
    await server.stop()
    binary = await ServerBinary.ask(find_redis_server())
    record = DataRecord.model_validate_json((tmp_path / RECORD_NAME).read_bytes())
    assert record.version == str(binary)
    assert (tmp_path / DIRECTORY).exists() is (record.layout == "directory")
    again = await EmbeddedRedis.start(tmp_path)
    await again.stop()


async def test_an_older_server_is_refused_with_both_versions_and_nothing_is_touched(tmp_path: Path) -> None:
    """Redis 6.2 does not see the files of Redis 7, and would start empty."""
    write(tmp_path / DIRECTORY / "appendonly.aof.manifest", "file appendonly.aof.1.base.rdb seq 1 type b\n")
    write(tmp_path / RECORD_NAME, DataRecord(version="99.4.1", layout="directory").model_dump_json())
    binary = await ServerBinary.ask(find_redis_server())
    with pytest.raises(
        ServiceError, match=rf"written by redis-server 99\.4\.1.*is {binary}.*Install redis-server"
    ):
        await EmbeddedRedis.start(tmp_path)
    assert names(tmp_path) == {DIRECTORY, RECORD_NAME, LOCK_NAME}


@pytest.mark.parametrize(
    ("version", "record", "directory", "message"),
    [
        ((6, 2, 14), None, True, r"written by redis-server 7\.0\.0 or a later one.*overlooks appendonlydir/"),
        ((6, 2, 14), "7.2.4", True, r"redis-server 7\.2\.4.* is 6\.2\.14, which overlooks appendonlydir/"),
        ((6, 2, 14), "6.2.20", True, r"redis-server 7\.0\.0.*overlooks"),
        ((7, 2, 4), "7.4.0", True, r"redis-server 7\.4\.0.* is 7\.2\.4, which may not read it"),
        ((7, 4, 0), "7.2.4", True, None),
        ((7, 4, 0), "7.4.5", True, None),
        ((7, 4, 0), "6.2.14", False, None),
        ((6, 2, 14), "6.2.14", False, None),
        ((6, 2, 14), None, False, None),
        ((7, 4, 0), "not a version", True, r"redis\.version: cannot be read.*Remove the file if"),
    ],
)
def test_a_server_starts_only_on_data_that_it_can_read(
    tmp_path: Path, version: tuple[int, int, int], record: str | None, directory: bool, message: str | None
) -> None:
    """Also where nobody recorded anything: the directory itself says that Redis 7 was here."""
    if record is not None:
        write(tmp_path / RECORD_NAME, DataRecord(version=record, layout="file").model_dump_json())
    if directory:
        (tmp_path / DIRECTORY).mkdir()
    binary = ServerBinary(Path("redis-server"), version)
    if message is None:
        binary.require_not_older(tmp_path)
        return
    with pytest.raises(ServiceError, match=message):
        binary.require_not_older(tmp_path)


async def test_a_program_without_a_version_is_no_server(tmp_path: Path) -> None:
    silent = tmp_path / "redis-server"
    write(silent, "#!/bin/sh\necho hello\n")
    silent.chmod(0o755)
    with pytest.raises(ServiceError, match="no version in its answer"):
        await ServerBinary.ask(silent)
    with pytest.raises(ServiceError, match="cannot be run"):
        await ServerBinary.ask(tmp_path / "missing")
