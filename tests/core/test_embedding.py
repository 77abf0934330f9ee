"""What may be embedded, and what may be stored as a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chime_dist.core.embedding import embeddable, embeddable_all, embedded, is_finite
from chime_dist.core.vector import Vector
from chime_dist.errors import EmbeddingError


@pytest.mark.parametrize("text", ["", "   ", "\u200b", "\ufeff\n\t\x00\u2060", "\u3000", None, 3, b"x"])
def test_what_holds_no_visible_character_is_refused(text: Any) -> None:
    """F7: empties are refused before the encoder."""
    with pytest.raises(EmbeddingError):
        embeddable(text)


@pytest.mark.parametrize("text", ["a", " 记 ", "!", "🙂", "\u200ba"])
def test_any_visible_character_is_enough(text: str) -> None:
    """F7."""
    assert embeddable(text) == text


def test_half_a_character_is_replaced() -> None:
    """A lone surrogate would crash a tokenizer."""
    assert embeddable("a\ud83d") == "a�"


def test_the_refused_text_of_a_list_is_named_by_index() -> None:
    assert embeddable_all(["a", "b"]) == ["a", "b"]
    with pytest.raises(EmbeddingError, match="text 1 of 3"):
        embeddable_all(["a", " ", "c"])


def test_a_good_output_becomes_its_float32_vector() -> None:
    values = np.array([0.25, -1.0], dtype=np.float16)
    assert is_finite(values)
    assert embedded(values, 2) == Vector.of([0.25, -1.0])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([1.0], "shape"),
        ([[1.0, 2.0]], "shape"),
        ([1.0, float("nan")], "not finite"),
        ([1e300, 1.0], "not finite"),
        ([0.0, -0.0], "zero vector"),
        ([1e-300, 0.0], "zero vector"),
    ],
)
def test_an_output_without_a_direction_is_refused(values: Any, reason: str) -> None:
    """F4: detected, nothing stored."""
    with pytest.raises(EmbeddingError, match=reason):
        embedded(np.array(values), 2)
