"""``watch``: a launch that runs, or ran, in another terminal. Who watches holds nothing and changes nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.boundary import ExitCode
from chime_dist.cli.output import say, show_json_line, show_text, terminal
from chime_dist.cli.progress import LINE_EVERY_S, Monotonic, Pace, Totals
from chime_dist.cli.watch_view import (
    EVENTS_SHOWN,
    closing_lines,
    event_line,
    progress_line,
    state_line,
    trouble_lines,
    watch_document,
    watch_view,
)
from chime_dist.wiring.health.activity import Logged
from chime_dist.wiring.results import launch_report
from chime_dist.wiring.watching import Observer, Seen, Sight

_CODES: dict[Seen, ExitCode] = {"complete": ExitCode.COMPLETE, "preempted": ExitCode.PREEMPTED}
"""Of a launch that is over; the others are incomplete."""


def watch(path: Path, once: bool, interval_s: float, as_json: bool) -> ExitCode:
    """Watch until the launch is over; the answer is what its driver exited with, 3 for one that was killed.

    Raises RunDirectoryError, ConfigError, and what the report of a complete launch raises.
    """
    observer = Observer(LaunchDirectory.open(path))
    console = terminal()
    try:
        with _viewer(console, as_json) as viewer:
            while True:
                sight = observer.look()
                code = _code(sight)
                viewer.see(sight, code)
                if code is not None or once:
                    return code or ExitCode.COMPLETE
                time.sleep(interval_s)
    except KeyboardInterrupt:
        say("watching ended; the launch is left as it is")
        return ExitCode.KILLED


def _code(sight: Sight) -> ExitCode | None:
    """None while the launch may still move."""
    if not sight.over:
        return None
    code = _CODES.get(sight.state, ExitCode.INCOMPLETE)
    if code is ExitCode.COMPLETE and not launch_report(sight.launch).complete:
        # Nothing is owed, yet numbers are missing for good: see how ``sweep`` ends (G3).
        return ExitCode.INCOMPLETE
    return code


class Viewer(AbstractContextManager["Viewer"], Protocol):
    """Something that tells what was seen, between its start and its end."""

    def see(self, sight: Sight, code: ExitCode | None) -> None:
        """The newest look; ``code`` is what the watching will end with, None while it goes on."""
        ...


def _viewer(console: Console, as_json: bool) -> Viewer:
    if as_json:
        return Documents()
    return Screen(console) if console.is_terminal else Lines()


class Paced:
    """A viewer that knows the rate, from before it began to look."""

    def __init__(self) -> None:
        self._pace: Pace | None = None

    def _at(self, sight: Sight) -> Pace:
        done = Totals.of(sight.runs).done
        if self._pace is None:
            self._pace = Pace()
            ends = sorted(end for end in sight.recent_ends if end <= sight.at.timestamp())
            for number, end in enumerate(ends, start=done - len(ends) + 1):
                self._pace.see(end, number)
        self._pace.see(sight.at.timestamp(), done)
        return self._pace

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Documents(Paced):
    """A JSON line for every look."""

    def see(self, sight: Sight, code: ExitCode | None) -> None:
        """See ``Viewer``."""
        show_json_line(watch_document(sight, self._at(sight), None if code is None else int(code)))


class Lines(Paced):
    """Lines about what changed: at once where something happened, now and then where the work just goes on."""

    def __init__(
        self,
        clock: Monotonic = time.monotonic,
        write: Callable[[str], None] = lambda line: show_text(f"{line}\n"),
    ) -> None:
        super().__init__()
        self._clock = clock
        self._write = write
        self._written: dict[str, str] = {}
        self._moved_at: float | None = None

    def see(self, sight: Sight, code: ExitCode | None) -> None:
        """See ``Viewer``."""
        pace, now = self._at(sight), self._clock()
        self._tell("state", state_line(sight))
        for event in sight.events:
            self._write(event_line(event).plain)
        self._tell("trouble", "\n".join(line.plain for line in trouble_lines(sight)))
        due = self._moved_at is None or now - self._moved_at >= LINE_EVERY_S
        totals = str(Totals.of(sight.runs))
        if totals != self._written.get("progress") and (due or sight.over):
            self._written["progress"] = totals
            self._moved_at = now
            self._write(progress_line(sight, pace))
        for line in closing_lines(sight):
            self._write(line)

    def _tell(self, what: str, text: str) -> None:
        if text != self._written.get(what, ""):
            self._written[what] = text
            if text:
                self._write(text)


class Screen(Paced):
    """The whole picture, drawn anew."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._events: deque[Logged] = deque(maxlen=EVENTS_SHOWN)
        self._live = Live(console=console, auto_refresh=False)

    def see(self, sight: Sight, code: ExitCode | None) -> None:
        """See ``Viewer``."""
        self._events.extend(sight.events)
        view = watch_view(sight, self._at(sight), tuple(self._events), self._console.height)
        self._live.update(Group(*view), refresh=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)
