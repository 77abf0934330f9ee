"""Every analysis by name. A new one is a module beside with ``NAME``, ``ABOUT`` and ``find``, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from chime_dist.analyses import gate_accuracy
from chime_dist.analyses.finding import Finding
from chime_dist.analyses.studied import StudiedRun


@dataclass(frozen=True, slots=True)
class Analysis:
    """A question to a launch that is over."""

    name: str
    """As people type it; also the name of the files with its results."""
    about: str
    """What it shows, and of which launches, in a line."""
    find: Callable[[Iterable[StudiedRun]], Finding]
    """Pure but for what it reads through the runs."""


ANALYSES = {
    analysis.name: analysis
    for analysis in (Analysis(gate_accuracy.NAME, gate_accuracy.ABOUT, gate_accuracy.find),)
}
