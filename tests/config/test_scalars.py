"""Unquoted scalars mean one thing, or are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.config.scalars import read_plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-17", -17),
        ("+3", 3),
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        ("-1.5e+2", -150.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("0.25", 0.25),
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("live_simple_106-63-0", "live_simple_106-63-0"),
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("1.2.3", "1.2.3"),
        ("12abc", "12abc"),
        ("no_plan", "no_plan"),
        ("ye", "ye"),
    ],
)
def test_an_unquoted_scalar_reads_as_yaml_1_2_says(text: str, value: object) -> None:
    read = read_plain(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        *["no", "No", "NO", "yes", "on", "off", "Off", "y", "N"],
        *["010", "-007", "00", "007.5", "0x1F", "0o17", "0b11", "1_000", "1_000.5"],
        *["2024-05-01", "2024-5-1", "2024-05-01T10:00:00Z", "2024-05-01 10:00"],
        *["12:30", "1:20:30", "190:20:30.15"],
    ],
)
def test_a_scalar_that_yaml_versions_read_differently_must_be_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="quote it") as caught:
        read_plain(text)
    assert text in str(caught.value)


@pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", "1e999", "123e456"])
def test_a_number_that_is_not_finite_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quote it if it is text"):
        read_plain(text)


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_every_json_number_reads_as_itself(number: float) -> None:
    assert read_plain(json.dumps(number)) == number
