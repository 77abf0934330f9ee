"""Redis over TLS: public, own and client certificates, and refusals that name the fix and come at once."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chime_dist.adapters.redis import connection as redis_connection
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.preflight import preflight
from chime_dist.adapters.redis.tls import TlsFiles
from chime_dist.errors import ConfigError, ServiceError
from tests.adapters.tls_proxy import Authority
from tests.contract.labs import redis_server


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    with tempfile.TemporaryDirectory(prefix="chime-test-") as folder:
        yield Authority.founded(Path(folder))


async def reach(server_url: str, authority: Authority, files: TlsFiles, ask_client: bool = False) -> None:
    """Both kinds of connection get through TLS."""
    async with authority.listening(server_url, ask_client=ask_client) as port:
        connection = RedisConnection(f"rediss://localhost:{port}/0", files=files)
        try:
            await preflight(connection)
            assert await connection.blocking.ping()
        finally:
            await connection.close()


async def refusal_of(url: str, files: TlsFiles) -> str:
    """What the first command says; tried again it would be a timeout here."""
    connection = RedisConnection(url, patience_s=600.0, files=files)
    try:
        async with asyncio.timeout(60):
            with pytest.raises(ServiceError) as error:
                await preflight(connection)
    finally:
        await connection.close()
    return str(error.value)


async def test_a_server_of_our_own_authority_is_trusted_by_its_file(redis_url: str, authority: Authority) -> None:
    await reach(redis_url, authority, TlsFiles(ca=authority.file))


async def test_a_server_of_a_public_authority_needs_no_file(
    redis_url: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSL_CERT_FILE is where OpenSSL looks for the authorities that a machine trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", authority.file)
    await reach(redis_url, authority, TlsFiles())


async def test_a_certificate_that_is_not_trusted_is_refused_at_once(redis_url: str, authority: Authority) -> None:
    async with authority.listening(redis_url) as port:
        said = await refusal_of(f"rediss://localhost:{port}/0", TlsFiles())
    assert f"Redis at localhost:{port}, reading INFO: the server's certificate is not trusted" in said
    assert "Set redis.ca_file" in said


async def test_a_certificate_for_another_name_is_refused_at_once(redis_url: str, authority: Authority) -> None:
    async with authority.listening(redis_url, name="other.test") as port:
        said = await refusal_of(f"rediss://localhost:{port}/0", TlsFiles(ca=authority.file))
    assert "certificate is for another name" in said
    assert "localhost" in said
    assert "Write the host in the Redis URL as the certificate names it" in said


async def test_a_server_that_asks_for_a_client_certificate_gets_it(redis_url: str, authority: Authority) -> None:
    await reach(redis_url, authority, authority.client(), ask_client=True)
    with authority.demanding() as port:
        said = await refusal_of(f"rediss://localhost:{port}/0", TlsFiles(ca=authority.file))
    assert "the server refused our side of TLS" in said
    assert "Set redis.cert_file and redis.key_file" in said


async def test_a_server_without_tls_is_told_from_an_outage() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-ERR Protocol error\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        said = await refusal_of(f"rediss://localhost:{port}/0", TlsFiles())
    assert "does not speak TLS at this port" in said
    assert "redis:// where the network is private" in said


async def test_a_server_that_waits_for_a_command_in_the_clear_may_have_no_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redis takes a greeting in TLS for the beginning of a command: nothing tells it from an outage."""
    monkeypatch.setattr(redis_connection, "_CONNECT_TIMEOUT_S", 0.2)

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(wait, "127.0.0.1", 0)
    async with listener:
        connection = RedisConnection(
            f"rediss://localhost:{listener.sockets[0].getsockname()[1]}/0", patience_s=0.1
        )
        with pytest.raises(ServiceError, match="Check the server, the network, and that this port speaks TLS"):
            await preflight(connection)
        await connection.close()


async def test_a_listener_with_tls_is_told_from_an_outage() -> None:
    """Talked to in the clear, a TLS listener answers with an alert."""

    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(16)
        writer.write(b"\x15\x03\x01\x00\x02\x02\x46")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(alert, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        said = await refusal_of(f"redis://localhost:{port}/0", TlsFiles())
    assert "write rediss:// in CHIME_REDIS_URL" in said


def test_files_that_cannot_be_used_are_refused_by_key_and_path(authority: Authority, tmp_path: Path) -> None:
    """Before anything is sent, and without a question on the terminal for a passphrase."""
    client = authority.client()
    missing, broken = str(tmp_path / "missing.pem"), tmp_path / "broken.pem"
    broken.write_text("no certificate\n")
    for files, named in (
        (TlsFiles(ca=missing), rf"redis\.ca_file {missing}: No such file"),
        (TlsFiles(ca=str(broken)), rf"redis\.ca_file {broken}: cannot be read as PEM"),
        (TlsFiles(cert=missing), rf"redis\.cert_file {missing}: No such file"),
        (TlsFiles(cert=client.cert, key=str(broken)), rf"with redis\.key_file {broken}: cannot be read as PEM"),
    ):
        with pytest.raises(ConfigError, match=named):
            RedisConnection("rediss://localhost/0", files=files)


async def test_connections_share_what_they_trust(redis_url: str, authority: Authority) -> None:
    """Loading a machine's authorities for each of many connections would stop the loop for seconds."""
    async with authority.listening(redis_url) as port:
        url = f"rediss://localhost:{port}/0"
        connection = RedisConnection(url, files=TlsFiles(ca=authority.file))
        commands: Any = connection.commands.connection_pool
        blocking: Any = connection.blocking.connection_pool
        first, second, third = (pool.make_connection() for pool in (commands, commands, blocking))
        assert first.ssl_context is second.ssl_context is third.ssl_context
        await connection.close()
    with pytest.raises(ConfigError, match="the Redis URL cannot be read"):
        RedisConnection(f"{url}?ssl_cert_reqs=perhaps")
