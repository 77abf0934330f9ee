"""The actor that hosts one replica's server, or one machine's part of it; neither outlives the other."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import ray.util

from chime_dist.adapters.vllm.child import Child
from chime_dist.adapters.vllm.command import NodeRank, engine_command, engine_environment
from chime_dist.adapters.vllm.engine_api import EngineApi
from chime_dist.adapters.vllm.router import free_port
from chime_dist.config.serving import VllmEndpoint
from chime_dist.errors import ServingError

PLUGIN_FOLDER = Path(__file__).parent / "plugin"
"""Put on PYTHONPATH of the server: ties its engines to it."""

STOP_S = 20.0
"""From SIGTERM to SIGKILL, in seconds: an idle server needs a few."""
_LOOK_S = 1.0
_EXIT_S = 30.0
"""An actor whose server ended waits so long for being asked why; then it gives its GPUs back."""


class ReplicaActor:
    """Holds a node's share of one replica. ``start`` is called once."""

    def __init__(self, launch: str, name: str, log_path: Path, host: str | None) -> None:
        self._name = name
        self._folder = work_folder(launch, name)
        # The launch's folder may be on a disk that this node does not see.
        self._log_path = log_path if log_path.parent.is_dir() else self._folder.with_suffix(".log")
        self._host: str = host or node_address()
        self._child: Child | None = None
        self._node = os.getppid()
        self._watching: list[asyncio.Task[None]] = []

    async def address(self) -> tuple[str, int]:
        """This node's address and a free port of it, at which the parts of a replica can meet."""
        return self._host, free_port(self._host)

    async def start(self, endpoint: VllmEndpoint, served_model: str, node: NodeRank | None) -> str | None:
        """Start the server. Returns its URL once it has completed a token, or at once and None where it is a part
        that answers nobody. Raises ServingError with the end of its log."""
        port = free_port(self._host)
        environment = engine_environment(os.environ, endpoint, str(PLUGIN_FOLDER))
        if node is not None:
            environment.setdefault("VLLM_HOST_IP", self._host)
        self._child = child = await Child.start(
            self._name,
            engine_command(endpoint, served_model, self._host, port, node),
            environment,
            folder=self._folder,
            log_path=self._log_path,
        )
        self._watching = [
            asyncio.create_task(self._exit_after(child)),
            asyncio.create_task(self._exit_with_the_node()),
        ]
        if node is not None and node.rank > 0:
            return None
        url = f"http://{self._host}:{port}"
        try:
            await self._first_answer(child, url, endpoint, served_model)
        except ServingError:
            await child.clear()
            raise
        return url

    async def _first_answer(self, child: Child, url: str, endpoint: VllmEndpoint, served_model: str) -> None:
        answering = asyncio.create_task(
            EngineApi(url).first_answer(served_model, endpoint.runner, endpoint.start_timeout_s)
        )
        ending = asyncio.create_task(child.ended())
        try:
            await asyncio.wait({answering, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise ServingError(f"{self._name} ended with code {ending.result()}; {child.said()}")
            answering.result()
        except TimeoutError:
            raise ServingError(
                f"{self._name} gave no token within {endpoint.start_timeout_s:g} s (start_timeout_s);"
                f" {child.said()}"
            ) from None
        finally:
            answering.cancel()
            ending.cancel()

    async def ended(self) -> str:
        """Wait for the server's end; says how it ended."""
        assert self._child is not None
        code = await self._child.ended()
        return f"its server ended with code {code}; {self._child.said()}"

    async def pid(self) -> int:
        """Of the server."""
        assert self._child is not None
        return self._child.pid

    async def stop(self) -> None:
        """End the server and everything it started."""
        for watching in self._watching:
            watching.cancel()
        if self._child is not None:
            await self._child.stop(STOP_S)

    async def _exit_with_the_node(self) -> None:
        # Ray tells an actor that it is over when its node's raylet is gone, but waits for the calls it has open.
        while True:
            if os.getppid() != self._node:
                os._exit(1)
            await asyncio.sleep(_LOOK_S)

    async def _exit_after(self, child: Child) -> None:
        await child.ended()
        await child.clear()
        await asyncio.sleep(_EXIT_S)
        os._exit(1)


def node_address() -> str:
    """Of this machine, as the cluster's other nodes reach it."""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def work_folder(launch: str, name: str) -> Path:
    """Where a replica's server works, on its node: what runs there is its, and nothing else."""
    return Path(tempfile.gettempdir()) / f"chime_dist-{os.getuid()}" / "serving" / launch / name
