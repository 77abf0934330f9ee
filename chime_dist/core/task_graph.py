"""A-MapReduce's task records and the similarity graph over their tasks (R43, R47). Pure.

Every scored train position leaves one record: the task, its plan, the outcome. Tasks are the graph's nodes: a
task that is solved again, in a later epoch, adds a record and no node. A new node gets its edges when it is
inserted and never again, so the graph is a function of the journal and can be looked at through time. Edges stand
in the records' payloads: a bank's size is records and rules (R47), and an edge is neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field, ValidationError

from chime_dist.core.bank import BankState, Event, ItemId, Record
from chime_dist.core.exact_search import Search, best, proposed
from chime_dist.core.frozen import Frozen
from chime_dist.core.vector import Vector, at_least
from chime_dist.errors import JournalError

RECORDS = "record"
"""The records' collection."""
TASK_VECTOR = "c"
"""Name of the vector of a record's task text."""

Label = Literal["success", "failure"]


class Edge(Frozen):
    """One end of an edge, seen from the newer task."""

    node: str
    sim: float
    """Cosine of both task texts, rounded to six decimals."""


class TaskRecord(Frozen):
    """The JSON payload of a record."""

    task: str
    """The task text: records with equal text are of one task."""
    plan: str
    outcome: Label
    node: str
    """Id of the task's first record."""
    edges: tuple[Edge, ...] = ()
    """To older tasks, most similar first. A record of a task that has a node repeats the node's edges."""

    @classmethod
    def of(cls, record: Record) -> TaskRecord:
        """The typed view of ``record``; raises JournalError where it is none (a wrong bank stops the run)."""
        try:
            return cls.model_validate(record.payload)
        except ValidationError as error:
            raise JournalError(
                f"record {record.id} of {record.collection!r} is no task record, so this bank was written by "
                f"another method or version: {error}"
            ) from None


class GraphParams(Frozen):
    """When two tasks are neighbours."""

    edge_similarity: float = Field(default=0.7, ge=-1.0, le=1.0)
    """Least cosine of an edge, inclusive."""
    edge_candidates: int = Field(default=10, ge=0)
    """A new task gets edges to at most so many of the most similar tasks."""


class RecallParams(Frozen):
    """What a task is shown of the records, and what votes for rules."""

    successes: int = Field(default=1, ge=0)
    """Most success records shown."""
    failures: int = Field(default=1, ge=0)
    """Most failure records shown."""
    min_similarity: float = Field(default=0.3, ge=-1.0, le=1.0)
    """Records below it are not there for a task; equal is kept."""
    pool: int = Field(default=64, ge=1)
    """[U] The most similar so many records are looked at; graph neighbours outside of them count as none."""
    start_nodes: int = Field(default=1, ge=1)
    """[U] How many of the most similar tasks the graph is entered at."""
    success_neighbours: int = Field(default=4, ge=0)
    """Success records of distinct tasks whose rules are counted."""
    failure_neighbours: int = Field(default=2, ge=0)
    """Failure records likewise."""
    skip_own_task: bool = True
    """[U] Records of the very same task text, from earlier epochs, are not shown and do not vote."""


def recorded(
    state: BankState, position: int, task: str, plan: str, outcome: Label, vector: Vector, params: GraphParams
) -> Event:
    """The insert of one record against ``state``; its id is ``(position, 0)``."""
    item = str(ItemId(position, 0))
    node = _node(state, task)
    if node is None:
        payload = TaskRecord(task=task, plan=plan, outcome=outcome, node=item, edges=_edges(state, vector, params))
    else:
        edges = TaskRecord.of(state.records[node]).edges
        payload = TaskRecord(task=task, plan=plan, outcome=outcome, node=node, edges=edges)
    return Event(
        op="put",
        kind="record.insert",
        collection=RECORDS,
        id=item,
        payload=payload.model_dump(mode="json"),
        vectors={TASK_VECTOR: vector},
        detail={"outcome": outcome, "first_of_its_task": node is None, "neighbours": len(payload.edges)},
    )


def record_count(state: BankState) -> int:
    """How many records there are."""
    return len(state.matrix(RECORDS, TASK_VECTOR).ids)


def task_types(state: BankState, nodes: Iterable[str]) -> dict[str, str]:
    """The type of each of ``nodes``: its connected component in the graph, named by the lowest node in it."""
    parents: dict[str, str] = {}

    def root(node: str) -> str:
        while (above := parents.get(node, node)) != node:
            parents[node] = parents.get(above, above)
            node = above
        return node

    for record in state.records.values():
        if record.collection != RECORDS or record.payload.get("node") != record.id:
            continue
        for edge in TaskRecord.of(record).edges:
            low, high = sorted((root(record.id), root(edge.node)), key=ItemId.parse)
            parents[high] = low
    return {node: root(node) for node in nodes}


def _node(state: BankState, task: str) -> str | None:
    same = (
        record.id
        for record in state.records.values()
        if record.collection == RECORDS and record.payload.get("task") == task
    )
    return min(same, key=ItemId.parse, default=None)


def _edges(state: BankState, vector: Vector, params: GraphParams) -> tuple[Edge, ...]:
    nodes = {item for item, record in state.records.items() if record.payload.get("node") == item}
    asked = Search(RECORDS, TASK_VECTOR, vector, params.edge_candidates, params.edge_similarity)
    nearest = best(state, asked, proposed(state, asked, nodes))
    return tuple(Edge(node=found.record.id, sim=found.sim) for found in nearest)


class Found(Protocol):
    """A record found by a search, and its similarity (``ports.Hit``)."""

    @property
    def record(self) -> Record:
        """Its vectors are not needed."""
        ...

    @property
    def sim(self) -> float:
        """Cosine of query and record in [-1, 1], rounded to six decimals."""
        ...


@dataclass(frozen=True, slots=True)
class Known:
    """A record as one recall saw it."""

    id: str
    version: int
    sim: float
    record: TaskRecord


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the records have to say about a task."""

    pool: tuple[Known, ...]
    """Every record that was looked at, most similar first."""
    shown: tuple[Known, ...]
    """Successes, then failures."""
    voters: tuple[str, ...]
    """Nodes of the neighbours whose rules are counted; a task that both succeeded and failed is there twice."""


def remember(hits: Iterable[Found], task: str, params: RecallParams) -> Remembered:
    """Choose among ``hits`` of a search for ``task``, best first.

    A success or failure is first looked for around the most similar tasks: they and their neighbours in the
    graph. Only where there is none, the most similar one of the pool counts. Raises JournalError where a hit is
    no task record.
    """
    met = [Known(hit.record.id, hit.record.version, hit.sim, TaskRecord.of(hit.record)) for hit in hits]
    pool = [
        known
        for known in met[: params.pool]
        if at_least(known.sim, params.min_similarity) and not (params.skip_own_task and known.record.task == task)
    ]
    starts = list(dict.fromkeys(known.record.node for known in pool))[: params.start_nodes]
    entries = [known for known in pool if known.record.node in starts]
    around = [known for known in pool if any(_adjacent(known.record, entry.record) for entry in entries)]
    return Remembered(
        pool=tuple(pool),
        shown=(
            *_best(around, pool, "success", params.successes),
            *_best(around, pool, "failure", params.failures),
        ),
        voters=tuple(
            known.record.node
            for outcome, limit in (("success", params.success_neighbours), ("failure", params.failure_neighbours))
            for known in _distinct(pool, outcome)[:limit]
        ),
    )


def _adjacent(one: TaskRecord, other: TaskRecord) -> bool:
    if one.node == other.node:
        return True
    return any(edge.node == other.node for edge in one.edges) or any(e.node == one.node for e in other.edges)


def _best(around: Sequence[Known], pool: Sequence[Known], outcome: str, limit: int) -> list[Known]:
    near = _distinct(around, outcome)
    return (near if len(near) >= limit else _distinct(pool, outcome))[:limit]


def _distinct(records: Sequence[Known], outcome: str) -> list[Known]:
    """The records of this outcome, one per task; of equal ones the newest, which knows most."""
    newest: dict[str, Known] = {}
    for known in records:
        if known.record.outcome == outcome:
            old = newest.get(known.record.node)
            if old is None or ItemId.parse(known.id) > ItemId.parse(old.id):
                newest[known.record.node] = known
    return list(newest.values())
