"""Reading a file while another process appends to it: every whole line once, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from chime_dist.adapters.directory.artifact_json import unreadable

_KNOWN_BYTES = 256


class GrowingFile:
    """The lines of an append-only file. A line without its break is not there yet, a missing file has no lines.

    Methods raise RunDirectoryError where it cannot be read.
    """

    def __init__(self, path: Path, newest_bytes: int | None = None, *, anew: bool = False) -> None:
        """``newest_bytes``: of what is there at the first look, only lines within so many bytes from the end.

        ``anew``: a file that does not hold any more what was read of it is another one, and read from its
        beginning; who counts lines would count some twice.
        """
        self.path = path
        self._newest_bytes = newest_bytes
        self._anew = anew
        self._end = 0
        """Bytes taken in so far."""
        self._last = b""
        """The end of them, by which the file is known again."""

    def lines(self) -> Iterator[bytes]:
        """Lines that are new since the last call, with their breaks."""
        try:
            with self.path.open("rb") as file:
                self._skip_old(file.seek(0, 2))
                file.seek(self._end - len(self._last))
                if self._anew and file.read(len(self._last)) != self._last:
                    self._end, self._last = 0, b""
                file.seek(self._end)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._end += len(line)
                    self._last = line[-_KNOWN_BYTES:]
                    yield line
        except FileNotFoundError:
            return
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _skip_old(self, size: int) -> None:
        if self._newest_bytes is None:
            return
        if size > self._newest_bytes:
            # The byte before decides whether the first one begins a line.
            with self.path.open("rb") as file:
                file.seek(size - self._newest_bytes - 1)
                self._end = file.tell() + len(file.readline())
        self._newest_bytes = None
