"""Which version a position reads, and what may start or commit next (R7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.episode import Outcome
from chime_dist.core.window import Admission, InfraStreak, StreamShape, read_version


@pytest.mark.parametrize(
    ("position", "window", "epoch_size", "version"),
    [
        (20, 16, 1000, 5),
        (0, 16, 1000, 0),
        (15, 16, 1000, 0),
        (16, 16, 1000, 1),
        (100, 16, 100, 100),
        (115, 16, 100, 100),
        (116, 16, 100, 101),
        (120, 16, 100, 105),
    ],
)
def test_the_read_version_follows_the_window_inside_an_epoch(
    position: int, window: int, epoch_size: int, version: int
) -> None:
    """R7: W=16: position 20 reads 5; n=100, second epoch: 100 to 115 read 100, 120 reads 105."""
    assert read_version(position, window, epoch_size) == version


@given(st.integers(0, 10_000))
def test_a_window_of_one_is_the_sequential_formula(position: int) -> None:
    """R7, R1: position t reads the bank after t commits."""
    assert read_version(position, 1, 100) == position


@given(position=st.integers(0, 5000), window=st.integers(1, 64), epoch_size=st.integers(1, 500))
def test_no_position_reads_its_own_epoch_before_the_start_or_the_future(
    position: int, window: int, epoch_size: int
) -> None:
    """R7: an epoch is a barrier, and a read is at most W - 1 commits behind."""
    version = read_version(position, window, epoch_size)
    assert position - position % epoch_size <= version <= position
    assert position - version < window
    assert version <= read_version(position + 1, window, epoch_size)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 1, 1), "0-based, got -1"),
        ((0, 0, 1), "at least 1, got 0 and 1"),
        ((0, 1, 0), "at least 1, got 1 and 0"),
    ],
)
def test_impossible_streams_are_refused(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_version(*arguments)


def test_no_more_than_a_window_is_admitted_before_a_commit() -> None:
    """R7: with W=3, positions 0 to 2 read version 0; position 3 reads version 1 and waits for it."""
    admission = Admission(StreamShape(epoch_size=10, epochs=1, window=3))
    for position in range(3):
        assert admission.ready() == position
        admission = admission.admitted()

    assert admission.ready() is None
    with pytest.raises(ValueError, match="position 3 is not admissible at head 0"):
        admission.admitted()
    assert admission.committed(1).ready() == 3


def test_the_next_epoch_waits_for_the_whole_last_one() -> None:
    """R7: position 4 of a stream of 4 reads version 4, whatever the window."""
    admission = Admission(StreamShape(epoch_size=4, epochs=2, window=16), next_position=4, head=3)
    assert admission.ready() is None
    assert admission.committed(4).ready() == 4


def test_a_resumed_run_goes_on_behind_what_the_journal_holds() -> None:
    """The journal's head is the cursor: committed positions are not admitted again."""
    admission = Admission(StreamShape(epoch_size=10, epochs=1, window=2)).committed(6)
    assert (admission.ready(), admission.head) == (6, 6)


def test_a_head_never_goes_back() -> None:
    with pytest.raises(ValueError, match="went back from 2 to 1"):
        Admission(StreamShape(epoch_size=4, epochs=1, window=1), head=2).committed(1)


@given(size=st.integers(1, 12), epochs=st.integers(1, 3), window=st.integers(1, 16), data=st.data())
def test_any_interleaving_admits_and_commits_every_position_once(
    size: int, epochs: int, window: int, data: st.DataObject
) -> None:
    """R7: whatever the timing, positions start in order, at a read version that is committed, and all finish."""
    shape = StreamShape(epoch_size=size, epochs=epochs, window=window)
    admission = Admission(shape)
    admitted: list[int] = []
    while not admission.done:
        ready = admission.ready()
        can_commit = admission.head < len(admitted)
        if ready is not None and (not can_commit or data.draw(st.booleans())):
            assert shape.read_version(ready) <= admission.head
            admitted.append(ready)
            admission = admission.admitted()
        else:
            assert can_commit, "the stream is stuck"
            admission = admission.committed(admission.head + 1)
    assert admitted == list(range(shape.total))
    assert admission.ready() is None


def test_the_third_infra_position_in_a_row_is_held_back_and_no_other() -> None:
    """What the agent did, well or badly, ends a row; only one more infra is held back at its edge (A9)."""
    streak = InfraStreak(limit=3)
    for outcome in (Outcome.INFRA, Outcome.FAILURE, Outcome.INFRA):
        streak = streak.then(outcome)
        assert not streak.holds(Outcome.INFRA)

    streak = streak.then(Outcome.INFRA)
    assert [streak.holds(outcome) for outcome in Outcome] == [outcome is Outcome.INFRA for outcome in Outcome]
    assert streak.then(Outcome.SUCCESS) == InfraStreak(limit=3)
    assert InfraStreak(limit=1).holds(Outcome.INFRA)
