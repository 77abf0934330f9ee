"""What every embedder refuses, and what every vector must be, before it can enter a bank (F4, F7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from chime_dist.core.text import is_visible, whole_characters
from chime_dist.core.vector import Vector
from chime_dist.errors import EmbeddingError


def embeddable(text: object) -> str:
    """``text`` ready for an encoder, lone surrogates replaced.

    Raises EmbeddingError for what is no text, and for text without a visible character: white space, control
    characters and zero-width characters give NaN or zero vectors (F7).
    """
    if not isinstance(text, str):
        raise EmbeddingError(f"only text can be embedded, got {type(text).__name__}")
    if not is_visible(text):
        raise EmbeddingError(f"cannot embed a text without visible characters ({len(text)} characters)")
    return whole_characters(text)


def embeddable_all(texts: Sequence[object]) -> list[str]:
    """``embeddable`` of each; the error names the 0-based index."""
    ready: list[str] = []
    for index, text in enumerate(texts):
        try:
            ready.append(embeddable(text))
        except EmbeddingError as error:
            raise EmbeddingError(f"text {index} of {len(texts)}: {error}") from None
    return ready


def is_finite(values: npt.NDArray[Any]) -> bool:
    """Whether every component is finite; half-precision encoders return NaN for some texts (F4)."""
    return bool(np.isfinite(values).all())


def embedded(values: npt.NDArray[Any], dim: int) -> Vector:
    """The vector of an encoder's output, shape ``(dim,)``.

    Raises EmbeddingError for another shape, a component that is not finite in float32, or a zero vector.
    """
    if values.shape != (dim,):
        raise EmbeddingError(f"the encoder returned shape {values.shape}, expected ({dim},)")
    with np.errstate(over="ignore"):
        single = values.astype("<f4")
    if not is_finite(single):
        raise EmbeddingError("the encoder returned a component that is not finite")
    if not single.any():
        raise EmbeddingError("the encoder returned a zero vector, which has no direction")
    return Vector(single.tobytes())
