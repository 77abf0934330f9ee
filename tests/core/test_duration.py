"""Lengths of time as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.duration import seconds_in, spelled


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("45s", 45),
        ("2h30m", 9_000),
        ("1d12h", 129_600),
        ("0.5h", 1_800),
        ("1h5s", 3_605),
    ],
)
def test_a_length_of_time_is_read(text: str, seconds: float) -> None:
    assert seconds_in(text) == seconds


@pytest.mark.parametrize("text", ["", "2 hours", "30m2h", "-5s", "h", "1:30", "2h2h", "soon"])
def test_what_is_no_length_of_time_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="2h30m"):
        seconds_in(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.4, "0s"), (59.6, "1m"), (9_000, "2h30m"), (9_001, "2h30m"), (3_605, "1h"), (129_605, "1d12h")],
)
def test_a_length_of_time_is_spelled_in_two_units(seconds: float, text: str) -> None:
    assert spelled(seconds) == text


@given(st.integers(0, 10**8))
def test_what_is_spelled_reads_as_at_most_a_unit_less(seconds: int) -> None:
    read = seconds_in(spelled(seconds))
    assert read <= seconds < read + (3_600 if seconds >= 86_400 else 60)
