"""Folders for tests that sync thousands of times and need no disk that survives a power cut."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")
"""Where Linux has a file system in memory; files in it outlive every process, kill -9 included."""


@contextmanager
def quick_folder() -> Iterator[Path]:
    """An empty folder, in memory where the system has such; gone afterwards."""
    place = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="chime-test-", dir=place) as folder:
        yield Path(folder)
