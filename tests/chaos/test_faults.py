"""The points themselves, without anybody's death."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from chime_dist import faults


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Signals that this process sent to itself, instead of receiving them."""
    numbers: list[int] = []

    monkeypatch.setattr(signal, "raise_signal", numbers.append)
    monkeypatch.setattr(faults, "_passed", Counter())
    for variable in (faults.KILL, faults.STOP):
        monkeypatch.delenv(variable, raising=False)
    return numbers


def test_a_point_does_nothing_where_no_drill_names_it(sent: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    faults.reached("bank.appended")
    monkeypatch.setenv(faults.KILL, "bank.committing")
    faults.reached("bank.appended")
    assert sent == []


@pytest.mark.parametrize(("wanted", "passes"), [("p", 1), ("p:1", 1), ("p:3", 3)])
def test_a_process_dies_at_the_named_point_when_it_passes_it_for_the_nth_time(
    sent: list[int], monkeypatch: pytest.MonkeyPatch, wanted: str, passes: int
) -> None:
    monkeypatch.setenv(faults.KILL, wanted)
    for _ in range(passes - 1):
        faults.reached("p")
        faults.reached("another")
    assert sent == []
    faults.reached("p")
    assert sent == [signal.SIGKILL]
    faults.reached("p")
    assert sent == [signal.SIGKILL]


def test_a_process_can_be_stopped_at_one_point_and_killed_at_another(
    sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(faults.STOP, "p")
    monkeypatch.setenv(faults.KILL, "q")
    faults.reached("p")
    faults.reached("q")
    assert sent == [signal.SIGSTOP, signal.SIGKILL]


def test_a_number_that_is_none_is_an_error(sent: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(faults.KILL, "p:x")
    with pytest.raises(ValueError, match="'x'"):
        faults.reached("p")
