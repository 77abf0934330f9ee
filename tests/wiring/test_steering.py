"""A launch that is steered while it runs: the real driver, workers and folder, in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chime_dist.adapters.directory.control_file import ControlFile
from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.config.loading import load_sweep
from chime_dist.engine.control import Answer, Command, CommandName
from chime_dist.engine.driven_run import Progress
from chime_dist.engine.driver import Ending
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import plan_runs
from tests.spec.sweeps import written
from tests.steered import steered

PATIENCE_S = 60.0


@pytest.fixture
def new(tmp_path: Path) -> Callable[[], Launch]:
    """Makes a launch of two runs."""
    file = written(tmp_path, steered())

    def make() -> Launch:
        sweep = load_sweep(file, environ={})
        return Launch.new(sweep, plan_runs(sweep))

    return make


class Reports:
    """What a driver reported."""

    def __init__(self) -> None:
        self.seen: list[Sequence[Progress]] = []

    def __call__(self, runs: Sequence[Progress]) -> None:
        """Keep it."""
        self.seen.append(runs)

    async def after(self, wanted: Callable[[Sequence[Progress]], bool]) -> Sequence[Progress]:
        """The next report that is wanted."""
        start = len(self.seen)
        await until(lambda: any(map(wanted, self.seen[start:])))
        return next(report for report in self.seen[start:] if wanted(report))


@asynccontextmanager
async def driving(launch: Launch, reports: Reports) -> AsyncIterator[asyncio.Task[Ending]]:
    """The launch at work, from the moment at which it reads commands; ended with the test."""
    task = asyncio.create_task(launch.drive(reports))
    try:
        await until(lambda: launch.directory.status() is not None or task.done())
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that must come."""

    def wait() -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < give_up
            time.sleep(0.02)

    await asyncio.to_thread(wait)


def asked(
    launch: LaunchDirectory, name: CommandName, *, run: str | None = None, slots: int | None = None
) -> Callable[[], Answer | None]:
    """Give a command; gives its answer."""
    control, command = (
        ControlFile(launch),
        Command(
            id=f"{name}-{datetime.now(UTC).timestamp()}",
            command=name,
            run_id=run,
            slots=slots,
            at="now",
            by="a test",
        ),
    )
    control.ask(command)
    return lambda: control.answer_to(command)


def in_flight(report: Sequence[Progress]) -> int:
    """Of all runs."""
    return sum(run.in_flight for run in report)


def positions(report: Sequence[Progress]) -> list[tuple[int, int]]:
    """What was admitted and evaluated of each run."""
    return [(run.position, run.evaluated) for run in report]


async def test_a_paused_launch_admits_nothing_and_goes_on_where_it_stood(new: Callable[[], Launch]) -> None:
    launch, reports = new(), Reports()
    async with driving(launch, reports) as task:
        pause = asked(launch.directory, "pause")
        await until(lambda: pause() is not None)
        still = await reports.after(lambda report: in_flight(report) == 0)
        status = launch.directory.status()
        assert status is not None
        assert (status.state, status.reason) == ("paused", "by ctl: a test; `ctl continue` goes on")
        for _ in range(2):
            later = await reports.after(lambda report: True)
            assert positions(later) == positions(still)
        assert launch.directory.holder() is not None
        assert not task.done()
        asked(launch.directory, "continue")
        assert await task is Ending.COMPLETE
    status = launch.directory.status()
    assert status is not None
    assert status.state == "complete"


async def test_fewer_slots_are_used_until_the_driver_ends(new: Callable[[], Launch]) -> None:
    launch, reports = new(), Reports()
    async with driving(launch, reports) as task:
        pause, fewer = asked(launch.directory, "pause"), asked(launch.directory, "slots", slots=1)
        more = asked(launch.directory, "slots", slots=4)
        await until(lambda: more() is not None)
        answers = [answer for answer in (pause(), fewer(), more()) if answer is not None]
        assert [answer.taken for answer in answers] == [True, True, False]
        assert "ask for 1 to 3" in answers[-1].text
        await reports.after(lambda report: in_flight(report) == 0)
        start = len(reports.seen)
        asked(launch.directory, "continue")
        assert await task is Ending.COMPLETE
    assert max(map(in_flight, reports.seen[start:])) <= 1


async def test_a_cancelled_run_ends_the_launch_incomplete_and_stays_cancelled_until_it_is_revived(
    new: Callable[[], Launch],
) -> None:
    launch, reports = new(), Reports()
    run, other = launch.directory.manifest.runs
    async with driving(launch, reports) as task:
        asked(launch.directory, "pause")
        cancel = asked(launch.directory, "cancel", run=run)
        await until(lambda: cancel() is not None)
        asked(launch.directory, "continue")
        assert await task is Ending.INCOMPLETE
    assert launch.reason == f"cancelled: {run} by a test; `ctl revive` takes them up again"
    status = launch.directory.status()
    assert status is not None
    assert (status.state, status.reason) == ("incomplete", launch.reason)
    archive = EpisodeArchive(launch.directory)
    done = len(archive.finals(run))
    assert done < 16
    assert len(archive.finals(other)) == 16

    again = Launch.resume(launch.directory.path)
    assert await again.drive(Reports()) is Ending.INCOMPLETE
    assert len(archive.finals(run)) == done

    asked(launch.directory, "revive", run=run)
    last = Launch.resume(launch.directory.path)
    assert await last.drive(Reports()) is Ending.COMPLETE
    assert len(archive.finals(run)) == 16


async def test_a_run_may_be_cancelled_before_a_driver_runs_and_a_pause_may_not(new: Callable[[], Launch]) -> None:
    launch = new()
    run, other = launch.directory.manifest.runs
    asked(launch.directory, "cancel", run=run)
    pause = asked(launch.directory, "pause")
    assert await launch.drive(Reports()) is Ending.INCOMPLETE
    refused = pause()
    assert refused is not None
    assert not refused.taken
    archive = EpisodeArchive(launch.directory)
    assert len(archive.finals(run)) == 0
    assert len(archive.finals(other)) == 16


async def test_a_revived_run_goes_on_in_the_launch_that_runs(new: Callable[[], Launch]) -> None:
    launch, reports = new(), Reports()
    run, _ = launch.directory.manifest.runs
    asked(launch.directory, "cancel", run=run)
    async with driving(launch, reports) as task:
        asked(launch.directory, "pause")
        asked(launch.directory, "revive", run=run)
        asked(launch.directory, "continue")
        assert await task is Ending.COMPLETE
