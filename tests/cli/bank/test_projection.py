"""``bank verify`` on projections, and ``bank rebuild``: the real embedded engine, and the server's double."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import qdrant_edge
from qdrant_client import AsyncQdrantClient, models

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.qdrant.edge import QdrantEdgeStore
from chime_dist.adapters.qdrant.edge_directory import copy_with_holes
from chime_dist.adapters.qdrant.points import point_id
from chime_dist.adapters.qdrant.server import QdrantServerStore
from chime_dist.core.bank import BankState, apply
from chime_dist.core.journal import JournalEntry
from chime_dist.core.projection import PointKey
from chime_dist.ports import BankStore, EmbedderFingerprint, Namespace
from tests.cli.bank.conftest import LEARNING
from tests.cli.conftest import Program, run_of
from tests.integration.processes import kill_tree, start, wait_for_rows

pytestmark = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
]

FINGERPRINT = EmbedderFingerprint(model="chime-dist/hashing-1", dim=64)


def _namespace(launch: LaunchDirectory, fence: int = 3) -> Namespace:
    return Namespace(launch=launch.id, run_id=run_of(launch, "chime"), fence=fence)


async def _project(
    store: BankStore, namespace: Namespace, entries: Sequence[JournalEntry], window: int = 4
) -> None:
    """As an owner does that opens a bank with this journal: the last versions one by one."""
    await store.open(namespace, FINGERPRINT)
    state = projected = BankState()
    for entry in entries:
        state = apply(state, entry)
        if state.version >= len(entries) - window:
            await store.project(namespace, state.version, projected, state)
            projected = state


@pytest.fixture
def left(program: Program, learnt: LaunchDirectory, entries: list[JournalEntry]) -> Path:
    """The state folder as a killed launch leaves it: a shard that nobody holds. Returns the shard."""
    folder = program.folder / "state" / "chime_dist" / learnt.id / "qdrant"

    async def leave() -> None:
        living = QdrantEdgeStore(program.folder / "living")
        await _project(living, _namespace(learnt), entries)
        shutil.copytree(program.folder / "living", folder, copy_function=copy_with_holes)
        await living.close()

    asyncio.run(leave())
    return next(path for path in folder.glob("*/fence-*") if path.is_dir())


@pytest.fixture
def last_written(entries: list[JournalEntry]) -> PointKey:
    """The newest vector among the last versions that stands at the head."""
    state = BankState()
    found: PointKey | None = None
    for entry in entries:
        before, state = state, apply(state, entry)
        for record in state.records.values():
            old = before.records.get(record.id)
            if old is None or old.vectors.get("e") != record.vectors["e"]:
                version = max(state.version, len(entries) - 4)
                found = PointKey(record.collection, record.id, "e", version)
    assert found is not None
    return found


def _checked(program: Program, code: int = 0) -> dict[str, Any]:
    result = program("bank", "verify", "runs/latest", "chime", "--json")
    assert result.exit_code == code, result.output
    [journal] = json.loads(result.stdout)["journals"]
    assert journal["damage"] is None
    found: dict[str, Any] = journal["projection"]
    return found


# --- what a killed launch left --------------------------------------------------------------------------


def test_a_projection_that_was_left_agrees_with_the_journal(program: Program, left: Path) -> None:
    found = _checked(program)
    assert (found["status"], found["audit"]["head"], found["audit"]["faults"]) == ("matches", 56, [])
    assert found["audit"]["points"] > 0
    shown = program("bank", "verify", "runs/latest").stdout.splitlines()
    assert "agrees with the journal up to version 56" in shown[0]
    assert "only the journal was checked (the embedded store in " in shown[1]


def _vector(point: str) -> qdrant_edge.UpdateOperation:
    return qdrant_edge.UpdateOperation.update_vectors([qdrant_edge.PointVectors(point, [1.0] + [0.0] * 63)])


def _payload(point: str) -> qdrant_edge.UpdateOperation:
    return qdrant_edge.UpdateOperation.set_payload([point], {"valid_from": 1})


def _removal(point: str) -> qdrant_edge.UpdateOperation:
    return qdrant_edge.UpdateOperation.delete_points([point])


@pytest.mark.parametrize(
    ("change", "kind", "what"),
    [
        (_vector, "altered", "its vector is off by up to"),
        (_payload, "altered", "valid_from is 1, not"),
        (_removal, "missing", "it is not there"),
    ],
)
def test_one_changed_point_is_found_with_item_and_version(
    program: Program,
    learnt: LaunchDirectory,
    left: Path,
    last_written: PointKey,
    change: Callable[[str], qdrant_edge.UpdateOperation],
    kind: str,
    what: str,
) -> None:
    """The real engine's own files, changed by the real engine."""
    engine = qdrant_edge.EdgeShard.load(str(left))
    engine.update(change(point_id(_namespace(learnt), last_written)))
    engine.close()
    found = _checked(program, code=1)
    [fault] = found["audit"]["faults"]
    assert (found["status"], fault["kind"]) == ("damaged", kind)
    assert (fault["collection"], fault["item"], fault["vector"], fault["version"]) == tuple(last_written)
    result = program("bank", "verify", "runs/latest", "chime")
    assert result.stdout.startswith("DAMAGED")
    assert f"fence 3: {kind} point of {last_written.collection} {last_written.item}, vector 'e'" in result.stderr
    assert what in result.stderr


def test_a_shard_that_is_held_is_left_alone(
    program: Program, learnt: LaunchDirectory, entries: list[JournalEntry]
) -> None:
    """E7: the bank's owner may outlive the driver; it is named."""
    folder = program.folder / "state" / "chime_dist" / learnt.id / "qdrant"
    with asyncio.Runner() as runner:
        store = QdrantEdgeStore(folder)
        runner.run(_project(store, _namespace(learnt), entries))
        found = _checked(program)
        runner.run(store.close())
    assert found["status"] == "not_checked"
    assert "is held by process " in found["detail"]


def test_an_open_launch_s_projection_is_not_judged(program: Program, learnt: LaunchDirectory, left: Path) -> None:
    """It moves while one looks."""
    with learnt.driver_lock() as lock:
        lock.acquire(datetime.now(UTC))
        found = _checked(program)
    assert found["status"] == "not_checked"
    assert f"the launch is open, held by process {os.getpid()} on " in found["detail"]


def test_a_journal_of_another_dimension_is_damage(program: Program, learnt: LaunchDirectory, left: Path) -> None:
    """E4: the run's config says which vectors its bank holds."""
    manifest = learnt.path / "sweep.json"
    manifest.write_text(manifest.read_text().replace('"dim":64', '"dim":32'))
    found = _checked(program, code=1)
    assert (found["status"], "dimension 64" in found["detail"]) == ("damaged", True)
    assert "DAMAGED" in program("bank", "verify", "runs/latest", "chime").stdout


def test_a_journal_and_a_run_are_one_too_many(program: Program, learnt: LaunchDirectory) -> None:
    journal = learnt.run(run_of(learnt, "chime")).journal
    result = program("bank", "verify", journal, "chime")
    assert (result.exit_code, "is one journal; leave RUN out" in result.stderr) == (2, True)


def test_a_journal_alone_has_no_projection(program: Program, learnt: LaunchDirectory, left: Path) -> None:
    journal = learnt.run(run_of(learnt, "chime")).journal
    [found] = program.json("bank", "verify", journal)["journals"]
    assert found["projection"]["status"] == "not_checked"
    shown = program("bank", "verify", journal).stdout
    assert shown.strip().endswith("only the journal was checked (a journal was named, not a launch)")


def test_of_a_damaged_journal_no_projection_is_judged(
    program: Program, learnt: LaunchDirectory, left: Path
) -> None:
    journal = learnt.run(run_of(learnt, "chime")).journal
    journal.write_bytes(journal.read_bytes().replace(b'"outcome"', b'"Outcome"', 1))
    result = program("bank", "verify", "runs/latest", "chime", "--json")
    assert result.exit_code == 1
    [found] = json.loads(result.stdout)["journals"]
    assert found["projection"]["detail"] == "the journal is damaged"


# --- stores and configs ---------------------------------------------------------------------------------


def _set_cluster(launch: LaunchDirectory, **values: Any) -> None:
    manifest = launch.path / "sweep.json"
    document = json.loads(manifest.read_text())
    document["config"]["cluster"] |= values
    manifest.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        ({"qdrant": {"mode": "memory"}}, "it is kept in the launch's memory"),
        ({"qdrant": "http://127.0.0.1:9"}, "the Qdrant server cannot be reached"),
        ({"qdrant": "${UNSET_QDRANT}"}, "UNSET_QDRANT is not set"),
        ({"state_dir": "elsewhere"}, "elsewhere"),
    ],
)
def test_a_store_out_of_reach_is_told_and_is_no_error(
    program: Program, learnt: LaunchDirectory, cluster: dict[str, Any], why: str
) -> None:
    """The journal is the truth; whoever has only the folder can still check it."""
    _set_cluster(learnt, **cluster)
    found = _checked(program)
    assert (found["status"], why in found["detail"]) == ("not_checked", True), found["detail"]


def test_a_variable_that_only_a_backbone_needs_may_be_unset(
    program: Program, learnt: LaunchDirectory, left: Path
) -> None:
    _set_cluster(learnt, endpoints={"m": {"kind": "http", "url": "${UNSET_URL}"}})
    assert _checked(program)["status"] == "matches"


class _SharedDouble(AsyncQdrantClient):
    """The double of a server: what one client writes the next one reads."""

    async def close(self, grpc_grace: float | None = None, **kwargs: Any) -> None:
        """A client goes, the server stays."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, learnt: LaunchDirectory) -> AsyncQdrantClient:
    """The launch's projections are on a server, which is in this process."""
    double = _SharedDouble(":memory:")
    for module in ("server", "server_audit"):
        monkeypatch.setattr(f"chime_dist.adapters.qdrant.{module}.connected", lambda *_, **__: double)
    _set_cluster(learnt, qdrant={"mode": "server", "url": "http://qdrant:6333"})
    return double


def _points(double: AsyncQdrantClient) -> int:
    async def count() -> int:
        collections = (await double.get_collections()).collections
        return sum([(await double.count(collection.name)).count for collection in collections])

    return asyncio.run(count())


def test_a_server_s_projection_is_checked(
    program: Program,
    learnt: LaunchDirectory,
    entries: list[JournalEntry],
    server: AsyncQdrantClient,
    last_written: PointKey,
) -> None:
    assert "holds none of this run" in _checked(program)["detail"]
    asyncio.run(_project(QdrantServerStore(server), _namespace(learnt), entries))
    found = _checked(program)
    assert found["status"] == "matches"
    assert "the Qdrant server http://qdrant:6333 agrees with the journal" in found["detail"]
    [collection] = asyncio.run(server.get_collections()).collections
    point = models.PointVectors(id=point_id(_namespace(learnt), last_written), vector=[1.0] + [0.0] * 63)
    asyncio.run(server.update_vectors(collection.name, [point]))
    [fault] = _checked(program, code=1)["audit"]["faults"]
    assert (fault["item"], fault["version"]) == (last_written.item, last_written.valid_from)


# --- rebuild --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["memory", "edge"])
def test_a_projection_can_be_rebuilt_from_the_journal(
    program: Program, learnt: LaunchDirectory, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All 56 versions into a fresh store, compared and thrown away."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    _set_cluster(learnt, qdrant={"mode": mode})
    document = program.json("bank", "rebuild", "runs/latest", "chime")
    at_head = program.json("bank", "at", "runs/latest", "chime")
    items = sum(len(items) for items in at_head["collections"].values())
    assert (document["store"], document["version"], document["items"]) == (mode, 56, items)
    assert (document["digest"], document["faults"]) == (at_head["digest"], [])
    assert (document["points"] is None) == (mode == "memory")
    assert document["seconds"] >= 0
    assert list(scratch.iterdir()) == []
    shown = program("bank", "rebuild", "runs/latest", "chime").stdout
    assert shown.startswith(f"whole   {run_of(learnt, 'chime')}: version 56, {items} items")


def test_a_rebuild_leaves_what_a_killed_launch_left(program: Program, left: Path) -> None:
    assert program("bank", "rebuild", "runs/latest", "chime").exit_code == 0
    assert _checked(program)["status"] == "matches"


def test_a_rebuild_on_a_server_touches_nothing_there(
    program: Program, learnt: LaunchDirectory, entries: list[JournalEntry], server: AsyncQdrantClient
) -> None:
    """In the run's own collection, under a name of its own, and gone afterwards (E4)."""
    asyncio.run(_project(QdrantServerStore(server), _namespace(learnt), entries))
    before = _points(server)
    document = program.json("bank", "rebuild", "runs/latest", "chime")
    assert (document["store"], document["faults"]) == ("server", [])
    assert document["points"] >= before - 1
    assert _points(server) == before
    assert len(asyncio.run(server.get_collections()).collections) == 1
    assert _checked(program)["status"] == "matches"


def test_a_store_that_loses_a_point_is_found_by_a_rebuild(
    program: Program, learnt: LaunchDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any store must find every record at the checkpoints and at the head."""
    _set_cluster(learnt, qdrant={"mode": "memory"})

    async def forgetful(*_: Any, **__: Any) -> list[str]:
        return ["99-0"]

    monkeypatch.setattr("chime_dist.adapters.local.memory_store.MemoryStore.candidates", forgetful)
    result = program("bank", "rebuild", "runs/latest", "chime")
    assert result.exit_code == 1
    assert result.stdout.startswith("DAMAGED")
    assert "a search at version 56 does not find plan " in result.stderr
    assert "a search at version 56 finds plan 99-0" in result.stderr


def test_an_empty_bank_can_be_rebuilt(program: Program, learnt: LaunchDirectory) -> None:
    document = program.json("bank", "rebuild", "runs/latest", "no_plan")
    assert (document["version"], document["items"], document["points"]) == (28, 0, 0)


# --- a real kill ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_a_killed_launch_left_is_verified_and_an_open_one_is_left_alone(program: Program) -> None:
    """E7: kill -9 in the middle; the shard on disk agrees with the journal on disk."""
    slow = "{kind: scripted, latency_s: [0.05, 0.1]}"
    text = LEARNING.replace("methods: [chime, no_plan]", "methods: [chime]").replace("{kind: scripted}", slow)
    program.write(f"{text}  state_dir: state\n")
    process = start(["sweep", "sweep.yaml"], program.folder)
    try:
        wait_for_rows(process, program.folder / "runs", 20)
        # Stopped, it holds what it holds, however long the look at it takes.
        process.send_signal(signal.SIGSTOP)
        while_open = _checked(program)
    finally:
        kill_tree(process)
    assert f"the launch is open, held by process {process.pid} on " in while_open["detail"]
    found = _checked(program)
    assert (found["status"], found["audit"]["faults"]) == ("matches", [])
    assert found["audit"]["head"] > 0


def test_after_completion_the_embedded_state_is_gone_and_that_is_said_plainly(
    program: Program, learnt: LaunchDirectory
) -> None:
    shown = program("bank", "verify", "runs/latest")
    assert shown.exit_code == 0
    for line in shown.stdout.splitlines():
        assert "only the journal was checked (embedded state was removed after completion; it was in " in line
