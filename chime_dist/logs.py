"""Structured logs: JSON lines in a file, readable lines on a console, secrets in neither.

Events are dotted names with keys (``episode.finished``, ``task=...``). Times are UTC with offset. Tracebacks come
without local variables, because those hold what a message would never say.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TextIO

import structlog
from pydantic import BaseModel, SecretBytes, SecretStr
from structlog.typing import EventDict, WrappedLogger

MASK = "***"

LONGEST_TEXT = 8_000
"""Characters of one value; the rest is cut and counted, so that a model's loop does not fill the disk (B8)."""

_SHORTEST_SECRET = 8
"""Known secrets shorter than this are not searched for in texts: they would blank ordinary words."""

_SECRET_NAME = re.compile(
    r"(^|_)(api_?keys?|access_?keys?|private_?keys?|secrets?|passwords?|passwd|pwd|passphrase|credentials?"
    r"|authorization|cookies?)(_|$)|(^|_)token$"
)
_SECRET_IN_TEXT = (
    (re.compile(r"(?<=://)[^/?#\s]+(?=@)"), MASK),
    (re.compile(r"(?i)\b(bearer)\s+[\w.~+/=-]{8,}"), rf"\1 {MASK}"),
    (re.compile(r"\bsk-[\w-]{16,}"), MASK),
    (re.compile(r"(?i)\b(api[_-]?key|access[_-]?token|password|secret)=[^&\s]+"), rf"\1={MASK}"),
)

Level = Literal["debug", "info", "warning", "error"]


class SecretMask:
    """A processor that makes an event plain data without secrets.

    Masked are: ``SecretStr`` values; values under keys that name a secret (``api_key``, ``Authorization``, a
    lease's ``token``; not ``max_tokens``); credentials in URLs, headers and keys inside texts; and ``secrets``,
    the known ones (from 8 characters on), wherever they occur.
    """

    def __init__(self, secrets: Iterable[str | SecretStr] = ()) -> None:
        known = {s.get_secret_value() if isinstance(s, SecretStr) else s for s in secrets}
        # Longest first: a secret may be a part of another one.
        self._known = sorted((s for s in known if len(s) >= _SHORTEST_SECRET), key=len, reverse=True)

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """The event as strings, numbers, lists and dicts; raises nothing for any value."""
        return {self.text(str(key)): self._value(str(key), value) for key, value in event.items()}

    def hide(self, text: str) -> str:
        """One text without the known secrets, and otherwise as it was."""
        for secret in self._known:
            text = text.replace(secret, MASK)
        return text

    def text(self, text: str) -> str:
        """One text without secrets, cut to LONGEST_TEXT characters and a note of how many more there were."""
        text = self.hide(text)
        for pattern, mask in _SECRET_IN_TEXT:
            text = pattern.sub(mask, text)
        if len(text) > LONGEST_TEXT:
            text = f"{text[:LONGEST_TEXT]}... ({len(text) - LONGEST_TEXT} more characters)"
        return text

    def _value(self, key: str, value: object) -> Any:
        if isinstance(value, SecretStr | SecretBytes):
            return MASK
        if not (value is None or isinstance(value, bool)) and _SECRET_NAME.search(_snake_case(key)):
            return MASK
        return self._plain(value)

    def _plain(self, value: object) -> Any:
        if isinstance(value, Enum):
            return self._plain(value.value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, BaseModel):
            return self._plain(dict(value))
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._value(str(key), inner) for key, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._value("", inner) for inner in value]
        if isinstance(value, datetime):
            return value.isoformat()
        return self.text(str(value) if isinstance(value, Path | BaseException) else repr(value))


class Logging:
    """The process's log configuration; a context manager that gives the file back.

    ``file`` gets JSON lines, appended, one write each, so several processes may share it. ``console`` gets
    readable lines, in colour on a terminal. ``level`` is the lowest one that is written. ``secrets`` are masked
    wherever they occur. A log that cannot be written never stops a run: the first failure is told on stderr.
    """

    def __init__(
        self,
        *,
        file: Path | None = None,
        console: TextIO | None = None,
        level: Level = "info",
        secrets: Iterable[str | SecretStr] = (),
    ) -> None:
        self._sinks = _Sinks(file, console)
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                _timestamp,
                structlog.processors.StackInfoRenderer(),
                structlog.processors.format_exc_info,
                SecretMask(secrets),
                _as_one_argument,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            logger_factory=self._logger,
            # Modules bind their logger when they are imported, before anything is configured.
            cache_logger_on_first_use=False,
        )

    def close(self) -> None:
        """Return to structlog's defaults and close the file; idempotent."""
        if self._sinks.close():
            structlog.reset_defaults()

    def _logger(self, *_: Any) -> _Sinks:
        return self._sinks

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Sinks:
    """What structlog calls a logger: takes finished events and writes each to every sink."""

    def __init__(self, file: Path | None, console: TextIO | None) -> None:
        self._descriptor: int | None = None
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._console = console
        self._pretty = structlog.dev.ConsoleRenderer(
            colors=console is not None and console.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        self._closed = False
        self._complained = False
        self._cut = False

    def write(self, event: EventDict) -> None:
        try:
            if self._descriptor is not None:
                line = (json.dumps(event, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
                # A line that a full disk cut short must not fuse with the next one.
                line = b"\n" + line if self._cut else line
                self._cut = os.write(self._descriptor, line) < len(line)
            if self._console is not None:
                text = str(self._pretty(self, "", dict(event)))
                self._console.write(text.encode("utf-8", "backslashreplace").decode() + "\n")
                self._console.flush()
        except OSError as error:
            if not self._complained:
                self._complained = True
                sys.stderr.write(f"the log cannot be written, events are lost: {error}\n")

    debug = info = warning = error = critical = write

    def close(self) -> bool:
        """Whether it was open."""
        was_open, self._closed = not self._closed, True
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        return was_open


def _timestamp(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    return {"timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"), **event}


def _as_one_argument(
    logger: WrappedLogger, method: str, event: EventDict
) -> tuple[tuple[EventDict], dict[str, Any]]:
    return (event,), {}


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").replace(" ", "_").lower()
