"""A Ray cluster of two nodes on one machine, of which one can be made to fall silent."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.chaos.nursery import Child, Nursery
from tests.chaos.patience import until

CLUSTER = "cluster.json"
OVER = "over"

SOON_DEAD = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 4,
}
"""A node that does not answer for about three seconds counts as dead."""


class TwoNodes:
    """``with TwoNodes(...) as nodes``: the cluster, in a process of its own."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._child: Child = nursery.start(
            "tests.chaos.ray_nodes:keep", [], folder, {"RAY_USAGE_STATS_ENABLED": "0"}
        )

    def __enter__(self) -> TwoNodes:
        until((self._folder / CLUSTER).exists)
        told = json.loads((self._folder / CLUSTER).read_text())
        self.address: str = told["address"]
        self.raylet: int = told["raylet"]
        """Process id of the second node's raylet."""
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder / OVER).touch()
        self._child.end()


def keep() -> None:
    """Keep the cluster until the folder says that it is over."""
    # Seconds to import, and only here.
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": SOON_DEAD})
    second = cluster.add_node(num_cpus=1)
    [raylet] = second.all_processes["raylet"]
    draft = Path("cluster.draft")
    draft.write_text(json.dumps({"address": cluster.address, "raylet": raylet.process.pid}))
    draft.replace(CLUSTER)
    while not Path(OVER).exists():
        time.sleep(0.1)
    cluster.shutdown()  # type: ignore[no-untyped-call]
