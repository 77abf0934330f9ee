"""A shared pace that cannot be asked for a while: calls go on in a share of the limits, and no place is lost."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from chime_dist.adapters.local.pacer import LocalPacer
from chime_dist.adapters.local.pacer_fallback import AGAIN_S, FallbackPacer
from chime_dist.core.pacing import PaceLimits, Pauses
from chime_dist.errors import ServiceError
from tests.contract.labs import SkippingClock


class Shared:
    """A pace with two places that can be lost sight of."""

    def __init__(self, clock: SkippingClock) -> None:
        self._pace = LocalPacer(clock, PaceLimits(max_in_flight=2), Pauses())
        self.gone = False
        self.loses_replies = False
        self.asked = 0

    async def enter(self, call: str, tokens: int, lasts_s: float) -> float:
        """See ``ports.Pacer``."""
        self._reached()
        wait_s = await self._pace.enter(call, tokens, lasts_s)
        if self.loses_replies:
            raise ServiceError("the reply was lost")
        return wait_s

    async def leave(self, call: str, tokens_beyond: int, slow_down: float | None, *, answered: bool) -> None:
        """See ``ports.Pacer``."""
        self._reached()
        await self._pace.leave(call, tokens_beyond, slow_down, answered=answered)

    def _reached(self) -> None:
        self.asked += 1
        if self.gone:
            raise ServiceError("Redis cannot be reached")


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock()


@pytest.fixture
def shared(clock: SkippingClock) -> Shared:
    return Shared(clock)


@pytest.fixture
def pacer(clock: SkippingClock, shared: Shared) -> FallbackPacer:
    """Whose share is one place."""
    return FallbackPacer("m", shared, LocalPacer(clock, PaceLimits(max_in_flight=1), Pauses()), clock)


async def places(pacer: FallbackPacer, *calls: str) -> list[bool]:
    """Which of the calls get in."""
    return [await pacer.enter(call, 0, 600.0) == 0 for call in calls]


async def test_while_the_shared_pace_is_gone_its_share_is_kept_and_one_warning_is_given(
    pacer: FallbackPacer, shared: Shared
) -> None:
    """A9, D6: also a slow-down that this process is told holds for it."""
    shared.gone = True
    with capture_logs() as told:
        assert await places(pacer, "a", "b") == [True, False]
        await pacer.leave("a", 0, None, answered=True)
        assert await places(pacer, "b") == [True]
        await pacer.leave("b", 0, 300.0, answered=False)
        assert await pacer.enter("c", 0, 600.0) > 290
    assert [(line["event"], line["log_level"]) for line in told] == [("backbone.paced_alone", "warning")]
    assert shared.asked == 1, "nobody waits for it again so soon"


async def test_it_is_asked_again_after_a_while(pacer: FallbackPacer, shared: Shared, clock: SkippingClock) -> None:
    shared.gone = True
    assert await places(pacer, "a") == [True]
    clock.skip(AGAIN_S)
    assert await places(pacer, "b") == [False]
    assert shared.asked == 2
    shared.gone = False
    clock.skip(AGAIN_S)
    with capture_logs() as told:
        assert await places(pacer, "b", "c", "d") == [True, True, False]
    assert [line["event"] for line in told] == ["backbone.paced_together"]


async def test_calls_that_ended_meanwhile_give_their_places_back(
    pacer: FallbackPacer, shared: Shared, clock: SkippingClock
) -> None:
    """A9: else the backbone stays full until their places run out, most of an hour later."""
    assert await places(pacer, "a", "b") == [True, True]
    shared.gone = True
    for call in "ab":
        await pacer.leave(call, 0, 300.0, answered=False)
    assert shared.asked == 3, "the second was not tried"
    shared.gone = False
    clock.skip(AGAIN_S)
    assert await places(pacer, "c", "d", "e") == [True, True, False], "nor does what was asked then pause them now"


async def test_a_call_whose_word_was_lost_holds_one_place_at_most(
    pacer: FallbackPacer, shared: Shared, clock: SkippingClock
) -> None:
    """D4: it is in there and does not know; it goes on here."""
    shared.loses_replies = True
    assert await places(pacer, "a") == [True]
    await pacer.leave("a", 0, None, answered=True)
    shared.loses_replies = False
    clock.skip(AGAIN_S)
    assert await places(pacer, "b", "c") == [True, True]
