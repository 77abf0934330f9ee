"""The searchable copy of a bank against its journal: what a launch left, and what a fresh one would be."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol
from uuid import uuid4

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.qdrant.edge import QdrantEdgeStore
from chime_dist.adapters.qdrant.edge_audit import QdrantEdgeAudit
from chime_dist.adapters.qdrant.server_audit import QdrantServerAudit
from chime_dist.config.cluster import ClusterConfig
from chime_dist.config.run import RunConfig
from chime_dist.core.bank import BankState, apply
from chime_dist.core.journal import JournalEntry
from chime_dist.core.projection_audit import ProjectionAudit
from chime_dist.errors import BankMismatchError, ConfigError, MissingExtraError, ServiceError
from chime_dist.ports import BankStore, EmbedderFingerprint, Namespace
from chime_dist.wiring import services
from chime_dist.wiring.bank_tools import recorded_embedder, store_cluster
from chime_dist.wiring.results import run_config
from chime_dist.wiring.services import LaunchSpec


class Auditor(Protocol):
    """Compares a projection with its journal and writes nothing; no part of ``ports.BankStore``."""

    async def audit(self, namespace: Namespace, dim: int, entries: Sequence[JournalEntry]) -> ProjectionAudit:
        """Every point that is altered, missing or extra. Raises ServiceError."""
        ...


class Finder(Auditor, Protocol):
    """An auditor of projections that other processes wrote."""

    async def newest(self, launch: str, run_id: str) -> Namespace | None:
        """The newest owner's projection of a run, or None. Raises ServiceError."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


@dataclass(frozen=True, slots=True)
class ProjectionCheck:
    """What became of the check of one run's projection."""

    status: Literal["matches", "damaged", "not_checked"]
    detail: str
    """In words; for ``not_checked`` why."""
    audit: ProjectionAudit | None = None


async def check_projection(
    launch: LaunchDirectory, run_id: str, entries: Sequence[JournalEntry]
) -> ProjectionCheck:
    """Compare what the launch's store holds of a run with the run's whole journal.

    That there is nothing to compare, or that it cannot be reached, is no error: the journal is the truth.
    """
    try:
        config, cluster = run_config(launch, run_id), store_cluster(launch)
        if cluster.qdrant.mode == "memory":
            return _unchecked("it is kept in the launch's memory")
        if (holder := launch.holder()) is not None:
            return _unchecked(
                f"the launch is open, held by process {holder.pid} on {holder.host}, and its projection moves"
            )
        if cluster.qdrant.mode == "edge" and (gone := _removed(launch, cluster)) is not None:
            return _unchecked(f"embedded state was removed after completion; it was in {gone}")
        return await _checked(launch, run_id, entries, config, cluster)
    except (ConfigError, MissingExtraError, ServiceError) as error:
        return _unchecked(str(error))
    except BankMismatchError as error:
        return ProjectionCheck("damaged", f"the journal is not one of this run's embedder: {error}")


def _removed(launch: LaunchDirectory, cluster: ClusterConfig) -> Path | None:
    """Where the embedded state of a complete launch was; None while it is there, or the launch goes on."""
    status, folder = launch.status(), services.state_dir(cluster, launch.id)
    return folder if status is not None and status.state == "complete" and not folder.exists() else None


async def _checked(
    launch: LaunchDirectory,
    run_id: str,
    entries: Sequence[JournalEntry],
    config: RunConfig,
    cluster: ClusterConfig,
) -> ProjectionCheck:
    finder, place = _finder(launch, cluster)
    try:
        namespace = await finder.newest(launch.id, run_id)
        if namespace is None:
            return _unchecked(f"{place} holds none of this run")
        audit = await finder.audit(namespace, config.embedder.dim, entries)
    finally:
        await finder.close()
    if audit.faults:
        return ProjectionCheck("damaged", f"{place} differs from the journal", audit)
    return ProjectionCheck("matches", f"{place} agrees with the journal up to version {audit.head}", audit)


def _finder(launch: LaunchDirectory, cluster: ClusterConfig) -> tuple[Finder, str]:
    if cluster.qdrant.mode == "server":
        return QdrantServerAudit.connect(
            *services.qdrant_address(cluster.qdrant)
        ), f"the Qdrant server {cluster.qdrant.url}"
    folder = services.state_dir(cluster, launch.id) / services.QDRANT_FOLDER
    return QdrantEdgeAudit(folder), f"the embedded store in {folder}"


def _unchecked(why: str) -> ProjectionCheck:
    return ProjectionCheck("not_checked", why)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A fresh projection of a run's whole journal, made, compared and thrown away."""

    store: str
    """``memory``, ``edge`` or ``server``."""
    version: int
    items: int
    digest: str
    """The state digest at ``version``."""
    points: int | None
    """None where a store keeps no points of its own to be counted."""
    seconds: float
    """Replay and projection, without the comparison."""
    faults: tuple[str, ...]


async def rebuild(
    launch: LaunchDirectory, run_id: str, entries: Sequence[JournalEntry], versions: Sequence[int]
) -> Rebuilt:
    """Project a journal, commit by commit, into a fresh projection of the launch's kind of store, and compare it.

    Points are compared one by one where the store has them; in any store a search without threshold at each of
    ``versions`` and at the head must find every record. It is made aside: an embedded one in a temporary folder,
    one on a server under a name of its own; what a launch has there is not touched, and nothing is left. Raises
    ConfigError, MissingExtraError, ServiceError, JournalError.
    """
    config, cluster = run_config(launch, run_id), store_cluster(launch)
    clock = SystemClock()
    async with _aside(launch, run_id, config, cluster) as (store, namespace, auditor):
        started = clock.monotonic()
        states = [BankState()]
        kept = {0, *versions, len(entries)}
        before = states[0]
        for entry in entries:
            after = apply(before, entry)
            await store.project(namespace, after.version, before, after)
            if after.version in kept:
                states.append(after)
            before = after
        seconds = clock.monotonic() - started
        faults = [fault for state in states async for fault in _unfound(store, namespace, state)]
        audit = None if auditor is None else await auditor.audit(namespace, config.embedder.dim, entries)
    return Rebuilt(
        store=cluster.qdrant.mode,
        version=before.version,
        items=len(before.records),
        digest=before.digest(),
        points=None if audit is None else audit.points,
        seconds=seconds,
        faults=(*faults, *(str(fault) for fault in (audit.faults if audit is not None else ()))),
    )


@asynccontextmanager
async def _aside(
    launch: LaunchDirectory, run_id: str, config: RunConfig, cluster: ClusterConfig
) -> AsyncIterator[tuple[BankStore, Namespace, Auditor | None]]:
    """An open, empty projection that nobody else has, and who can audit it; gone afterwards."""
    namespace = Namespace(launch=f"{launch.id}:rebuild:{uuid4()}", run_id=run_id, fence=1)
    recorded = recorded_embedder(config.embedder)
    fingerprint = EmbedderFingerprint(model=recorded.model, dim=recorded.dim, query_prompt=recorded.query_prompt)
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chime-dist-rebuild-")))
        spec = LaunchSpec(
            launch=launch.id,
            directory=launch.path,
            state_dir=scratch,
            runs={run_id: config},
            cluster=cluster,
            windows={},
        )
        store = services.bank_store(spec)
        stack.push_async_callback(store.close)
        auditor: Auditor | None = store if isinstance(store, QdrantEdgeStore) else None
        if cluster.qdrant.mode == "server":
            server = QdrantServerAudit.connect(*services.qdrant_address(cluster.qdrant))
            stack.push_async_callback(server.close)
            stack.push_async_callback(server.forget, namespace)
            # The collection that the run's own projection is in has the right size for sure.
            fingerprint = await server.embedder(launch.id, run_id) or fingerprint
            auditor = server
        await store.open(namespace, fingerprint)
        yield store, namespace, auditor


async def _unfound(store: BankStore, namespace: Namespace, state: BankState) -> AsyncIterator[str]:
    """What a search for everything at the version of ``state`` does not find, or finds too much."""
    for collection, name in _vector_sets(state):
        matrix = state.matrix(collection, name)
        first = state.records[matrix.ids[0]].vectors[name]
        found = await store.candidates(
            namespace, state.version, collection, name, first, len(matrix.ids), min_similarity=-1.0
        )
        for item in sorted(set(matrix.ids) ^ set(found)):
            does = "does not find" if item in matrix.ids else "finds"
            yield f"a search at version {state.version} {does} {collection} {item}, vector {name!r}"


def _vector_sets(state: BankState) -> Iterator[tuple[str, str]]:
    yield from sorted({(r.collection, name) for r in state.records.values() for name in r.vectors})
