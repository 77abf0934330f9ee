"""Servers as children: they end with who started them, and nothing of them is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chime_dist.adapters.vllm.actor import PLUGIN_FOLDER
from chime_dist.adapters.vllm.child import Child, log_tail, processes_in
from chime_dist.errors import ServingError
from tests.chaos.patience import eventually, until

SLEEPER = [sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); "
    "time.sleep(600)",
]
WITH_GRANDCHILD = [
    sys.executable,
    "-c",
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], "
    "start_new_session=True); print('ready', flush=True); time.sleep(600)",
]


async def started(tmp_path: Path, command: list[str]) -> Child:
    folder, log = tmp_path / "work", tmp_path / "logs" / "child.log"
    child = await Child.start("the child", command, os.environ, folder=folder, log_path=log)
    await eventually(lambda: "ready" in log.read_text() or not child.alive)
    return child


async def test_a_stopped_child_is_gone_with_its_folder(tmp_path: Path) -> None:
    child = await started(tmp_path, SLEEPER)
    assert processes_in(tmp_path / "work") == [child.pid]
    await child.stop(10.0)
    assert await child.ended() == -signal.SIGTERM
    assert not child.alive
    assert not (tmp_path / "work").exists()
    await child.stop(10.0)


async def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    child = await started(tmp_path, STUBBORN)
    await child.stop(0.1)
    assert await child.ended() == -signal.SIGKILL


async def test_what_a_child_started_goes_with_it_whatever_session_it_leads(tmp_path: Path) -> None:
    child = await started(tmp_path, WITH_GRANDCHILD)
    assert len(processes_in(tmp_path / "work")) == 2
    await child.stop(10.0)
    assert processes_in(tmp_path / "work") == []


async def test_leftovers_are_killed_before_the_next_start(tmp_path: Path) -> None:
    first = await started(tmp_path, WITH_GRANDCHILD)
    os.kill(first.pid, signal.SIGKILL)
    await first.ended()
    [orphan] = processes_in(tmp_path / "work")
    second = await started(tmp_path, SLEEPER)
    assert processes_in(tmp_path / "work") == [second.pid]
    assert orphan != second.pid
    await second.stop(10.0)


async def test_an_end_is_told_with_its_code_and_the_last_lines(tmp_path: Path) -> None:
    child = await started(tmp_path, [sys.executable, "-c", "import sys; sys.exit('no such weights')"])
    assert await child.ended() == 1
    assert "no such weights" in child.said()
    assert str(tmp_path / "logs" / "child.log") in child.said()
    await child.clear()


async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="there is no command 'no-such-vllm' on PATH"):
        await started(tmp_path, ["no-such-vllm", "serve"])


def test_a_child_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from chime_dist.adapters.vllm.child import Child\n"
        "async def main():\n"
        f"    await Child.start('c', {SLEEPER!r}, os.environ, folder=Path('work'), log_path=Path('log'))\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path)
    until(lambda: (tmp_path / "log").exists() and "ready" in (tmp_path / "log").read_text())
    assert len(processes_in(tmp_path / "work")) == 1
    parent.kill()
    parent.wait()
    until(lambda: processes_in(tmp_path / "work") == [])


async def test_an_engine_dies_with_its_server_by_the_plugin(tmp_path: Path) -> None:
    """kill -9 of vLLM's API server would leave its engine, with the memory of its GPUs."""
    log = tmp_path / "log"
    command = [
        sys.executable,
        str(Path(__file__).with_name("stub_vllm.py")),
        *("--served-model-name", "m", "--host", "127.0.0.1", "--port", "0"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(PLUGIN_FOLDER)}
    child = await Child.start("stub", command, environment, folder=tmp_path / "work", log_path=log)

    await eventually(lambda: "engine runs" in log.read_text())
    os.kill(child.pid, signal.SIGKILL)
    await eventually(lambda: processes_in(tmp_path / "work") == [])
    await child.clear()


def test_the_tail_of_a_long_log_is_short(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 100_000 + b"\n" + b"\n".join(b"line %d" % i for i in range(100)) + b"\n\xff")
    tail = log_tail(log).splitlines()
    assert (tail[-2], len(tail)) == ("  line 99", 15)
    assert "cannot be read" in log_tail(tmp_path / "none")


async def test_two_children_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    one, two = await asyncio.gather(started(tmp_path / "1", SLEEPER), started(tmp_path / "2", SLEEPER))
    await one.stop(10.0)
    assert two.alive
    await two.stop(10.0)
