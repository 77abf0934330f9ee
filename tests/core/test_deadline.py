"""A budget that only shrinks (R37)."""

from __future__ import annotations

from chime_dist.core.deadline import Deadline


class Watch:
    """A monotonic clock that a test turns."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now_s


def test_a_deadline_counts_down_and_stops_at_zero() -> None:
    """A7: attempts are bounded by what remains, and a negative rest would be no timeout at all."""
    watch = Watch()
    deadline = Deadline.after(30.0, watch)
    assert (deadline.remaining_s, deadline.passed) == (30.0, False)

    watch.now_s = 129.5
    assert (deadline.remaining_s, deadline.passed) == (0.5, False)

    watch.now_s = 130.0
    assert (deadline.remaining_s, deadline.passed) == (0.0, True)

    watch.now_s = 500.0
    assert (deadline.remaining_s, deadline.passed) == (0.0, True)


def test_no_time_at_all_has_passed_from_the_start() -> None:
    assert Deadline.after(0.0, Watch()).passed
