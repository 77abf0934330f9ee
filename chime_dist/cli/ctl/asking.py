"""Commands for a launch that runs: written into its folder, and answered there by its driver."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from chime_dist.adapters.directory.control_file import ControlFile
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.boundary import ExitCode
from chime_dist.cli.invocation import suggested
from chime_dist.cli.output import show_json, show_text
from chime_dist.cli.targets import pick_run
from chime_dist.cli.watch_view import closing_lines
from chime_dist.engine.control import LASTING, Answer, Command, CommandName, cancelled_runs
from chime_dist.errors import RunDirectoryError
from chime_dist.wiring.results import standings
from chime_dist.wiring.watching import Observer

PATIENCE_S = 60.0
"""Longest wait for an answer, in seconds; a driver that is still starting looks later than one that runs."""
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Manner:
    """How a command behaves."""

    no_wait: bool
    as_json: bool


def ask(
    path: Path, command: CommandName, manner: Manner, *, run: str | None = None, slots: int | None = None
) -> ExitCode:
    """Write a command; unless it should not wait, tell the driver's answer.

    Raises RunDirectoryError for a refusal, and where there is no driver although the command needs one.
    """
    launch = LaunchDirectory.open(path)
    user = os.environ.get("USER") or f"user {os.getuid()}"
    asked = Command(
        id=uuid4().hex,
        command=command,
        run_id=None if run is None else pick_run(launch, run),
        slots=slots,
        at=datetime.now(UTC).isoformat(),
        by=f"{user} on {socket.gethostname()} (process {os.getpid()})",
    )
    return _ask(launch, asked, manner)


def _ask(launch: LaunchDirectory, command: Command, manner: Manner) -> ExitCode:
    driven = launch.holder() is not None
    control = ControlFile(launch)
    pointless = None if driven else _pointless(launch, control, command)
    if pointless is None:
        control.ask(command)
    answer = _awaited(launch, control, command) if driven and not manner.no_wait else None
    text = answer.text if answer is not None else pointless or _unanswered(command, driven, manner)
    if manner.as_json:
        show_json({"directory": launch.path, "command": command, "answer": answer, "text": text})
        return ExitCode.ERROR if answer is not None and not answer.taken else ExitCode.COMPLETE
    if answer is not None and not answer.taken:
        raise RunDirectoryError(f"{launch.path}: {text}")
    show_text(f"{text}\n")
    return ExitCode.COMPLETE


_VERBS = {"pause": "pause", "continue": "continue", "slots": "give slots to"}


def _pointless(launch: LaunchDirectory, control: ControlFile, command: Command) -> str | None:
    """Why the next driver need not be told, None where it must be.

    Raises RunDirectoryError for what no later driver does, with how the launch stands and what to do instead.
    """
    if command.run_id is None:
        stands = closing_lines(Observer(launch).look())
        doing = _VERBS[command.command]
        refusal = f"{launch.path}: no driver runs this launch, so there is nothing to {doing}."
        raise RunDirectoryError("\n".join([refusal, *(stands or ["Its driver is still to come."])]))
    run_id, cancelled = command.run_id, cancelled_runs(control.exchanges())
    if command.command == "revive":
        return None if run_id in cancelled else f"{run_id} was not cancelled"
    if (before := cancelled.get(run_id)) is not None:
        return f"{run_id} is cancelled already, by {before.by} at {before.at}"
    [standing] = standings(launch, {run_id: launch.manifest.runs[run_id]})
    if not standing.owed and not standing.finished:
        raise RunDirectoryError(f"{launch.path}: {run_id} is finished; there is nothing to cancel")
    return None


def _awaited(launch: LaunchDirectory, control: ControlFile, command: Command) -> Answer | None:
    """The answer, or None where the driver ended without one. Raises RunDirectoryError."""
    give_up = time.monotonic() + PATIENCE_S
    while (answer := control.answer_to(command)) is None:
        if launch.holder() is None:
            # It may have answered and ended between the two looks.
            if (answer := control.answer_to(command)) is not None or command.command in LASTING:
                return answer
            raise RunDirectoryError(f"{launch.path}: the driver ended before it read the command")
        if time.monotonic() >= give_up:
            look = f"see {launch.log_file}, and {suggested('doctor', launch.path)}"
            raise RunDirectoryError(
                f"{launch.path}: no answer in {PATIENCE_S:.0f} s; the driver may still be starting, or be stuck "
                f"({look}). It takes the command when it looks"
            )
        time.sleep(POLL_S)
    return answer


def _unanswered(command: Command, driven: bool, manner: Manner) -> str:
    if driven and manner.no_wait:
        return f"asked: {command.command}; the driver looks once a second"
    then = "leaves out" if command.command == "cancel" else "takes up"
    return f"noted: the next resume {then} {command.run_id}"
