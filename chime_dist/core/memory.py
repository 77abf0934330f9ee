"""CHIME's memory item: a typed view of a bank record (R10)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field, ValidationError

from chime_dist.core.bank import Record
from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.errors import JournalError

SCENARIO_VECTOR = "c"
"""Name of the vector of a memory's scenario, the retrieval and merge key."""
EXPERIENCE_VECTOR = "e"
"""Name of the vector of a memory's experience text, used by the novelty threshold (R32)."""


class Stage(StrEnum):
    """The two stages of S0 Eq. 2."""

    PLAN = "plan"
    EXEC = "exec"


Banks = Mapping[Stage, str]
"""The collection of each stage. Two stages may share one; a stage that is missing has no memory (R44)."""

SEPARATE: Banks = {stage: stage.value for stage in Stage}
"""CHIME's hierarchy: a bank of its own for each stage (R10)."""


class MemoryPayload(Frozen):
    """The JSON payload of a memory record: ``m = (c, e, v, n)`` of S0 Eq. 3, and where it came from."""

    scenario: str
    """c: the tasks to which the memory applies."""
    experience: str
    """e: the reusable experience."""
    value: float = Field(default=0.0, ge=-1.0, le=1.0)
    """v, estimated from reuse (R25)."""
    count: int = Field(default=0, ge=0)
    """n, how often it was reused."""
    sources: tuple[int, ...] = ()
    """Positions that wrote it: the insert, then every merge (R31)."""

    @classmethod
    def of(cls, record: Record) -> MemoryPayload:
        """The typed view of ``record``; raises JournalError where it is no memory (a wrong bank stops the run)."""
        try:
            return cls.model_validate(record.payload)
        except ValidationError as error:
            raise JournalError(
                f"record {record.id} of {record.collection!r} is not a memory item, so this bank was written by "
                f"another method or version: {error}"
            ) from None

    def to_json(self) -> dict[str, Json]:
        """The payload as it is journalled."""
        return self.model_dump(mode="json")
