"""Commands: what a driver makes of them, and what outlives it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from chime_dist.engine.control import (
    LOOK_EVERY_S,
    Answer,
    Command,
    CommandName,
    Exchange,
    Standing,
    Steering,
    cancelled_runs,
)
from chime_dist.errors import RunDirectoryError

STANDING = Standing({"a": 2, "b": 1, "done": 0}, ["done"])
_IDS = iter(range(10**9))


class Seconds:
    """A ``Clock`` that a test moves."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> datetime:
        """Always the same."""
        return datetime(2030, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        """What was set."""
        return self.time

    async def sleep(self, seconds: float) -> None:
        """At once."""
        self.time += seconds


class Wire:
    """A ``ControlChannel`` in memory, which may be cut."""

    def __init__(self, *before: Exchange) -> None:
        self.waiting = list(before)
        self.answers: list[Answer] = []
        self.cut = False
        self.looks = 0

    async def received(self) -> Sequence[Exchange]:
        """Each once."""
        self.looks += 1
        if self.cut:
            raise RunDirectoryError("the folder is gone")
        found, self.waiting = self.waiting, []
        return found

    async def answer(self, answer: Answer) -> None:
        """Kept."""
        if self.cut:
            raise RunDirectoryError("the folder is gone")
        self.answers.append(answer)


def command(name: CommandName, *, run: str | None = None, slots: int | None = None) -> Command:
    """One that nobody has given before."""
    return Command(id=f"{next(_IDS)}", command=name, run_id=run, slots=slots, at="then", by="me")


def answered(asked: Command, *, taken: bool = True) -> Exchange:
    """One that an earlier driver took or refused."""
    return Exchange(asked, Answer(id=asked.id, taken=taken, text="", at="then"))


class Steered:
    """A begun steering and what it told."""

    def __init__(self, wire: Wire, slots: int = 4) -> None:
        self.wire = wire
        self.clock = Seconds()
        self.told: list[Command | None] = []
        self.steering = Steering(slots, self.clock, wire, self.told.append)

    async def ask(self, asked: Command) -> Answer:
        """Its answer at the next look."""
        self.wire.waiting.append(Exchange(asked))
        self.clock.time += LOOK_EVERY_S
        await self.steering.look(STANDING)
        assert self.wire.answers[-1].id == asked.id
        return self.wire.answers[-1]


async def test_pause_and_continue_are_told_once_each() -> None:
    steered = Steered(Wire())
    pause = command("pause")
    assert (await steered.ask(pause)).text == "paused: nothing more is admitted; 3 open episodes end"
    assert steered.steering.paused is pause
    again = await steered.ask(command("pause"))
    assert (again.taken, again.text) == (True, "was paused already, by me at then")
    gone_on = await steered.ask(command("continue"))
    assert (gone_on.taken, gone_on.text) == (True, "goes on")
    assert steered.steering.paused is None
    assert (await steered.ask(command("continue"))).text == "was not paused"
    assert steered.told == [pause, None]
    assert steered.steering.pauses == 1


async def test_slots_lie_between_one_and_what_the_workers_have() -> None:
    steered = Steered(Wire(), slots=4)
    taken = await steered.ask(command("slots", slots=1))
    assert (taken.taken, taken.text) == (True, "at most 1 of 4 slots are used; 3 episodes are open")
    assert steered.steering.slots == 1
    refused = await steered.ask(command("slots", slots=5))
    assert not refused.taken
    assert "ask for 1 to 4" in refused.text
    assert steered.steering.slots == 1
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        command("slots", slots=0)


async def test_cancel_takes_a_run_of_the_launch_that_is_not_finished() -> None:
    steered = Steered(Wire())
    assert not (await steered.ask(command("cancel", run="c"))).taken
    assert not (await steered.ask(command("cancel", run="done"))).taken
    taken = await steered.ask(command("cancel", run="a"))
    assert taken.taken
    assert "2 open episodes end" in taken.text
    assert list(steered.steering.cancelled) == ["a"]
    assert (await steered.ask(command("revive", run="b"))).text == "b was not cancelled"
    assert (await steered.ask(command("revive", run="a"))).text == "a goes on"
    assert not steered.steering.cancelled


async def test_a_new_driver_keeps_cancellations_and_refuses_what_the_last_one_did_not_read() -> None:
    """A cancelled run survives a resume; a pause does not."""
    pause, late = command("pause"), command("pause")
    wire = Wire(
        answered(command("cancel", run="a")),
        answered(pause),
        answered(command("cancel", run="b"), taken=False),
        Exchange(late),
        Exchange(command("cancel", run="b")),
    )
    steered = Steered(wire)
    await steered.steering.begin(STANDING)
    assert list(steered.steering.cancelled) == ["a", "b"]
    assert steered.steering.paused is None
    assert [(answer.id == late.id, answer.taken) for answer in wire.answers] == [(True, False), (False, True)]


async def test_a_look_costs_nothing_within_a_second_of_the_last() -> None:
    steered = Steered(Wire())
    for step in (0.0, 0.3, 0.3, 0.3, 0.3):
        steered.clock.time += step
        await steered.steering.look(STANDING)
    assert steered.wire.looks == 2


async def test_a_folder_that_cannot_be_read_does_not_end_a_launch() -> None:
    wire = Wire()
    steered = Steered(wire)
    wire.cut = True
    await steered.steering.look(STANDING)
    wire.cut = False
    assert (await steered.ask(command("pause"))).taken


async def test_without_a_channel_nobody_steers() -> None:
    steering = Steering(3, Seconds())
    await steering.begin(STANDING)
    await steering.look(STANDING)
    assert (steering.slots, steering.paused, dict(steering.cancelled)) == (3, None, {})


def test_a_command_has_its_own_argument_and_no_other() -> None:
    for name, run, slots in (
        ("pause", "a", None),
        ("cancel", None, None),
        ("slots", None, None),
        ("revive", "a", 2),
    ):
        with pytest.raises(ValidationError, match=f"{name} takes"):
            Command.model_validate({"id": "1", "command": name, "run_id": run, "slots": slots, "at": "", "by": ""})


_ASKED = st.tuples(
    st.sampled_from(["cancel", "revive"]), st.sampled_from("abc"), st.sampled_from([True, False, None])
)


@given(st.lists(_ASKED))
def test_a_run_is_cancelled_if_its_last_command_that_was_not_refused_says_so(
    asked: list[tuple[CommandName, str, bool | None]],
) -> None:
    """The property that every reader of the commands agrees on."""
    exchanges = []
    for name, run, taken in asked:
        given_ = command(name, run=run)
        exchanges.append(Exchange(given_) if taken is None else answered(given_, taken=taken))
    expected = {run: name for name, run, taken in asked if taken is not False}
    assert set(cancelled_runs(exchanges)) == {run for run, name in expected.items() if name == "cancel"}
