"""A launch dies by SIGKILL at every place that matters, first and later, and is resumed to the same end."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.chaos.nursery import Child, Nursery
from tests.chaos.sweeps import Sweep, Undisturbed

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

POINTS = (
    "driver.admitted",
    "worker.claimed",
    "worker.attempting",
    "episode.scored",
    "worker.attempted",
    "records.trajectory",
    "records.row",
    "worker.recorded",
    "worker.completed",
    "bank.committing",
    "bank.appended",
    "bank.projected",
    "bank.forgot",
    "driver.followed",
)
LATER = 9
SLOTS_CALLS = 4 * 8
"""Requests that four open episodes make at most: what a death may cost."""


def die(child: Child) -> None:
    """Wait for the death that was ordered; nothing the process started may outlive it."""
    started: dict[int, psutil.Process] = {}
    while child.code() is None:
        try:
            started |= {process.pid: process for process in child.descendants()}
        except psutil.NoSuchProcess:
            continue
        time.sleep(0.02)
    assert child.code() == -signal.SIGKILL, child.said
    _, alive = psutil.wait_procs(list(started.values()), timeout=10)
    assert not alive


@pytest.mark.parametrize("time_", [1, LATER])
@pytest.mark.parametrize("point", POINTS)
def test_a_launch_killed_at_any_point_resumes_to_the_same_content(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, point: str, time_: int
) -> None:
    """C1, C2, C8, D10: driver, workers, owner, records and Redis die at once, at ``point``."""
    sweep = Sweep.prepare(nursery, tmp_path / "sweep")
    die(sweep.start({"CHIME_FAULT": f"{point}:{time_}"}))
    child = sweep.resume()
    assert child.end() == 0, child.said
    sweep.assert_as_if_nothing_had_happened(calm)
    assert 0 <= sweep.repeated(calm) <= SLOTS_CALLS


@pytest.mark.parametrize("point", ["resume.compared", "resume.fenced", "resume.restored", "resume.restored:6"])
def test_a_resume_that_restores_the_journal_from_its_file_may_die_as_well(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, point: str
) -> None:
    """Design "The bank": Redis lost its data, the file is longer; killed between any two steps, then once more."""
    sweep = Sweep.prepare(nursery, tmp_path / "sweep")
    die(sweep.start({"CHIME_FAULT": "driver.followed:14"}))
    [state] = sweep.folder.glob("state/*/redis")
    shutil.rmtree(state)
    die(sweep.resume({"CHIME_FAULT": point}))
    child = sweep.resume()
    assert child.end() == 0, child.said
    sweep.assert_as_if_nothing_had_happened(calm)
    assert sweep.repeated(calm) <= SLOTS_CALLS


@pytest.mark.parametrize("point", ["resume.compared", "resume.fenced", "resume.restored"])
def test_a_resume_that_restores_the_file_from_redis_may_die_as_well(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path, point: str
) -> None:
    """Design "The bank": the file lacks the last entries; killed between any two steps, then once more."""
    sweep = Sweep.prepare(nursery, tmp_path / "sweep")
    die(sweep.start({"CHIME_FAULT": "bank.forgot:10"}))
    [file] = sweep.launch.rglob("journal.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:3]) + lines[3][:100])
    die(sweep.resume({"CHIME_FAULT": point}))
    child = sweep.resume()
    assert child.end() == 0, child.said
    sweep.assert_as_if_nothing_had_happened(calm)
    assert sweep.repeated(calm) <= SLOTS_CALLS
