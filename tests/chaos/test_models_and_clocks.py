"""Models that do not answer or refuse, and a wall clock that jumps."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.chaos.counting import calls_in
from tests.chaos.nursery import Nursery
from tests.chaos.patience import eventually
from tests.chaos.served_model import ServedModel
from tests.chaos.sweeps import Sweep, Undisturbed

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

IMPATIENT = """\
requests: {timeout_s: 1, max_retries: 100, base_interval_s: 0.02, cap_s: 0.2}
episode: {deadline_s: 120}
"""


def prepared(nursery: Nursery, folder: Path, model: ServedModel, more: str) -> Sweep:
    """The sweep with its model behind HTTP."""
    sweep = Sweep.prepare(nursery, folder, model=model.url)
    file = folder / "sweep.yaml"
    file.write_text(file.read_text().replace("  slots: 4\n", "  slots: 4\n  outage_patience_s: 1\n") + more)
    return sweep


async def test_a_storm_of_refusals_delays_a_launch_and_changes_nothing(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path
) -> None:
    """A9, R37: 429 to forty requests in a row, then to forty more."""
    async with ServedModel() as model:
        sweep = prepared(nursery, tmp_path / "sweep", model, IMPATIENT)
        model.refuses = range(3, 43)
        child = sweep.start()
        await eventually(lambda: model.asked >= 70)
        model.refuses = range(model.asked, model.asked + 40)
        assert await asyncio.to_thread(child.end) == 0, child.said
        assert model.refused == 80
    sweep.assert_as_if_nothing_had_happened(calm)
    assert {row["delivery"] for row in sweep.rows()} == {1}


async def test_a_model_that_hangs_pauses_the_launch_within_its_deadline(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path
) -> None:
    """A7, A9: requests are cut off by wall clock, nothing is committed empty, a resume completes."""
    async with ServedModel() as model:
        more = "requests: {timeout_s: 2, max_retries: 0}\nepisode: {deadline_s: 10}\n"
        sweep = prepared(nursery, tmp_path / "sweep", model, more)
        model.hangs = range(40, 100_000)
        child = sweep.start()
        assert await asyncio.to_thread(child.end) == 3, child.said
        assert "Paused" in child.said
        assert not [entry for entry in sweep.entries() if entry.empty_reason]
        model.hangs = range(0)
        child = sweep.resume()
        assert await asyncio.to_thread(child.end) == 0, child.said
    entries = sweep.entries()
    assert tuple(entry.content_hash for entry in entries) == calm.chain


async def test_requests_without_an_answer_are_asked_again(
    nursery: Nursery, calm: Undisturbed, tmp_path: Path
) -> None:
    """A7: some requests hang for ever; each is cut off and repeated, and no episode fails of it."""
    async with ServedModel() as model:
        sweep = prepared(nursery, tmp_path / "sweep", model, IMPATIENT)
        model.hangs = range(9, 120, 20)
        child = sweep.start()
        assert await asyncio.to_thread(child.end) == 0, child.said
        assert model.refused == len(model.hangs)
    sweep.assert_as_if_nothing_had_happened(calm)


def test_a_wall_clock_that_jumps_changes_nothing(nursery: Nursery, calm: Undisturbed, tmp_path: Path) -> None:
    """R7: years forth and back between any two readings, in a launch and in its resume."""
    sweep = Sweep.prepare(nursery, tmp_path / "sweep")
    child = sweep.start({"CHIME_DRILL_CLOCK": "7", "CHIME_FAULT": "bank.appended:9"})
    assert child.end() == -signal.SIGKILL, child.said
    child = sweep.resume({"CHIME_DRILL_CLOCK": "8"})
    assert child.end() == 0, child.said
    sweep.assert_as_if_nothing_had_happened(calm)
    assert len({entry.committed_at[:4] for entry in sweep.entries()}) > 3, "the clock did not jump"
    assert calls_in(sweep.folder) - calm.calls <= 32
