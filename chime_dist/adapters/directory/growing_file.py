"""Reading a file while another process appends to it: every whole line once, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from chime_dist.errors import RunDirectoryError

_CHUNK = 1 << 20


class GrowingFile:
    """The lines of an append-only file. A line without its break is not there yet, a missing file has no lines.

    Methods raise RunDirectoryError where it cannot be read.
    """

    def __init__(self, path: Path, newest_bytes: int | None = None) -> None:
        """``newest_bytes``: of what is there at the first look, only lines within so many bytes from the end."""
        self.path = path
        self._newest_bytes = newest_bytes
        self._end = 0
        """Bytes taken in so far."""

    def lines(self) -> Iterator[bytes]:
        """Lines that are new since the last call, with their breaks."""
        try:
            with self.path.open("rb") as file:
                self._skip_old(file.seek(0, 2))
                file.seek(self._end)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._end += len(line)
                    yield line
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunDirectoryError(f"{self.path}: cannot be read ({error.strerror})") from error

    def count(self) -> int:
        """How many lines are new since the last call, without looking at them."""
        found = 0
        try:
            with self.path.open("rb") as file:
                file.seek(self._end)
                while chunk := file.read(_CHUNK):
                    found += chunk.count(b"\n")
                    self._end += len(chunk)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise RunDirectoryError(f"{self.path}: cannot be read ({error.strerror})") from error
        return found

    def _skip_old(self, size: int) -> None:
        if self._newest_bytes is None:
            return
        if size > self._newest_bytes:
            # The byte before decides whether the first one begins a line.
            with self.path.open("rb") as file:
                file.seek(size - self._newest_bytes - 1)
                self._end = file.tell() + len(file.readline())
        self._newest_bytes = None
