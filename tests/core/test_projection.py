"""The bookkeeping of a projection: what a commit opens and closes."""

from __future__ import annotations

import numpy as np
import pytest

from chime_dist.core.bank import BankState, Record
from chime_dist.core.projection import OPEN_END, PointKey, Projection, Versions, score_floor, unit_vector
from chime_dist.core.vector import Vector
from chime_dist.errors import BankMismatchError, EmbeddingError, JournalError, ServiceError

EAST, NORTH = Vector.of([2, 0]), Vector.of([0, 2])


def _record(item: str, version: int = 0, collection: str = "plan", **vectors: Vector) -> Record:
    return Record(collection=collection, id=item, version=version, payload={"v": version}, vectors=vectors)


def _state(version: int, *records: Record) -> BankState:
    return BankState(version, {record.id: record for record in records})


def _projected(*states: BankState) -> Projection:
    projection = Projection(2, "bank")
    previous = BankState()
    for state in states:
        step = projection.plan(state.version, previous, state)
        assert step is not None
        projection.advance(step)
        previous = state
    return projection


def test_a_new_record_opens_one_point_per_vector_scaled_to_length_one() -> None:
    step = Projection(2, "bank").plan(1, BankState(), _state(1, _record("0-0", c=EAST, e=NORTH)))
    assert step is not None
    assert [key for key, _ in step.opened] == [PointKey("plan", "0-0", "c", 1), PointKey("plan", "0-0", "e", 1)]
    assert [unit.tolist() for _, unit in step.opened] == [[1, 0], [0, 1]]
    assert step.closed == ()


def test_a_commit_of_values_writes_nothing() -> None:
    """R25: most commits move v and n only; ids do not change with them, so no point does."""
    one = _state(1, _record("0-0", c=EAST))
    two = _state(2, _record("0-0", 1, c=Vector.of([2, 0])))
    step = _projected(one).plan(2, one, two)
    assert step is not None
    assert (step.opened, step.closed) == ((), ())


def test_a_replaced_vector_closes_its_point_and_opens_one_and_leaves_the_others() -> None:
    """R31: a merge that re-embeds the scenario does not touch the experience's vector."""
    one = _state(1, _record("0-0", c=EAST, e=NORTH))
    two = _state(2, _record("0-0", 1, c=NORTH, e=NORTH))
    step = _projected(one).plan(2, one, two)
    assert step is not None
    assert [key for key, _ in step.opened] == [PointKey("plan", "0-0", "c", 2)]
    assert step.closed == (PointKey("plan", "0-0", "c", 1),)


def test_a_dropped_or_moved_record_closes_its_points() -> None:
    one = _state(1, _record("0-0", c=EAST), _record("0-1", c=EAST))
    two = _state(2, _record("0-1", collection="exec", c=EAST))
    step = _projected(one).plan(2, one, two)
    assert step is not None
    assert step.closed == (PointKey("plan", "0-0", "c", 1), PointKey("plan", "0-1", "c", 1))
    assert [key for key, _ in step.opened] == [PointKey("exec", "0-1", "c", 2)]


def test_a_point_dropped_and_inserted_again_is_another_point() -> None:
    """E5: the id of a record may come back with its chain version at 0; the version that set it does not."""
    one, two, three = _state(1, _record("0-0", c=EAST)), _state(2), _state(3, _record("0-0", c=EAST))
    step = _projected(one, two).plan(3, two, three)
    assert step is not None
    assert step.opened[0][0] == PointKey("plan", "0-0", "c", 3)


def test_what_was_projected_is_not_planned_again() -> None:
    """E2: a redelivery is recognised before the store is touched."""
    one, two = _state(1, _record("0-0", c=EAST)), _state(2)
    projection = _projected(one, two)
    assert projection.plan(1, BankState(), one) is None
    assert projection.plan(2, one, two) is None


def test_a_plan_that_was_not_written_is_made_again() -> None:
    """E1: a write that failed is repeated."""
    projection = Projection(2, "bank")
    one = _state(1, _record("0-0", c=EAST))
    first, second = projection.plan(1, BankState(), one), projection.plan(1, BankState(), one)
    assert first is not None
    assert second is not None
    assert [key for key, _ in first.opened] == [key for key, _ in second.opened]


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 4), (1, 0)])
def test_a_projection_only_moves_forward_from_where_it_is(before: int, after: int) -> None:
    projection = _projected(_state(1))
    projection.versions = Versions(((1, 1),))
    with pytest.raises(JournalError, match="it is at version 1"):
        projection.plan(after, _state(before), _state(after))


def test_a_state_of_another_bank_is_refused() -> None:
    """The records that go were never here: this is not the bank that was projected."""
    with pytest.raises(JournalError, match="record 0-0 of version 1 was never projected"):
        _projected(_state(1)).plan(2, _state(1, _record("0-0", c=EAST)), _state(2))


def test_the_version_asked_for_is_the_state_s() -> None:
    with pytest.raises(ValueError, match="asked for version 2 with the state of version 1"):
        Projection(2, "bank").plan(2, BankState(), _state(1))


def test_versions_are_kept_as_ranges() -> None:
    versions = Versions().then(1).then(2).then(5).then(6)
    assert versions.spans == ((0, 2), (5, 6))
    assert versions.head == 6
    assert [v for v in range(8) if v in versions] == [0, 1, 2, 5, 6]
    versions.require(5, "bank")
    with pytest.raises(ServiceError, match=r"bank: version 4 is not projected \(it holds 0 to 2, 5 to 6\)"):
        versions.require(4, "bank")


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1.0, 1e30])
def test_a_unit_vector_has_length_one_whatever_it_came_from(scale: float) -> None:
    unit = unit_vector(Vector.of(np.array([3.0, 4.0]) * scale), 2, "query")
    assert unit.dtype == np.float32
    assert unit.tolist() == pytest.approx([0.6, 0.8])


def test_vectors_without_direction_or_of_another_dimension_have_no_unit() -> None:
    """E4, F1: refused with the place, before any engine sees them."""
    with pytest.raises(EmbeddingError, match="here: a zero vector"):
        unit_vector(Vector.of([0, 0]), 2, "here")
    with pytest.raises(BankMismatchError, match="here: it has dimension 3"):
        unit_vector(Vector.of([1, 0, 0]), 2, "here")


def test_a_threshold_is_lowered_and_must_be_a_number() -> None:
    """R12: a store's rounding must not lose a similarity of exactly .3."""
    assert score_floor(0.3) == pytest.approx(0.2999)
    with pytest.raises(ValueError, match="finite number, got nan"):
        score_floor(float("nan"))


# --- compaction -----------------------------------------------------------------------------------------


def test_versions_that_are_not_kept_are_gone_and_stay_gone() -> None:
    """R7: the head and version 0 always stay; later versions come on top."""
    versions = Versions(((0, 10),)).keeping([3, 7, 8, 99])
    assert [v for v in range(12) if v in versions] == [0, 3, 7, 8, 10]
    assert str(versions) == "0, 3, 7 to 8, 10"
    later = versions.then(11).keeping([2, 3, 8])
    assert str(later) == "0, 3, 8, 11"
    assert all(later.reached(v) for v in range(12))


def test_a_gap_of_a_long_step_may_be_gone_too() -> None:
    versions = Versions(((0, 0), (5, 9))).keeping([6])
    assert str(versions) == "0, 6, 9"
    with pytest.raises(ServiceError, match=r"bank: version 7 was let go by a compaction \(it holds 0, 6, 9\)"):
        versions.require(7, "bank")
    with pytest.raises(ServiceError, match="version 10 is not projected"):
        versions.require(10, "bank")


@pytest.mark.parametrize("head", [1, 4, 9])
@pytest.mark.parametrize("keep", [[], [2], [1, 3], [2, 3, 7], list(range(9))])
def test_a_point_is_removed_if_and_only_if_no_version_that_is_kept_sees_it(head: int, keep: list[int]) -> None:
    versions = Versions(((0, head),)).keeping(keep)
    for valid_from in range(1, head + 1):
        for valid_to in [*range(valid_from + 1, head + 1), OPEN_END]:
            seen = any(v in versions for v in range(valid_from, min(valid_to, head + 1)))
            assert versions.read(valid_from, valid_to) == seen


def test_a_compaction_that_did_not_end_is_not_taken_for_done() -> None:
    one, two, three = _state(1, _record("0-0", c=EAST)), _state(2), _state(3)
    projection = _projected(one, two, three)
    cut = projection.let_go([])
    assert cut is not None
    assert cut.gone == ((1, 2),)
    assert projection.let_go([2]) == cut, "the versions are refused already; their points may still be there"
    projection.swept(cut)
    assert projection.let_go([2]) is None


def test_what_was_let_go_is_not_planned_again() -> None:
    one, two = _state(1, _record("0-0", c=EAST)), _state(2)
    projection = _projected(one, two)
    projection.let_go([])
    assert projection.plan(1, BankState(), one) is None
