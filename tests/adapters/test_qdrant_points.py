"""Ids and over-fetching of the Qdrant adapters."""

from __future__ import annotations

import uuid

from hypothesis import example, given
from hypothesis import strategies as st

from chime_dist.adapters.qdrant.points import best, first_ask, next_ask, point_id, point_payload, stable_uuid
from chime_dist.core.projection import OPEN_END, PointKey
from chime_dist.ports import Namespace

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_PARTS = st.lists(st.one_of(_TEXT, st.integers(-(2**70), 2**70)), min_size=1, max_size=4)


@given(one=_PARTS, other=_PARTS)
@example(one=["task-1"], other=["task-1"])
@example(one=["记忆-1"], other=["记忆-2"])
@example(one=[-1], other=[2**64])
@example(one=[1], other=["1"])
@example(one=["a", "b"], other=["a,b"])
@example(one=['a","b'], other=["a", "b"])
@example(one=["a", ""], other=["a"])
def test_the_same_key_is_one_id_and_different_keys_never_collide(
    one: list[str | int], other: list[str | int]
) -> None:
    """E5: any key becomes a UUID; a key that looks like another one is still another one."""
    assert (stable_uuid(*one) == stable_uuid(*other)) is (one == other)
    assert str(uuid.UUID(stable_uuid(*one))) == stable_uuid(*one)


def test_ids_are_the_same_in_every_process_and_release() -> None:
    """E5: a redelivery after a restart must meet the points it wrote before."""
    assert stable_uuid("launch", "run", 1) == "2d199d98-6ff1-5b75-a63b-50751639e2ad"


def test_the_originals_of_an_id_are_in_the_payload() -> None:
    """E5: what the UUID stands for can be read back."""
    namespace = Namespace(launch="launch", run_id="run", fence=7)
    key = PointKey("plan", "12-0", "c", 13)
    assert point_payload(namespace, key) == {
        "launch": "launch",
        "run": "run",
        "fence": 7,
        "collection": "plan",
        "item": "12-0",
        "vector": "c",
        "valid_from": 13,
        "valid_to": OPEN_END,
    }
    later = key._replace(valid_from=14)
    newer = namespace.model_copy(update={"fence": 8})
    assert len({point_id(namespace, key), point_id(namespace, later), point_id(newer, key)}) == 3


def test_the_open_end_survives_a_float() -> None:
    """Qdrant compares ranges in float64."""
    assert int(float(OPEN_END)) == OPEN_END


_SCORES = st.lists(st.sampled_from([0.9, 0.90004, 0.9002, 0.5, 0.3, 0.1]), max_size=200).map(
    lambda scores: sorted(scores, reverse=True)
)


@given(scores=_SCORES, limit=st.integers(1, 30))
def test_asking_ends_and_misses_no_tie(scores: list[float], limit: int) -> None:
    """R17: every point whose score ties with the limit-th one, rounding allowed for, is proposed."""
    asked: int | None = first_ask(limit)
    answer: list[float] = []
    while asked is not None:
        answer = scores[:asked]
        asked = next_ask(answer, asked, limit)
    kept = best([(str(k), score) for k, score in enumerate(answer)], limit)
    floor = scores[limit - 1] - 1e-4 if len(scores) >= limit else -1.0
    assert kept == [str(k) for k, score in enumerate(scores) if score >= floor]
