"""The typed view of a memory record."""

from __future__ import annotations

import json

import pytest

from chime_dist.core.bank import Record
from chime_dist.core.memory import MemoryPayload, Stage
from chime_dist.errors import JournalError


def test_a_new_memory_starts_neutral_and_unused() -> None:
    """R10: new items have v = 0 and n = 0."""
    payload = MemoryPayload(scenario="returns", experience="check the status first")
    assert (payload.value, payload.count) == (0.0, 0)


def test_a_payload_survives_the_journal() -> None:
    """R10: what is stored as JSON reads back as the same item."""
    payload = MemoryPayload(scenario="退货", experience="e", value=-0.25, count=3, sources=(4, 9))
    stored = json.loads(json.dumps(payload.to_json()))
    record = Record(collection=Stage.PLAN, id="4-0", version=1, payload=stored)
    assert MemoryPayload.of(record) == payload


@pytest.mark.parametrize(
    "payload",
    [{"scenario": "s"}, {"scenario": "s", "experience": "e", "value": 1.5}, {"rule": "another method's record"}],
)
def test_a_record_that_is_no_memory_stops_the_run(payload: dict[str, object]) -> None:
    record = Record(collection=Stage.EXEC, id="7-1", version=0, payload=payload)
    with pytest.raises(JournalError, match="record 7-1 of 'exec' is not a memory item"):
        MemoryPayload.of(record)
