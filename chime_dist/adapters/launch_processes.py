"""Processes that a launch's own processes start, e.g. a benchmark's simulators: marked, so that none is left over.

A child may lead a session of its own, and then no process group and no parent's death reaches it: kill -9 of a
worker leaves it running, with its ports and its memory (C7). What it cannot shed is the environment it was started
with. So whoever starts children puts the launch and its own identity there, and whoever comes later ends every
process of the launch whose owner is gone.

Needs Linux's ``/proc``; elsewhere nothing is ended, and the log says so. A child that is forked without exec, or
started with an environment made from nothing, carries no mark: it is its benchmark's own to end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

log = structlog.get_logger()

LAUNCH = "CHIME_LAUNCH"
"""The environment variable with the launch's id."""

OWNER = "CHIME_LAUNCH_OWNER"
"""The one that names the process which started it: namespace of process ids, process id, start time."""

GRACE_S = 2.0
"""Between SIGTERM and SIGKILL, in seconds."""

OWNERS_WAIT_S = 5.0
"""How long a driver's end waits for owners that are dying, in seconds."""

_KILL_WAIT_S = 5.0
_LOOK_S = 0.05
_ROUNDS = 5
"""A process that is being ended may start another one."""


@dataclass(frozen=True, slots=True)
class _Process:
    """A process for good: its number may be given to another one, its start time then differs."""

    pid: int
    started: int
    """Clock ticks since the machine's start."""

    @property
    def alive(self) -> bool:
        """Whether it runs; a zombie does not."""
        return _identified(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process and no other."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            # From here on the descriptor stays with the process it was opened for, whoever gets the number.
            if self.alive:
                signal.pidfd_send_signal(descriptor, number)
        except OSError:
            return
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Child:
    """A marked process and who started it."""

    process: _Process
    owner: _Process
    command: str


def begin(launch: str) -> None:
    """Make this process an owner of the launch's children for as long as it lives, and end those that an earlier
    one left on this host."""
    os.environ.update(_mark(launch))
    sweep(launch)


@contextmanager
def marked(launch: str) -> Iterator[None]:
    """What is started inside the block belongs to the launch and to this process."""
    before = {name: os.environ.get(name) for name in (LAUNCH, OWNER)}
    os.environ.update(_mark(launch))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@asynccontextmanager
async def accounted(launch: str) -> AsyncIterator[None]:
    """``marked`` for the launch's driver: what an earlier one left is ended first, what this one leaves last."""
    await asyncio.to_thread(sweep, launch)
    with marked(launch):
        try:
            yield
        finally:
            await asyncio.to_thread(sweep, launch, over=True)


def sweep(launch: str, *, over: bool = False) -> int:
    """End this host's children of the launch whose owner is gone; returns how many there were.

    SIGTERM, ``GRACE_S`` seconds, SIGKILL. Never ended: this process and those above it, children of a living owner
    or of an owner in another container, processes of other launches and of nobody. ``over`` says that the launch
    has ended: this process's own children go as well, and owners that are just dying are waited for.
    """
    if sys.platform != "linux":
        log.info("processes.not_swept", launch=launch, reason="needs Linux's /proc")
        return 0
    deadline = time.monotonic() + (OWNERS_WAIT_S if over else 0.0)
    own = _identified(os.getpid()) if over else None
    ended = 0
    for _ in range(_ROUNDS):
        while True:
            children = list(_children(launch))
            orphans = [child for child in children if child.owner == own or not child.owner.alive]
            if orphans or not children or time.monotonic() >= deadline:
                break
            time.sleep(_LOOK_S)
        if not orphans:
            break
        _end([child.process for child in orphans])
        ended += len(orphans)
        left = [child.process.pid for child in orphans if child.process.alive]
        log.warning("processes.swept", launch=launch, commands=[child.command for child in orphans], left=left)
    return ended


def orphans(launch: str) -> list[str]:
    """Commands of the children that ``sweep`` would end now; empty where there is no ``/proc``."""
    if sys.platform != "linux":
        return []
    return [child.command for child in _children(launch) if not child.owner.alive]


def _end(doomed: list[_Process]) -> None:
    for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, _KILL_WAIT_S)):
        for process in doomed:
            process.send(number)
        deadline = time.monotonic() + patience_s
        while any(process.alive for process in doomed):
            if time.monotonic() >= deadline:
                break
            time.sleep(_LOOK_S)
        else:
            return


def _children(launch: str) -> Iterator[_Child]:
    wanted, kin = f"{LAUNCH}={launch}".encode(), frozenset(_kin())
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or (pid := int(folder.name)) in kin:
            continue
        process = _identified(pid)
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone, or another user's
        if process is None or wanted not in variables or _namespace(pid) != _namespace():
            continue
        owner = _owner_in(variables)
        if owner is not None:
            yield _Child(process, owner, _command(pid))


def _owner_in(variables: Iterable[bytes]) -> _Process | None:
    """The owner by its mark; None where that is damaged, or where its process ids are not ours."""
    prefix = f"{OWNER}=".encode()
    for variable in variables:
        if variable.startswith(prefix):
            namespace, _, rest = variable.removeprefix(prefix).decode(errors="replace").partition("/")
            pid, _, started = rest.partition("/")
            if namespace == _namespace() and pid.isdecimal() and started.isdecimal():
                return _Process(int(pid), int(started))
    return None


def _mark(launch: str) -> dict[str, str]:
    own = _identified(os.getpid()) if sys.platform == "linux" else None
    return {LAUNCH: launch} | ({OWNER: f"{_namespace()}/{own.pid}/{own.started}"} if own is not None else {})


def _kin() -> Iterator[int]:
    """This process and those above it."""
    pid = os.getpid()
    while pid > 0:
        yield pid
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0


def _identified(pid: int) -> _Process | None:
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else _Process(pid, int(fields[19]))


def _stat(pid: int) -> list[str] | None:
    """The fields from the state on (proc(5): state, parent, ...); None for a process that is gone."""
    try:
        # The command before them is in parentheses and may hold anything, parentheses too.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def _namespace(pid: int | None = None) -> str:
    """Which numbering of processes ``pid`` (None: this process) lives in: a container has its own."""
    try:
        return str(Path(f"/proc/{'self' if pid is None else pid}/ns/pid").readlink())
    except OSError:
        return ""
