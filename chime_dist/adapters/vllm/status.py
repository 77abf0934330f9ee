"""What is said about backbones that are served, in a launch's folder and by ``chime-dist serve --status``."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from chime_dist.core.frozen import Frozen

State = Literal["starting", "serving", "restarting", "stopped"]


class ReplicaStatus(Frozen):
    """One replica at a moment."""

    index: int = Field(ge=0)
    """0-based."""
    state: State
    url: str | None
    """Without a path; None while it does not serve."""
    restarts: int = Field(ge=0)
    start_s: float | None
    """Seconds from its last start to its first token."""
    log: str
    """Where its server logs, on the driver's machine or, where that folder is not there, on its own."""


class FleetStatus(Frozen):
    """A backbone that is served, at a moment."""

    backbone: str
    model: str
    url: str
    """What clients use: the router's, with the version."""
    replicas: tuple[ReplicaStatus, ...]
    router_restarts: int = Field(ge=0)


class PrefixCache(Frozen):
    """What one replica's prefix cache saved since the replica's last start."""

    backbone: str
    replica: int = Field(ge=0)
    queries: int = Field(ge=0)
    """Prompt tokens."""
    hits: int = Field(ge=0)
    """Those that were in the cache."""

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens that cost nothing; None before the first prompt."""
        return self.hits / self.queries if self.queries else None

    @property
    def share(self) -> str:
        """``hit_rate`` in words."""
        rate = self.hit_rate
        return "no prompts" if rate is None else f"{rate:.1%} of {self.queries:,} prompt tokens"

    def __str__(self) -> str:
        return f"{self.backbone} replica {self.replica}: {self.share}"


class ServingStatus(Frozen):
    """Everything that one driver serves, at a moment."""

    launch: str
    pid: int = Field(ge=1)
    """Of the driver."""
    time: datetime
    fleets: tuple[FleetStatus, ...]
    caches: tuple[PrefixCache, ...] = ()
    """Filled when the serving has ended."""
