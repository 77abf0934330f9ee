"""A TLS listener in front of a Redis that has none, and certificates that are made for the test."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from chime_dist.adapters.redis.tls import TlsFiles


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority of our own, and what it has signed, as PEM files."""

    ca: trustme.CA
    folder: Path

    @classmethod
    def founded(cls, folder: Path) -> Authority:
        """Make its key; ``folder`` must exist."""
        authority = cls(trustme.CA(), folder)
        authority.ca.cert_pem.write_to_path(folder / "ca.pem")
        return authority

    @property
    def file(self) -> str:
        """Its certificate."""
        return str(self.folder / "ca.pem")

    def client(self) -> TlsFiles:
        """This authority, and a certificate and key for somebody who connects."""
        issued = self.ca.issue_cert("client@chime.test")
        cert, key = self.folder / "client.pem", self.folder / "client-key.pem"
        cert.write_bytes(issued.cert_chain_pems[0].bytes())
        issued.private_key_pem.write_to_path(key)
        return TlsFiles(self.file, str(cert), str(key))

    @asynccontextmanager
    async def listening(
        self, server_url: str, name: str = "localhost", ask_client: bool = False
    ) -> AsyncIterator[int]:
        """The port of a TLS listener on 127.0.0.1 whose certificate is for ``name``, in front of a server.

        With ``ask_client`` it lets only those in whose certificate this authority signed.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(name).configure_cert(context)
        if ask_client:
            context.verify_mode = ssl.CERT_REQUIRED
            self.ca.configure_trust(context)
        serving: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving.add(asyncio.create_task(_serve(server_url, reader, writer)))

        listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            listener.close()
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    @contextmanager
    def demanding(self) -> Iterator[int]:
        """The port of a listener that lets nobody in without a client certificate, and says so.

        In a thread: asyncio closes such a connection without the alert that OpenSSL's servers send.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert("localhost").configure_cert(context)
        self.ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED

        def refuse() -> None:
            with suppress(OSError):
                while True:
                    accepted, _ = listener.accept()
                    with accepted, suppress(ssl.SSLError), context.wrap_socket(accepted, server_side=True):
                        raise AssertionError("somebody without a certificate was let in")

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=refuse)
            thread.start()
            try:
                yield listener.getsockname()[1]
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()


async def _serve(server_url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    server = urlsplit(server_url)
    if server.scheme == "unix":
        from_server, to_server = await asyncio.open_unix_connection(server.path)
    else:
        from_server, to_server = await asyncio.open_connection(server.hostname, server.port)
    pumps = [asyncio.create_task(_pump(reader, to_server)), asyncio.create_task(_pump(from_server, writer))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for end in (writer, to_server):
            end.close()
            with suppress(OSError):
                await end.wait_closed()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
