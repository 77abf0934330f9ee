"""The server adapter against servers that want a key, sit behind TLS, are away, or are of another version."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
import trustme

from chime_dist.adapters.qdrant.server import QdrantServerStore
from chime_dist.adapters.qdrant.server_audit import QdrantServerAudit
from chime_dist.adapters.qdrant.server_calls import connected
from chime_dist.core.bank import BankState
from chime_dist.errors import ConfigError, ServiceError
from chime_dist.ports import Namespace
from tests.contract.banks import EAST, FINGERPRINT, NAMESPACE, find, history, opened, put
from tests.contract.qdrant_rest import RestQdrant

pytestmark = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
]

KEY = "correct-horse-battery"


@dataclass(frozen=True)
class Secured:
    """A server that wants KEY, at a TLS address, and the authority that signed its certificate."""

    server: RestQdrant
    url: str
    ca_file: str


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def secured(authority: trustme.CA, tmp_path: Path) -> AsyncIterator[Secured]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = RestQdrant(KEY)
    async with server.listening(context) as url:
        yield Secured(server, url, str(tmp_path / "ca.pem"))


@pytest.fixture
async def plain() -> AsyncIterator[tuple[RestQdrant, str]]:
    server = RestQdrant()
    async with server.listening() as url:
        yield server, url


async def _refusal(store: QdrantServerStore) -> str:
    with structlog.testing.capture_logs() as logs, pytest.raises(ServiceError) as caught:
        await store.open(NAMESPACE, FINGERPRINT)
    await store.close()
    assert KEY not in str(logs)
    return str(caught.value)


async def test_a_bank_lives_on_a_server_with_a_key_and_a_certificate_of_our_own(secured: Secured) -> None:
    store = QdrantServerStore.connect(secured.url, KEY, secured.ca_file)
    states = await opened(store, history([put("0-0", {"c": EAST})], [put("1-0", {"c": EAST})]))
    await store.compact(NAMESPACE, [2])
    assert sorted(await find(store, 2, EAST)) == ["0-0", "1-0"]
    audit = QdrantServerAudit.connect(secured.url, KEY, secured.ca_file)
    assert await audit.newest("launch", "run") == NAMESPACE
    assert len(states) == 3
    await audit.close()
    await store.close()
    assert set(secured.server.keys) == {KEY}


async def test_the_key_is_in_no_log_line(secured: Secured) -> None:
    with structlog.testing.capture_logs() as logs:
        store = QdrantServerStore.connect(secured.url, KEY, secured.ca_file)
        secured.server.refusals = [503]
        await store.open(NAMESPACE, FINGERPRINT)
        await store.close()
    assert logs
    assert KEY not in str(logs)


@pytest.mark.parametrize("key", ["another-secret-key", None])
async def test_a_wrong_key_is_refused_at_once_and_the_setting_is_named(secured: Secured, key: str | None) -> None:
    """The server's answer here repeats the key that it was sent; ours must not."""
    said = await _refusal(QdrantServerStore.connect(secured.url, key, secured.ca_file))
    assert "refused the key (HTTP 401); set qdrant.api_key" in said
    assert "another-secret-key" not in said
    assert len(secured.server.keys) == 2, "the version is asked once, and once what it may not see"


async def test_an_untrusted_certificate_is_refused_at_once_and_the_setting_is_named(secured: Secured) -> None:
    said = await _refusal(QdrantServerStore.connect(secured.url, KEY))
    assert "certificate is not trusted" in said
    assert "set qdrant.ca_file" in said
    assert secured.server.keys == [], "no key is sent to a server that is not trusted"


async def test_a_certificate_for_another_name_is_refused(secured: Secured) -> None:
    url = secured.url.replace("localhost", "127.0.0.1")
    said = await _refusal(QdrantServerStore.connect(url, KEY, secured.ca_file))
    assert "IP address mismatch" in said
    assert "by a name that its certificate holds" in said


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_that_holds_no_authority_is_a_config_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"qdrant\.ca_file .*ca\.pem.*expected the PEM file"):
        connected("https://localhost:6333", ca_file=str(path))


async def test_a_server_that_is_busy_for_a_moment_is_asked_again(plain: tuple[RestQdrant, str]) -> None:
    server, url = plain
    store = QdrantServerStore.connect(url)
    await store.open(NAMESPACE, FINGERPRINT)
    server.refusals = [503, 429, 502]
    await store.project(NAMESPACE, 1, *history([put("0-0", {"c": EAST})]))
    assert server.refusals == []
    assert await find(store, 1, EAST) == ["0-0"]
    await store.close()


async def test_a_server_that_stays_busy_is_given_up(plain: tuple[RestQdrant, str]) -> None:
    server, url = plain
    server.refusals = [503] * 1000
    said = await _refusal(QdrantServerStore(connected(url, patience_s=0.5)))
    assert "503" in said
    assert 2 <= len(server.keys) < 20


async def test_a_server_that_goes_away_is_waited_for() -> None:
    """A restart of the server must not end a launch: a connection is cut, the next ones are refused."""
    cut = asyncio.Event()

    async def slam(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        cut.set()

    dying = await asyncio.start_server(slam, "127.0.0.1", 0)
    port = dying.sockets[0].getsockname()[1]
    store = QdrantServerStore.connect(f"http://127.0.0.1:{port}")
    opening = asyncio.create_task(store.open(NAMESPACE, FINGERPRINT))
    await cut.wait()
    dying.close()
    await dying.wait_closed()
    async with RestQdrant().listening(port=port):
        await opening
        assert await find(store, 0, EAST) == []
        await store.close()


async def test_an_error_of_the_server_is_told_and_the_write_may_be_repeated(
    plain: tuple[RestQdrant, str],
) -> None:
    server, url = plain
    store = QdrantServerStore.connect(url)
    await store.open(NAMESPACE, FINGERPRINT)
    server.refusals = [500]
    with pytest.raises(ServiceError, match=r"HTTP 500 Internal Server Error.*refused"):
        await store.project(NAMESPACE, 1, *history([put("0-0", {"c": EAST})]))
    await store.project(NAMESPACE, 1, *history([put("0-0", {"c": EAST})]))
    assert await find(store, 1, EAST) == ["0-0"]
    await store.close()


async def test_a_server_that_would_overwrite_points_is_refused(plain: tuple[RestQdrant, str]) -> None:
    """E2: before 1.17 a server does not know how to insert only."""
    server, url = plain
    server.version = "1.16.3"
    said = await _refusal(QdrantServerStore.connect(url))
    assert "version 1.16.3, but a bank needs 1.17 or newer" in said
    assert "upgrade the server" in said


@pytest.mark.parametrize(
    ("version", "event"),
    [
        ("1.17.1", "bank_store.server_version"),
        ("2.0.0", "bank_store.server_version"),
        ("dev", "bank_store.server_version_unknown"),
    ],
)
async def test_a_server_that_the_client_was_not_made_for_is_reported(
    plain: tuple[RestQdrant, str], version: str, event: str
) -> None:
    server, url = plain
    server.version = version
    store = QdrantServerStore.connect(url)
    with structlog.testing.capture_logs() as logs:
        await store.open(NAMESPACE, FINGERPRINT)
    await store.close()
    [told] = [line for line in logs if line["event"] == event]
    assert told["server"] == version
    assert told["log_level"] == "warning"


async def test_a_server_s_projections_stay_for_other_processes(plain: tuple[RestQdrant, str]) -> None:
    """Two connections see one store: fences lie side by side, and only the owner writes to its own."""
    _, url = plain
    old, new = QdrantServerStore.connect(url), QdrantServerStore.connect(url)
    newer = Namespace(launch="launch", run_id="run", fence=2)
    await opened(old, history([put("0-0", {"c": EAST})]))
    await opened(new, history([put("0-1", {"c": EAST})]), newer)
    assert await find(new, 1, EAST) == ["0-0"]
    assert await find(old, 1, EAST, namespace=newer) == ["0-1"]
    with pytest.raises(ServiceError, match="only its owner writes to it"):
        await new.project(NAMESPACE, 2, BankState(1), BankState(2))
    await old.close()
    await new.close()
