"""vllm-router before the replicas of one backbone: one address for as long as the backbone is served.

It is a child of this process, started again where it ends, at the same port and with the replicas it had.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import aiohttp
import structlog

from chime_dist.adapters.vllm.child import Child
from chime_dist.adapters.vllm.command import router_command
from chime_dist.adapters.vllm.keeping import Keeping
from chime_dist.config.serving import VllmEndpoint
from chime_dist.errors import ServingError

START_S = 60.0
"""From its start to its first answer, in seconds."""
_STOP_S = 5.0
_ASK_S = 10.0
_POLL_S = 0.05

log = structlog.get_logger()


class _Unreached(ServingError):
    """Nothing answered."""


class Router:
    """A running router; ``start`` makes it."""

    def __init__(self, name: str, endpoint: VllmEndpoint, host: str, folder: Path, log_path: Path) -> None:
        self._name = name
        self._endpoint = endpoint
        self._host = host
        self._port = free_port(host)
        self._folder = folder
        self._log_path = log_path
        self._replicas: set[str] = set()
        self._child: Child
        self._keeping = Keeping(f"router of {name}", self._ended, self._begin)

    @classmethod
    async def start(cls, name: str, endpoint: VllmEndpoint, host: str, folder: Path, log_path: Path) -> Router:
        """Start it without replicas. ``name`` is the backbone's. Raises ServingError."""
        router = cls(name, endpoint, host, folder, log_path)
        await router._begin()
        router._keeping.start()
        return router

    @property
    def url(self) -> str:
        """Without a path."""
        return f"http://{self._host}:{self._port}"

    @property
    def pid(self) -> int:
        """Of the process that routes now."""
        return self._child.pid

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        return self._keeping.restarts.total

    async def add(self, replica: str) -> None:
        """Send requests to the replica at this URL too. Raises ServingError where the router does not take it.

        A router that is being started again is told then.
        """
        self._replicas.add(replica)
        try:
            await self._ask("add_worker", replica)
        except _Unreached as error:
            log.warning("serving.router_not_told", backbone=self._name, replica=replica, error=str(error))

    async def remove(self, replica: str) -> None:
        """Send it no more requests; those in flight end."""
        self._replicas.discard(replica)
        try:
            await self._ask("remove_worker", replica)
        except ServingError as error:
            log.warning("serving.router_not_told", backbone=self._name, replica=replica, error=str(error))

    async def stop(self) -> None:
        """End it."""
        await self._keeping.stop()
        await self._child.stop(_STOP_S)

    async def _begin(self) -> None:
        what = f"the router of backbone {self._name!r}"
        command = router_command(self._endpoint, self._host, self._port, free_port(self._host))
        self._child = await Child.start(
            what,
            command,
            os.environ,
            folder=self._folder,
            log_path=self._log_path,
            # While the launch drains after Ctrl-C it still needs its models.
            own_session=True,
        )
        try:
            async with asyncio.timeout(START_S):
                while not await self._listens():
                    if not self._child.alive:
                        raise ServingError(f"{what} ended; {self._child.said()}")
                    await asyncio.sleep(_POLL_S)
            for replica in list(self._replicas):
                await self._ask("add_worker", replica)
        except BaseException as error:
            await self._child.clear()
            if isinstance(error, TimeoutError):
                raise ServingError(f"{what} did not answer in {START_S:g} s; {self._child.said()}") from None
            raise

    async def _ended(self) -> str:
        return f"it ended with code {await self._child.ended()}"

    async def _listens(self) -> bool:
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with _session() as session, session.get(f"{self.url}/workers") as response:
                return response.status == 200
        return False

    async def _ask(self, what: str, replica: str) -> None:
        try:
            async with (
                _session() as session,
                session.post(f"{self.url}/{what}", params={"url": replica}) as response,
            ):
                if response.status != 200:
                    raise ServingError(
                        f"the router of backbone {self._name!r} answers {what} of {replica} with"
                        f" {response.status}: {await response.text()}"
                    )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _Unreached(
                f"the router of backbone {self._name!r} at {self.url} does not answer {what} of {replica}:"
                f" {type(error).__name__}"
            ) from error


def free_port(host: str) -> int:
    """A port of ``host`` that nobody listens at now."""
    with socket.socket() as candidate:
        candidate.bind((host, 0))
        return int(candidate.getsockname()[1])


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ASK_S))
