"""What people ask of a stored bank beside its state: a search, who read it, a copy of it to take along.

Everything is replayed from a run's journal; nothing here holds a launch or writes into its folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import MANIFEST, LaunchDirectory
from chime_dist.adapters.directory.trajectory_files import load
from chime_dist.adapters.embedding.hashing import HashingEmbedder
from chime_dist.config.cluster import ClusterConfig, with_environment
from chime_dist.config.loading import load_sweep
from chime_dist.config.models import EMBEDDER_ENDPOINT, EmbedderModel
from chime_dist.config.validation import validated
from chime_dist.core.bank import BankState
from chime_dist.core.bank_file import BankEmbedder, BankSource, ExportedBank, export_bank
from chime_dist.core.episode import Candidate, EpisodeTrace, Recall
from chime_dist.core.memory import SCENARIO_VECTOR, Stage
from chime_dist.core.retrieval import RetrievalParams, rerank
from chime_dist.core.vector import Vector, below, similarities, unit_rows
from chime_dist.errors import BankMismatchError, ChimeDistError, ConfigError, RunDirectoryError
from chime_dist.ports import Hit
from chime_dist.wiring import embedders, services
from chime_dist.wiring.registry import method
from chime_dist.wiring.results import run_config
from chime_dist.wiring.services import LaunchSpec
from chime_dist.wiring.stored_cluster import stored_cluster


def store_cluster(launch: LaunchDirectory) -> ClusterConfig:
    """Where the launch keeps its projections, CHIME_QDRANT_URL heeded.

    The rest of its cluster is left out, so that a variable which only a backbone needs may be unset. Raises
    ConfigError.
    """
    return with_environment(stored_cluster(launch, ("state_dir", "qdrant")), os.environ)


def _embedder_cluster(launch: LaunchDirectory) -> ClusterConfig:
    return stored_cluster(launch, (), endpoints=(EMBEDDER_ENDPOINT,))


def recorded_embedder(model: EmbedderModel) -> BankEmbedder:
    """What the vectors of a bank are made with, told by its config alone."""
    if model.kind == "hashing":
        # Only its features and buckets make its vectors.
        return BankEmbedder(kind=model.kind, model=HashingEmbedder(model.dim).fingerprint.model, dim=model.dim)
    local = model.kind == "sentence_transformers"
    return BankEmbedder(
        kind=model.kind,
        # A folder's path would say on which machine it is, not which model it holds.
        model=Path(model.model).name if local else model.model,
        dim=model.dim,
        query_prompt=model.query_prompt,
        max_tokens=model.max_length,
    )


def embedder_of(path: Path) -> BankEmbedder:
    """The embedder of a sweep's file, or of a launch's folder. Raises ConfigError, RunDirectoryError."""
    if path.is_file():
        return recorded_embedder(load_sweep(path).embedder)
    launch = LaunchDirectory.open(path)
    stored = launch.manifest.config.get("embedder", {})
    place = str(launch.path / MANIFEST)
    return recorded_embedder(validated(EmbedderModel, stored, place, ("config", "embedder")))


def exported(launch: LaunchDirectory, run_id: str, state: BankState, content_hash: str) -> ExportedBank:
    """A run's bank ready for a file. Raises ConfigError, BankFileError."""
    config = run_config(launch, run_id)
    manifest = launch.manifest
    source = BankSource(sweep=manifest.sweep, launch=manifest.launch, run_id=run_id, config_digest=config.digest)
    return export_bank(state, content_hash, source, recorded_embedder(config.embedder))


def readable_traces(
    launch: LaunchDirectory, run_id: str, damaged: Callable[[str], None]
) -> Iterator[EpisodeTrace]:
    """Final traces of a run, train and eval; one that is missing or damaged is told to ``damaged`` and left out.

    Raises RunDirectoryError where the rows themselves are damaged.
    """
    folder = launch.run(run_id)
    for record in EpisodeArchive(launch).finals(run_id).values():
        try:
            trace = load(folder.trajectory(record.unit), record)
        except RunDirectoryError as error:
            damaged(str(error))
        else:
            yield trace


@dataclass(frozen=True, slots=True)
class CollectionSearch:
    """One collection's memories for a text, as an episode of the run would find them."""

    recall: Recall
    """Candidates in similarity order; the selected ones are those that would enter a prompt, where similarity and
    value alone decide that."""
    below_threshold: int
    """Memories that are not similar enough to be candidates (R12)."""
    beyond_top: int
    """Memories that are similar enough, but not among the Top-N (R13)."""


async def search(
    launch: LaunchDirectory, run_id: str, state: BankState, text: str, stage: Stage | None
) -> tuple[CollectionSearch, ...]:
    """Search ``state`` with the run's own embedder and retrieval settings: exact, in the journal's vectors.

    Without ``stage`` every collection of the run's method is searched. A method without settings of S0 Eq. 5
    chooses in its own way among what is similar; of it only the similarities are told.

    Raises ConfigError, MissingExtraError or EmbeddingError where the embedder cannot be used, RunDirectoryError
    where the method cannot be had, BankMismatchError where the embedder's vectors are not the bank's, JournalError
    where a record is no memory.
    """
    config = run_config(launch, run_id)
    told = config.method.options.get("retrieval")
    try:
        params = None if told is None else validated(RetrievalParams, told, "method", ("retrieval",))
        collections = list(method(config.method).collections) if stage is None else [stage.value]
    except ConfigError as error:
        raise RunDirectoryError(
            f"{launch.path / MANIFEST}, run {run_id}: its method cannot be had as it is stored: {error}. Install "
            "what it was launched with, or put the original file back"
        ) from error
    try:
        cluster = _embedder_cluster(launch)
        spec = LaunchSpec(
            launch=launch.id,
            directory=launch.path,
            state_dir=services.state_dir(cluster, launch.id),
            runs={run_id: config},
            cluster=cluster,
            windows={},
        )
        embedder = await embedders.embedder(spec)
        [query] = await embedder.embed([text], "query")
    except ChimeDistError as error:
        error.add_note(f"a search needs the embedder that the bank was built with: {config.embedder!r}")
        raise
    return tuple(_searched(state, collection, query, text, params) for collection in collections)


def _searched(
    state: BankState, collection: str, query: Vector, text: str, params: RetrievalParams | None
) -> CollectionSearch:
    matrix = state.matrix(collection, SCENARIO_VECTOR)
    if matrix.ids and matrix.dim != query.dim:
        raise BankMismatchError(
            f"the {collection} bank holds vectors of dimension {matrix.dim}, the embedder made one of "
            f"{query.dim}: it is not the embedder that the bank was built with"
        )
    records = [state.records[item] for item in matrix.ids]
    sims = (
        similarities(query, unit_rows([record.vectors[SCENARIO_VECTOR] for record in records])) if records else []
    )
    hits = [
        Hit(record=record.model_copy(update={"vectors": {}}), sim=sim)
        for record, sim in zip(records, sims, strict=True)
    ]
    if params is None:
        recall = _most_similar(hits, collection, text, state.version)
        return CollectionSearch(recall, 0, len(hits) - len(recall.candidates))
    recall = rerank(hits, params, collection, text, state.version)
    lower = sum(below(sim, params.min_similarity) for sim in sims)
    return CollectionSearch(recall, lower, len(hits) - lower - len(recall.candidates))


def _most_similar(hits: Sequence[Hit], collection: str, text: str, version: int) -> Recall:
    nearest = sorted(hits, key=lambda hit: -hit.sim)[: RetrievalParams().candidates]
    return Recall(
        collection=collection,
        query=text,
        version=version,
        candidates=tuple(
            Candidate(
                id=hit.record.id,
                item_version=hit.record.version,
                sim=hit.sim,
                adjusted_value=0.0,
                score=hit.sim,
                rank_before=rank,
                rank_after=rank,
                selected=False,
            )
            for rank, hit in enumerate(nearest)
        ),
    )
