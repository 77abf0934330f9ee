"""Under Ray: a process of every kind of actor dies by kill -9 in one run; Ray starts them again."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.chaos.nursery import Nursery
from tests.chaos.sweeps import Sweep, Undisturbed

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

KINDS = ("Embedder", "Planner", "Worker", "Bank", "Executor", "Record", "Gate")
"""In the order in which they die; every kind has work left when its turn comes."""
PATIENCE_S = 150.0


def test_one_actor_of_every_kind_dies_and_the_launch_ends_as_if_nothing_had_happened(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path
) -> None:
    """C1, C2, C8, D1: seven deaths in thirty episodes, no resume."""
    sweep = Sweep.prepare(nursery, tmp_path / "sweep", latency_s=0.2, lease_s=2.0, max_deliveries=20, ray=True)
    child = sweep.start()
    doomed = list(KINDS)
    while child.code() is None and doomed:
        if not sweep.launched or len(sweep.rows()) < 3 * (len(KINDS) - len(doomed)) + 1:
            time.sleep(0.05)
            continue
        for process in child.descendants():
            if _title(process).startswith(f"ray::{doomed[0]}Actor"):
                process.kill()
                doomed.pop(0)
                break
    started = child.descendants()
    assert child.end(PATIENCE_S) == 0, child.said
    assert not doomed
    sweep.assert_as_if_nothing_had_happened(calm)
    assert not psutil.wait_procs(started, timeout=20)[1]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
