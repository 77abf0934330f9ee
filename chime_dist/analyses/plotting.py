"""A chart as a PNG, by matplotlib, which is optional and imported nowhere else."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import TYPE_CHECKING

from chime_dist.analyses.finding import Chart, Panel
from chime_dist.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c8c00")
"""Told apart also by who does not see red and green alike (after Okabe and Ito)."""
_MARKERS = "osD^vPXh"
_PANEL_INCHES = (5.2, 4.2)
_DPI = 150


def require_matplotlib() -> None:
    """Raise MissingExtraError where nothing can be drawn."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError(
            "plots need matplotlib, which is not installed: pip install -c constraints.txt 'chime-dist[plots]'"
        )


def to_png(chart: Chart) -> bytes:
    """The picture. Needs no display, and leaves no state behind. Raises MissingExtraError."""
    require_matplotlib()
    from matplotlib.figure import Figure

    width, height = _PANEL_INCHES
    figure = Figure(figsize=(width * len(chart.panels), height), dpi=_DPI, layout="constrained")
    names = list(dict.fromkeys(series.name for panel in chart.panels for series in panel.series))
    axes = figure.subplots(1, len(chart.panels), squeeze=False)[0]
    for ax, panel in zip(axes, chart.panels, strict=True):
        _draw(ax, panel, names)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.suptitle(chart.title)
    # The note is the legend's title, because nothing else outside the axes makes room for itself.
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(len(names), 5), frameon=False, title=chart.note
    )
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


def _draw(ax: Axes, panel: Panel, names: list[str]) -> None:
    from matplotlib.ticker import SymmetricalLogLocator

    for series in panel.series:
        place = names.index(series.name)
        colour, marker = _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
        ax.fill_between(series.x, series.low, series.high, color=colour, alpha=0.12, linewidth=0)
        ax.plot(series.x, series.y, color=colour, marker=marker, markersize=4.5, linewidth=1.6, label=series.name)
    if panel.logarithmic:
        ax.set_yscale("symlog", linthresh=1)
        ax.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1, subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
    else:
        ax.set_ylim(bottom=0)
    if panel.falling:
        ax.invert_xaxis()
    ax.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    ax.set_xticks(sorted({x for series in panel.series for x in series.x}))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
