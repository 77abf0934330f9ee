"""The commands that people give a launch, and its driver's answers, as two files in the launch's folder.

control.jsonl          commands, appended by anybody who may write here
control-answers.jsonl  answers, appended by the driver
control.lock           held for the moment of an append
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from chime_dist.adapters.directory.artifact_json import decode, encode, unwritable
from chime_dist.adapters.directory.durable_file import AppendLog
from chime_dist.adapters.directory.growing_file import GrowingFile
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.frozen import Frozen
from chime_dist.engine.control import Answer, Command, Exchange
from chime_dist.errors import RunDirectoryError

log = structlog.get_logger()

_Artifact = TypeVar("_Artifact", bound=Frozen)


class ControlFile:
    """Both sides of a launch's commands; the asynchronous methods are the driver's ``engine.ControlChannel``.

    Safe for several processes; a file that was removed or replaced is read again. A line that is not a command of
    this version is logged and passed over.
    """

    def __init__(self, launch: LaunchDirectory) -> None:
        self._folder = launch.path
        self._commands = _Reader(launch.path / "control.jsonl", Command)
        self._answers = _Reader(launch.path / "control-answers.jsonl", Answer)
        self._known: dict[str, Answer] = {}
        self._returned: set[str] = set()

    def ask(self, command: Command) -> None:
        """Append a command; durable on return. Raises RunDirectoryError."""
        self._append(self._commands.path, command)

    def answer_to(self, command: Command) -> Answer | None:
        """The driver's answer, or None while there is none. Raises RunDirectoryError."""
        self._learn_answers()
        return self._known.get(command.id)

    def exchanges(self) -> list[Exchange]:
        """Every command that this object has not returned before, oldest first. Raises RunDirectoryError."""
        commands = [command for command in self._commands.read() if command.id not in self._returned]
        self._returned.update(command.id for command in commands)
        self._learn_answers()
        return [Exchange(command, self._known.get(command.id)) for command in commands]

    async def received(self) -> Sequence[Exchange]:
        """See ``engine.control.ControlChannel``."""
        return await asyncio.to_thread(self.exchanges)

    async def answer(self, answer: Answer) -> None:
        """See ``engine.control.ControlChannel``."""
        await asyncio.to_thread(self._append, self._answers.path, answer)

    def _learn_answers(self) -> None:
        self._known.update((answer.id, answer) for answer in self._answers.read())

    def _append(self, path: Path, artifact: Frozen) -> None:
        line = encode(artifact, f"a line of {path}")
        try:
            with self._locked(), closing(AppendLog(path)) as file:
                file.append([line])
        except OSError as error:
            raise unwritable(path, error) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._folder / "control.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class _Reader(Generic[_Artifact]):
    """What the whole lines of a growing file say, each once."""

    def __init__(self, path: Path, model: type[_Artifact]) -> None:
        self.path = path
        self._model = model
        self._file = GrowingFile(path, anew=True)

    def read(self) -> list[_Artifact]:
        """What is new since the last call."""
        return list(self._decoded())

    def _decoded(self) -> Iterator[_Artifact]:
        for line in self._file.lines():
            try:
                yield decode(self._model, line, str(self.path))
            except RunDirectoryError as error:
                log.warning("control.line_skipped", file=str(self.path), reason=str(error))
