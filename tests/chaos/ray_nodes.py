"""A Ray cluster of several nodes on one machine; every node but the first can fall silent, or be taken away."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.chaos.nursery import Child, Nursery
from tests.chaos.patience import until
from tests.chaos.placement import titled

CLUSTER = "cluster.json"
OVER = "over"

SOON_DEAD = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 4,
}
"""A node that does not answer for about three seconds counts as dead."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its raylet, and what that has started."""

    raylet: psutil.Process

    def processes(self, title: str) -> list[psutil.Process]:
        """See ``placement.Place``."""
        return [process for process in self.raylet.children() if titled(process, title)]

    def silence(self) -> None:
        """Stop its raylet; its actors live on."""
        self.raylet.suspend()

    def wake(self) -> None:
        """Undo ``silence``."""
        self.raylet.resume()

    def kill(self) -> None:
        """SIGKILL to all of it."""
        doomed = [self.raylet, *self.raylet.children(recursive=True)]
        for process in doomed:
            process.kill()
        psutil.wait_procs(doomed, timeout=20)


class Nodes:
    """``with Nodes(...) as nodes``: the cluster, in a process of its own. It begins with the first node alone."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._added = 0
        self._child: Child = nursery.start(
            "tests.chaos.ray_nodes:keep", [], folder, {"RAY_USAGE_STATS_ENABLED": "0"}
        )

    def __enter__(self) -> Nodes:
        told = self._told(CLUSTER)
        self.address: str = told["address"]
        self.first = Node(psutil.Process(told["raylet"]))
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder / OVER).touch()
        self._child.end()

    def add(self) -> Node:
        """One more node."""
        self._added += 1
        (self._folder / f"{self._added}.wanted").touch()
        return Node(psutil.Process(self._told(f"{self._added}.json")["raylet"]))

    def _told(self, name: str) -> dict[str, Any]:
        def there() -> bool:
            assert self._child.code() is None, self._child.said
            return (self._folder / name).exists()

        until(there)
        told: dict[str, Any] = json.loads((self._folder / name).read_text())
        return told


def keep() -> None:
    """Keep the cluster, and add to it, until the folder says that it is over."""
    # Seconds to import, and only here.
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": SOON_DEAD})
    _tell(CLUSTER, address=cluster.address, raylet=_raylet(cluster.head_node))
    while not Path(OVER).exists():
        for node in cluster.worker_nodes:
            # The look buries the dead, which would otherwise count as there.
            node.live_processes()
        for wanted in Path().glob("*.wanted"):
            wanted.unlink()
            _tell(f"{wanted.stem}.json", raylet=_raylet(cluster.add_node(num_cpus=1)))
        time.sleep(0.05)
    cluster.shutdown()  # type: ignore[no-untyped-call]


def _raylet(node: Any) -> int:
    [raylet] = node.all_processes["raylet"]
    return int(raylet.process.pid)


def _tell(name: str, **what: object) -> None:
    draft = Path("told.draft")
    draft.write_text(json.dumps(what))
    draft.replace(name)
