"""What the model calls of records cost, by who answered them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chime_dist.core.episode import EpisodeRecord, Usage
from chime_dist.core.spending import Payer, Price, Spent
from chime_dist.report.document import Charge
from chime_dist.report.results import RunResults


def spent_by(rows: Iterable[tuple[RunResults, EpisodeRecord]], prices: Mapping[str, Price]) -> Spent:
    """Sums over rows, each with the run it is of; without any time."""
    usage: dict[Payer, Usage] = {}
    for run, row in rows:
        for role, used in row.usage.items():
            who = run.asked(role)
            usage[who] = usage.get(who, Usage()) + used
    return Spent(usage, prices, 0.0)


def by_endpoint(spent: Spent) -> dict[str, Charge]:
    """Who answered, by name, whatever the role."""
    return {
        name: charge(
            Spent({who: used for who, used in spent.usage.items() if who.endpoint == name}, spent.prices, 0.0)
        )
        for name in sorted({who.endpoint for who in spent.usage})
    }


def charge(spent: Spent) -> Charge:
    """Of everything."""
    return Charge(usage=sum(spent.usage.values(), Usage()), cost=spent.cost)
