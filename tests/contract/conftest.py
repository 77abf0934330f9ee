"""One Redis for the contract suites."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.labs import redis_server


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A real server; every lab has a launch of its own on it."""
    with redis_server() as url:
        yield url
