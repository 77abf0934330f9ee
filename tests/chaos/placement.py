"""Ray puts an actor where it likes; a test that needs it somewhere waits until it is there."""

from __future__ import annotations

import time
from typing import Protocol

import psutil

from tests.chaos.patience import PATIENCE_S


class Place(Protocol):
    """A host or a node."""

    def processes(self, title: str) -> list[psutil.Process]:
        """Its processes whose command line holds ``title``."""
        ...


def placed(title: str, place: Place, elsewhere: Place) -> psutil.Process:
    """An actor's process with this title, once Ray has put one on ``place``; those that it starts elsewhere are
    killed at once, so that it chooses again."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := place.processes(title)):
        assert time.monotonic() < deadline, f"{title} is everywhere else"
        for process in elsewhere.processes(title):
            process.kill()
        time.sleep(0.02)
    return found[0]


def titled(process: psutil.Process, title: str) -> bool:
    """Whether its command line holds ``title``; False for one that is gone."""
    try:
        return title in " ".join(process.cmdline())
    except psutil.Error:
        return False
