"""TodoEvolve's architectures and todo lists: what they mean, and what a reply may make of them (R43)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.adapters.models.schema_instance import HashDraws, InstanceBuilder
from chime_dist.methods.todoevolve.architecture import (
    Adaptation,
    Architecture,
    Navigation,
    Topology,
    architecture_schema,
    read_architecture,
)
from chime_dist.methods.todoevolve.replies import (
    MAX_OPEN,
    outline_schema,
    read_outline,
    read_revision,
    revision_schema,
)
from chime_dist.methods.todoevolve.todos import Todo, TodoList

DESIGN = {
    "why": "Some of it needs the rest.",
    "topology": "dag",
    "initialisation": "sub_goals",
    "adaptation": "extend",
    "navigation": "most_blocking",
}


def listed(topology: Topology, navigation: Navigation, *links: int | Sequence[int], done: int = 0) -> TodoList:
    """Todos 1, 2, ... with their links (a tree's ``part_of``, a dag's ``after``); the first ``done`` are done."""
    todos = tuple(
        Todo(
            number=number,
            text=f"todo {number}",
            after=() if isinstance(link, int) else tuple(link),
            part_of=link or None if isinstance(link, int) else None,
            done=number <= done,
        )
        for number, link in enumerate(links, 1)
    )
    architecture = Architecture(topology=topology, navigation=navigation)
    return TodoList(architecture=architecture, todos=todos, next_number=len(todos) + 1)


def order(todos: TodoList) -> list[int]:
    return [todo.number for todo in todos.agenda()]


@pytest.mark.parametrize(
    ("todos", "agenda", "focus"),
    [
        # A chain is a chain, whatever the navigation.
        (listed("linear", "in_order", 0, 0, 0), [1, 2, 3], [1]),
        (listed("linear", "any_ready", 0, 0, 0, done=1), [2, 3], [2]),
        # Nothing waits: all may start at once, if the executor is to choose.
        (listed("parallel", "any_ready", 0, 0, 0), [1, 2, 3], [1, 2, 3]),
        (listed("parallel", "in_order", 0, 0, 0), [1, 2, 3], [1]),
        # Two wholes, 1 = {3, 5} and 2 = {4, 6}: parts before the whole, and depth first one whole after the other.
        (listed("tree", "in_order", 0, 0, 1, 2, 1, 2), [3, 4, 5, 1, 6, 2], [3]),
        (listed("tree", "depth_first", 0, 0, 1, 2, 1, 2), [3, 5, 1, 4, 6, 2], [3]),
        (listed("tree", "any_ready", 0, 0, 1, 2, 1, 2), [3, 4, 5, 1, 6, 2], [3, 4, 5, 6]),
        # Todo 2 holds up 4 and, through it, 5; todo 1 only 3.
        (listed("dag", "in_order", (), (), (1,), (2,), (4,)), [1, 2, 3, 4, 5], [1]),
        (listed("dag", "most_blocking", (), (), (1,), (2,), (4,)), [2, 1, 4, 3, 5], [2]),
        (listed("dag", "depth_first", (), (), (1,), (2,), (4,)), [1, 3, 2, 4, 5], [1]),
        (listed("dag", "any_ready", (), (), (1, 2), (2,)), [1, 2, 3, 4], [1, 2]),
        # What is done holds up nobody.
        (listed("dag", "any_ready", (), (), (1, 2), (2,), done=2), [3, 4], [3, 4]),
        (listed("parallel", "in_order", 0, 0, done=2), [], []),
    ],
)
def test_topology_says_what_waits_and_navigation_what_is_next(
    todos: TodoList, agenda: list[int], focus: list[int]
) -> None:
    assert order(todos) == agenda
    assert [todo.number for todo in todos.focus()] == focus


@given(
    st.sampled_from(["linear", "tree", "dag", "parallel"]),
    st.sampled_from(["in_order", "depth_first", "most_blocking", "any_ready"]),
    st.lists(st.lists(st.integers(0, 11), max_size=3), max_size=12),
    st.sets(st.integers(1, 12)),
)
def test_an_agenda_holds_every_open_todo_once_and_none_before_what_it_waits_for(
    topology: Topology, navigation: Navigation, drawn: list[list[int]], done: set[int]
) -> None:
    links = [tuple(1 + link % n for link in row) if n else () for n, row in enumerate(drawn)]
    todos = TodoList(
        architecture=Architecture(topology=topology, navigation=navigation),
        todos=tuple(
            Todo(number=n, text="x", after=row, part_of=row[0] if row else None, done=n in done)
            for n, row in enumerate(links, 1)
        ),
        next_number=len(links) + 1,
    )
    agenda = order(todos)
    assert sorted(agenda) == [todo.number for todo in todos.open]
    for place, todo in enumerate(todos.agenda()):
        assert not todos.waits_for(todo) & set(agenda[place:])
    assert bool(todos.focus()) == bool(agenda)


def test_the_list_is_shown_in_the_agendas_order_with_links_and_what_is_next() -> None:
    todos = listed("dag", "any_ready", (), (), (1, 2), (2,), (4,), done=2)
    assert todos.shown().splitlines() == [
        *("3. todo 3 (after 1, 2)", "4. todo 4 (after 2)", "5. todo 5 (after 4)"),
        *("Done: 1, 2", "Next, in any order: 3, 4"),
    ]
    tree = listed("tree", "in_order", 0, 1)
    assert tree.shown() == "2. todo 2 (part of 1)\n1. todo 1\nNext: 2"
    assert listed("linear", "in_order", 0, done=1).shown() == "Done: 1\nNext: nothing is left; finish the task"


def test_a_design_is_read_as_it_is() -> None:
    jsonschema.validate(DESIGN, architecture_schema())
    architecture, fault = read_architecture(json.dumps(DESIGN), "stop")
    assert (architecture.model_dump(), fault) == (DESIGN, None)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("class Planner: ...", "not_json"),
        ("", "empty"),
        (json.dumps(DESIGN | {"topology": "ring"}), "topology: Input should be 'linear'"),
        (json.dumps(DESIGN | {"navigation": ["in_order"]}), "navigation: Input should be"),
        (json.dumps(DESIGN | {"code": "import os"}), "code: Extra inputs are not permitted"),
        (json.dumps({"why": "short", "topology": "dag"}), "no initialisation, no adaptation, no navigation"),
        (json.dumps(DESIGN) + json.dumps(DESIGN | {"topology": "tree"}), "conflicting"),
    ],
)
def test_what_is_no_design_of_the_closed_lists_is_a_linear_list(reply: str, reason: str) -> None:
    """R43: invalid -> linear, with the reason; nothing of a bad design is taken over."""
    architecture, fault = read_architecture(reply, "stop")
    assert architecture == Architecture(topology="linear", navigation="in_order")
    assert reason in (fault or "")


def outline(topology: Topology, *items: Any) -> tuple[TodoList, str | None]:
    return read_outline(json.dumps({"todos": items}), "stop", Architecture(topology=topology))


def test_a_first_list_is_numbered_from_1_and_keeps_the_links_of_its_topology_only() -> None:
    items = [{"text": " a\nand more "}, {"text": "b", "after": [1, 1], "part_of": 1}]
    linked = {"linear": ((), None), "tree": ((), 1), "dag": ((1,), None), "parallel": ((), None)}
    topologies: tuple[Topology, ...] = ("linear", "tree", "dag", "parallel")
    for topology in topologies:
        todos, fault = outline(topology, *items)
        assert fault is None
        assert [(todo.number, todo.text) for todo in todos.todos] == [(1, "a and more"), (2, "b")]
        assert (todos.todos[1].after, todos.todos[1].part_of) == linked[topology]
        assert todos.next_number == 3


@pytest.mark.parametrize(
    ("topology", "link"), [("dag", {"after": [2]}), ("dag", {"after": [0]}), ("tree", {"part_of": 3})]
)
def test_links_that_lead_to_no_earlier_todo_make_the_same_todos_linear(
    topology: Topology, link: dict[str, Any]
) -> None:
    todos, fault = outline(topology, {"text": "a"}, {"text": "b", **link}, {"text": "c"})
    assert todos.architecture.topology == "linear"
    assert [todo.text for todo in todos.todos] == ["a", "b", "c"]
    assert "todo 2 is linked to" in (fault or "")


@pytest.mark.parametrize(
    "reply",
    [
        "1. a\n2. b",
        json.dumps({"todos": []}),
        json.dumps({"todos": [{"text": "a"}, {"text": " \u200b"}]}),
        json.dumps({"todos": [{"text": "a"}, "b"]}),
        json.dumps({"todos": [{"text": "a", "after": ["1"]}]}),
        json.dumps({"todos": [{"text": "a"}] * (MAX_OPEN + 1)}),
        json.dumps({"todo": [{"text": "a"}]}),
    ],
)
def test_a_list_that_cannot_be_read_is_one_todo_for_the_whole_task(reply: str) -> None:
    todos, fault = read_outline(reply, "stop", Architecture(topology="dag"))
    assert [todo.text for todo in todos.todos] == ["Do everything that the request asks for."]
    assert todos.architecture.topology == "linear"
    assert fault


def revised(todos: TodoList, adaptation: Adaptation, **reply: Any) -> Any:
    architecture = todos.architecture.model_copy(update={"adaptation": adaptation})
    todos = todos.model_copy(update={"architecture": architecture})
    result = read_revision(json.dumps(reply), "stop", todos)
    assert (result.refused is not None) == (result.todos == todos)
    return result


def test_each_adaptation_may_do_what_it_says() -> None:
    todos = listed("dag", "in_order", (), (1,), (2,))
    ticked = revised(todos, "tick", assessment="one is there", done=[1])
    assert order(ticked.todos) == [2, 3]
    assert ticked.assessment == "one is there"
    extended = revised(todos, "extend", done=[1], add=[{"text": "new", "after": [1, 3]}])
    assert order(extended.todos) == [2, 3, 4]
    assert extended.todos.todos[-1] == Todo(number=4, text="new", after=(1, 3))
    rewritten = revised(
        todos, "rewrite", done=[1], left=[{"text": "x", "after": [1]}, {"text": "y", "after": [4]}]
    )
    assert [(todo.number, todo.done) for todo in rewritten.todos.todos] == [(1, True), (4, False), (5, False)]
    emptied = revised(rewritten.todos, "rewrite", left=[])
    assert order(emptied.todos) == []
    # Numbers that were given stay given: 4 and 5 are gone, and not free.
    assert order(revised(emptied.todos, "rewrite", left=[{"text": "z"}]).todos) == [6]


def test_a_revision_is_offered_the_open_todos_to_tick_off() -> None:
    """Where nothing is open there is nothing to offer: an empty list of choices is no schema."""
    asked = revision_schema(listed("linear", "in_order", 0, 0, 0, done=1))["properties"]
    assert (asked["done"]["items"]["enum"], asked["done"]["maxItems"]) == ([2, 3], 2)
    assert "done" not in revision_schema(listed("linear", "in_order", 0, done=1))["properties"]


def test_ticking_off_what_is_not_open_is_dropped_and_recorded() -> None:
    result = revised(listed("parallel", "in_order", 0, 0, 0, done=1), "tick", done=[1, 2, 9, 2])
    assert (result.done, result.dropped, order(result.todos)) == ((2,), (1, 9), [3])


@pytest.mark.parametrize(
    ("adaptation", "reply", "reason"),
    [
        ("tick", {"done": [1], "add": [{"text": "new"}]}, "adds nothing"),
        ("tick", {"done": [1], "left": []}, "replaces nothing"),
        ("extend", {"done": [1], "left": []}, "replaces nothing"),
        ("rewrite", {"done": [1]}, "needs it"),
        ("rewrite", {"done": ["1"], "left": []}, "done.0"),
        ("extend", {"done": [1], "add": [{"text": " "}]}, "add.0.text"),
        ("extend", {"done": [1], "add": [{"text": "\u200b"}]}, "shows nothing"),
        ("extend", {"done": [1], "add": [{"text": "new", "after": [4]}]}, "no earlier todo"),
        ("rewrite", {"done": [1], "left": [{"text": "new", "after": [2]}]}, "no earlier todo"),
        ("extend", {"add": [{"text": "new"}] * (MAX_OPEN - 2)}, "more than 12"),
        ("tick", {"done": [1], "python": "..."}, "python: Extra inputs"),
    ],
)
def test_a_revision_that_breaks_a_rule_changes_nothing(
    adaptation: Adaptation, reply: dict[str, Any], reason: str
) -> None:
    """Whole or not at all: what was ticked off beside it is not taken over either."""
    result = revised(listed("dag", "in_order", (), (1,), (2,)), adaptation, **reply)
    assert reason in result.refused
    assert order(result.todos) == [1, 2, 3]


def test_a_revision_that_was_cut_is_refused() -> None:
    assert read_revision('{"done": [1]}', "length", listed("linear", "in_order", 0)).refused == "truncated"


@given(st.binary(min_size=4, max_size=4))
def test_what_the_schemas_ask_for_can_be_read(key: bytes) -> None:
    """An instance of the schema is taken as it is, but for links, which a schema cannot check."""
    draws = HashDraws(key)

    def said(schema: dict[str, Any]) -> str:
        reply = InstanceBuilder(schema, draws, ["one", "two", "three", "four"]).build()
        jsonschema.validate(reply, schema)
        return json.dumps(reply)

    architecture, fault = read_architecture(said(architecture_schema()), "stop")
    assert fault is None
    todos, fault = read_outline(said(outline_schema(architecture)), "stop", architecture)
    assert fault is None or "is linked to" in fault
    for _ in range(3):
        result = read_revision(said(revision_schema(todos)), "stop", todos)
        assert result.refused is None or "is linked to" in result.refused
        assert result.dropped == ()
        todos = result.todos
        assert len(todos.open) <= MAX_OPEN
