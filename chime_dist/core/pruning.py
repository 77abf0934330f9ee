"""Which memories of a bank should be gone (R27), kept up to date by what commits change.

Every commit has to know, and hardly any memory is ever among them: the whole bank is looked at once, then only
what changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chime_dist.core.bank import Changes, Record
from chime_dist.core.credit import EvolutionParams, prunable
from chime_dist.core.memory import MemoryPayload


@dataclass(frozen=True, slots=True)
class Prunable:
    """R27 under ``params`` in these collections; called with records, the view of theirs (``BankState.view``)."""

    params: EvolutionParams
    collections: frozenset[str]

    def __call__(self, records: Iterable[Record]) -> Doomed:
        """Raises JournalError where a record is no memory."""
        return Doomed(self, frozenset(record.id for record in records if self.dooms(record)))

    def dooms(self, record: Record) -> bool:
        """Whether the record should be gone; raises JournalError where it is no memory."""
        if record.collection not in self.collections:
            return False
        count = record.payload.get("count")
        if type(count) is int and 0 <= count < self.params.prune_min_count:
            # Most of a bank was hardly reused, and is not worth reading as a whole.
            return False
        payload = MemoryPayload.of(record)
        return prunable(payload.value, payload.count, self.params)


@dataclass(frozen=True, slots=True)
class Doomed:
    """The memories of one version that should be gone. A ``View``."""

    rule: Prunable
    ids: frozenset[str]

    def following(self, changes: Changes) -> Doomed:
        """See ``View``."""
        found = {item for item, (_, record) in changes.items() if record is not None and self.rule.dooms(record)}
        return Doomed(self.rule, self.ids - changes.keys() | found)
