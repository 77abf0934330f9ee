"""Which memories should be gone: known from commit to commit, as if the bank had been looked through (R27)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chime_dist.core.bank import BankState, Event, Record, apply
from chime_dist.core.credit import EvolutionParams
from chime_dist.core.pruning import Prunable
from chime_dist.errors import JournalError

RULE = Prunable(EvolutionParams(), frozenset({"plan"}))


@dataclass(frozen=True)
class Commit:
    """An entry as ``apply`` sees it."""

    position: int
    events: tuple[Event, ...]


def _payload(value: float, count: int) -> dict[str, Any]:
    return {"scenario": "c", "experience": "e", "value": value, "count": count, "sources": [0]}


def _moved(item: str, collection: str, value: float, count: int) -> Event:
    return Event(op="put", kind="value.update", collection=collection, id=item, payload=_payload(value, count))


def _record(item: str, **payload: Any) -> Record:
    return Record(collection="plan", id=item, version=0, payload=payload)


@settings(deadline=None)
@given(
    commits=st.lists(
        st.lists(
            st.tuples(st.integers(0, 5), st.sampled_from([-1.0, -0.1, 0.5]), st.integers(2, 4), st.booleans()),
            max_size=4,
        ),
        max_size=8,
    )
)
def test_what_is_doomed_follows_the_commits(commits: list[list[tuple[int, float, int, bool]]]) -> None:
    """R27: carried along, it is what the definition says of every record of these collections."""
    state = BankState()
    for commit in commits:
        state.view(RULE)
        events: list[Event] = []
        present = set(state.records)
        for number, value, count, dropped in commit:
            item, collection = f"{number}-0", "exec" if number == 5 else "plan"
            if dropped and item in present:
                events.append(Event(op="drop", kind="prune", collection=collection, id=item))
                present.remove(item)
            elif not dropped:
                events.append(_moved(item, collection, value, count))
                present.add(item)
        state = apply(state, Commit(state.version, tuple(events)))
        assert state.view(RULE).ids == {
            record.id
            for record in state.records.values()
            if record.collection == "plan" and record.payload["count"] >= 3 and record.payload["value"] < -0.1
        }


def test_a_bank_that_comes_from_elsewhere_is_looked_through_once() -> None:
    """R53: another run's memories may have to go under this run's thresholds, whoever moves them."""
    records = [_record("0-0", **_payload(-0.5, 3)), _record("0-1", **_payload(-0.5, 2))]
    state = BankState(7, {record.id: record for record in records})
    assert state.view(RULE).ids == {"0-0"}
    assert state.view(Prunable(EvolutionParams(prune_min_count=2), frozenset({"plan"}))).ids == {"0-0", "0-1"}


@pytest.mark.parametrize("payload", [{"count": 3}, {"rule": "x"}, {"count": "many"}])
def test_a_record_that_is_no_memory_stops_the_commit(payload: dict[str, Any]) -> None:
    with pytest.raises(JournalError, match="record 0-0 of 'plan' is not a memory item"):
        BankState(1, {"0-0": _record("0-0", **payload)}).view(RULE)
