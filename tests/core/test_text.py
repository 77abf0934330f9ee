"""Text that can be sent and stored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.text import whole_characters


@given(st.text(st.characters()))
def test_whole_characters_always_encode_and_change_nothing_else(text: str) -> None:
    """A lone surrogate becomes U+FFFD; complete text is untouched."""
    whole = whole_characters(text)
    whole.encode()
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert whole == text


def test_two_halves_that_meet_are_a_character() -> None:
    assert whole_characters("\ud83d\ude42 \ud83d") == "🙂 �"
