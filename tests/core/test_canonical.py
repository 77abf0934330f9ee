"""One spelling per value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.canonical import canonical_json, sha256_hex

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_keys_are_sorted_and_nothing_is_padded_or_escaped() -> None:
    assert canonical_json({"b": [1, 2.5], "a": "预订"}) == '{"a":"预订","b":[1,2.5]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"deep": [-float("inf")]}])
def test_a_non_finite_number_has_no_spelling(value: object) -> None:
    """B3: dumping nan would write invalid JSON."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)


def test_the_hash_is_that_of_the_utf8_bytes() -> None:
    assert sha256_hex("预订") == "a0170dc9aafae25e0a3cfc451d85e1df191e4780f0968b058a943a221169d473"
    assert sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@given(JSON)
def test_reading_a_spelling_and_spelling_it_again_changes_nothing(value: object) -> None:
    """Hashes survive a trip over disk or Redis."""
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text(), st.integers(), max_size=6), st.data())
def test_the_order_of_keys_does_not_matter(value: dict[str, int], data: st.DataObject) -> None:
    shuffled = dict(data.draw(st.permutations(list(value.items()))))
    assert canonical_json(shuffled) == canonical_json(value)
