"""What a search of the bank is answered with, whoever holds the version that is searched."""

from __future__ import annotations

from collections.abc import Sequence

from chime_dist.core.bank import BankState
from chime_dist.core.exact_search import best
from chime_dist.ports import BankQuery, Hit


def answer(state: BankState, query: BankQuery, candidates: Sequence[str] | None = None) -> list[Hit]:
    """The hits of ``query`` in the bank at its version: see ``ports.BankReader.search``.

    ``candidates`` is what a store proposed, or None to search all of ``state``. Both give the same hits.
    """
    return [
        Hit(record=found.record.model_copy(update={"vectors": {}}), sim=found.sim)
        for found in best(state, query, candidates)
    ]
