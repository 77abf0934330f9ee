"""What a projection must hold, replayed from the journal."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from chime_dist.core.bank import Event
from chime_dist.core.projection import OPEN_END, PointKey, Versions
from chime_dist.core.projection_audit import ExpectedPoint, PointFault, expected_points
from chime_dist.core.vector import Vector
from chime_dist.errors import BankMismatchError

EAST, NORTH = Vector.of([2, 0]), Vector.of([0, 2])


@dataclass(frozen=True)
class Commit:
    """What ``apply`` needs of a journal entry."""

    position: int
    events: tuple[Event, ...]


def _put(item: str, vector: Vector | None) -> Event:
    vectors = None if vector is None else {"c": vector}
    return Event(op="put", kind="put", collection="plan", id=item, payload={}, vectors=vectors)


DROP = Event(op="drop", kind="prune", collection="plan", id="0-0")
JOURNAL = [
    Commit(0, (_put("0-0", EAST), _put("0-1", EAST))),
    Commit(1, (_put("0-0", None),)),
    Commit(2, (_put("0-0", NORTH),)),
    Commit(3, (DROP, _put("3-0", EAST))),
]


def _key(item: str, version: int) -> PointKey:
    return PointKey("plan", item, "c", version)


def _ends(points: dict[PointKey, ExpectedPoint]) -> dict[PointKey, set[int]]:
    return {key: set(point.valid_to) for key, point in points.items()}


def _expected(*spans: tuple[int, int], half_written: int | None = None) -> dict[PointKey, ExpectedPoint]:
    return expected_points(JOURNAL, Versions(spans), half_written, 2, "bank")


def test_every_vector_is_a_point_from_its_version_to_the_next() -> None:
    points = _expected((0, 4))
    assert _ends(points) == {
        _key("0-0", 1): {3},
        _key("0-1", 1): {OPEN_END},
        _key("0-0", 3): {4},
        _key("3-0", 4): {OPEN_END},
    }
    assert points[_key("0-0", 3)].unit.tolist() == [0, 1]
    assert all(point.certain for point in points.values())


def test_a_projection_behind_the_journal_holds_less() -> None:
    assert _ends(_expected((0, 2))) == {_key("0-0", 1): {OPEN_END}, _key("0-1", 1): {OPEN_END}}
    assert _expected((0, 0)) == {}


def test_versions_that_were_projected_in_one_step_leave_no_points_between() -> None:
    """A resumed owner starts at the oldest version that anybody may read."""
    assert _ends(_expected((0, 0), (3, 4))) == {
        _key("0-0", 3): {4},
        _key("0-1", 3): {OPEN_END},
        _key("3-0", 4): {OPEN_END},
    }


def test_of_a_half_written_version_any_part_may_be_there() -> None:
    """The owner was killed between its writes and the cursor."""
    points = _expected((0, 3), half_written=4)
    assert _ends(points)[_key("0-0", 3)] == {4, OPEN_END}
    assert [key for key, point in points.items() if not point.certain] == [_key("3-0", 4)]


def test_a_half_written_first_step_may_be_a_long_one() -> None:
    points = _expected((0, 0), half_written=3)
    assert {key for key, point in points.items() if not point.certain} == {_key("0-0", 3), _key("0-1", 3)}
    assert len(points) == 2


def test_a_journal_of_another_dimension_is_refused() -> None:
    with pytest.raises(BankMismatchError, match="dimension"):
        expected_points(JOURNAL, Versions(((0, 1),)), None, 3, "bank")


def test_a_fault_reads_as_item_version_and_what() -> None:
    fault = PointFault(kind="missing", collection="plan", item="0-0", vector="c", version=3, what="gone")
    assert str(fault) == "missing point of plan 0-0, vector 'c', set at version 3: gone"
    assert str(PointFault(kind="extra", what="unknown")) == "extra point: unknown"


def test_points_that_no_version_sees_may_be_there_or_not() -> None:
    """A compaction removes them, and may be cut short; what they are is still known."""
    points = expected_points(JOURNAL, Versions(((0, 4),)).keeping([]), None, 2, "bank")
    assert {key: point.certain for key, point in points.items()} == {
        _key("0-0", 1): False,
        _key("0-1", 1): True,
        _key("0-0", 3): False,
        _key("3-0", 4): True,
    }
    assert _ends(points) == _ends(_expected((0, 4)))


def test_a_point_whose_end_is_half_written_may_still_stand() -> None:
    points = expected_points(JOURNAL, Versions(((0, 3),)).keeping([]), 4, 2, "bank")
    assert points[_key("0-0", 3)].certain
    assert points[_key("0-0", 3)].valid_to == {4, OPEN_END}
