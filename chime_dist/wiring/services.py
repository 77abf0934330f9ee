"""Where ports meet adapters: every part of a launch, built from its config.

A ``LaunchSpec`` is all that a process of a launch needs to build its parts; it is picklable, so that Ray's
actors build theirs with the same functions as the local execution does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.local.resident_store import ResidentStore
from chime_dist.adapters.models.chat import ChatBackbone
from chime_dist.adapters.models.chat_request import ChatSettings
from chime_dist.adapters.models.credit_world_agent import CreditWorldAgent, CreditWorldAgentSettings
from chime_dist.adapters.models.scripted import ScriptedBackbone, ScriptedSettings
from chime_dist.adapters.qdrant.edge import QdrantEdgeStore
from chime_dist.adapters.redis.connection import PATIENCE_S, RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.journal import RedisJournal
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.adapters.redis.tls import TlsFiles
from chime_dist.config.cluster import (
    ClusterConfig,
    HttpEndpoint,
    LlamaCppEndpoint,
    QdrantConfig,
    ScriptedEndpoint,
    with_absolute_paths,
)
from chime_dist.config.models import BackboneModel, EmbedderModel, ScriptedModel
from chime_dist.config.run import RunConfig
from chime_dist.config.serving import VllmEndpoint
from chime_dist.core.canonical import canonical_json
from chime_dist.core.checkpoint import checkpoints
from chime_dist.core.episode import Json, Role
from chime_dist.core.retry import RetryPolicy
from chime_dist.core.window import StreamShape
from chime_dist.engine.bank_owner import BankOwner
from chime_dist.engine.episode import EpisodeRunner, RunServices
from chime_dist.engine.lane import LaneServices
from chime_dist.engine.meters import Meters, meters_of
from chime_dist.engine.metrics import UNITS_HELD
from chime_dist.engine.outage import Outages
from chime_dist.engine.pinned_reads import PinnedReads
from chime_dist.engine.prompting import PromptLibrary
from chime_dist.engine.roles import RoleRunner
from chime_dist.engine.timed_reads import TimedReads
from chime_dist.engine.worker import Worker
from chime_dist.logs import Logging, SecretMask
from chime_dist.ports import (
    Backbone,
    BankReader,
    BankStore,
    Benchmark,
    EmbedderFingerprint,
    Journal,
    Models,
    Pacer,
    PreparedBenchmark,
    Queue,
    RecordStore,
)
from chime_dist.wiring import registry
from chime_dist.wiring.plans import PlannedRun

QDRANT_FOLDER = "qdrant"
"""Inside a launch's state folder: the embedded projections."""

REDIS_FOLDER = "redis"
"""Likewise: the embedded queue and journal."""

ROLES = (Role.PLANNER, Role.EXECUTOR, Role.GATE)
"""The roles every method may ask."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What any process of a launch needs to build its parts."""

    launch: str
    directory: Path
    """The launch's run directory."""
    state_dir: Path
    """Embedded Redis and Qdrant."""
    runs: Mapping[str, RunConfig]
    cluster: ClusterConfig
    windows: Mapping[str, int]
    """W of each run."""
    pinned: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Versions of each run's bank that stay readable whatever is committed after them: its checkpoints."""
    redis_url: SecretStr | None = None
    """None with the in-process queue."""
    turn: str = ""
    """Name of the driver's turn (``ports.Queue.reset``). What is built from this spec works in it and in no other,
    however late it is started again; "" in the driver's own process, which begins it."""
    served: Mapping[str, str] = field(default_factory=dict)
    """Base URLs of backbones that this launch serves itself, by endpoint name."""
    prerequisites: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """What each run's benchmark is provided with, by run id and name."""

    @property
    def models(self) -> dict[str, BackboneModel]:
        """Every backbone in use, by name."""
        found = {}
        for run in self.runs.values():
            for model in (run.backbone, *run.roles.values()):
                found[model.name] = model
        return found

    @property
    def embedder(self) -> EmbedderModel:
        """The launch's embedder; a sweep has one."""
        return next(iter(self.runs.values())).embedder

    def prompts(self) -> PromptLibrary:
        """Prompts of every method and benchmark in use."""
        runs = self.runs.values()
        return registry.prompts({run.method.name for run in runs}, {run.benchmark.name for run in runs})


def meters(spec: LaunchSpec) -> Meters | None:
    """This process's, or None where nobody wants to know."""
    return None if spec.cluster.metrics is None else meters_of(spec.launch)


def redis_parts(spec: LaunchSpec) -> tuple[RedisConnection, RedisQueue, RedisJournal]:
    """Queue and journal on Redis; close the connection after use."""
    connection, keys, turn = redis_connection(spec), RedisKeys(spec.launch), DriverTurn(spec.turn)
    queue = RedisQueue(connection, keys, spec.cluster.lease_s, turn)
    return connection, queue, RedisJournal(connection, keys, turn)


def redis_connection(spec: LaunchSpec, patience_s: float = PATIENCE_S) -> RedisConnection:
    """To the launch's server; close it after use."""
    assert spec.redis_url is not None
    return RedisConnection(spec.redis_url.get_secret_value(), patience_s, files=redis_files(spec.cluster))


def redis_files(cluster: ClusterConfig) -> TlsFiles:
    """The certificates for ``rediss://``."""
    redis = cluster.redis
    return TlsFiles(redis.ca_file, redis.cert_file, redis.key_file)


def state_dir(cluster: ClusterConfig, launch: str) -> Path:
    """Where a launch keeps its embedded state: below the configured folder, or below one of this machine."""
    default = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state")) / "chime_dist"
    return (Path(cluster.state_dir) if cluster.state_dir else default).absolute() / launch


def bank_store(spec: LaunchSpec) -> BankStore:
    """The projection the config asks for; raises MissingExtraError."""
    qdrant = spec.cluster.qdrant
    if qdrant.mode == "edge":
        return QdrantEdgeStore(spec.state_dir / QDRANT_FOLDER)
    if qdrant.mode == "server":
        # Its client takes half of a process's start; no other launch needs it.
        from chime_dist.adapters.qdrant.server import QdrantServerStore

        return QdrantServerStore.connect(*qdrant_address(qdrant))
    return MemoryStore()


def qdrant_address(qdrant: QdrantConfig) -> tuple[str, str | None, str | None]:
    """URL, key and authority file of a configured server."""
    assert qdrant.url is not None
    return qdrant.url.reveal(), qdrant.api_key.reveal() if qdrant.api_key is not None else None, qdrant.ca_file


def backbone(spec: LaunchSpec, model: BackboneModel, retry: RetryPolicy, paced: Pacer | None = None) -> Backbone:
    """The client of one backbone, alone with it where nobody paces it. Raises ConfigError."""
    endpoint = spec.cluster.endpoints[model.name]
    if isinstance(endpoint, ScriptedEndpoint):
        says = model.scripted or ScriptedModel()
        agent = CreditWorldAgentSettings(seed=says.seed, gate_accuracy=says.gate_accuracy)
        return ScriptedBackbone(
            ScriptedSettings(seed=says.seed, latency_s=endpoint.latency_s),
            script=CreditWorldAgent(agent) if says.script == "credit_world" else None,
        )
    settings = ChatSettings(
        name=model.name,
        base_url=endpoint.url.reveal() if isinstance(endpoint, HttpEndpoint) else spec.served[model.name],
        model=model.model,
        extra_body=model.extra_body,
        thinking=model.thinking,
        structured_output=model.structured_output,
        structured_output_by_schema=model.structured_output_by_schema,
        strict_tools=model.strict_tools,
        max_output_tokens=model.max_output_tokens,
        retry=retry,
    )
    if isinstance(endpoint, LlamaCppEndpoint):
        settings = settings.model_copy(update={"thinking": None})
    elif isinstance(endpoint, HttpEndpoint):
        key = endpoint.api_key
        headers = {name: SecretStr(value.reveal()) for name, value in endpoint.headers.items()}
        settings = settings.model_copy(
            update={
                "api_key": SecretStr(key.reveal()) if key is not None else None,
                "headers": headers,
                "thinking": None if endpoint.thinking_field is None else model.thinking,
                "thinking_field": endpoint.thinking_field or "chat_template_kwargs",
                "max_tokens_field": endpoint.max_tokens_field,
            }
        )
    return ChatBackbone(settings, SystemClock(), pacer=paced)


def client(spec: LaunchSpec, name: str, paced: Pacer) -> Backbone:
    """What all roles of a process share to ask the backbone called ``name``; see ``pacers`` for ``paced``."""
    run = next(iter(spec.runs.values()))
    return backbone(spec, spec.models[name], run.requests, paced)


def role_runner(spec: LaunchSpec, role: Role, name: str, asked: Backbone) -> RoleRunner:
    """One role on the backbone called ``name``, which ``asked`` is the ``client`` of."""
    return RoleRunner(role, spec.models[name], asked, spec.prompts(), meters(spec), spec.cluster.capture_prompts)


def bank_owner(
    spec: LaunchSpec,
    queue: Queue,
    journal: Journal,
    fingerprint: EmbedderFingerprint,
    models_of: Callable[[RunConfig], Models],
) -> BankOwner:
    """The owner of every run's bank; not yet opened."""
    lanes = {
        run_id: LaneServices(
            method=registry.method(run.method),
            models=models_of(run),
            fingerprint=fingerprint,
            window=spec.windows[run_id],
            hold_after_infra=spec.cluster.stop_after_infra,
            answer_budget_s=run.episode.deadline_s,
            pinned=spec.pinned.get(run_id, frozenset()),
        )
        for run_id, run in spec.runs.items()
    }
    clock, gathering = SystemClock(), meters(spec)
    outages = Outages(clock, spec.cluster.outage_patience_s, meters=gathering)
    store = bank_store(spec)
    if not isinstance(store, MemoryStore):
        store = ResidentStore(store)
    return BankOwner(spec.launch, lanes, queue, journal, store, clock, outages, gathering)


def worker(
    spec: LaunchSpec,
    name: str,
    slots: int,
    queue: Queue,
    records: RecordStore,
    bank: BankReader,
    models_of: Callable[[RunConfig], Models],
) -> Worker:
    """A worker with ``slots`` episodes at a time. ``name`` is unique in the launch, restarts included."""
    benchmarks = _benchmarks(spec)
    runs = {
        run_id: RunServices(
            method=registry.method(run.method),
            benchmark=benchmarks[run_id],
            models=models_of(run),
            deadline_s=run.episode.deadline_s,
        )
        for run_id, run in spec.runs.items()
    }
    clock, gathering = SystemClock(), meters(spec)
    outages = Outages(clock, spec.cluster.outage_patience_s, meters=gathering)
    reads: BankReader = PinnedReads(bank)
    if gathering is not None:
        reads = TimedReads(reads, gathering)
    mask = SecretMask(secrets_of(spec.cluster))
    hide = mask.hide if spec.cluster.capture_prompts else None
    built = Worker(
        name,
        queue,
        records,
        EpisodeRunner(runs, reads, clock, outages, name, mask.text, hide),
        clock,
        outages=outages,
        slots=slots,
        max_deliveries=spec.cluster.max_deliveries,
        renew_every_s=spec.cluster.lease_s / 3,
        redelivery_pause_s=spec.cluster.redelivery_pause_s,
    )
    if gathering is not None:
        gathering.watch(lambda: [(UNITS_HELD, (), built.held)])
    return built


def _benchmarks(spec: LaunchSpec) -> dict[str, Benchmark]:
    """The benchmark of each run; runs that say the same share one, because its data may take seconds to load."""
    shared: dict[str, Benchmark] = {}
    found = {}
    for run_id, run in spec.runs.items():
        artifacts = spec.prerequisites.get(run_id, {})
        said = canonical_json([run.benchmark.model_dump(mode="json"), artifacts])
        if said not in shared:
            shared[said] = registry.benchmark(run.benchmark)
            made = shared[said]
            if artifacts and isinstance(made, PreparedBenchmark):
                made.provide(artifacts)
        found[run_id] = shared[said]
    return found


def log_here(spec: LaunchSpec) -> None:
    """Configure this process's log while it lives: the launch's file where it can be reached, or stderr."""
    reachable = spec.directory.is_dir()
    Logging(
        file=spec.directory / "log.jsonl" if reachable else None,
        console=None if reachable else sys.stderr,
        secrets=secrets_of(spec.cluster),
    )


def secrets_of(cluster: ClusterConfig) -> list[str]:
    """Every secret value, for the log's mask; of URLs also what is secret in them, which may be told alone."""
    urls = [cluster.redis.url, cluster.qdrant.url]
    held = [*urls, cluster.qdrant.api_key, *cluster.secrets.values()]
    for endpoint in cluster.endpoints.values():
        if isinstance(endpoint, HttpEndpoint):
            held += [endpoint.api_key, *endpoint.headers.values()]
            urls.append(endpoint.url)
        elif isinstance(endpoint, VllmEndpoint):
            held += endpoint.secret_env.values()
    values = [secret.reveal() for secret in held if secret is not None]
    return [*values, *(secret for url in urls if url is not None for secret in url.credentials)]


def spec_of(
    launch: str, directory: Path, state_dir: Path, runs: tuple[PlannedRun, ...], cluster: ClusterConfig
) -> LaunchSpec:
    """The spec of planned runs, before any service was started; paths in it do not depend on a current folder."""
    return LaunchSpec(
        launch=launch,
        directory=directory,
        state_dir=state_dir,
        runs={run.run_id: run.config for run in runs},
        # Read by processes that start elsewhere, such as Ray's.
        cluster=with_absolute_paths(cluster),
        windows={run.run_id: run.plan.shape.window for run in runs},
        pinned={run.run_id: _checkpointed(run.plan.shape) for run in runs},
    )


def _checkpointed(shape: StreamShape) -> frozenset[int]:
    return frozenset(checkpoint.version for checkpoint in checkpoints(shape.epoch_size, shape.epochs))
