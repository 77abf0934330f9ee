"""From a benchmark's tasks to the two streams of one ordering: what is trained on, what is evaluated, and when.

Everything here is a pure function of (task ids and domains, ``SplitParams``, ordering index): no shuffle uses a
random generator, tasks are sorted by SHA-256 of what names them. So a stream is the same for every Python
version and machine, and whatever order a benchmark lists its tasks in (R3, R4, H4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator

from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.frozen import Frozen
from chime_dist.core.task import Task
from chime_dist.errors import BenchmarkError, ConfigError

ProtocolName = Literal["paper_numbers", "paper_text"]
"""How S0's stream is built: as its printed numbers say, or as its text says; they disagree (R3)."""

Parts = Mapping[str, Sequence[Task]]
"""Tasks by domain, in the order the domains take their turns."""


class SplitParams(Frozen):
    """How a benchmark becomes a train stream and an eval split. Part of what a run's results depend on (R3)."""

    domains: tuple[str, ...] | None = None
    """Domains that take part, in this order; None takes all, sorted by name."""
    truncate: Literal["none", "smallest"] | Annotated[int, Field(strict=True, ge=1)] = "none"
    """Tasks a domain keeps at most: all, as many as the smallest domain has, or this number."""
    train_ratio: tuple[int, int] = (7, 10)
    """Train share of each domain, as a ratio of integers, so that no float decides a count."""
    rounding: Literal["floor", "half_up", "ceil"] = "floor"
    """How the train share of a domain becomes a number of tasks; floor of 7/10 is ``7 * n // 10``."""
    fixed_split: bool = False
    """True: every ordering has the tasks of ordering 0 in train and eval, and only shuffles them (R4)."""
    interleave: Literal["shuffled", "blocks"] = "shuffled"
    """``shuffled`` mixes the domains by a seeded shuffle, ``blocks`` runs one domain after the other (R4)."""
    seed: int = 0
    limit: int | None = Field(default=None, ge=2)
    """Tasks in both splits together, for short runs; None takes all. The limit is divided by ``train_ratio``,
    with at least one task on either side, and each side is dealt to the domains in turn: a limited run holds
    the first tasks of every domain's part of the full run, as evenly over domains as they have tasks."""

    @field_validator("train_ratio")
    @classmethod
    def _is_a_proper_fraction(cls, value: tuple[int, int]) -> tuple[int, int]:
        part, whole = value
        if not 0 < part < whole:
            raise ValueError(f"train_ratio is a fraction between 0 and 1 as [part, whole], got {list(value)}")
        return value

    def train_count(self, size: int) -> int:
        """Train tasks of a domain of ``size`` tasks, in [0, size]."""
        part, whole = self.train_ratio
        if self.rounding == "floor":
            return size * part // whole
        if self.rounding == "ceil":
            return -(-size * part // whole)
        return (2 * size * part + whole) // (2 * whole)


PROTOCOLS: Mapping[ProtocolName, SplitParams] = {
    "paper_numbers": SplitParams(truncate="none"),
    "paper_text": SplitParams(truncate="smallest"),
}
"""The presets of R3. They differ in truncation; which domains a benchmark lists is in ``core.paper``."""


class Ordering(Frozen):
    """The streams of one ordering: the recorded permutation of H4."""

    index: int
    """0-based ordering seed r of R4."""
    train: tuple[Task, ...]
    """One epoch in stream order: position t of the first epoch is ``train[t]``."""
    eval: tuple[Task, ...]
    """Eval index i is ``eval[i]``."""

    @property
    def digest(self) -> str:
        """Hex SHA-256 over domains and ids of both streams in order; without the index, so that two orderings
        with the same permutation show it."""
        streams = [[[task.domain, task.id] for task in stream] for stream in (self.train, self.eval)]
        return sha256_hex(canonical_json(streams))

    def domain_counts(self) -> dict[str, tuple[int, int]]:
        """(train, eval) tasks by domain, sorted by domain."""
        train = Counter(task.domain for task in self.train)
        held_out = Counter(task.domain for task in self.eval)
        return {domain: (train[domain], held_out[domain]) for domain in sorted(train | held_out)}


def order_tasks(tasks: Sequence[Task], params: SplitParams, index: int) -> Ordering:
    """The streams of ordering ``index`` (0-based): shuffle inside each domain, truncate, split, interleave (R4).

    Raises BenchmarkError where two tasks share an id, ConfigError where a domain is unknown or a split would be
    empty, ValueError for a negative index.
    """
    if index < 0:
        raise ValueError(f"an ordering's index is 0-based, got {index}")
    members = _by_domain(tasks, params.domains)
    keep = _kept(members, params)
    train: dict[str, list[Task]] = {}
    held_out: dict[str, list[Task]] = {}
    for domain, found in members.items():
        drawn = _shuffled(found, params.seed, 0 if params.fixed_split else index)[:keep]
        cut = params.train_count(len(drawn))
        train[domain], held_out[domain] = drawn[:cut], drawn[cut:]
    _refuse_empty(train, held_out, params)
    train, held_out = _limited(train, held_out, params)
    return Ordering(
        index=index,
        train=_stream(train, params, index, "train"),
        eval=_stream(held_out, params, index, "eval"),
    )


def _by_domain(tasks: Sequence[Task], domains: Sequence[str] | None) -> dict[str, list[Task]]:
    ids = Counter(task.id for task in tasks)
    doubled = sorted(task_id for task_id, count in ids.items() if count > 1)
    if doubled:
        raise BenchmarkError(
            f"the benchmark lists {len(doubled)} task ids more than once, e.g. {doubled[0]!r}; ids must be unique"
        )
    known = sorted({task.domain for task in tasks})
    wanted = known if domains is None else list(dict.fromkeys(domains))
    unknown = [domain for domain in wanted if domain not in known]
    if unknown:
        raise ConfigError(f"split.domains names {unknown}, but the benchmark has only {known}")
    return {domain: [task for task in tasks if task.domain == domain] for domain in wanted}


def _kept(members: Parts, params: SplitParams) -> int | None:
    match params.truncate:
        case "none":
            return None
        case "smallest":
            return min((len(found) for found in members.values()), default=0)
        case size:
            return size


def _shuffled(tasks: Iterable[Task], seed: int, index: int) -> list[Task]:
    return sorted(tasks, key=lambda task: _sort_key("task", seed, index, task.domain, task.id))


def _sort_key(kind: str, seed: int, index: int, domain: str, name: str | int) -> str:
    return sha256_hex(canonical_json([kind, seed, index, domain, name]))


def _refuse_empty(train: Parts, held_out: Parts, params: SplitParams) -> None:
    sizes = {domain: len(train[domain]) + len(held_out[domain]) for domain in train}
    for name, parts in (("train", train), ("eval", held_out)):
        if not any(parts.values()):
            raise ConfigError(
                f"the {name} split is empty: domains of {sizes} tasks at train_ratio {list(params.train_ratio)},"
                f" rounding {params.rounding!r}; take more tasks or another rounding"
            )


def _limited(
    train: dict[str, list[Task]], held_out: dict[str, list[Task]], params: SplitParams
) -> tuple[dict[str, list[Task]], dict[str, list[Task]]]:
    available = _size(train), _size(held_out)
    if params.limit is None or params.limit >= sum(available):
        return train, held_out
    share = params.train_count(params.limit)
    count = min(max(share, 1, params.limit - available[1]), params.limit - 1, available[0])
    return _dealt(train, count), _dealt(held_out, params.limit - count)


def _size(parts: Parts) -> int:
    return sum(len(tasks) for tasks in parts.values())


def _dealt(parts: Mapping[str, list[Task]], count: int) -> dict[str, list[Task]]:
    turns = [(turn, domain) for domain, tasks in parts.items() for turn in range(len(tasks))]
    # The sort is stable: inside a turn, domains come in the order of ``parts``.
    dealt = Counter(domain for _, domain in sorted(turns, key=lambda entry: entry[0])[:count])
    return {domain: tasks[: dealt[domain]] for domain, tasks in parts.items()}


def _stream(parts: Parts, params: SplitParams, index: int, split: str) -> tuple[Task, ...]:
    ordered = {domain: _shuffled(tasks, params.seed, index) for domain, tasks in parts.items()}
    if params.interleave == "blocks":
        return tuple(task for tasks in ordered.values() for task in tasks)
    # Places are shuffled, not tasks: each domain keeps its own order and every mix of domains is as likely.
    places = [(domain, k) for domain, tasks in ordered.items() for k in range(len(tasks))]
    places.sort(key=lambda place: _sort_key(split, params.seed, index, *place))
    upcoming = {domain: iter(tasks) for domain, tasks in ordered.items()}
    return tuple(next(upcoming[domain]) for domain, _ in places)
