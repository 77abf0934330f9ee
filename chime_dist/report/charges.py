"""What model calls cost: of episodes, of commits, and of what was built before the runs; by who answered them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from chime_dist.core.episode import EpisodeRecord, Usage
from chime_dist.core.spending import Payer, Price, Purpose, Spent, add_usage, prerequisite_payer
from chime_dist.report.document import Charge
from chime_dist.report.results import RunResults

Used = tuple[Payer, Usage]
_Name = TypeVar("_Name", bound=str)


def by_episodes(run: RunResults, rows: Iterable[EpisodeRecord]) -> Iterator[Used]:
    """What rows of ``run`` used."""
    for row in rows:
        for role, used in row.usage.items():
            yield run.asked(role), used


def by_commits(run: RunResults) -> Iterator[Used]:
    """What the requests of its commits used."""
    for role, used in run.at_commits.items():
        yield run.asked(role, "commits"), used


def by_launch(runs: Iterable[RunResults], prerequisites: Mapping[str, Usage]) -> Iterator[Used]:
    """Everything that was paid for, once: a fork's copies were paid for by the run that it left.

    ``prerequisites`` is by backbone.
    """
    for run in runs:
        own = (row for row in run.records if row.unit.phase == "eval" or row.unit.position >= run.forked_at)
        yield from by_episodes(run, own)
        yield from by_commits(run)
    for backbone, used in prerequisites.items():
        yield prerequisite_payer(backbone), used


def spent(used: Iterable[Used], prices: Mapping[str, Price]) -> Spent:
    """Sums; without any time."""
    usage: dict[Payer, Usage] = {}
    add_usage(usage, used)
    return Spent(usage, prices, 0.0)


def by_endpoint(spent: Spent) -> dict[str, Charge]:
    """Who answered, by name, whatever the role."""
    return _grouped(spent, lambda who: who.endpoint)


def by_purpose(spent: Spent) -> dict[Purpose, Charge]:
    """What was asked for, whoever answered."""
    return _grouped(spent, lambda who: who.purpose)


def _grouped(spent: Spent, group: Callable[[Payer], _Name]) -> dict[_Name, Charge]:
    return {
        name: charge(Spent({who: u for who, u in spent.usage.items() if group(who) == name}, spent.prices, 0.0))
        for name in sorted(set(map(group, spent.usage)))
    }


def charge(spent: Spent) -> Charge:
    """Of everything."""
    return Charge(usage=sum(spent.usage.values(), Usage()), cost=spent.cost)
