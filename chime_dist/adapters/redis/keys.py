"""Every Redis key of a launch, and nothing else's: ``clean`` may delete what matches ``pattern``."""

from __future__ import annotations

import re
from dataclasses import dataclass

NOBODY = "~released"
"""The consumer that holds units which were given back."""

CHANGES_KEPT = 10_000
"""About how many hints stay in the change feed."""


@dataclass(frozen=True, slots=True)
class RedisKeys:
    """The names of a launch's keys; the launch id is their hash tag. Raises ValueError for an unusable id."""

    launch: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", self.launch):
            raise ValueError(f"a launch id consists of letters, digits and . _ -, got {self.launch!r}")

    @property
    def prefix(self) -> str:
        """What every key of the launch starts with."""
        return f"chime:{{{self.launch}}}:"

    @property
    def pattern(self) -> str:
        """Glob that matches exactly the launch's keys."""
        return f"{self.prefix}*"

    @property
    def driver(self) -> str:
        """The driver's token: who drives the launch now; runs out by itself."""
        return f"{self.prefix}driver"

    @property
    def turn(self) -> str:
        """Name of the driver's turn; its absence means that the launch's keys were lost."""
        return f"{self.prefix}turn"

    @property
    def ready(self) -> str:
        """Stream of admitted units that are not completed; its consumer group has the turn's name."""
        return f"{self.prefix}ready"

    @property
    def units(self) -> str:
        """Hash: key of each unit of this turn -> its admission's nonce, then its completion's token."""
        return f"{self.prefix}units"

    @property
    def open(self) -> str:
        """Set of keys of units admitted and not completed."""
        return f"{self.prefix}open"

    @property
    def changes(self) -> str:
        """Stream of hints."""
        return f"{self.prefix}changes"

    def proposals(self, run_id: str) -> str:
        """Hash: position -> proposal that is not committed yet."""
        return f"{self.prefix}proposals:{run_id}"

    def fence(self, run_id: str) -> str:
        """Newest fence of a run's journal."""
        return f"{self.prefix}fence:{run_id}"

    def journal(self, run_id: str) -> str:
        """List of a run's sealed journal lines; index = position."""
        return f"{self.prefix}journal:{run_id}"

    def pace(self, backbone: str) -> str:
        """Hash: what is left of a backbone's rates, and its pause."""
        return f"{self.prefix}pace:{backbone}"

    def flights(self, backbone: str, caller: str) -> str:
        """Sorted set: calls of one process to a backbone -> when each stops counting."""
        return f"{self.prefix}flights:{backbone}:{caller}"
