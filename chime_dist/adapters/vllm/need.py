"""What a replica takes of a cluster, and in words what a cluster lacks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from chime_dist.config.serving import VllmEndpoint

ACCELERATOR = "accelerator_type:"
"""Ray has a resource of this name for each kind of GPU; a node with one holds 1 of it."""
_SLIVER = 0.001


@dataclass(frozen=True, slots=True)
class Need:
    """What one replica takes: the same on each of its nodes."""

    nodes: int
    per_node: Mapping[str, float]
    """Amounts by Ray's resource names."""

    @property
    def strategy(self) -> Literal["STRICT_PACK", "STRICT_SPREAD"]:
        """Bundles of one replica never share a node; a single one is packed by definition."""
        return "STRICT_SPREAD" if self.nodes > 1 else "STRICT_PACK"

    def __str__(self) -> str:
        amounts = ", ".join(
            f"accelerator {_named(name)}" if name.startswith(ACCELERATOR) else f"{amount:g} {name}"
            for name, amount in self.per_node.items()
        )
        return amounts if self.nodes == 1 else f"{amounts} on each of {self.nodes} nodes"


def need_of(endpoint: VllmEndpoint) -> Need:
    """What one replica of ``endpoint`` takes."""
    per_node = {"CPU": endpoint.cpus}
    if endpoint.gpus_per_node:
        per_node["GPU"] = float(endpoint.gpus_per_node)
    if endpoint.accelerator is not None:
        per_node[f"{ACCELERATOR}{endpoint.accelerator}"] = _SLIVER
    return Need(endpoint.nodes, per_node)


def shortage(need: Need, nodes: Sequence[Mapping[str, float]]) -> str:
    """Why a cluster whose nodes have these totals does not hold ``need`` now, naming the resource."""
    able = [node for node in nodes if all(node.get(name, 0) >= need.per_node[name] for name in need.per_node)]
    if len(able) >= need.nodes:
        return "the nodes that have it are taken"
    for name, amount in need.per_node.items():
        enough = sum(node.get(name, 0) >= amount for node in nodes)
        if enough < need.nodes:
            most = max((node.get(name, 0) for node in nodes), default=0)
            if name.startswith(ACCELERATOR):
                return f"{enough} of {len(nodes)} nodes have the accelerator {_named(name)}"
            return f"{enough} of {len(nodes)} nodes have {amount:g} {name}; the most on one node is {most:g}"
    return f"{len(able)} of {len(nodes)} nodes have all of it together"


def _named(resource: str) -> str:
    return resource.removeprefix(ACCELERATOR)
