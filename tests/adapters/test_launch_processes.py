"""What is left of a launch on a host: found by its mark, ended with its owner, and nothing else touched (C7)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from chime_dist.adapters import launch_processes
from chime_dist.adapters.launch_processes import LAUNCH, OWNER, accounted, begin, marked, sweep

LITERAL = ["bash", "-c", "sleep 311 & wait"]
STUBBORN = ["bash", "-c", "trap '' TERM; sleep 311 & wait"]
OWNING = """\
import subprocess, sys, time
from chime_dist.adapters.launch_processes import begin
begin(sys.argv[1])
print(subprocess.Popen(sys.argv[2:], start_new_session=True, stdout=2).pid, flush=True)
time.sleep(311)
"""


class Owner:
    """A process that has begun to work for a launch and started something."""

    def __init__(self, launch: str, command: list[str]) -> None:
        words = [sys.executable, "-c", OWNING, launch, *command]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.leader = psutil.Process(int(self.process.stdout.readline()))
        while not (below := self.leader.children()):
            assert self.leader.is_running()
        self.started = [self.leader, *below]

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def clean(self) -> None:
        """End everything, whatever the test did."""
        self.kill()
        for process in self.started:
            if process.is_running():
                process.kill()


@pytest.fixture
def owners() -> Iterator[list[Owner]]:
    """Owners that the test made."""
    made: list[Owner] = []
    yield made
    for owner in made:
        owner.clean()


def started(command: list[str]) -> subprocess.Popen[bytes]:
    """The command in a session of its own, as the child of this process."""
    return subprocess.Popen(command, start_new_session=True)


def gone(owner: Owner) -> bool:
    """Whether nothing that it started runs."""
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in owner.started)


@pytest.mark.parametrize("command", [LITERAL, STUBBORN])
def test_what_a_killed_owner_left_in_a_session_of_its_own_is_ended(
    owners: list[Owner], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7: child and grandchild, also where they do not listen to SIGTERM."""
    monkeypatch.setattr(launch_processes, "GRACE_S", 0.2)
    owner = Owner("launch-a", command)
    owners.append(owner)
    assert os.getsid(owner.leader.pid) == owner.leader.pid
    assert sweep("launch-a") == 0, "its owner lives"
    owner.kill()
    assert sweep("launch-a") == 2
    assert gone(owner)
    assert sweep("launch-a") == 0


def test_children_of_a_stopped_owner_of_another_launch_and_of_nobody_are_left_alone(owners: list[Owner]) -> None:
    """C7: a frozen worker is alive; a mark of another launch, one without an owner and one from another container
    say nothing about this launch's dead."""
    stopped, other, dead = (Owner(name, LITERAL) for name in ("launch-a", "launch-b", "launch-a"))
    owners += [stopped, other, dead]
    stopped.process.send_signal(signal.SIGSTOP)
    other.kill()
    dead.kill()
    marks = [
        {LAUNCH: "launch-a"},
        {LAUNCH: "launch-a", OWNER: "damaged"},
        {LAUNCH: "launch-a", OWNER: "pid:[1]/1/1"},
        {LAUNCH: "launch-ab", OWNER: "pid:[1]/1/1"},
        {"X": f"{LAUNCH}=launch-a"},
    ]
    foreign = [subprocess.Popen(["sleep", "311"], env={**os.environ, **mark}) for mark in marks]
    try:
        assert sweep("launch-a", over=False) == 2
        assert gone(dead)
        assert all(process.poll() is None for process in foreign)
        assert all(process.is_running() for process in (*stopped.started, *other.started))
    finally:
        for process in foreign:
            process.kill()
            process.wait()


def test_a_number_that_was_given_to_another_process_is_not_signalled() -> None:
    """C7: process id and start time together name a process."""
    bystander = subprocess.Popen(["sleep", "311"])
    try:
        found = launch_processes._identified(bystander.pid)
        assert found is not None
        earlier = launch_processes._Process(found.pid, found.started - 1)
        assert found.alive
        assert not earlier.alive
        earlier.send(signal.SIGKILL)
        assert bystander.poll() is None
        found.send(signal.SIGKILL)
        assert bystander.wait(10) == -signal.SIGKILL
        found.send(signal.SIGKILL)
    finally:
        bystander.kill()
        bystander.wait()


async def test_a_driver_ends_what_its_launch_left_and_not_itself(owners: list[Owner]) -> None:
    """C7: at its start what a dead one left, at its end what it started itself; the environment is restored."""
    earlier = Owner("launch-a", LITERAL)
    owners.append(earlier)
    earlier.kill()
    with marked("an outer launch"):
        async with accounted("launch-a"):
            assert gone(earlier)
            own = started(LITERAL)
            assert sweep("launch-a") == 0, "not while the driver works"
        assert own.wait(10) == -signal.SIGTERM
        assert os.environ[LAUNCH] == "an outer launch"
    assert LAUNCH not in os.environ


def test_where_there_is_no_proc_nothing_is_ended_and_the_mark_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """C7: other systems start and end launches as before."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delenv(LAUNCH, raising=False)
    monkeypatch.setenv(OWNER, "another's")
    begin("launch-a")
    assert os.environ.pop(LAUNCH) == "launch-a"
    assert sweep("launch-a", over=True) == 0


def test_a_process_that_is_gone_has_no_identity(tmp_path: Path) -> None:
    """A zombie counts as gone: it holds nothing."""
    child = subprocess.Popen(["true"])
    found = launch_processes._identified(child.pid)
    assert found is None or found.pid == child.pid
    child.wait()
    assert launch_processes._identified(child.pid) is None
