"""What every table of a report is made of."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from chime_dist.core.aggregate import percent
from chime_dist.core.spending import amount_text

NOTHING = "-"
"""Stands where there is no number; the problems say why."""

PLACES = ("Benchmark", "Backbone")
"""Headers of the columns that say what a row is about; in every table they come first."""

Label = tuple[str, str, str]
"""Benchmark, backbone and method of a row; a mark behind the method leads to its settings."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text, one tuple per row and as long as ``header``."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int
    """How many leading columns are names (aligned left); the others are numbers."""
    flagged: frozenset[int] = frozenset()
    """0-based rows that are incomplete."""


def number(value: Decimal | int | None) -> str:
    """The number as text."""
    return NOTHING if value is None else str(value)


def amount(value: float | None) -> str:
    """Money as text; a note says the currency."""
    return NOTHING if value is None else amount_text(value)


def rate(value: Fraction | None, places: int = 2) -> str:
    """A value in [0, 1] in percent."""
    return NOTHING if value is None else str(percent(value, places))
