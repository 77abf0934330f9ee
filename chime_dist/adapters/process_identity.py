"""Which process something belongs to, and whether that process is gone, as surely as this machine can tell."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Self

from chime_dist.core.frozen import Frozen

_PROC = Path("/proc")


class ProcessIdentity(Frozen):
    """One process, told apart from a later one with the same id."""

    host: str
    """Its name, for people; containers may share one."""
    machine: str
    """Boot and process namespace: only where it is ours do the process ids mean the same. Empty where the system
    does not tell (macOS)."""
    pid: int
    started: int | None
    """Clock ticks from the boot to its start; None where the system does not tell."""

    @classmethod
    def of(cls, pid: int) -> Self:
        """A process of this machine that is alive."""
        state = _state(pid)
        return cls(
            host=socket.gethostname(), machine=_machine(), pid=pid, started=None if state is None else state[1]
        )

    @classmethod
    def ours(cls) -> Self:
        """This process."""
        return cls.of(os.getpid())

    def gone(self) -> bool | None:
        """Whether the process has ended; None where that cannot be known from here.

        A process id that is taken by a later process counts as gone, a stopped process does not.
        """
        if not self.machine or self.machine != _machine() or self.started is None:
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        state = _state(self.pid)
        if state is None:
            # It ended just now, or the system hides other users' processes.
            return None
        return state[0] in "ZX" or state[1] != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _machine() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _state(pid: int) -> tuple[str, int] | None:
    """The letter of a process's state, and when it started in clock ticks since the boot."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The program's name stands in brackets and may hold anything.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])
