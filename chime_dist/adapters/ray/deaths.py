"""Why an actor's process died: whether it was for want of memory, where that can be known (C8, D9).

To its caller a killed actor looks the same whatever killed it. Two witnesses can tell: Ray's memory monitor, which
writes down whom it killed, and the kernel's count of such kills in a control group. SIGKILL alone proves nothing.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import ray
from ray._private.state import state
from ray.core.generated import common_pb2, gcs_pb2

from chime_dist.adapters.host import out_of_memory_kills

REGISTERED_S = 3.0
"""How long a death may take to be written down, in seconds."""
_LOOK_S = 0.1
# Ray ships no types for its generated messages.
_OUT_OF_MEMORY: int = common_pb2.WorkerExitType.NODE_OUT_OF_MEMORY  # type: ignore[attr-defined]
_Row: Any = gcs_pb2.WorkerTableData  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Life:
    """One process of an actor, as it describes itself."""

    worker: str
    """Ray's id of the process, hexadecimal."""
    node: str
    kernel_kills: tuple[str, int] | None
    """See ``host.out_of_memory_kills``."""

    @classmethod
    def own(cls) -> Life:
        """This process's; inside an actor."""
        context = ray.get_runtime_context()
        return cls(context.get_worker_id(), context.get_node_id(), out_of_memory_kills())

    def ended_by_kernel(self, successor: Life) -> bool:
        """Whether the kernel killed for memory in its control group since it began; ``successor`` brings the count
        of now. Nothing is known where the two live in different places."""
        if self.kernel_kills is None or successor.kernel_kills is None or self.node != successor.node:
            return False
        (group, before), (same, now) = self.kernel_kills, successor.kernel_kills
        return group == same and now > before


async def killed_by_memory_monitor(life: Life) -> bool:
    """Whether Ray's memory monitor killed it; False where nothing is written down soon after its death."""
    deadline = time.monotonic() + REGISTERED_S
    while True:
        exit_type = await asyncio.to_thread(_exit_type, life.worker)
        if exit_type is not None or time.monotonic() >= deadline:
            return exit_type == _OUT_OF_MEMORY
        await asyncio.sleep(_LOOK_S)


def _exit_type(worker: str) -> int | None:
    # Ray's public way to this table leads through its dashboard, which a launch's own cluster does without.
    for row in state._connect_and_get_accessor().get_worker_table():
        data = _Row.FromString(row)
        if data.worker_address.worker_id.hex() == worker and not data.is_alive:
            return int(data.exit_type)
    return None
