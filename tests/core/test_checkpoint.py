"""Named versions of a run."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.checkpoint import checkpoints, share_of_stream


def test_the_quarters_of_a_stream_are_rounded_up_in_integers() -> None:
    """R47: after ceil(p n) commits; 3574: 894, 1787, 2681, 3574."""
    assert [share_of_stream(percent, 3574) for percent in (25, 50, 75, 100)] == [894, 1787, 2681, 3574]


def test_epochs_and_quarters_are_listed_by_version() -> None:
    """R6, R47: two epochs of 1,787 tasks."""
    found = [(checkpoint.name, checkpoint.version) for checkpoint in checkpoints(1787, 2)]
    assert found == [
        ("25%", 894),
        ("epoch-1", 1787),
        ("50%", 1787),
        ("75%", 2681),
        ("epoch-2", 3574),
        ("100%", 3574),
    ]


@given(st.integers(1, 10**9), st.integers(0, 100))
def test_a_share_is_exact_however_long_the_stream(total: int, percent: int) -> None:
    """R47: no float decides; 0.1 + 0.2 has no part in it."""
    assert share_of_stream(percent, total) == ceil(Fraction(percent, 100) * total)


@pytest.mark.parametrize(("epoch_size", "epochs"), [(0, 1), (1, 0)])
def test_a_stream_without_positions_has_no_checkpoints(epoch_size: int, epochs: int) -> None:
    with pytest.raises(ValueError, match="at least one task and one epoch"):
        checkpoints(epoch_size, epochs)
