"""SIGINT and SIGTERM while a launch runs: the first drains it, the second cuts it off."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self

from chime_dist.cli.output import counted
from chime_dist.engine.driver import Ending

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stoppable(Protocol):
    """A launch (``wiring.launch.Launch``), as far as it matters here."""

    def stop(self, ending: Ending) -> None:
        """See ``Launch``."""
        ...


class Interruptions:
    """Takes both signals between its start and its end, on the running loop of the main thread.

    The first stops the launch as preempted, so that its ``in_flight`` open episodes end (H9). The second cancels
    what ``bear`` awaits. What comes after that is the system's: the process ends, whatever hangs.
    """

    def __init__(self, launch: Stoppable, in_flight: Callable[[], int], say: Callable[[str], None]) -> None:
        self._launch = launch
        self._in_flight = in_flight
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._driving: asyncio.Task[Ending] | None = None
        self._received = 0

    async def bear(self, drive: Coroutine[Any, Any, Ending]) -> Ending | None:
        """The ending of ``drive``, or None where a second signal cut it off. Raises what ``drive`` raises."""
        self._driving = asyncio.create_task(drive)
        try:
            return await self._driving
        except asyncio.CancelledError:
            if self._received < 2:
                raise
            return None

    def _take(self, number: signal.Signals) -> None:
        self._received += 1
        if self._received == 1:
            self._say(f"{number.name}: draining {counted(self._in_flight(), 'episode')}; again to kill")
            self._launch.stop(Ending.PREEMPTED)
        elif self._driving is not None:
            self._say(f"{number.name}: killing; a resume runs the open episodes again")
            self._driving.cancel()
            self._leave()

    def _leave(self) -> None:
        for number in SIGNALS:
            self._loop.remove_signal_handler(number)

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._take, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
