"""What people ask of a launch while it runs, and what its driver makes of it.

Commands lie in the launch's folder, so whoever may write there may steer. ``pause``, ``continue`` and ``slots``
concern the driver that runs now and end with it. ``cancel`` and ``revive`` concern a run of the launch: they hold
for every later driver too, so a cancelled run stays cancelled over a resume until it is revived.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self

import structlog
from pydantic import Field, model_validator

from chime_dist.core.frozen import Frozen
from chime_dist.errors import RunDirectoryError
from chime_dist.ports import Clock

log = structlog.get_logger()

LOOK_EVERY_S = 1.0
"""Shortest time between two looks for commands, in seconds."""

CommandName = Literal["pause", "continue", "slots", "cancel", "revive"]

LASTING: frozenset[CommandName] = frozenset({"cancel", "revive"})
"""Commands that hold for later drivers too, and may be given while there is none."""


class Command(Frozen):
    """One thing that somebody asked."""

    id: str
    """Unique in the launch."""
    command: CommandName
    run_id: str | None = None
    """With ``cancel`` and ``revive``."""
    slots: int | None = Field(default=None, ge=1)
    """With ``slots``: most episodes in flight."""
    at: str
    """UTC with offset."""
    by: str
    """Who asked, in words: user, host and process."""

    @model_validator(mode="after")
    def _has_its_argument(self) -> Self:
        given = {"run_id": self.run_id is not None, "slots": self.slots is not None}
        wanted = {"run_id": self.command in LASTING, "slots": self.command == "slots"}
        if given != wanted:
            raise ValueError(f"{self.command} takes {[name for name, wants in wanted.items() if wants]}")
        return self


class Answer(Frozen):
    """What the driver made of a command."""

    id: str
    """The command's."""
    taken: bool
    """False where it was refused and nothing changed."""
    text: str
    at: str
    """UTC with offset."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A command with its answer; None while there is none."""

    command: Command
    answer: Answer | None = None


class ControlChannel(Protocol):
    """Where commands come from."""

    async def received(self) -> Sequence[Exchange]:
        """Commands that were not returned before, oldest first; the first call returns all there ever were.

        Raises RunDirectoryError.
        """
        ...

    async def answer(self, answer: Answer) -> None:
        """Tell who asked; durable on return. Raises RunDirectoryError."""
        ...


def cancelled_runs(exchanges: Iterable[Exchange]) -> dict[str, Command]:
    """The runs that are cancelled after these exchanges, oldest first, and the command that cancelled each.

    A command without an answer counts: the next driver takes it.
    """
    cancelled: dict[str, Command] = {}
    for exchange in exchanges:
        _keep(cancelled, exchange)
    return cancelled


def _keep(cancelled: dict[str, Command], exchange: Exchange) -> None:
    command = exchange.command
    if command.run_id is None or (exchange.answer is not None and not exchange.answer.taken):
        return
    cancelled.pop(command.run_id, None)
    if command.command == "cancel":
        cancelled[command.run_id] = command


@dataclass(frozen=True, slots=True)
class Standing:
    """What an answer depends on."""

    in_flight: Mapping[str, int]
    """Open episodes of every run of the launch."""
    finished: Collection[str]
    """Runs that have nothing left to do."""


class Steering:
    """The driver's side: reads commands, keeps what follows from them, and answers.

    Without a channel nobody steers. ``on_pause`` is told the command that paused the launch, and None when it goes
    on; what it raises is raised.
    """

    def __init__(
        self,
        slots: int,
        clock: Clock,
        channel: ControlChannel | None = None,
        on_pause: Callable[[Command | None], None] = lambda _: None,
    ) -> None:
        """``slots``: what the launch's workers have together, which is the most that ``slots`` may ask for."""
        self.slots = slots
        """Most episodes in flight now."""
        self.paused: Command | None = None
        """The command by which nothing is admitted now."""
        self.pauses = 0
        """How often it was paused."""
        self._capacity = slots
        self._clock = clock
        self._channel = channel
        self._on_pause = on_pause
        self._cancelled: dict[str, Command] = {}
        self._looked: float | None = None
        self._complaint = ""

    @property
    def cancelled(self) -> Mapping[str, Command]:
        """Runs of which nothing is admitted, and the command that cancelled each."""
        return self._cancelled

    async def begin(self, standing: Standing) -> None:
        """Take in what was asked before this driver held the launch; call once, before anything is admitted.

        Cancelled runs stay cancelled. What only an earlier driver could have done is refused.
        """
        for exchange in await self._received():
            command = exchange.command
            if exchange.answer is not None:
                _keep(self._cancelled, exchange)
            elif command.command in LASTING:
                await self._take(command, standing)
            else:
                await self._answer(command, False, "the driver that it was meant for ended before it was read")
        for run_id, command in self._cancelled.items():
            log.warning("run.cancelled", run=run_id, by=command.by, at=command.at)

    async def look(self, standing: Standing) -> None:
        """Take new commands, at most once in ``LOOK_EVERY_S``. A folder that cannot be read is logged, no more."""
        now = self._clock.monotonic()
        if self._looked is not None and now - self._looked < LOOK_EVERY_S:
            return
        self._looked = now
        for exchange in await self._received():
            await self._take(exchange.command, standing)

    async def _received(self) -> Sequence[Exchange]:
        if self._channel is None:
            return ()
        try:
            return await self._channel.received()
        except RunDirectoryError as error:
            self._complain(error)
            return ()

    async def _take(self, command: Command, standing: Standing) -> None:
        taken, text = self._followed(command, standing)
        log.info(
            "control.command",
            command=command.command,
            run=command.run_id,
            slots=command.slots,
            by=command.by,
            taken=taken,
            answer=text,
        )
        await self._answer(command, taken, text)

    def _followed(self, command: Command, standing: Standing) -> tuple[bool, str]:
        if command.run_id is not None:
            return self._followed_for_run(command, command.run_id, standing)
        in_flight = sum(standing.in_flight.values())
        if command.slots is not None:
            if command.slots > self._capacity:
                return False, (
                    f"{command.slots} slots are more than the {self._capacity} that this launch's workers have: "
                    f"ask for 1 to {self._capacity}, or resume it with --set cluster.slots={command.slots}"
                )
            self.slots = command.slots
            return True, f"at most {self.slots} of {self._capacity} slots are used; {in_flight} episodes are open"
        if command.command == "pause":
            if self.paused is not None:
                return True, f"was paused already, by {self.paused.by} at {self.paused.at}"
            self.paused = command
            self.pauses += 1
            self._on_pause(command)
            return True, f"paused: nothing more is admitted; {in_flight} open episodes end"
        if self.paused is None:
            return True, "was not paused"
        self.paused = None
        self._on_pause(None)
        return True, "goes on"

    def _followed_for_run(self, command: Command, run_id: str, standing: Standing) -> tuple[bool, str]:
        if run_id not in standing.in_flight:
            return False, f"this launch has no run {run_id}; it has {', '.join(standing.in_flight)}"
        if command.command == "revive":
            known = run_id in self._cancelled
            _keep(self._cancelled, Exchange(command))
            return True, f"{run_id} goes on" if known else f"{run_id} was not cancelled"
        if run_id in standing.finished:
            return False, f"{run_id} is finished; there is nothing to cancel"
        _keep(self._cancelled, Exchange(command))
        return True, (
            f"{run_id} is cancelled: nothing more of it is admitted, {standing.in_flight[run_id]} open episodes "
            "end; the launch will end incomplete"
        )

    async def _answer(self, command: Command, taken: bool, text: str) -> None:
        assert self._channel is not None, "commands come from a channel"
        answer = Answer(id=command.id, taken=taken, text=text, at=self._clock.now().isoformat())
        try:
            await self._channel.answer(answer)
        except RunDirectoryError as error:
            self._complain(error)

    def _complain(self, error: RunDirectoryError) -> None:
        # Once a second for hours would bury the rest of the log.
        if str(error) != self._complaint:
            self._complaint = str(error)
            log.warning("control.unusable", reason=str(error))
