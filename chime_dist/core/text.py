"""Text that came from outside, as it may be kept."""

from __future__ import annotations

import unicodedata


def whole_characters(text: str) -> str:
    """The text with lone surrogates (halves of an emoji) replaced by U+FFFD.

    A lone surrogate can be neither sent nor stored as UTF-8; two that make a pair become its character.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_visible(text: str) -> bool:
    """Whether a person would see anything of it: white space, control and zero-width characters do not count."""
    return any(unicodedata.category(character)[0] not in "ZC" for character in text)
