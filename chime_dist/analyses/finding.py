"""What an analysis hands back: its numbers in every form in which somebody reads them, and nothing drawn yet."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from chime_dist.core.episode import Json


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text, one tuple per row and as long as ``header``."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int
    """How many leading columns are names (aligned left); the others are numbers."""

    def to_csv(self) -> str:
        """A header and one line per row."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([self.header, *self.rows])
        return out.getvalue()


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a panel. The four tuples are equally long."""

    name: str
    """The same name is the same colour in every panel of a chart."""
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    """Lower end of the spread at each x; equal to ``y`` where there is none."""
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    falling: bool = False
    """Whether the largest x stands on the left."""
    logarithmic: bool = False
    """Whether equal factors of y are equal distances; values of 0 then stand at the bottom."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Panels side by side, with one legend."""

    title: str
    panels: tuple[Panel, ...]
    note: str
    """Said below the panels: what a reader of the picture alone must know."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What an analysis found."""

    title: str
    table: Table
    """For people: cells are rounded."""
    lines: Table
    """For spreadsheets: a row per run."""
    document: Json
    """For programs."""
    chart: Chart
    notes: tuple[str, ...]
    """How to read the numbers."""
