"""A connection to Redis that loses chosen replies: the server has done the work, the client never hears of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit


class LossyProxy:
    """Listens on a unix socket and passes bytes on to a server (unix:// or redis:// URL)."""

    def __init__(self, server_url: str, socket: Path) -> None:
        self.url = f"unix://{socket}"
        self.lost = 0
        """Replies lost so far."""
        self.withheld = asyncio.Event()
        """Set when a client waits for a reply that will not come."""
        self._server = urlsplit(server_url)
        self._socket = socket
        self._doomed: list[tuple[bytes, bool]] = []
        self._dropped: list[bytes] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._rewrites: list[tuple[re.Pattern[bytes], bytes]] = []

    def lose(self, command: bytes) -> None:
        """Swallow the reply to the next command whose bytes hold ``command``, and cut that connection."""
        self._doomed.append((command, True))

    def withhold(self, command: bytes) -> None:
        """Swallow the reply, but leave the connection open: the client waits."""
        self._doomed.append((command, False))

    def drop(self, command: bytes) -> None:
        """Cut the connection of the next command whose bytes hold ``command`` before the server sees it."""
        self._dropped.append(command)

    @property
    def idle(self) -> bool:
        """Whether all that was asked for has happened."""
        return not (self._doomed or self._dropped)

    def rewrite(self, pattern: bytes, text: bytes) -> None:
        """Put ``text`` for ``pattern`` in every reply; both must have the same length."""
        self._rewrites.append((re.compile(pattern), text))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[LossyProxy]:
        """Serve inside the block."""
        serving: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving.add(asyncio.create_task(self._serve(reader, writer)))

        server = await asyncio.start_unix_server(accept, self._socket)
        try:
            yield self
        finally:
            server.close()
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            for writer in self._writers:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            if self._server.scheme == "unix":
                from_server, to_server = await asyncio.open_unix_connection(self._server.path)
            else:
                from_server, to_server = await asyncio.open_connection(self._server.hostname, self._server.port)
        except OSError:
            to_client.close()
            return
        self._writers += [to_client, to_server]
        cut: bool | None = None

        async def commands() -> None:
            nonlocal cut
            while data := await from_client.read(65536):
                for dropped in [dropped for dropped in self._dropped if dropped in data]:
                    self._dropped.remove(dropped)
                    return
                for doom in [doom for doom in self._doomed if doom[0] in data]:
                    self._doomed.remove(doom)
                    cut = doom[1]
                to_server.write(data)

        async def replies() -> None:
            while data := await from_server.read(65536):
                if cut is not None:
                    self.lost += 1
                    if cut:
                        return
                    self.withheld.set()
                    await asyncio.Event().wait()
                for pattern, text in self._rewrites:
                    data = pattern.sub(text, data)
                to_client.write(data)

        pumps = [asyncio.create_task(commands()), asyncio.create_task(replies())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            to_client.close()
            to_server.close()
            await asyncio.gather(*pumps, return_exceptions=True)
