"""Arguments of a tool call: one object, or a reason the model can act on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.canonical import canonical_json
from chime_dist.core.tool_arguments import read_arguments

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("received", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("{}", {}),
        ({"a": {"b": [1, None]}}, {"a": {"b": [1, None]}}),
        ("{'city': 'Paris', 'n': None}", {"city": "Paris", "n": None}),
        (" {'ok': True, 'xs': (1, -2.5, [])}\n", {"ok": True, "xs": [1, -2.5, []]}),
        (r"{'pattern': '\d'}", {"pattern": r"\d"}),
        ('{"城市": "北京"}', {"城市": "北京"}),
        ('{"a": ["cut \\ud83d", {"b": "\\ud83d\\ude42"}]}', {"a": ["cut �", {"b": "🙂"}]}),
        ({"a": "cut \ud83d"}, {"a": "cut �"}),
        ("{'a': 'cut \\ud83d'}", {"a": "cut �"}),
    ],
)
def test_json_text_decoded_objects_and_python_literals_are_accepted(received: Any, value: dict[str, Any]) -> None:
    """A2: the unambiguous spellings of one object. Half a character in a value is replaced, as in any text."""
    arguments = read_arguments(received)
    assert (arguments.value, arguments.error) == (value, None)


@pytest.mark.parametrize(
    ("received", "reason"),
    [
        ("[]", "got a list"),
        ("null", "got null"),
        ("42", "got a number"),
        ("true", "got a boolean"),
        ('"{}"', "got a string"),
        ("'{}'", "not valid JSON"),
        (None, "got null"),
        ([{"a": 1}], "got a list"),
        ("", "send {} for none"),
        (" \n", "send {} for none"),
        ('{"cmd": "ls', "not valid JSON"),
        ('{"a":1', "not valid JSON"),
        ('{"a":1}{"b":2}', "something follows it"),
        ("{'a': 1}{'b': 2}", "not valid JSON"),
        ('{"a":1,"a":1}', "'a' more than once"),
        ("{'a': 1, 'a': 2}", "'a' more than once"),
        ('{"a": NaN}', "not finite"),
        ('{"a": [1e999]}', "not finite"),
        ("{'a': 1e999}", "not finite"),
        ({"a": float("inf")}, "not finite"),
        ('{"\\ud83d": 1}', "half a character"),
        ("{'a': {1, 2}}", "not valid JSON"),
        ("{'a': open('x')}", "not valid JSON"),
        ("{'a': b'x'}", "not valid JSON"),
        ("{1: 2}", "every key must be a string"),
        ("{**other}", "every key must be a string"),
        ('{"a": ' + "9" * 5000 + "}", "too many digits"),
        ('{"a":' * 70 + "1" + "}" * 70, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ("{'a': '" + "x" * 100_000 + "'}", "not valid JSON"),
        ("{'a': \x00}", "not valid JSON"),
    ],
)
def test_every_other_form_is_an_error_in_words_and_keeps_the_raw_text(received: Any, reason: str) -> None:
    """A2: nothing is repaired, two objects are never "first wins", and nothing raises."""
    arguments = read_arguments(received)
    assert arguments.value is None
    assert reason in (arguments.error or "")
    assert isinstance(arguments.raw, str)
    if isinstance(received, str):
        assert arguments.raw == received


def test_a_decoded_object_too_deep_to_write_back_is_an_error() -> None:
    """A2: an SDK or a server may decode what we then cannot encode."""
    value: dict[str, Any] = {}
    for _ in range(50_000):
        value = {"a": value}
    arguments = read_arguments(value)
    assert (arguments.value, arguments.error) == (None, "the arguments are nested too deeply")
    # Unwound by hand: freeing a chain this long must not depend on the interpreter's own stack.
    while value:
        value = value.pop("a")


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), json_values, max_size=4))
def test_any_json_object_survives_as_text_as_repr_and_decoded(value: dict[str, Any]) -> None:
    """A2: the three accepted spellings give the same object."""
    for received in (json.dumps(value), repr(value), value):
        assert read_arguments(received).value == value


@given(st.text())
def test_no_text_makes_the_reader_raise_and_what_it_accepts_can_be_sent_back(text: str) -> None:
    """A1, A2."""
    arguments = read_arguments(text)
    assert (arguments.value is None) is (arguments.error is not None)
    arguments.raw.encode()
    canonical_json(arguments.value).encode()
