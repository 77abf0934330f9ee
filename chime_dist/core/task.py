"""What core knows of a task: who it is and which domain it belongs to. Its content stays with the benchmark."""

from __future__ import annotations

from chime_dist.core.frozen import Frozen


class Task(Frozen):
    """One entry of a benchmark's task stream."""

    id: str
    """Unique inside the benchmark."""
    domain: str
    """The benchmark's own name of the subset; splits and truncation work per domain (R3)."""
