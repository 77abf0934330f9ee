"""A launch in many processes, and somebody who starts again what died, as Ray does."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chaos.nursery import Child
from tests.chaos.patience import PATIENCE_S
from tests.chaos.sweeps import Sweep

DRIVER, BANK = "driver", "bank"


@dataclass
class Fleet:
    """The processes of one launch by name: ``driver``, ``bank`` and numbered workers."""

    sweep: Sweep
    slots: int = 2
    """Of each worker."""
    always: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Environment of a part whenever it is started."""
    parts: dict[str, Child] = field(default_factory=dict)
    deaths: Counter[str] = field(default_factory=Counter)

    def start(self, name: str, environment: Mapping[str, str] | None = None) -> Child:
        """Start one part; ``environment`` holds for this start only."""
        bodies: Mapping[str, tuple[str, list[object]]] = {
            DRIVER: ("drive", ["sweep", "sweep.yaml"]),
            BANK: ("own_bank", []),
        }
        function, arguments = bodies.get(name, ("work", [int(name) if name.isdecimal() else 0, self.slots]))
        child = self.sweep.nursery.start(
            f"tests.chaos.parts:{function}",
            arguments,
            self.sweep.folder,
            {**self.always.get(name, {}), **(environment or {})},
        )
        self.parts[name] = child
        return child

    def start_all(self, workers: int = 2, **environments: Mapping[str, str]) -> None:
        """Start driver, bank and workers; ``worker_0`` stands for worker ``0``."""
        for name in (DRIVER, BANK, *map(str, range(workers))):
            self.start(name, environments.get(f"worker_{name}" if name.isdecimal() else name))

    def keep_up(self) -> int:
        """Start again whatever dies until the driver has ended; returns its exit code. Ends the others."""
        deadline = time.monotonic() + PATIENCE_S
        while (code := self.parts[DRIVER].code()) is None:
            for name, child in list(self.parts.items()):
                if name != DRIVER and child.code() is not None:
                    self.deaths[name] += 1
                    self.start(name)
            assert time.monotonic() < deadline, self.parts[DRIVER].said
            time.sleep(0.01)
        self.end()
        return code

    def end(self) -> None:
        """SIGKILL to whatever is left."""
        for child in self.parts.values():
            child.signal(signal.SIGKILL)
            child.end()
