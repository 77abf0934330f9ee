"""Sweeps as processes that a test can watch and kill, with everything they started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from chime_dist.core.journal import JournalEntry, verified

PATIENCE_S = 240.0
"""Longest wait for something that must happen; only a broken build waits this long."""


def start(arguments: list[str], cwd: Path) -> subprocess.Popen[bytes]:
    """A ``chime-dist`` process in a session of its own; its output goes to ``cwd/output.txt``."""
    output = (cwd / "output.txt").open("ab")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with output:
        return subprocess.Popen(
            [sys.executable, "-m", "chime_dist", *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )


def finish(process: subprocess.Popen[bytes], cwd: Path) -> int:
    """The exit code; on a timeout the output is in the error."""
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        kill_tree(process)
        raise AssertionError((cwd / "output.txt").read_text()) from None


def tree(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The process and all it started, directly or not."""
    try:
        root = psutil.Process(process.pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def members(leader: int) -> list[int]:
    """Everything alive in the session of ``leader``."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return found


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the process and everything it started; returns when all are gone."""
    doomed = tree(process)
    for member in doomed:
        try:
            member.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    process.wait()
    _, alive = psutil.wait_procs(doomed, timeout=30)
    assert not alive, alive


def wait_for_rows(process: subprocess.Popen[bytes], runs: Path, count: int) -> None:
    """Return once ``count`` finished attempts are on disk."""
    deadline = time.monotonic() + PATIENCE_S
    while rows_below(runs) < count:
        assert process.poll() is None, "the sweep ended before it could be disturbed"
        assert time.monotonic() < deadline, f"no {count} rows in {PATIENCE_S} s"
        time.sleep(0.02)


def rows_below(runs: Path) -> int:
    """Whole rows of every episodes.jsonl below ``runs``."""
    return sum(path.read_bytes().count(b"\n") for path in runs.rglob("episodes.jsonl"))


def rows_of(launch: Path) -> list[dict[str, Any]]:
    """Every row of a launch."""
    lines = [line for path in sorted(launch.rglob("episodes.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def journals_of(launch: Path) -> dict[str, list[JournalEntry]]:
    """The verified journals of a launch by run id."""
    found = {}
    for path in sorted(launch.rglob("journal.jsonl")):
        found[path.parent.name] = list(verified(path.read_text().split("\n")[:-1], str(path)))
    return found


def launch_below(runs: Path) -> Path:
    """The only launch."""
    [manifest] = runs.rglob("sweep.json")
    return manifest.parent
