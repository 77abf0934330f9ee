"""What the Redis journal does where a reply is lost or its keys are."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from chime_dist.errors import ServiceError, TurnOverError
from chime_dist.ports import Appended
from tests.adapters.lossy_proxy import LossyProxy
from tests.contract.labs import RedisLab, open_redis_lab, redis_server


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
async def lab(redis_url: str) -> AsyncIterator[RedisLab]:
    async with open_redis_lab(redis_url) as opened:
        yield opened


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[LossyProxy]:
    with tempfile.TemporaryDirectory(prefix="chime-") as folder:
        async with LossyProxy(redis_url, Path(folder, "proxy.sock")).running() as running:
            yield running


@pytest.fixture
async def lossy(lab: RedisLab, proxy: LossyProxy) -> AsyncIterator[RedisLab]:
    """A second process's view of the lab, through the proxy; its script is loaded already."""
    through = lab.joined(proxy.url)
    await through.journal.append("warm-up", await through.journal.take_fence("warm-up"), 0, "line")
    yield through
    await through.queue.close()


async def test_an_append_whose_reply_was_lost_is_one_entry(
    lab: RedisLab, lossy: RedisLab, proxy: LossyProxy
) -> None:
    """D4: the re-sent append says that the line is there, and told once."""
    fence = await lossy.journal.take_fence("run")
    cursor, _ = await lab.queue.changes("", 0.0)
    proxy.lose(b"EVALSHA")
    assert await lossy.journal.append("run", fence, 0, "line 0") is Appended.ALREADY_SAME
    assert proxy.lost == 1
    assert await lab.journal.read("run") == ["line 0"]
    assert len((await lab.queue.changes(cursor, 0.0))[1]) == 1
    assert await lossy.journal.append("run", fence, 1, "line 1") is Appended.APPENDED


async def test_a_fence_whose_reply_was_lost_is_still_the_newest(
    lab: RedisLab, lossy: RedisLab, proxy: LossyProxy
) -> None:
    """D4: taken twice, it skips a number; the number that the caller gets owns the journal."""
    older = await lab.journal.take_fence("run")
    proxy.lose(b"EVALSHA")
    fence = await lossy.journal.take_fence("run")
    assert (proxy.lost, fence) == (1, older + 2)
    assert await lossy.journal.append("run", fence, 0, "line") is Appended.APPENDED
    assert await lab.journal.append("run", older, 1, "line") is Appended.FENCED


async def test_the_owner_of_a_replaced_driver_takes_no_fence_and_appends_nothing(
    lab: RedisLab, redis_url: str
) -> None:
    """R7, D2: Ray restarts its actor, whose new fence would stop the owner that commits now. What is there, is
    there for it too."""
    fence = await lab.journal.take_fence("run")
    await lab.journal.append("run", fence, 0, "line 0")
    successor = lab.joined(redis_url)
    await successor.queue.reset()
    with pytest.raises(TurnOverError, match="taking a fence of run: another driver"):
        await lab.journal.take_fence("run")
    with pytest.raises(TurnOverError, match="appending position 1 of run: another driver"):
        await lab.journal.append("run", fence, 1, "late")
    assert await lab.journal.append("run", fence, 0, "line 0") is Appended.ALREADY_SAME
    assert await successor.journal.take_fence("run") == fence + 1
    assert await successor.journal.append("run", fence + 1, 1, "line 1") is Appended.APPENDED
    assert await successor.journal.read("run") == ["line 0", "line 1"]
    await successor.queue.close()


async def test_a_fence_that_is_given_again_after_a_loss_of_data_is_no_use_to_its_old_owner(
    lab: RedisLab, redis_url: str
) -> None:
    """D7, R7: fences begin anew after FLUSHALL; the turn tells an old owner from a new one of its number."""
    old = await lab.journal.take_fence("run")
    await lab.clean()
    successor = lab.joined(redis_url)
    await successor.queue.reset()
    assert await successor.journal.take_fence("run") == old
    with pytest.raises(TurnOverError):
        await lab.journal.append("run", old, 0, "late")
    assert await successor.journal.append("run", old, 0, "line 0") is Appended.APPENDED
    await successor.queue.close()


async def test_a_journal_that_vanishes_under_its_owner_stops_it(lab: RedisLab) -> None:
    """D7: after FLUSHALL an append at position 5 is no conflict with somebody, it is a lost server."""
    fence = await lab.journal.take_fence("run")
    await lab.journal.append("run", fence, 0, "line 0")
    await lab.clean()
    with pytest.raises(ServiceError, match=r"appending position 1 of run.*keys are gone"):
        await lab.journal.append("run", fence, 1, "line 1")
