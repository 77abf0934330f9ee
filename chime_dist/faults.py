"""Named places where a drill makes this process die or stand still; elsewhere they cost two look-ups.

For drills only (``make chaos``). ``CHIME_FAULT=bank.appended`` has the process killed by SIGKILL when it first
passes that place, ``CHIME_FAULT=bank.appended:3`` when it passes it for the third time; ``CHIME_FAULT_STOP`` stops
it by SIGSTOP in the same way. Each process counts for itself, so one that is started again with the same
environment dies again.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

KILL = "CHIME_FAULT"
"""The environment variable that names the place to die at."""

STOP = "CHIME_FAULT_STOP"
"""The environment variable that names the place to stop at."""

_passed: Counter[str] = Counter()


def reached(point: str) -> None:
    """Say that this process is at ``point``. Raises ValueError for a variable with a number that is none."""
    for variable, deadly in ((KILL, signal.SIGKILL), (STOP, signal.SIGSTOP)):
        wanted = os.environ.get(variable)
        if not wanted:
            continue
        name, _, time = wanted.partition(":")
        if name != point:
            continue
        _passed[variable] += 1
        if _passed[variable] == int(time or 1):
            # To this thread: one that goes to the process may stop or kill it a few steps further on.
            signal.raise_signal(deadly)
