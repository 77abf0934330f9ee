"""A sweep of two runs whose model takes its time, so that there is a launch to steer, to watch and to stop."""

from __future__ import annotations


def steered(
    *,
    families: int = 1,
    tasks: int = 16,
    window: int = 1,
    slots: int = 3,
    endpoint: str = "latency_s: [0.02, 0.04]",
) -> str:
    """Its file. ``tasks`` are of each family, ``endpoint`` holds more keys of the model's."""
    return f"""\
name: steered
benchmarks: [{{name: credit_world, families: {families}, tasks_per_family: {tasks}}}]
methods: [chime, no_plan]
backbones: [{{name: m, scripted: {{script: credit_world}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 16}}
protocol: {{window: {window}}}
requests: {{timeout_s: 30.0, max_retries: 0}}
cluster:
  slots: {slots}
  endpoints: {{m: {{kind: scripted, {endpoint}}}}}
"""
