"""A-MapReduce's records: which tasks are neighbours, what a task is shown, who votes for rules."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from chime_dist.core.bank import BankState, Event, Record, apply
from chime_dist.core.task_graph import (
    RECORDS,
    Edge,
    GraphParams,
    Label,
    RecallParams,
    TaskRecord,
    record_count,
    recorded,
    remember,
    task_types,
)
from chime_dist.core.vector import Vector
from chime_dist.errors import JournalError
from chime_dist.ports import Hit


def at(cosine: float, axis: int = 1) -> Vector:
    """A unit vector at this cosine to ``at(1.0)``; different axes lie apart beside that."""
    values = [0.0] * 16
    values[0], values[axis] = cosine, (1.0 - cosine * cosine) ** 0.5
    return Vector.of(values)


def grown(*tasks: tuple[str, Vector] | tuple[str, Vector, Label], params: GraphParams | None = None) -> BankState:
    """A bank with one record per task, in this order."""
    state = BankState()
    for task, vector, *label in tasks:
        event = recorded(
            state, state.version, task, f"plan of {task}", (*label, "success")[0], vector, params or GraphParams()
        )
        state = apply(state, SimpleNamespace(position=state.version, events=(event,)))
    return state


def record(state: BankState, item: str) -> TaskRecord:
    return TaskRecord.of(state.records[item])


def hits(*records: tuple[str, float, str, Label] | tuple[str, float, str, Label, Sequence[str]]) -> list[Hit]:
    """Found records as (id, sim, node, outcome, nodes of its edges); the task text is the node's name."""
    found = []
    for item, sim, node, outcome, *edges in records:
        payload = TaskRecord(
            task=f"task {node}",
            plan="p",
            outcome=outcome,
            node=node,
            edges=tuple(Edge(node=other, sim=0.8) for other in (edges[0] if edges else ())),
        )
        stored = Record(collection=RECORDS, id=item, version=0, payload=payload.model_dump(mode="json"))
        found.append(Hit(record=stored, sim=sim))
    return found


def test_a_record_holds_the_task_the_plan_and_the_outcome_as_its_label() -> None:
    event = recorded(BankState(), 7, "return a parcel", "1. ask", "failure", at(1.0), GraphParams())
    assert (event.op, event.collection, event.id) == ("put", "record", "7-0")
    assert event.payload == {
        "task": "return a parcel",
        "plan": "1. ask",
        "outcome": "failure",
        "node": "7-0",
        "edges": [],
    }
    assert event.vectors == {"c": at(1.0)}


def test_an_edge_needs_a_similarity_of_at_least_seven_tenths() -> None:
    """The threshold is inclusive: 0.7 is an edge, 0.6999 is none."""
    state = grown(("a", at(0.7, 1)), ("b", at(0.6999, 2)), ("c", at(0.9, 3)), ("new", at(1.0)))
    assert [(edge.node, edge.sim) for edge in record(state, "3-0").edges] == [("2-0", 0.9), ("0-0", 0.7)]


def test_a_new_task_gets_edges_among_its_ten_nearest_only() -> None:
    """Of eleven equally near tasks the ten oldest, and what is nearer comes before."""
    tasks = [(f"t{i}", at(0.9, 1)) for i in range(11)]
    state = grown(*tasks, ("near", at(0.95, 1)), ("new", at(1.0)))
    assert [edge.node for edge in record(state, "12-0").edges] == ["11-0", *(f"{i}-0" for i in range(9))]


def test_far_tasks_take_up_places_among_the_nearest() -> None:
    """Edges are looked for among the nearest, so a lower threshold finds no more than those."""
    params = GraphParams(edge_similarity=-1.0, edge_candidates=2)
    state = grown(("a", at(0.1, 1)), ("b", at(0.2, 2)), ("c", at(0.3, 3)), ("new", at(1.0)), params=params)
    assert [edge.node for edge in record(state, "3-0").edges] == ["2-0", "1-0"]


def test_a_task_that_is_solved_again_adds_a_record_and_no_node() -> None:
    """R6, R47: two epochs over n tasks make 2n records; the second ones stand for the first ones in the graph."""
    state = grown(("a", at(0.9)), ("b", at(1.0)), ("b", at(1.0), "failure"), ("c", at(1.0, 2)))
    assert record_count(state) == 4
    again = record(state, "2-0")
    assert (again.node, again.outcome, again.edges) == ("1-0", "failure", record(state, "1-0").edges)
    assert [edge.node for edge in record(state, "3-0").edges] == ["1-0", "0-0"]


def test_types_of_tasks_are_the_connected_parts_of_the_graph() -> None:
    """A chain is one type although its ends are far apart; a type is named by its oldest task."""
    state = grown(
        ("left", at(0.0, 1)),
        ("alone", at(0.0, 5)),
        ("right", at(1.0)),
        ("middle", Vector.of([1.0, 1.0, *[0.0] * 14])),
        ("right", at(1.0)),
    )
    assert task_types(state, ["0-0", "1-0", "2-0", "3-0"]) == {
        "0-0": "0-0",
        "1-0": "1-0",
        "2-0": "0-0",
        "3-0": "0-0",
    }


def test_types_leave_other_collections_alone() -> None:
    state = grown(("a", at(1.0)))
    rule = Event(op="put", kind="rule.add", collection="rule", id="1-1", payload={"node": "1-1"})
    state = apply(state, SimpleNamespace(position=1, events=(rule,)))
    assert task_types(state, ["0-0"]) == {"0-0": "0-0"}


def test_what_is_no_task_record_stops_the_run() -> None:
    with pytest.raises(JournalError, match="record 7-1 of 'record' is no task record"):
        TaskRecord.of(Record(collection="record", id="7-1", version=0, payload={"rule": "x"}))


def test_a_task_is_shown_one_success_and_one_failure() -> None:
    """The most similar of each, successes first."""
    found = hits(
        ("0-0", 0.9, "0-0", "failure"),
        ("1-0", 0.8, "1-0", "success"),
        ("2-0", 0.7, "2-0", "success"),
        ("3-0", 0.6, "3-0", "failure"),
    )
    shown = remember(found, "new", RecallParams()).shown
    assert [(known.id, known.record.outcome) for known in shown] == [("1-0", "success"), ("0-0", "failure")]


def test_records_below_three_tenths_are_not_there() -> None:
    """0.3 is kept, 0.2999 is not; fewer than one of each may be shown."""
    found = hits(("0-0", 0.3, "0-0", "success"), ("1-0", 0.2999, "1-0", "failure"))
    remembered = remember(found, "new", RecallParams())
    assert [known.id for known in remembered.shown] == ["0-0"]
    assert remembered.voters == ("0-0",)


def test_a_neighbour_of_the_most_similar_task_comes_before_a_more_similar_stranger() -> None:
    """The graph decides first; only what it does not have is taken from all."""
    found = hits(
        ("5-0", 0.9, "5-0", "failure", ["2-0"]),
        ("4-0", 0.8, "4-0", "success"),
        ("2-0", 0.6, "2-0", "success"),
    )
    assert [known.id for known in remember(found, "new", RecallParams()).shown] == ["2-0", "5-0"]
    later = hits(
        ("2-0", 0.9, "2-0", "failure"),
        ("4-0", 0.8, "4-0", "success"),
        ("5-0", 0.6, "5-0", "success", ["2-0"]),
    )
    assert [known.id for known in remember(later, "new", RecallParams()).shown] == ["5-0", "2-0"]
    both = RecallParams(start_nodes=2)
    assert [known.id for known in remember(found, "new", both).shown] == ["4-0", "5-0"]
    two = RecallParams(successes=2)
    assert [known.id for known in remember(found, "new", two).shown] == ["4-0", "2-0", "5-0"]


def test_a_neighbour_of_one_of_the_tasks_that_the_graph_is_entered_at_is_near() -> None:
    """A task that is near the second of two entrances and unknown to the first comes before a stranger."""
    found = hits(
        ("5-0", 0.9, "5-0", "failure"),
        ("6-0", 0.8, "6-0", "failure", ["2-0"]),
        ("4-0", 0.7, "4-0", "success"),
        ("2-0", 0.6, "2-0", "success"),
    )
    assert [known.id for known in remember(found, "new", RecallParams(start_nodes=2)).shown] == ["2-0", "5-0"]
    assert [known.id for known in remember(found, "new", RecallParams()).shown] == ["4-0", "5-0"]


def test_a_task_meets_neither_its_own_records_nor_their_votes() -> None:
    """In a later epoch the most similar record is the task's own, with the plan of last time."""
    found = hits(("1-0", 1.0, "1-0", "success"), ("0-0", 0.5, "0-0", "success"))
    assert [known.id for known in remember(found, "task 1-0", RecallParams()).pool] == ["0-0"]
    kept = remember(found, "task 1-0", RecallParams(skip_own_task=False))
    assert (kept.shown[0].id, kept.voters) == ("1-0", ("1-0", "0-0"))


def test_four_successes_and_two_failures_of_distinct_tasks_vote() -> None:
    outcomes: tuple[Label, Label] = ("success", "failure")
    found = hits(
        *((f"{i}-0", 0.9 - i / 100, f"{i}-0", outcomes[i % 2]) for i in range(14)),
        ("20-0", 0.5, "0-0", "success"),
    )
    assert remember(found, "new", RecallParams()).voters == ("0-0", "2-0", "4-0", "6-0", "1-0", "3-0")


def test_of_one_task_the_newest_record_of_an_outcome_speaks() -> None:
    """Equal texts are equally similar; a task that failed and then succeeded is there once for each."""
    found = hits(
        ("0-0", 0.9, "0-0", "failure"),
        ("9-0", 0.9, "0-0", "success"),
        ("12-0", 0.9, "0-0", "success"),
        ("11-0", 0.9, "0-0", "success"),
    )
    remembered = remember(found, "new", RecallParams())
    assert [known.id for known in remembered.shown] == ["12-0", "0-0"]
    assert remembered.voters == ("0-0", "0-0")


def test_the_pool_bounds_what_is_looked_at() -> None:
    found = hits(("0-0", 0.9, "0-0", "success"), ("1-0", 0.8, "1-0", "failure"))
    assert [known.id for known in remember(found, "new", RecallParams(pool=1)).shown] == ["0-0"]
