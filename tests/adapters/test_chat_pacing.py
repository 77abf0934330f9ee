"""A call and its pacer: what was let in is given back, however the call ends, and a reply outlives its pacer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.local.pacer import LocalPacer
from chime_dist.adapters.models.chat import ChatBackbone
from chime_dist.adapters.models.chat_request import ChatSettings
from chime_dist.core.model_call import ChatRequest
from chime_dist.core.pacing import PaceLimits, Pauses
from chime_dist.core.retry import RetryPolicy
from chime_dist.errors import BackboneError
from tests.adapters.stub_server import Behaviour, StubServer, answers, hangs, sends_raw, text

ASK = ChatRequest(messages=({"role": "user", "content": "Where is Paris?"},), session_id="run:train:12")


class FarPacer:
    """Lets everybody in; its word may take for ever."""

    def __init__(self, *, silent: bool = False) -> None:
        self.ends: list[tuple[float | None, bool]] = []
        """What it was told of each call's end: the slow-down, and whether there was an answer."""
        self.inside: set[str] = set()
        self.owed = 0
        self.entered = asyncio.Event()
        self._silent = silent

    async def enter(self, call: str, tokens: int, lasts_s: float) -> float:
        """See ``ports.Pacer``."""
        self.inside.add(call)
        self.owed += tokens
        self.entered.set()
        if self._silent:
            await asyncio.Event().wait()
        return 0.0

    async def leave(self, call: str, tokens_beyond: int, slow_down: float | None, *, answered: bool) -> None:
        """See ``ports.Pacer``."""
        self.ends.append((slow_down, answered))
        self.inside.remove(call)
        self.owed += tokens_beyond


@asynccontextmanager
async def paced_by(pacer: FarPacer, behaviour: Behaviour) -> AsyncIterator[ChatBackbone]:
    async with StubServer([behaviour]) as server:
        settings = ChatSettings(
            name="stub", base_url=server.url, model="m", retry=RetryPolicy(max_retries=0, timeout_s=0.5)
        )
        backbone = ChatBackbone(settings, SystemClock(), pacer=pacer)
        try:
            yield backbone
        finally:
            await backbone.close()


async def test_a_call_whose_budget_ends_before_it_hears_that_it_is_in_gives_its_place_back() -> None:
    """A9: else ten of them keep a backbone with room for ten idle until their places run out."""
    pacer = FarPacer(silent=True)
    async with paced_by(pacer, answers()) as backbone:
        with pytest.raises(BackboneError, match="left no room within the call's budget"):
            await backbone.complete(ASK, budget_s=0.05)
    assert pacer.entered.is_set()
    assert (pacer.inside, pacer.owed) == (set(), 0)


@pytest.mark.parametrize("silent", [True, False])
async def test_a_call_that_is_cancelled_gives_its_place_back(silent: bool) -> None:
    """A9."""
    pacer = FarPacer(silent=silent)
    async with paced_by(pacer, hangs()) as backbone:
        call = asyncio.create_task(backbone.complete(ASK, budget_s=60))
        await pacer.entered.wait()
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert not pacer.inside


@pytest.mark.parametrize(
    ("behaviour", "end"),
    [
        (answers(), (None, True)),
        (text("not a completion"), (None, True)),
        (answers({"error": {"message": "no such field"}}, status=400), (None, True)),
        (answers({"error": {"message": "no such model"}}, status=404), (None, True)),
        (answers({"error": {"message": "busy"}}, status=429), (0.0, False)),
        (answers({"error": {"message": "busy"}}, status=503, Retry_After="7"), (7.0, False)),
        (answers({"error": {"message": "request timeout"}}, status=408), (None, False)),
        (answers({"error": {"message": "out of memory"}}, status=500), (None, False)),
        (answers({"error": {"message": "bad gateway"}}, status=502), (None, False)),
        (answers(status=302, Location="/login"), (None, False)),
        (hangs(), (None, False)),
        (sends_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), (None, False)),
    ],
)
async def test_only_a_server_that_did_its_work_has_answered(
    behaviour: Behaviour, end: tuple[float | None, bool]
) -> None:
    """A9: a timeout, a server's error and a broken connection do not end a row of slow-downs."""
    pacer = FarPacer()
    async with paced_by(pacer, behaviour) as backbone:
        with suppress(BackboneError):
            await backbone.complete(ASK, budget_s=10)
    assert pacer.ends == [end]


async def test_a_probe_neither_waits_for_a_pause_nor_prolongs_it() -> None:
    """A9: it asks whether the pause may end; behind it, an outage would be noticed only when it is over."""
    refused = answers({"error": {"message": "busy"}}, status=503, Retry_After="300")
    async with StubServer([refused]) as server:
        settings = ChatSettings(name="stub", base_url=server.url, model="m", retry=RetryPolicy(max_retries=0))
        pacer = LocalPacer(SystemClock(), PaceLimits(), Pauses())
        backbone = ChatBackbone(settings, SystemClock(), pacer=pacer)
        try:
            with pytest.raises(BackboneError, match="busy"):
                await backbone.complete(ASK, budget_s=5)
            waiting = asyncio.create_task(backbone.complete(ASK, budget_s=1000))
            for _ in range(3):
                with pytest.raises(BackboneError, match="busy"):
                    await backbone.complete(ASK.model_copy(update={"paced": False}), budget_s=5)
            assert 290 < await pacer.enter("another", 1, 60.0) <= 300
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        finally:
            await backbone.close()
    assert len(server.received) == 4
