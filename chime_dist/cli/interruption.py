"""SIGINT and SIGTERM while a launch runs: the first drains it, the second cuts it off."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol

from chime_dist.cli.output import counted
from chime_dist.engine.driver import Ending
from chime_dist.wiring.launch import Observer

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Drivable(Protocol):
    """A launch (``wiring.launch.Launch``), as far as it matters here."""

    def stop(self, ending: Ending) -> None:
        """See ``Launch``."""
        ...

    async def drive(self, observe: Observer) -> Ending:
        """See ``Launch``."""
        ...


async def drive(
    launch: Drivable, observe: Observer, in_flight: Callable[[], int], say: Callable[[str], None]
) -> Ending | None:
    """Drive ``launch`` to its ending, or to None where a second signal cut it off. Raises what ``drive`` raises.

    The first signal lets ``in_flight`` open episodes end (H9). Must run on the main thread.
    """
    loop = asyncio.get_running_loop()
    driving = asyncio.ensure_future(launch.drive(observe))
    received = 0

    def interrupted(number: signal.Signals) -> None:
        nonlocal received
        received += 1
        if received == 1:
            say(f"{number.name}: draining {counted(in_flight(), 'episode')}; again to kill")
            launch.stop(Ending.PREEMPTED)
        else:
            say(f"{number.name}: killing; a resume runs the open episodes again")
            driving.cancel()
            _leave_to_the_system(loop)

    for number in SIGNALS:
        loop.add_signal_handler(number, interrupted, number)
    try:
        return await driving
    except asyncio.CancelledError:
        if received < 2:
            raise
        return None
    finally:
        _leave_to_the_system(loop)


def _leave_to_the_system(loop: asyncio.AbstractEventLoop) -> None:
    """A further signal ends the process, whatever hangs."""
    for number in SIGNALS:
        loop.remove_signal_handler(number)
