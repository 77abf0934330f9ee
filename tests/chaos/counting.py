"""``chime-dist`` with models that leave a line in ``calls.txt`` for every request, whatever happens later."""

from __future__ import annotations

import os
import random
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.models.chat import ChatBackbone
from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.cli.app import main as command_line
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.engine import driver

CALLS = "calls.txt"

PATIENCE = "CHIME_DRILL_PATIENCE_S"
"""The environment variable with the seconds that a silent Redis is waited for, instead of half a minute."""
RECHECK = "CHIME_DRILL_RECHECK_S"
"""The one with the seconds between two looks of the driver at what the queue still knows."""
LARGEST_FILE = "CHIME_DRILL_LARGEST_FILE"
"""The one with the bytes that a file of the process may have."""
CLOCK = "CHIME_DRILL_CLOCK"
"""The one with the seed of a wall clock that jumps at every reading."""

Complete = Callable[[Any, ChatRequest, float], Awaitable[ChatReply]]


def _counting(complete: Complete) -> Complete:
    async def counted(self: Any, request: ChatRequest, budget_s: float) -> ChatReply:
        if not request.session_id.startswith("probe"):
            descriptor = os.open(CALLS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            # By the clock that all processes of the machine share and that no drill moves.
            os.write(descriptor, f"{time.monotonic():.3f} {request.session_id}\n".encode())
            os.close(descriptor)
        return await complete(self, request, budget_s)

    return counted


def count_calls() -> None:
    """Have every backbone of this process count."""
    for kind in (ScriptedBackbone, ChatBackbone):
        kind.complete = _counting(kind.complete)  # type: ignore[assignment,method-assign]


def chime_dist(*arguments: str) -> None:
    """The command line, in this process, under the conditions that the environment asks for; ends it."""
    count_calls()
    if patience := os.environ.get(PATIENCE):
        RedisConnection.__init__.__defaults__ = (float(patience),)
    if recheck := os.environ.get(RECHECK):
        driver.RECHECK_S = float(recheck)
    if largest := os.environ.get(LARGEST_FILE):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest), resource.RLIM_INFINITY))
    if seed := os.environ.get(CLOCK):
        _jump(random.Random(seed))
    sys.argv = ["chime-dist", *arguments]
    command_line()


def _jump(chance: random.Random) -> None:
    start, wall = datetime(1971, 1, 1, tzinfo=UTC), time.time

    def now(self: SystemClock) -> datetime:
        return start + timedelta(days=chance.randrange(36_500))

    SystemClock.now = now  # type: ignore[method-assign]
    time.time = lambda: wall() + chance.randrange(-(10**9), 10**9)


def calls_in(folder: Path) -> int:
    """Requests that models were asked below ``folder``; what a client repeats by itself counts once."""
    return len(_lines(folder))


def merges_in(folder: Path) -> int:
    """Those of them that the bank's owner made to merge items at a turn."""
    return sum(" merge:" in line for line in _lines(folder))


def silence_in(folder: Path) -> float:
    """The longest time in which no model was asked, between two requests, in seconds."""
    return max((after - before for before, after in pairwise(sorted(_times(folder)))), default=0.0)


def _times(folder: Path) -> list[float]:
    return [float(line.split()[0]) for line in _lines(folder)]


def _lines(folder: Path) -> list[str]:
    path = folder / CALLS
    return path.read_text().splitlines() if path.exists() else []
