"""Signals: the first drains a launch, the second kills it (H9)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.interruption import Interruptions
from chime_dist.engine.driver import Ending
from tests.cli.conftest import Program


class _Launch:
    """A launch that does nothing until it is stopped, and then needs ``drain_s`` seconds."""

    def __init__(self, drain_s: float) -> None:
        self._drain_s = drain_s
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self.cleaned_up = False

    def stop(self, ending: Ending) -> None:
        self._ending.set_result(ending)

    async def drive(self) -> Ending:
        try:
            ending = await self._ending
            await asyncio.sleep(self._drain_s)
            return ending
        finally:
            self.cleaned_up = True


async def _drive(launch: _Launch, say: Callable[[str], None], in_flight: int = 1) -> Ending | None:
    with Interruptions(launch, lambda: in_flight, say) as interruptions:
        return await interruptions.bear(launch.drive())


def _signal_soon(*numbers: int) -> None:
    for count, number in enumerate(numbers):
        asyncio.get_running_loop().call_later(0.02 * (count + 1), os.kill, os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_signal_stops_the_launch_and_says_what_is_drained(number: signal.Signals) -> None:
    said: list[str] = []
    launch = _Launch(drain_s=0.0)
    _signal_soon(number)
    assert await _drive(launch, said.append) is Ending.PREEMPTED
    assert said == [f"{number.name}: draining 1 episode; again to kill"]


async def test_the_second_signal_cancels_the_launch_and_lets_it_clean_up() -> None:
    said: list[str] = []
    launch = _Launch(drain_s=60.0)
    _signal_soon(signal.SIGTERM, signal.SIGINT)
    assert await _drive(launch, said.append, in_flight=16) is None
    assert launch.cleaned_up
    assert [line.split(":")[0] for line in said] == ["SIGTERM", "SIGINT"]
    assert "draining 16 episodes" in said[0]


async def test_a_cancellation_that_is_no_signals_goes_through() -> None:
    launch = _Launch(drain_s=60.0)
    driving = asyncio.create_task(_drive(launch, lambda text: None))
    await asyncio.sleep(0)
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving


async def test_after_the_launch_signals_are_the_systems_again() -> None:
    launch = _Launch(drain_s=0.0)
    launch.stop(Ending.COMPLETE)
    before = signal.getsignal(signal.SIGTERM)
    await _drive(launch, lambda text: None)
    assert signal.getsignal(signal.SIGTERM) == before


@contextmanager
def _sweeping(program: Program, latency_s: str) -> Iterator[subprocess.Popen[str]]:
    """The program in a process of its own, on the sweep with a slower model; told to stop if it is still there."""
    words = ["sweep", str(program.write()), "--set", f"cluster.endpoints.m.latency_s={latency_s}"]
    with subprocess.Popen(
        [sys.executable, "-m", "chime_dist", *words],
        cwd=program.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _read_until(process: subprocess.Popen[str], wanted: Callable[[str], bool]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if wanted(line):
            return line
    raise AssertionError("the program ended without saying what was waited for")


def _status(folder: Path) -> str:
    status = LaunchDirectory.open(folder / "runs" / "latest").status()
    assert status is not None
    return status.state


def test_sigterm_drains_and_a_resume_ends_where_an_undisturbed_launch_does(
    program: Program, complete: LaunchDirectory
) -> None:
    """H9: exit code 75; after the resume every unit has one final row, and the bank is byte for byte the same."""
    with _sweeping(program, "[0.1, 0.2]") as process:
        _read_until(process, lambda line: line.startswith("progress: "))
        process.send_signal(signal.SIGTERM)
        said = _read_until(process, lambda line: line.startswith("SIGTERM: "))
        assert "draining" in said
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 75
    assert "Preempted. Every finished episode is kept; go on with: " in output
    assert " -m chime_dist resume runs/quick/" in output or "with: chime-dist resume runs/quick/" in output
    assert _status(program.folder) == "preempted"
    owed = [run["owed"] for run in program.json("show", "runs/latest")["runs"]]
    assert sum(owed) > 0

    resumed = program("resume", "runs/latest", "--set", "cluster.endpoints.m.latency_s=[0.0, 0.0]")
    assert resumed.exit_code == 0, resumed.output
    launch = LaunchDirectory.open(program.folder / "runs" / "latest")
    archive, undisturbed = EpisodeArchive(launch), EpisodeArchive(complete)
    for run in complete.manifest.runs:
        assert archive.finals(run).keys() == undisturbed.finals(run).keys()
        heads = [program.json("bank", "at", found.path, run) for found in (launch, complete)]
        assert heads[0]["digest"] == heads[1]["digest"]
        assert heads[0]["content_hash"] == heads[1]["content_hash"]


def test_a_second_signal_kills_and_a_resume_is_still_possible(program: Program) -> None:
    with _sweeping(program, "[30.0, 30.0]") as process:
        _read_until(process, lambda line: line.startswith("launch "))
        process.send_signal(signal.SIGINT)
        _read_until(process, lambda line: line.startswith("SIGINT: draining"))
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 130
    assert output.startswith("Killed. ")
    assert _status(program.folder) == "incomplete"
    status = LaunchDirectory.open(program.folder / "runs" / "latest").status()
    assert status is not None
    assert status.reason == "killed by the second signal"
    assert sum(run["owed"] for run in program.json("show", "runs/latest")["runs"]) == 54
