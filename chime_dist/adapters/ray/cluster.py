"""Joining or starting a Ray cluster, and creating a launch's actors on it."""

from __future__ import annotations

import logging
import os
from typing import Any

import ray
import structlog
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from chime_dist.adapters.launch_processes import sweep
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
SWEEP_PATIENCE_S = 15.0
"""How long the nodes may take to end what is left on them, in seconds."""

log = structlog.get_logger()


class RayCluster:
    """A connection to Ray for one launch. Actors are named after the launch and die with this driver."""

    def __init__(self, launch: str, joined: bool = False, shared: bool = False) -> None:
        """``joined``: the cluster was there before us, and goes on after us. ``shared``: so was this process's
        connection to it."""
        self._launch = launch
        self._joined = joined
        self._shared = shared
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
        if ray.is_initialized():
            # Backbones that the launch serves were started before it, and end after it.
            return cls(launch, joined=not local, shared=True)
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
        return cls(launch, joined=not local)

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

    @property
    def actors(self) -> tuple[ActorHandle[Any], ...]:
        """Every actor of the launch, in the order of creation."""
        return tuple(self._actors)

    def leave(self) -> None:
        """Kill every actor and leave the cluster, unless others share the connection; one that we started ends."""
        for actor in reversed(self._actors):
            ray.kill(actor, no_restart=True)
        if self._joined:
            self._sweep_nodes()
        if not self._shared:
            ray.shutdown()

    def _sweep_nodes(self) -> None:
        """End what the launch's workers left on any node, also where no worker lives any more (C7)."""
        task = ray.remote(_sweep_over)
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        sweeps = []
        for node in nodes:
            place = NodeAffinitySchedulingStrategy(node, soft=False)
            sweeps.append(task.options(num_cpus=0, max_retries=0, scheduling_strategy=place).remote(self._launch))
        _, unanswered = ray.wait(sweeps, num_returns=len(sweeps), timeout=SWEEP_PATIENCE_S)
        if unanswered:
            log.warning("processes.not_swept", launch=self._launch, nodes=len(unanswered), reason="no answer")


def _sweep_over(launch: str) -> int:
    return sweep(launch, over=True)
