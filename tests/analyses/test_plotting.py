"""A chart becomes a picture, without a display."""

from __future__ import annotations

import pytest

from chime_dist.analyses import plotting
from chime_dist.analyses.finding import Chart, Panel, Series
from chime_dist.analyses.plotting import to_png
from chime_dist.errors import MissingExtraError

SERIES = Series(name="chime", x=(1.0, 0.5), y=(90.0, 0.0), low=(80.0, 0.0), high=(95.0, 10.0))
CHART = Chart(
    title="t",
    note="n",
    panels=(
        Panel(title="a", x_label="x", y_label="y", series=(SERIES,), falling=True),
        Panel(title="b", x_label="x", y_label="y", series=(SERIES,), logarithmic=True),
    ),
)


def test_a_chart_is_drawn_the_same_every_time() -> None:
    picture = to_png(CHART)
    assert picture.startswith(b"\x89PNG\r\n")
    assert picture == to_png(CHART)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plotting, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"chime-dist\[plots\]"):
        to_png(CHART)
