"""Where an embedded projection lives on disk, and who holds it.

``STATE_DIR/<uuid of launch and run>/fence-<n>`` is one owner's shard, with its lock beside it;
``embedder.json`` in the run's folder says what the run's bank is built with. The kernel holds the lock for the
process, so a killed owner leaves none behind (E7).
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from pydantic import ValidationError

from chime_dist.adapters.directory.durable_file import is_at
from chime_dist.adapters.qdrant.points import stable_uuid
from chime_dist.errors import BankMismatchError, ServiceError
from chime_dist.ports import EmbedderFingerprint, Namespace

_log = structlog.get_logger(__name__)

_EMBEDDER_FILE = "embedder.json"
_SHARD = "fence-"
_CHUNK = 1 << 20


class ShardDirectory:
    """One owner's shard directory: held by at most one process, and empty when it is taken."""

    def __init__(self, state_dir: Path, namespace: Namespace) -> None:
        self._namespace = namespace
        self._run_dir = state_dir / stable_uuid(namespace.launch, namespace.run_id)
        self._lock: int | None = None
        self.path = self._run_dir / f"{_SHARD}{namespace.fence}"

    def check_embedder(self, fingerprint: EmbedderFingerprint) -> None:
        """Record what the run's bank is built with, once; BankMismatchError where that was something else."""
        path = self._run_dir / _EMBEDDER_FILE
        if not path.exists():
            self._run_dir.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
            draft.write_text(fingerprint.model_dump_json())
            try:
                # A link, unlike a rename, never replaces what another process recorded meanwhile.
                path.hardlink_to(draft)
            except FileExistsError:
                _log.debug("bank_store.embedder_recorded_by_another", path=str(path))
            finally:
                draft.unlink()
        try:
            recorded = EmbedderFingerprint.model_validate_json(path.read_text())
        except ValidationError as error:
            raise BankMismatchError(
                f"bank {self._namespace}: {path} does not say which embedder the bank was built with: {error};"
                " remove that file if it was the configured one"
            ) from None
        if recorded != fingerprint:
            raise BankMismatchError(
                f"bank {self._namespace}: it was built with {recorded}, not with {fingerprint}, says {path};"
                " configure that embedder again, or start a new launch"
            )

    def take(self) -> None:
        """Hold the directory, make it new, and remove those of older fences of the run that nobody holds.

        Raises ServiceError naming the process that holds it.
        """
        self._lock = _take_lock(_lock_path(self.path))
        if self._lock is None:
            holder = _lock_path(self.path).read_text() or "another process"
            raise ServiceError(
                f"bank {self._namespace}: {self.path} is held by {holder}; one process opens a bank:"
                " stop that one, or use another state directory"
            )
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        for left in sorted(self._run_dir.glob(f"{_SHARD}*")):
            fence = left.name.removeprefix(_SHARD)
            if left.is_dir() and fence.isdecimal() and int(fence) < self._namespace.fence:
                self._remove_unheld(left)

    def release(self) -> None:
        """Remove the directory and let go of it; does nothing where it is not held."""
        if self._lock is not None:
            _remove(self.path, self._lock)
            self._lock = None

    def _remove_unheld(self, left: Path) -> None:
        lock = _take_lock(_lock_path(left))
        if lock is not None:
            _remove(left, lock)
            _log.info("bank_store.leftover_removed", namespace=self._namespace.model_dump(), path=str(left))


def newest_fence(state_dir: Path, launch: str, run_id: str) -> int | None:
    """The greatest fence whose shard directory is there, held or not; None where there is none."""
    run_dir = state_dir / stable_uuid(launch, run_id)
    names = [path.name.removeprefix(_SHARD) for path in run_dir.glob(f"{_SHARD}*") if path.is_dir()]
    return max((int(name) for name in names if name.isdecimal()), default=None)


@contextmanager
def copied(state_dir: Path, namespace: Namespace) -> Iterator[Path]:
    """A copy of a shard that nobody holds, to be read and thrown away: an engine writes even where it only loads.

    Raises ServiceError naming the process that holds the shard, and where it is gone or cannot be copied.
    """
    shard = ShardDirectory(state_dir, namespace).path
    with tempfile.TemporaryDirectory(prefix="chime-dist-shard-") as scratch:
        try:
            with _no_owner(_lock_path(shard), f"bank {namespace}: {shard}"):
                copy = shutil.copytree(shard, Path(scratch) / shard.name, copy_function=copy_with_holes)
        except OSError as error:
            raise ServiceError(f"bank {namespace}: {shard} cannot be copied: {error}") from error
        yield copy


def copy_with_holes(source: str, target: str) -> None:
    """Copy a file's data and leave its holes: of a shard's 130 MB nearly all is reserved space. Raises OSError."""
    with Path(source).open("rb") as old, Path(target).open("wb") as new:
        size, end = os.fstat(old.fileno()).st_size, 0
        os.ftruncate(new.fileno(), size)
        while end < size:
            try:
                start = os.lseek(old.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            end = os.lseek(old.fileno(), start, os.SEEK_HOLE)
            old.seek(start)
            new.seek(start)
            while (left := end - old.tell()) > 0:
                new.write(old.read(min(left, _CHUNK)))


@contextmanager
def _no_owner(lock: Path, where: str) -> Iterator[None]:
    """Keep owners away without changing the lock's file; raises ServiceError where there is one."""
    if not lock.exists():
        yield
        return
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().decode() or "another process"
            raise ServiceError(f"{where} is held by {holder}; stop that one to read it") from None
        yield


def _lock_path(shard: Path) -> Path:
    return shard.with_name(f"{shard.name}.lock")


def _take_lock(path: Path) -> int | None:
    """A descriptor that holds the lock until it is closed, or None where another one does."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock on a file that its last holder removed between the two calls above protects nothing.
            if is_at(path, descriptor):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return descriptor
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise
        os.close(descriptor)


def _remove(shard: Path, lock: int) -> None:
    shutil.rmtree(shard, ignore_errors=True)
    _lock_path(shard).unlink(missing_ok=True)
    os.close(lock)
