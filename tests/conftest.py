"""What holds for every test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def ray_sessions() -> Iterator[None]:
    """Ray keeps the logs and sockets of every session for good; here they go when the tests are over."""
    # Short, because sockets are in it; the last of Ray's processes may still write there.
    with (
        tempfile.TemporaryDirectory(prefix="cd-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_TMPDIR", folder)
        yield
