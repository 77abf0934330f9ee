"""Room for a replica on the cluster: asked for, and waited for within a bound."""

from __future__ import annotations

import asyncio
import time

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from chime_dist.adapters.vllm.need import Need, shortage
from chime_dist.errors import ServingError

_WAIT_S = 1.0


async def placed(name: str, need: Need, timeout_s: float) -> PlacementGroup:
    """A placement group with room for one replica.

    Raises ServingError, naming the resource that lacks, where the cluster has none within ``timeout_s`` seconds.
    """
    bundles = [dict(need.per_node) for _ in range(need.nodes)]
    group: PlacementGroup = placement_group(bundles, strategy=need.strategy, name=name)
    deadline = time.monotonic() + timeout_s
    try:
        while not await asyncio.to_thread(group.wait, min(_WAIT_S, timeout_s)):
            if time.monotonic() > deadline:
                nodes = [node["Resources"] for node in await asyncio.to_thread(ray.nodes) if node["Alive"]]
                raise ServingError(
                    f"the cluster had no room for {name} ({need}) within {timeout_s:g} s:"
                    f" {shortage(need, nodes)}. Lower the endpoint's replicas, tensor_parallel or gpus; or add"
                    " nodes, and raise placement_timeout_s if they take longer to come"
                )
    except BaseException:
        remove_placement_group(group)
        raise
    return group
