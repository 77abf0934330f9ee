"""The disk is full, or the machine is taken away: what is there is whole, what is owed is run later."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from chime_dist.adapters.redis.server import EmbeddedRedis
from tests.chaos.nursery import Nursery
from tests.chaos.patience import PATIENCE_S, until
from tests.chaos.sweeps import Sweep, Undisturbed

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

GRACE_S = 5.0
"""What a scheduler leaves a process between SIGTERM and SIGKILL, in seconds."""


def assert_rows_are_whole(sweep: Sweep) -> None:
    """Every line but a torn last one is a row."""
    for path in sweep.launch.rglob("*.jsonl"):
        for line in path.read_text().split("\n")[:-1]:
            json.loads(line)


@pytest.mark.parametrize("largest", [8_000, 16_000, 30_000])
async def test_a_full_disk_stops_the_launch_and_costs_no_row(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, redis_server: EmbeddedRedis, largest: int
) -> None:
    """H8: files may not grow beyond ``largest`` bytes: exit 1, rows whole or absent, a resume completes."""
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", redis=redis_server.url, qdrant="memory")
    child = sweep.start({"CHIME_DRILL_LARGEST_FILE": str(largest)})
    assert await asyncio.to_thread(child.end) == 1, child.said
    assert_rows_are_whole(sweep)
    recorded = {str(row["attempt"]) for row in sweep.rows()}
    assert len(recorded) < 30
    child = sweep.resume()
    assert await asyncio.to_thread(child.end) == 0, child.said
    sweep.assert_as_if_nothing_had_happened(calm)
    assert recorded <= {str(row["attempt"]) for row in sweep.rows()}


@pytest.mark.parametrize("after", [1, 14])
def test_a_launch_that_is_asked_to_end_drains_and_says_that_it_was_preempted(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, after: int
) -> None:
    """H9: SIGTERM: nothing more is admitted, exit 75 within the grace, no child left, every finished row kept."""
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", latency_s=0.1)
    child = sweep.start()
    until(lambda: sweep.launched and len(sweep.rows()) >= after)
    started = child.descendants()
    child.signal(signal.SIGTERM)
    assert child.end(GRACE_S) == 75, child.said
    assert not psutil.wait_procs(started, timeout=10)[1]
    assert_rows_are_whole(sweep)
    assert len(sweep.rows()) < 30
    child = sweep.resume()
    assert child.end() == 0, child.said
    sweep.assert_as_if_nothing_had_happened(calm)
    # Only episodes are waited for: a turn whose merge was under way is begun again by the next owner.
    assert sweep.repeated_in_episodes(calm) == 0
    assert sweep.repeated(calm) <= 1


def test_a_launch_whose_grace_is_too_short_is_killed_and_resumes(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path
) -> None:
    """H9: episodes that take longer than the grace: SIGKILL ends what SIGTERM began."""
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", latency_s=1.0)
    child = sweep.start()
    until(lambda: sweep.launched and len(sweep.rows()) >= 1)
    started = child.descendants()
    child.signal(signal.SIGTERM)
    time.sleep(0.3)
    child.signal(signal.SIGKILL)
    assert child.end() == -signal.SIGKILL
    assert not psutil.wait_procs(started, timeout=10)[1]
    child = sweep.resume_with("cluster.endpoints.m.latency_s=[0.0, 0.0]")
    assert child.end() == 0, child.said
    sweep.assert_as_if_nothing_had_happened(calm)


def test_a_launch_below_a_shell_that_passes_no_signal_on_is_killed_and_resumes(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path
) -> None:
    """H9: the shell dies of SIGTERM and the launch hears nothing; the machine's SIGKILL takes everything."""
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", latency_s=0.1)
    script = f'"{sys.executable}" -m chime_dist sweep sweep.yaml >output.txt 2>&1; echo over'
    shell = subprocess.Popen(
        ["sh", "-c", script],
        cwd=sweep.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    until(lambda: sweep.launched and len(sweep.rows()) >= 3)
    members = psutil.Process(shell.pid).children(recursive=True)
    shell.terminate()
    assert shell.wait(PATIENCE_S) == -signal.SIGTERM
    assert members
    for member in members:
        if member.is_running():
            member.kill()
    assert not psutil.wait_procs(members, timeout=10)[1]
    assert_rows_are_whole(sweep)
    child = sweep.resume()
    assert child.end() == 0, child.said
    shutil.rmtree(sweep.folder / "state", ignore_errors=True)
    final = [row for row in sweep.rows() if row["final"]]
    assert len(final) == 30
    assert tuple(entry.content_hash for entry in sweep.entries()) == calm.chain
