"""A server in a child process that cannot outlive the one that started it, and what is left where one did.

Two ties hold it: the kernel kills it with the thread that started it, and everything it starts works in a folder
of its own, by which it is found whatever became of its parents, process groups and titles (vLLM's engines
overwrite their environment with their title).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chime_dist.errors import ServingError

_GONE = " (deleted)"
_POLL_S = 0.05
_KILL_PATIENCE_S = 10.0
_TAIL_BYTES = 8_192
_TAIL_LINES = 15


class Child:
    """A running command; ``start`` makes it. Belongs to the event loop that started it."""

    def __init__(self, name: str, folder: Path, log_path: Path) -> None:
        self.name = name
        """What it is called in errors."""
        self._folder = folder
        self._log_path = log_path
        self._process: subprocess.Popen[bytes]
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: Path,
        log_path: Path,
        own_session: bool = False,
    ) -> Child:
        """Run ``command`` in ``folder``, which is this child's alone; whatever else runs there is killed first.

        Its output is appended to ``log_path``. ``own_session`` keeps the terminal's signals from it; it also
        takes it out of the process group by which Ray cleans up after an actor. Raises ServingError where it
        cannot be started.
        """
        program = shutil.which(command[0], path=environment.get("PATH"))
        if program is None:
            raise ServingError(
                f"{name}: there is no command {command[0]!r} on PATH of this machine; the extra serve brings vLLM "
                "and its router: pip install 'chime-dist[serve]'"
            )
        _make(folder, log_path.parent)
        child = cls(name, folder, log_path)
        if leftovers := processes_in(folder):
            await child._killed(leftovers)
        tied = ["setpriv", "--pdeathsig", "KILL", program, *command[1:]]
        keeper = _Keeper(child._tell_end, tied, dict(environment), folder, log_path, own_session)
        try:
            child._process = await keeper.started()
        except OSError as error:
            raise ServingError(f"{name}: cannot be started by setpriv of util-linux: {error}") from error
        return child

    @property
    def pid(self) -> int:
        """Of the server itself; it may have started others."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the server has not ended."""
        return not self._ended.done()

    async def ended(self) -> int:
        """Wait for its end: its exit code, or minus the number of the signal that killed it."""
        return await asyncio.shield(self._ended)

    async def stop(self, patience_s: float) -> None:
        """SIGTERM, and SIGKILL to everything of it that is alive ``patience_s`` later; may be called again."""
        if self.alive:
            self._process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self.ended()
        await self.clear()

    async def clear(self) -> None:
        """SIGKILL to everything of it that is alive; returns when nothing is."""
        if self.alive:
            self._process.kill()
            await self.ended()
        await self._killed(processes_in(self._folder))
        await asyncio.to_thread(_remove, self._folder)

    def said(self) -> str:
        """The last lines of its log, for an error."""
        return f"{self._log_path} ends with:\n{log_tail(self._log_path)}"

    def _tell_end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    async def _killed(self, pids: Sequence[int]) -> None:
        deadline = time.monotonic() + _KILL_PATIENCE_S
        while pids:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(_POLL_S)
            pids = processes_in(self._folder)
            if pids and time.monotonic() > deadline:
                raise ServingError(
                    f"{self.name}: processes {', '.join(map(str, pids))} of an earlier start survive SIGKILL; they"
                    " may hold GPUs, so nothing is started beside them"
                )


def processes_in(folder: Path) -> list[int]:
    """Live processes of this user whose working directory is ``folder``, even where it was removed since."""
    place = str(folder.resolve())
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        # Processes end while they are looked at, and those of others do not tell.
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink().as_posix().removesuffix(_GONE) == place and not _is_zombie(entry):
                found.append(int(entry.name))
    return found


def _make(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    # That of the launch goes with its last part.
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def log_tail(path: Path) -> str:
    """The last lines of a log, which may be as long as it likes."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"(cannot be read: {error})"
    return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])


def _is_zombie(process: Path) -> bool:
    # The state follows the program's name, which stands in brackets and may hold anything.
    return (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


class _Keeper(threading.Thread):
    """Starts a command and waits for its end. The kernel ties a child to the thread that started it, which
    therefore lives as long as the child."""

    def __init__(
        self,
        tell_end: Callable[[int], None],
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log_path: Path,
        own_session: bool,
    ) -> None:
        super().__init__(name="vllm-child", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[subprocess.Popen[bytes]] = self._loop.create_future()
        self._tell_end = tell_end
        self._command = command
        self._environment = environment
        self._folder = folder
        self._log_path = log_path
        self._own_session = own_session

    async def started(self) -> subprocess.Popen[bytes]:
        """Start thread and command. Raises OSError."""
        self.start()
        return await self._begun

    def run(self) -> None:
        """The thread's body."""
        try:
            with self._log_path.open("ab") as log:
                process = subprocess.Popen(
                    self._command,
                    env=self._environment,
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=self._own_session,
                )
        except OSError as error:
            self._tell(self._begun.set_exception, error)
            return
        self._tell(self._begun.set_result, process)
        self._tell(self._tell_end, process.wait())

    def _tell(self, what: Callable[[Any], None], argument: Any) -> None:
        # A closed loop has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, argument)
