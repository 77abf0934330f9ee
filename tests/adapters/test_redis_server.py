"""The embedded server: nothing acknowledged is lost, and it never outlives its process."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chime_dist.adapters.redis import server as redis_server
from chime_dist.adapters.redis.preflight import preflight
from chime_dist.adapters.redis.server import EmbeddedRedis, find_redis_server
from chime_dist.errors import MissingExtraError, ServiceError
from chime_dist.ports import Appended, Completed
from tests.contract.labs import LEASE_S, RedisLab, proposal_of, train_unit


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="chime-") as path:
        yield Path(path)


CHILD = """
import asyncio, sys, threading, time
from pathlib import Path
from chime_dist.adapters.redis.server import EmbeddedRedis

servers = []
thread = threading.Thread(target=lambda: servers.append(asyncio.run(EmbeddedRedis.start(Path(sys.argv[1])))))
thread.start()
thread.join()
time.sleep(0.2)
print(f"PID={servers[0].pid}", flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_death(pid: int) -> None:
    deadline = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} lives on"
        time.sleep(0.01)


def exists(path: Path) -> bool:
    return path.exists()


def spoil(path: Path) -> None:
    path.write_bytes(b"not an append-only file\n")


def cut_tail(path: Path, size: int) -> None:
    os.truncate(path, path.stat().st_size - size)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run_and_kill_a_process_with_a_server(state_dir: Path) -> int:
    """Returns the id of the server, which may be alive for an instant still."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(state_dir)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child, child.stdout:
        pid = next(int(found[1]) for line in child.stdout if (found := re.search(r"PID=(\d+)", line)))
        assert alive(pid)
        child.kill()
    return pid


def append_only_file(state_dir: Path) -> Path:
    return max(state_dir.rglob("*.aof"), key=lambda path: path.stat().st_mtime_ns)


async def test_the_embedded_server_is_durable_private_and_passes_the_preflight(tmp_path: Path) -> None:
    server = await EmbeddedRedis.start(tmp_path)
    lab = RedisLab(server.url)
    await preflight(lab.connection)
    settings = await lab.connection.commands.config_get("*")
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["save"] == ""
    assert settings["port"] == "0"
    assert settings["dir"] == str(tmp_path)
    assert mode(server.socket) == 0o700
    assert mode(server.socket.parent) == 0o700
    await lab.queue.close()
    await server.stop()
    await server.stop()
    assert not alive(server.pid)
    assert not exists(server.socket)


@pytest.mark.parametrize("rewritten", [False, True], ids=["as written", "rewritten"])
async def test_a_killed_server_has_lost_nothing_that_was_acknowledged(tmp_path: Path, rewritten: bool) -> None:
    """D10: kill -9, start on the same directory: units, leases, counts, proposals, journal, cursor are there."""
    server = await EmbeddedRedis.start(tmp_path)
    lab = RedisLab(server.url)
    await lab.queue.reset()
    for position in range(4):
        await lab.queue.admit(train_unit(position))
    done, held, _released = leases = await lab.queue.claim("a", 3, 0.0)
    cursor, _ = await lab.queue.changes("", 0.0)
    await lab.queue.complete(done, proposal_of(train_unit(0)))
    await lab.queue.release(leases[2])
    fence = await lab.journal.take_fence("run")
    await lab.journal.append("run", fence, 0, "line 0")

    if rewritten:
        await lab.connection.commands.bgrewriteaof()
        for _ in range(1000):
            if not (await lab.connection.commands.info("persistence"))["aof_rewrite_in_progress"]:
                break
            await asyncio.sleep(0.01)

    os.kill(server.pid, signal.SIGKILL)
    server = await EmbeddedRedis.start(tmp_path)

    # The same objects go on: the socket's path follows from the directory.
    assert await lab.queue.outstanding() == {train_unit(p).key for p in (1, 2, 3)}
    assert await lab.queue.renew([held]) == []
    again = await lab.queue.claim("b", 5, 0.0)
    assert [(lease.unit.position, lease.delivery) for lease in again] == [(2, 2), (3, 1)]
    assert await lab.queue.complete(done, proposal_of(train_unit(0))) is Completed.ALREADY_SAME
    assert await lab.queue.complete(held, proposal_of(train_unit(1))) is Completed.STORED
    assert await lab.queue.proposal("run", 0) == proposal_of(train_unit(0))
    assert [c.kind for c in (await lab.queue.changes(cursor, 0.0))[1]] == ["completed", "committed", "completed"]
    assert await lab.journal.read("run") == ["line 0"]
    assert await lab.journal.append("run", fence, 0, "line 0") is Appended.ALREADY_SAME
    assert await lab.journal.take_fence("run") == fence + 1
    await lab.queue.close()
    await server.stop()


async def test_a_completion_that_the_disk_lost_is_lost_as_a_whole(tmp_path: Path) -> None:
    """D10: the append-only file is cut inside the completion: the unit is pending again, no half of it stays."""
    server = await EmbeddedRedis.start(tmp_path)
    lab = RedisLab(server.url)
    await lab.queue.reset()
    await lab.queue.admit(train_unit())
    (lease,) = await lab.queue.claim("a", 1, 0.0)
    await lab.queue.complete(lease, proposal_of(train_unit()))
    os.kill(server.pid, signal.SIGKILL)
    wait_for_death(server.pid)
    cut_tail(append_only_file(tmp_path), 10)

    server = await EmbeddedRedis.start(tmp_path)
    assert await lab.queue.outstanding() == {train_unit().key}
    assert await lab.queue.proposal("run", 0) is None
    await lab.pass_time(LEASE_S + 1)
    (again,) = await lab.queue.claim("b", 1, 0.0)
    assert again.delivery == 2
    assert await lab.queue.complete(lease, proposal_of(train_unit())) is Completed.LOST
    assert await lab.queue.complete(again, proposal_of(train_unit())) is Completed.STORED
    await lab.queue.close()
    await server.stop()


async def test_two_servers_on_one_directory_are_refused_by_name(tmp_path: Path) -> None:
    server = await EmbeddedRedis.start(tmp_path)
    with pytest.raises(ServiceError, match=rf"process {server.pid}, started by .*is alive on this state dir"):
        await EmbeddedRedis.start(tmp_path, lock_s=0.1)
    await server.stop()
    successor = await EmbeddedRedis.start(tmp_path)
    await successor.stop()


def test_the_server_outlives_the_thread_that_started_it_and_dies_with_the_process(tmp_path: Path) -> None:
    """C7: the kernel ties a child to the thread that started it, which may end long before the process."""
    wait_for_death(run_and_kill_a_process_with_a_server(tmp_path))


async def test_a_directory_is_free_again_right_after_its_process_was_killed(tmp_path: Path) -> None:
    """A resume may start while the old server is still dying."""
    run_and_kill_a_process_with_a_server(tmp_path)
    server = await EmbeddedRedis.start(tmp_path)
    await server.stop()


def test_without_a_binary_the_error_holds_the_install_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"pip install 'chime-dist\[embedded\]'"):
        find_redis_server()


def test_a_server_on_path_is_found_where_the_wheel_is_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "redis-server").symlink_to(find_redis_server())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis_server() == tmp_path / "redis-server"


async def test_a_server_that_cannot_load_its_data_says_why(tmp_path: Path) -> None:
    server = await EmbeddedRedis.start(tmp_path)
    lab = RedisLab(server.url)
    await lab.queue.reset()
    await lab.queue.close()
    await server.stop()
    spoil(append_only_file(tmp_path))
    with pytest.raises(ServiceError, match=r"ended with code 1; .*redis\.log ends with: .*[Bb]ad file format"):
        await EmbeddedRedis.start(tmp_path)


async def test_a_server_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="did not answer within 0 s"):
        await EmbeddedRedis.start(tmp_path, ready_s=0.0)
    server = await EmbeddedRedis.start(tmp_path)
    await server.stop()


async def test_a_program_that_cannot_run_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-such-python"))
    with pytest.raises(ServiceError, match=r"could not be started: .*no-such-python"):
        await EmbeddedRedis.start(tmp_path)


async def test_a_server_that_ignores_its_end_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(redis_server, "_STOP_PATIENCE_S", 0.1)
    server = await EmbeddedRedis.start(tmp_path)
    os.kill(server.pid, signal.SIGSTOP)
    await server.stop()
    assert not alive(server.pid)


async def test_a_long_temporary_path_does_not_break_the_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A unix socket's path has at most 107 bytes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 30)))
    server = await EmbeddedRedis.start(tmp_path)
    assert len(os.fsencode(server.socket)) <= 107
    await server.stop()


async def test_a_socket_directory_open_to_others_is_refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The server has no password: whoever reaches the socket owns the launch."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    (folder / f"chime-dist-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(ServiceError, match="mode 700"):
        await EmbeddedRedis.start(folder / "state")
