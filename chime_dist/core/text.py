"""Text that came from outside, as it may be kept."""

from __future__ import annotations


def whole_characters(text: str) -> str:
    """The text with lone surrogates (halves of an emoji) replaced by U+FFFD.

    A lone surrogate can be neither sent nor stored as UTF-8; two that make a pair become its character.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
