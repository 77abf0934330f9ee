"""Joining or starting a Ray cluster, and creating a launch's actors on it."""

from __future__ import annotations

import logging
import os
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from chime_dist.errors import ServiceError

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Under `uv run` Ray would relaunch every worker through uv, with another environment than the driver's.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    # One launch's workers must not outlive it (children of actors included).
    "RAY_process_group_cleanup_enabled": "1",
}
ACTOR_CALLS = 10_000
"""Calls that may be under way in one async actor; the engine bounds them, Ray's default of 1,000 must not."""


class RayCluster:
    """A connection to Ray for one launch. Actors are named after the launch and die with this driver."""

    def __init__(self, launch: str) -> None:
        self._launch = launch
        self._actors: list[ActorHandle[Any]] = []

    @classmethod
    def connect(cls, launch: str, address: str | None, num_cpus: int | None, namespace: str) -> RayCluster:
        """Join the cluster at ``address``, or start one on this machine for as long as this process lives.

        Raises ServiceError naming the address where it cannot be reached.
        """
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # Notes about handlers and tokens that Ray prints on every start; its errors come as exceptions.
        logging.getLogger("ray").setLevel(logging.ERROR)
        local = address in (None, "local")
        try:
            ray.init(
                address="local" if local else address,
                num_cpus=num_cpus if local else None,
                namespace=namespace,
                include_dashboard=False if local else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ServiceError(
                f"Ray at {address or 'this machine'} cannot be used: {error}. Check RAY_ADDRESS"
            ) from error
        return cls(launch)

    def actor(
        self,
        kind: type[Any],
        name: str,
        *args: Any,
        here: bool = False,
    ) -> str:
        """Create an actor that is restarted without limit; returns its name, by which any process of the cluster
        finds it. ``here`` keeps it on the driver's node. Arguments hold no handles: a restart must not depend on
        what another process keeps alive.

        Task retries are off: a repeated call is the caller's decision (C2). Raises ServiceError where the name is
        taken, naming it (C3).
        """
        options: dict[str, Any] = {
            "name": f"chime-{self._launch}-{name}",
            "num_cpus": 0,
            "max_restarts": -1,
            "max_task_retries": 0,
            "max_concurrency": ACTOR_CALLS,
        }
        if here:
            node = ray.get_runtime_context().get_node_id()
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
        try:
            handle: ActorHandle[Any] = ray.remote(kind).options(**options).remote(*args)
        except ValueError as error:
            raise ServiceError(f"actor {options['name']}: {error}; another driver runs this launch") from error
        self._actors.append(handle)
        return str(options["name"])

    def leave(self) -> None:
        """Kill every actor and leave the cluster; one that we started ends."""
        for actor in reversed(self._actors):
            ray.kill(actor, no_restart=True)
        ray.shutdown()
