"""The edge of the program: what an exception becomes, in words and as an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import structlog
import typer
from structlog.typing import EventDict, WrappedLogger
from typer.core import TyperGroup

from chime_dist.adapters.directory.disk_errors import explained
from chime_dist.cli.output import abandon_stdout, say
from chime_dist.errors import ChimeDistError, ConfigError
from chime_dist.logs import Logging, SecretMask

DEBUG = "CHIME_DEBUG"
"""The environment variable that, set to 1, asks for tracebacks."""


class ExitCode(IntEnum):
    """What a caller may branch on."""

    COMPLETE = 0
    ERROR = 1
    USAGE = 2
    """The command line, a config file or an environment variable is wrong; nothing was started."""
    INCOMPLETE = 3
    """Results are incomplete, or the launch is paused."""
    PREEMPTED = 75
    """Stopped by a signal with everything kept: resume me."""
    KILLED = 130
    """Stopped by a second signal."""


@dataclass(slots=True)
class Session:
    """What one call of the program knows beside its arguments."""

    secrets: list[str] = field(default_factory=list)
    """Values that no message may hold (H6)."""

    def masked(self, text: str) -> str:
        """The text without secrets."""
        mask = SecretMask(self.secrets)
        return "\n".join(mask.text(line) for line in text.split("\n"))

    @contextmanager
    def log_to(self, file: Path) -> Iterator[None]:
        """Log to a launch's file; afterwards warnings are told on stderr again."""
        try:
            with Logging(file=file, secrets=self.secrets):
                yield
        finally:
            _tell_warnings()


class Boundary(TyperGroup):
    """The program's root: runs a command and turns what it raises into a message and an exit code.

    A ChimeDistError is a message of its own. Anything else is a fault of ours, told in a line, with where to look
    in the exception's notes; ``CHIME_DEBUG=1`` adds the traceback, which holds no values of variables.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command that ``ctx`` names."""
        session = ctx.obj = Session()
        _tell_warnings()
        try:
            try:
                return super().invoke(ctx)
            finally:
                # Here a closed pipe can still be handled; at the interpreter's end it is a message.
                sys.stdout.flush()
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            abandon_stdout()
            raise typer.Exit(ExitCode.ERROR) from None
        except typer.BadParameter as error:
            say(f"error: {error.format_message() if error.param else error.message}")
            raise typer.Exit(ExitCode.USAGE) from None
        except OSError as error:
            if error.filename is None:
                raise _unexpected(session, error) from None
            # A disk, a right or a name: nothing that a traceback would explain.
            _tell(session, error, f"{error.filename}: {explained(error)}")
            raise typer.Exit(ExitCode.ERROR) from None
        except ChimeDistError as error:
            _tell(session, error, str(error))
            raise typer.Exit(ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.ERROR) from None
        except Exception as error:
            if hasattr(error, "exit_code"):
                # One of Typer's own; they share no public base class, but each knows its exit code.
                raise
            raise _unexpected(session, error) from None
        finally:
            structlog.reset_defaults()


def _unexpected(session: Session, error: Exception) -> typer.Exit:
    _tell(session, error, f"unexpected {type(error).__name__}: {error}; {DEBUG}=1 shows the traceback")
    return typer.Exit(ExitCode.ERROR)


def _tell(session: Session, error: Exception, what: str) -> None:
    lines = [f"error: {what}", *getattr(error, "__notes__", ())]
    if os.environ.get(DEBUG) == "1":
        # The traceback ends with the notes.
        lines = [*traceback.format_exception(error), lines[0]]
    say(session.masked("\n".join(line.rstrip("\n") for line in lines)))


def _tell_warnings() -> None:
    """Until a log file is there, warnings are for the person; anything less is not said."""
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, SecretMask(), _as_words],
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        # Modules bind their logger when they are imported, before anything is configured.
        cache_logger_on_first_use=False,
    )


def _as_words(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    name = event.pop("event", "")
    warning = event.pop("warning", None)
    details = ", ".join(f"{key}={value}" for key, value in event.items())
    said = warning if warning is not None else f"{name}: {details}" if details else name
    say(f"{'warning' if method == 'warning' else 'error'}: {said}")
    raise structlog.DropEvent
