"""Model calls of one attempt that are made at once."""

from __future__ import annotations

import asyncio

import pytest

from chime_dist.core.model_call import ChatReply
from chime_dist.engine.fan_out import every
from chime_dist.errors import BackboneError


async def test_all_calls_end_before_the_first_failure_counts() -> None:
    """First in order, not in time: what an attempt asked and how it ended does not depend on timing."""
    ended = []
    gate = asyncio.Event()

    async def call(name: str) -> ChatReply:
        if name == "first":
            await gate.wait()
        gate.set()
        ended.append(name)
        if name != "third":
            raise BackboneError(name, "server_error")
        return ChatReply(text=name)

    with pytest.raises(BackboneError, match="first"):
        await every(call(name) for name in ("first", "second", "third"))
    assert ended == ["second", "third", "first"]
    assert [reply.text for reply in await every([call("third")])] == ["third"]


async def test_a_cancelled_attempt_takes_all_of_its_calls_along() -> None:
    """Nothing goes on calling in its name."""
    begun, ended = asyncio.Barrier(3), []

    async def call(name: str) -> ChatReply:
        try:
            await begun.wait()
            await asyncio.Event().wait()
        finally:
            ended.append(name)
        raise AssertionError("unreachable")

    attempt = asyncio.create_task(every(call(name) for name in ("first", "second")))
    await begun.wait()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert sorted(ended) == ["first", "second"]
