"""Objects of another process, called by name over a unix socket; who calls waits for a server that is away."""

from __future__ import annotations

import asyncio
import pickle
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from chime_dist.errors import ChimeDistError

WAIT_S = 30.0
"""Longest wait for a server that is being started again, in seconds."""

SILENCE_S = 1.0
"""A server that says nothing for so long counts as gone, in seconds; whoever took its place is asked."""

_SIZE = struct.Struct(">Q")


@asynccontextmanager
async def served(target: Any, socket: Path) -> AsyncIterator[None]:
    """Answer calls of ``target``'s asynchronous methods inside the block."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            name, arguments = await _read(reader)
            try:
                reply = (True, await getattr(target, name)(*arguments))
            except ChimeDistError as error:
                reply = (False, error)
            await _write(writer, reply)
        writer.close()

    await asyncio.to_thread(socket.unlink, missing_ok=True)
    server = await asyncio.start_unix_server(answer, socket)
    try:
        yield
    finally:
        server.close()


class Remote:
    """Stands for the object behind ``socket``. Every call made through it is safe to repeat, so it is repeated."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            deadline = time.monotonic() + WAIT_S
            while True:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        return await self._call(name, arguments)
                except (TimeoutError, ConnectionError, FileNotFoundError, asyncio.IncompleteReadError):
                    if time.monotonic() > deadline:
                        raise
                await asyncio.sleep(0.05)

        return call

    async def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        try:
            await _write(writer, (name, arguments))
            good, reply = await _read(reader)
        finally:
            writer.close()
        if not good:
            raise reply
        return reply


async def _read(reader: asyncio.StreamReader) -> Any:
    [size] = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return pickle.loads(await reader.readexactly(size))


async def _write(writer: asyncio.StreamWriter, message: object) -> None:
    data = pickle.dumps(message)
    writer.write(_SIZE.pack(len(data)) + data)
    await writer.drain()
