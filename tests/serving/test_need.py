"""What replicas take of a cluster, and what it lacks."""

from __future__ import annotations

import pytest

from chime_dist.adapters.vllm.need import Need, need_of, shortage
from tests.serving.endpoints import stub_endpoint

CPU_NODE = {"CPU": 64.0}
H100_NODE = {"CPU": 96.0, "GPU": 8.0, "accelerator_type:H100": 1.0}
SMALL_NODE = {"CPU": 16.0, "GPU": 4.0, "accelerator_type:L4": 1.0}


def need(**keys: object) -> Need:
    return need_of(stub_endpoint(gpus=None, cpus=1.0, **keys))


def test_a_replica_takes_a_gpu_for_each_rank_on_one_node() -> None:
    wanted = need(tensor_parallel=4, pipeline_parallel=2, accelerator="H100")
    assert wanted.per_node == {"CPU": 1.0, "GPU": 8.0, "accelerator_type:H100": 0.001}
    assert (wanted.nodes, wanted.strategy) == (1, "STRICT_PACK")
    assert str(wanted) == "1 CPU, 8 GPU, accelerator H100"


def test_a_replica_on_two_nodes_takes_half_of_its_gpus_on_each() -> None:
    wanted = need(tensor_parallel=16, nodes=2)
    assert wanted.per_node == {"CPU": 1.0, "GPU": 8.0}
    assert (wanted.nodes, wanted.strategy) == (2, "STRICT_SPREAD")
    assert str(wanted) == "1 CPU, 8 GPU on each of 2 nodes"


@pytest.mark.parametrize(
    ("wanted", "nodes", "why"),
    [
        (need(), [CPU_NODE], "0 of 1 nodes have 1 GPU; the most on one node is 0"),
        (need(tensor_parallel=8), [SMALL_NODE, SMALL_NODE], "0 of 2 nodes have 8 GPU; the most on one node is 4"),
        (need(accelerator="H100"), [SMALL_NODE], "0 of 1 nodes have the accelerator H100"),
        (need(tensor_parallel=16, nodes=2), [H100_NODE, SMALL_NODE], "1 of 2 nodes have 8 GPU; the most on one"),
        (need(tensor_parallel=8), [H100_NODE], "the nodes that have it are taken"),
        (need(), [], "0 of 0 nodes have 1 CPU; the most on one node is 0"),
        (
            need_of(stub_endpoint(gpus=1, cpus=32.0)),
            [CPU_NODE, SMALL_NODE],
            "0 of 2 nodes have all of it together",
        ),
    ],
)
def test_what_lacks_is_named(wanted: Need, nodes: list[dict[str, float]], why: str) -> None:
    assert shortage(wanted, nodes).startswith(why)
