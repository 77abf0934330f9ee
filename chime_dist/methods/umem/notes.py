"""What U-Mem's one extraction call may say, and what becomes of it at the head of the bank. Pure.

A lesson is a memory record without worth: ``MemoryPayload`` with value and count at 0. ADD inserts one, UPDATE
rewrites one that the episode had read, NONE leaves the bank alone. An UPDATE meets the head: where the lesson is
still the one that was read, it is rewritten; where another episode rewrote it meanwhile, neither text may be lost,
so both have to be combined, and where nobody can do that the new text becomes a lesson of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from pydantic import Field

from chime_dist.core.bank import BankState, Event, ItemId, Record
from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.json_schema import bounded_text, closed
from chime_dist.core.memory import SCENARIO_VECTOR, MemoryPayload
from chime_dist.core.reply import Fault, sole_object, word
from chime_dist.core.text import is_visible
from chime_dist.core.vector import Vector

LESSONS = "memory"
"""The one collection of the bank."""
NO_TARGET = "none"
"""What the reply names where it updates nothing."""

Operation = Literal["ADD", "UPDATE", "NONE"]

_OPERATIONS: dict[str, Operation] = {
    "add": "ADD",
    "update": "UPDATE",
    "none": "NONE",
}


class LessonLimits(Frozen):
    """Bounds on a lesson's texts, in characters."""

    scenario: int = Field(default=400, ge=1)
    experience: int = Field(default=1600, ge=1)


class Lesson(Frozen):
    """The texts of one lesson, both with something to see in them."""

    scenario: str
    """The tasks to which it applies, and what it is found by."""
    experience: str


class Extraction(Frozen):
    """What is to be learnt from one episode."""

    operation: Operation
    target: str | None = None
    """Id of the lesson that is rewritten; set exactly for UPDATE."""
    lesson: Lesson | None = None
    """Set unless NONE."""


class ExtractionFault(StrEnum):
    """What is wrong with an object that is no extraction."""

    BAD_OPERATION = "bad_operation"
    """None of the three, or an update where nothing had been read."""
    BAD_TARGET = "bad_target"
    """An update of what had not been read."""
    BAD_LESSON = "bad_lesson"
    """A text is missing or blank."""


def lesson_schema(limits: LessonLimits) -> dict[str, Json]:
    """The JSON schema of one lesson."""
    return closed({"scenario": bounded_text(limits.scenario), "experience": bounded_text(limits.experience)})


def extraction_schema(ids: Sequence[str], limits: LessonLimits) -> dict[str, Json]:
    """The JSON schema of the extraction, ``ids`` being those of the lessons that were read.

    Where there are none, nothing can be updated: an empty choice of targets is not offered.
    """
    operations = ["ADD", "UPDATE", "NONE"] if ids else ["ADD", "NONE"]
    target: dict[str, Json] = {"target": {"type": "string", "enum": [*ids, NO_TARGET]}} if ids else {}
    return closed(
        {
            "operation": {"type": "string", "enum": operations},
            **target,
            "scenario": bounded_text(limits.scenario),
            "experience": bounded_text(limits.experience),
        }
    )


def parse_extraction(text: str, finish_reason: str, ids: Sequence[str]) -> Extraction | Fault | ExtractionFault:
    """Read one reply, or say why it is no decision; never raises, and mends nothing (``core.reply``)."""
    found = sole_object(text, finish_reason)
    if isinstance(found, Fault):
        return found
    operation = word(found.get("operation"), _OPERATIONS)
    if operation is None or (operation == "UPDATE" and not ids):
        return ExtractionFault.BAD_OPERATION
    if operation == "NONE":
        return Extraction(operation="NONE")
    target = found.get("target")
    if operation == "UPDATE" and target not in ids:
        return ExtractionFault.BAD_TARGET
    lesson = _lesson(found)
    if lesson is None:
        return ExtractionFault.BAD_LESSON
    return Extraction(operation=operation, target=target if operation == "UPDATE" else None, lesson=lesson)


def parse_lesson(text: str, finish_reason: str) -> Lesson | None:
    """Read one lesson, or None."""
    found = sole_object(text, finish_reason)
    return None if isinstance(found, Fault) else _lesson(found)


def _lesson(found: dict[str, Json]) -> Lesson | None:
    scenario, experience = found.get("scenario"), found.get("experience")
    if not isinstance(scenario, str) or not isinstance(experience, str):
        return None
    if not is_visible(scenario) or not is_visible(experience):
        return None
    return Lesson(scenario=scenario.strip(), experience=experience.strip())


class Written(Frozen):
    """A lesson with the vector of its scenario."""

    lesson: Lesson
    c: Vector


class Change(Frozen):
    """What one episode wants of the bank."""

    position: int
    extraction: Extraction
    written: Written | None = None
    """Set unless NONE."""
    version_read: int | None = None
    """Chain version of the target that was read; set exactly for UPDATE."""

    def conflict(self, state: BankState) -> Lesson | None:
        """The target as it stands at the head, where it is no longer the one that was read; else None.

        Raises JournalError where the record is no lesson.
        """
        record = state.records.get(self.extraction.target or "")
        if record is None or record.version == self.version_read:
            return None
        payload = MemoryPayload.of(record)
        return Lesson(scenario=payload.scenario, experience=payload.experience)

    def events(self, state: BankState, combined: Written | None) -> tuple[Event, ...]:
        """The events at the head. ``combined`` is the answer to a conflict, None where there is none."""
        if self.written is None:
            return (_event("note", "content.none", None),)
        record = state.records.get(self.extraction.target or "")
        if record is None:
            return (self._inserted(self.written),)
        if self.conflict(state) is None:
            return (self._rewritten(record, self.written, combined=False),)
        if combined is not None:
            return (self._rewritten(record, combined, combined=True),)
        versions: dict[str, Json] = {"item_version_read": self.version_read, "item_version": record.version}
        return (_event("note", "content.conflict", record.id, versions), self._inserted(self.written))

    def _inserted(self, written: Written) -> Event:
        payload = MemoryPayload(**written.lesson.model_dump(), sources=(self.position,))
        return _put("content.insert", str(ItemId(self.position, 0)), payload, written.c, {})

    def _rewritten(self, record: Record, written: Written, combined: bool) -> Event:
        old = MemoryPayload.of(record)
        texts = written.lesson.model_dump()
        payload = old.model_copy(update={**texts, "sources": (*old.sources, self.position)})
        detail: dict[str, Json] = {
            "item_version_read": self.version_read,
            "item_version": record.version,
            "combined": combined,
            "before": {"scenario": old.scenario, "experience": old.experience},
            "after": texts,
        }
        return _put("content.update", record.id, payload, written.c, detail)


def _event(op: Literal["note"], kind: str, item: str | None, detail: dict[str, Json] | None = None) -> Event:
    return Event(op=op, kind=kind, collection=LESSONS, id=item, detail=detail or {})


def _put(kind: str, item: str, payload: MemoryPayload, c: Vector, detail: dict[str, Json]) -> Event:
    return Event(
        op="put",
        kind=kind,
        collection=LESSONS,
        id=item,
        payload=payload.to_json(),
        vectors={SCENARIO_VECTOR: c},
        detail=detail,
    )
