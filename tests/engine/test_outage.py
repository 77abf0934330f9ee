"""Waiting for models that are down: one prober, longer and longer pauses, and an end to patience (A9)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from chime_dist.engine.outage import LONGEST_PAUSE_S, SPREAD_S, AbandonedError, Outages
from chime_dist.errors import BackboneError, OutageError


class Hours:
    """``ports.Clock`` whose sleeps are over at once, and are written down."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.asleep = asyncio.Event()
        self.held: asyncio.Event | None = None
        """Where set, sleeps wait for it too."""

    def now(self) -> datetime:
        """See ``ports.Clock``."""
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        """See ``ports.Clock``."""
        return 1000.0 + sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        """See ``ports.Clock``."""
        self.asleep.set()
        if self.held is not None:
            await self.held.wait()
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Down:
    """Models that fail so many probes."""

    def __init__(self, probes: int) -> None:
        self.left = probes
        self.asked = 0

    async def probe(self, budget_s: float) -> None:
        """See ``engine.outage.Probed``."""
        self.asked += 1
        self.left -= 1
        if self.left >= 0:
            raise BackboneError("no answer", "server_error")


def outages(clock: Hours, patience_s: float = 3600.0) -> Outages:
    return Outages(clock, patience_s, uniform=lambda: 0.5)


async def test_models_that_answer_are_in_no_outage() -> None:
    """A9: the failure was the attempt's own."""
    clock, models = Hours(), Down(0)
    found = outages(clock)
    assert not await found.waited_out("run", models)
    assert (models.asked, clock.slept, found.ongoing) == (1, [], False)


async def test_everybody_waits_for_one_prober_and_goes_on_spread_over_time() -> None:
    """A9: pauses start at a second and double up to half a minute; then each waits its own share of the spread."""
    clock, models = Hours(), Down(6)
    found = outages(clock)
    assert await asyncio.gather(*(found.waited_out("run", models) for _ in range(3))) == [True] * 3
    pauses = [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_S]
    assert clock.slept == [*pauses, *[0.5 * SPREAD_S] * 3]
    assert (models.asked, found.ongoing) == (1 + len(pauses), False)


async def test_patience_ends_with_what_to_do() -> None:
    """A9: 1 + 2 + 4 + 8 s are not more than 15; the next probe is after 31."""
    clock, models = Hours(), Down(100)
    found = outages(clock, patience_s=15.0)
    with pytest.raises(OutageError, match=r"run run: its models have not answered for 31 s .*resume the launch"):
        await found.waited_out("run", models)
    assert not found.ongoing


async def test_who_is_told_to_stop_waits_no_longer_and_begins_no_new_wait() -> None:
    clock = Hours()
    clock.held = asyncio.Event()
    found = outages(clock)
    waiting = [asyncio.create_task(found.waited_out("run", Down(100))) for _ in range(2)]
    await clock.asleep.wait()
    found.abandon()
    assert [
        type(error) for error in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10.0)
    ] == [AbandonedError] * 2
    with pytest.raises(AbandonedError):
        await found.waited_out("other", Down(100))
    assert not found.ongoing


async def test_an_attempt_that_is_cancelled_leaves_the_others_waiting() -> None:
    clock = Hours()
    clock.held = asyncio.Event()
    found, models = outages(clock), Down(2)
    first, second = (asyncio.create_task(found.waited_out("run", models)) for _ in range(2))
    await clock.asleep.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert found.ongoing
    clock.held.set()
    assert await second


async def test_an_outage_that_is_abandoned_before_its_prober_ran_is_not_known_any_more() -> None:
    clock = Hours()
    found = outages(clock)
    waiting = asyncio.create_task(found.waited_out("run", Down(9)))
    await asyncio.sleep(0)
    assert found.ongoing
    found.abandon()
    with pytest.raises(AbandonedError):
        await waiting
    assert (found.ongoing, clock.slept) == (False, [])
