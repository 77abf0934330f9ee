"""A real redis-server for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chime_dist.adapters.redis.server import EmbeddedRedis


@pytest.fixture
async def redis_url(tmp_path: Path) -> AsyncIterator[str]:
    """An empty server that persists, for one test (20 ms)."""
    server = await EmbeddedRedis.start(tmp_path / "redis")
    yield server.url
    await server.stop()
