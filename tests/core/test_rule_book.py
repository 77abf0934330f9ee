"""A-MapReduce's rules: when they are rewritten, the arithmetic of their scores, and how clusters shrink."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chime_dist.core.bank import BankState, Event, Record, apply, replay
from chime_dist.core.rule_book import (
    Case,
    Operation,
    Review,
    Reviewed,
    Rule,
    RuleBook,
    RuleParams,
    ranked_rules,
    review_due,
    reviewed,
)
from chime_dist.core.task_graph import GraphParams, Label, recorded
from chime_dist.core.vector import Vector
from chime_dist.errors import JournalError
from chime_dist.ports import Hit

PARAMS = RuleParams()
VECTOR = Vector.of([1.0, 2.0])


def book(
    *scores: int,
    cases: Sequence[tuple[str, str]] = (("S1", "0-0"), ("F1", "1-0")),
    types: dict[str, str] | None = None,
    merge: bool = False,
) -> RuleBook:
    """A book of rules "rule 1", "rule 2"... (ids 9-1, 9-2...) with these scores, all drawn from task 0-0."""
    rules = {
        f"9-{n}": Rule(rule=f"rule {n}", score=s, tasks=("0-0",), sources=(9,)) for n, s in enumerate(scores, 1)
    }
    return RuleBook(review(rules, cases, types, merge), PARAMS)


def review(
    rules: dict[str, Rule],
    cases: Sequence[tuple[str, str]] = (),
    types: dict[str, str] | None = None,
    merge: bool = False,
) -> Review:
    outcomes: dict[str, Label] = {"S": "success", "F": "failure"}
    shown = tuple(Case(name=n, node=node, outcome=outcomes[n[0]], task="t", plan="p") for n, node in cases)
    nodes = {node for _, node in cases} | {node for rule in rules.values() for node in rule.tasks}
    found = dict.fromkeys(nodes, "0-0") | (types or {})
    return Review(position=30, rules=rules, cases=shown, merge=merge, types=found)


def op(kind: Literal["REMOVE", "AGREE", "EDIT", "ADD"], rule: str = "", text: str = "", *cases: str) -> Operation:
    return Operation(op=kind, rule=rule, text=text, cases=cases)


def scores(rules: RuleBook) -> dict[str, int]:
    return {item: rule.score for item, rule in rules.rules.items()}


def kinds(rules: RuleBook) -> list[str]:
    return [event.kind for event in rules.events(dict.fromkeys(rules.texts, VECTOR))]


def test_agree_and_edit_add_one_and_a_new_rule_starts_at_two() -> None:
    rules = book(2, 2)
    rules.operate([op("AGREE", "9-1"), op("EDIT", "9-2", "better"), op("ADD", "", "new")])
    assert scores(rules) == {"9-1": 3, "9-2": 3, "30-1": 2}
    assert rules.rules["9-2"].rule == "better"
    assert rules.rules["9-2"].sources == (9, 30)
    assert rules.rules["30-1"].sources == (30,)


def test_remove_takes_one_from_nine_rules_and_three_from_ten_on() -> None:
    """The boundary is the number of rules before the comparison."""
    nine, ten = book(*[5] * 9), book(*[5] * 10)
    for rules in (nine, ten):
        rules.operate([op("REMOVE", "9-1"), op("ADD", "", "one more")])
    assert (nine.rules["9-1"].score, ten.rules["9-1"].score) == (4, 2)


def test_a_rule_is_dropped_at_zero_or_below() -> None:
    rules = book(1, 2, 3, *[5] * 7)
    rules.operate([op("REMOVE", "9-1"), op("REMOVE", "9-3"), op("REMOVE", "9-4")])
    assert "9-1" not in rules.rules
    assert "9-3" not in rules.rules
    assert rules.rules["9-4"].score == 2
    assert kinds(rules) == ["rule.remove"] * 3 + ["rule.drop"] * 2


def test_operations_apply_by_kind_and_rules_go_at_the_end() -> None:
    """A rule that one case speaks against and another one for is weighed once, after all of them."""
    rules = book(1)
    rules.operate([op("ADD", "", "new"), op("EDIT", "9-1", "better"), op("REMOVE", "9-1")])
    assert scores(rules) == {"9-1": 1, "30-1": 2}
    assert kinds(rules) == ["rule.remove", "rule.edit", "rule.add"]


def test_supported_rules_are_linked_to_the_tasks_they_rest_on() -> None:
    """Named cases count; where none is named, or only unknown ones, all do. REMOVE links nothing."""
    cases = [("S1", "3-0"), ("S2", "12-0"), ("F1", "2-0")]
    rules = book(2, 2, 2, cases=cases)
    rules.operate(
        [
            op("AGREE", "9-1", "", "S2"),
            op("EDIT", "9-2", "b"),
            op("REMOVE", "9-3", "", "S1"),
            op("ADD", "", "n", "X"),
        ]
    )
    assert rules.rules["9-1"].tasks == ("0-0", "12-0")
    assert rules.rules["9-2"].tasks == ("0-0", "2-0", "3-0", "12-0")
    assert rules.rules["9-3"].tasks == ("0-0",)
    assert rules.rules["30-1"].tasks == ("2-0", "3-0", "12-0")


def test_what_the_book_says_already_is_not_written_twice() -> None:
    """Case and white space do not count. An edit into another rule's words agrees with that rule."""
    rules = book(2, 2)
    rules.operate([op("ADD", "", "Rule  1"), op("EDIT", "9-1", "rule 2"), op("EDIT", "9-2", "RULE 2")])
    assert scores(rules) == {"9-1": 2, "9-2": 4}
    assert [rule.rule for rule in rules.rules.values()] == ["rule 1", "rule 2"]
    assert rules.texts == ()


def test_operations_on_unknown_rules_are_noted_and_change_nothing() -> None:
    rules = book(2)
    rules.operate([op("AGREE", "8-8"), op("REMOVE"), op("EDIT", "1-1", "x"), op("ADD", "", "rule 1")])
    assert scores(rules) == {"9-1": 2}
    [first, *_, last] = rules.events({})
    assert (first.op, first.kind, first.detail["reason"]) == ("note", "rule.ignored", "unknown_rule")
    assert last.detail["reason"] == "already_there"


def test_only_new_texts_need_vectors() -> None:
    rules = book(2, 2)
    rules.operate([op("AGREE", "9-1"), op("EDIT", "9-2", "better")])
    agree, edit = rules.events({"better": VECTOR})
    assert (agree.vectors, edit.vectors) == (None, {"c": VECTOR})
    with pytest.raises(ValueError, match="position 30: no vector of the rule 'better'"):
        rules.events({})


@pytest.mark.parametrize(("size", "most"), [(2, 1), (3, 1), (5, 1), (6, 2), (8, 2), (9, 3)])
def test_a_cluster_becomes_at_most_a_third_of_its_rules_and_at_least_one(size: int, most: int) -> None:
    """max(1, len // 3); further texts are left out, and every score is set back to 2."""
    rules = book(*range(3, 3 + size))
    [cluster] = rules.clusters()
    assert (len(cluster), rules.limit(cluster)) == (size, most)
    rules.merge({cluster[0]: [f"merged {n % 4}" for n in range(12)]})
    assert [rule.rule for rule in rules.rules.values()] == [f"merged {n}" for n in range(most)]
    assert set(scores(rules).values()) == {2}
    assert list(rules.rules) == [f"30-{n}" for n in range(1, most + 1)]
    assert kinds(rules) == ["rule.merge"] * size + ["rule.merged"] * most


def test_a_merged_rule_stands_for_the_tasks_and_positions_of_all() -> None:
    old = {
        "4-1": Rule(rule="a", score=3, tasks=("0-0", "11-0"), sources=(4, 20)),
        "9-1": Rule(rule="b", score=1, tasks=("2-0",), sources=(9,)),
    }
    rules = RuleBook(review(old, merge=True), PARAMS)
    rules.merge({"4-1": ["both"]})
    assert rules.rules == {
        "30-1": Rule(rule="both", score=2, tasks=("0-0", "2-0", "11-0"), sources=(4, 9, 20, 30))
    }


def test_rules_are_clustered_by_the_type_of_most_of_their_tasks() -> None:
    """Of equally common types the oldest counts."""
    types = {"0-0": "0-0", "1-0": "0-0", "2-0": "2-0", "3-0": "2-0", "4-0": "2-0"}
    old = {
        "9-1": Rule(rule="a", score=2, tasks=("0-0", "2-0", "3-0")),
        "9-2": Rule(rule="b", score=2, tasks=("0-0", "1-0")),
        "9-3": Rule(rule="c", score=2, tasks=("0-0", "2-0")),
        "10-1": Rule(rule="d", score=2, tasks=("4-0",)),
    }
    assert RuleBook(review(old, types=types), PARAMS).clusters() == [("9-2", "9-3"), ("9-1", "10-1")]


def test_a_rule_alone_and_a_cluster_without_an_answer_keep_their_texts() -> None:
    types = {"0-0": "0-0", "2-0": "2-0"}
    old = {
        "9-1": Rule(rule="a", score=7, tasks=("0-0",)),
        "9-2": Rule(rule="b", score=2, tasks=("2-0",)),
        "9-3": Rule(rule="c", score=5, tasks=("2-0",)),
    }
    rules = RuleBook(review(old, types=types), PARAMS)
    rules.merge({"9-1": ["ignored: it is alone"]})
    assert [(rule.rule, rule.score) for rule in rules.rules.values()] == [("a", 2), ("b", 2), ("c", 2)]
    assert kinds(rules) == ["rule.reset", "rule.reset"]


def test_a_review_compares_first_and_merges_what_is_left() -> None:
    old = {"9-1": Rule(rule="a", score=1, tasks=("0-0",)), "9-2": Rule(rule="b", score=1, tasks=("0-0",))}
    due = review(old, [("S1", "0-0")], merge=True)
    done = Reviewed(
        operations=(op("REMOVE", "9-1"), op("ADD", "", "c")), merged={"9-2": ("bc",)}, faults=("merge of 1-1: x",)
    )
    after = reviewed(due, done, PARAMS)
    assert [rule.rule for rule in after.rules.values()] == ["bc"]
    assert kinds(after) == [
        "review.fault",
        "rule.remove",
        "rule.add",
        "rule.drop",
        "rule.merge",
        "rule.merge",
        "rule.merged",
    ]
    no_merge = reviewed(due.model_copy(update={"merge": False}), done, PARAMS)
    assert [rule.rule for rule in no_merge.rules.values()] == ["b", "c"]


def test_a_skipped_review_is_noted_and_changes_nothing() -> None:
    due = review({"9-1": Rule(rule="a", score=1, tasks=("0-0",))}, [("S1", "0-0")], merge=True)
    after = reviewed(due, Reviewed(operations=(op("REMOVE", "9-1"),), skipped=True), PARAMS)
    assert after.rules == due.rules
    [note] = after.events({})
    assert (note.op, note.kind) == ("note", "review.skipped")


# --- when ------------------------------------------------------------------------------------------------


def bank(count: int, rules: int = 0) -> BankState:
    """``count`` records, every third one a failure, and some rules."""
    state = BankState()
    for position in range(count):
        events = [inserted(state, position)]
        if position == 0:
            events += [
                Event(
                    op="put",
                    kind="rule.add",
                    collection="rule",
                    id=f"0-{k}",
                    payload=Rule(rule=f"r{k}", score=2, tasks=("0-0",)).model_dump(mode="json"),
                    vectors={"c": VECTOR},
                )
                for k in range(1, rules + 1)
            ]
        state = apply(state, SimpleNamespace(position=position, events=tuple(events)))
    return state


def inserted(state: BankState, position: int) -> Event:
    label: Label = "failure" if position % 3 == 0 else "success"
    vector = Vector.of([float(position == axis) for axis in range(90)])
    return recorded(state, position, f"task {position}", "plan " * 400, label, vector, GraphParams())


def due_at(records: int, rules: int = 0, params: RuleParams = PARAMS) -> Review | None:
    """The review that the insert of record number ``records`` makes due."""
    state = bank(records - 1, rules)
    return review_due(state, inserted(state, records - 1), records - 1, params)


def test_rules_are_compared_every_twenty_records_from_forty_on_and_merged_every_forty() -> None:
    state, found = bank(0), {}
    for position in range(81):
        record = inserted(state, position)
        due = review_due(state, record, position, PARAMS)
        if due is not None:
            found[position + 1] = (bool(due.cases), due.merge)
        state = apply(state, SimpleNamespace(position=position, events=(record,)))
    assert found == {40: (True, True), 60: (True, False), 80: (True, True)}


def test_a_merge_alone_is_due_only_where_there_are_rules() -> None:
    params = RuleParams(start=4, compare_every=3, merge_every=4)
    assert due_at(4, 0, params) is None
    due = due_at(4, 1, params)
    assert due is not None
    assert (due.cases, due.merge, list(due.rules)) == ((), True, ["0-1"])
    assert due_at(3, 1, params) is None


def test_the_newest_twenty_records_are_compared_by_outcome() -> None:
    """The record that made the review due is the first; a long plan is cut to what is shown."""
    due = due_at(40)
    assert due is not None
    names = [case.name for case in due.cases]
    assert names == [*(f"S{n}" for n in range(1, 14)), *(f"F{n}" for n in range(1, 8))]
    assert [case.node for case in due.cases if case.outcome == "failure"] == [f"{n}-0" for n in range(39, 20, -3)]
    assert {case.node for case in due.cases} == {f"{n}-0" for n in range(20, 40)}
    assert {len(case.plan) for case in due.cases} == {PARAMS.case_chars}
    assert due.types == {f"{n}-0": f"{n}-0" for n in range(20, 40)}


def test_what_is_no_rule_stops_the_run() -> None:
    with pytest.raises(JournalError, match="record 7-1 of 'rule' is no rule"):
        Rule.of(Record(collection="rule", id="7-1", version=0, payload={"task": "x"}))


def test_rules_are_recalled_by_how_many_neighbours_they_were_drawn_from() -> None:
    """Then by score, then by id; a rule of no neighbour is not recalled, however similar its words are."""

    def hit(item: str, score: int, *tasks: str) -> Hit:
        payload = Rule(rule=f"text {item}", score=score, tasks=tasks).model_dump(mode="json")
        return Hit(record=Record(collection="rule", id=item, version=0, payload=payload), sim=0.1)

    voters = ("0-0", "1-0", "2-0", "0-0")
    found = [
        hit("9-1", 9, "7-0"),
        hit("9-2", 1, "1-0", "2-0"),
        hit("9-3", 1, "0-0"),
        hit("10-1", 5, "2-0"),
        hit("9-4", 5, "1-0"),
    ]
    ranked = [(hit.record.id, count) for hit, _, count in ranked_rules(found, voters)]
    assert ranked == [("9-2", 2), ("9-3", 2), ("9-4", 1), ("10-1", 1)]


# --- any history -----------------------------------------------------------------------------------------

SMALL = RuleParams(start=3, compare_every=2, merge_every=4, compared=4, crowded=3)
TEXTS = ("ask first", "Ask  first", "check twice", "be brief", "stop early")
operations = st.builds(
    Operation,
    op=st.sampled_from(["REMOVE", "AGREE", "EDIT", "ADD"]),
    rule=st.integers(0, 8).map(str),
    text=st.sampled_from(TEXTS),
    cases=st.lists(st.sampled_from(["S1", "F1", "S3", "none"]), max_size=2).map(tuple),
)
episodes = st.fixed_dictionaries(
    {
        "task": st.integers(0, 6),
        "outcome": st.sampled_from(["success", "failure"]),
        "operations": st.lists(operations, max_size=5),
        "texts": st.lists(st.sampled_from(TEXTS), max_size=3),
        "skipped": st.booleans(),
    }
)


def committed(state: BankState, episode: dict[str, Any]) -> tuple[Event, ...]:
    """One commit, with the n-th rule meant where an operation names the number n."""
    position, task = state.version, episode["task"]
    vector = Vector.of([1.0, task % 3, task // 3])
    record = recorded(state, position, f"task {task}", "plan", episode["outcome"], vector, GraphParams())
    due = review_due(state, record, position, SMALL)
    if due is None:
        return (record,)
    ids = [*due.rules, "99-9"]
    named = [o.model_copy(update={"rule": ids[int(o.rule) % len(ids)]}) for o in episode["operations"]]
    applied = RuleBook(due, SMALL)
    applied.operate(named)
    merged = {cluster[0]: tuple(episode["texts"]) for cluster in applied.clusters()}
    done = Reviewed(operations=tuple(named), merged=merged, skipped=episode["skipped"])
    after = reviewed(due, done, SMALL)
    return (record, *after.events(dict.fromkeys(after.texts, VECTOR)))


@settings(max_examples=60, deadline=None)
@given(st.lists(episodes, max_size=16))
def test_any_history_replays_to_the_state_it_made_and_keeps_the_books_rules(history: list[dict[str, Any]]) -> None:
    """R34, R47: one record per episode; every rule is alive, rests on tasks that exist and has a vector; a merge
    sets every score back; only a due review changes rules."""
    state, entries = BankState(), []
    for position, episode in enumerate(history):
        before = state
        entry = SimpleNamespace(position=position, events=committed(state, episode))
        state = apply(state, entry)
        entries.append(entry)
        rules = [Rule.of(record) for record in state.collection("rule")]
        assert all(rule.score >= 1 for rule in rules)
        assert all(set(rule.tasks) <= state.records.keys() and rule.tasks for rule in rules)
        assert all(record.vectors == {"c": VECTOR} for record in state.collection("rule"))
        if any(event.kind == "rule.merged" for event in entry.events):
            assert all(rule.score == 2 for rule in rules)
        if position + 1 < 3 or (position + 1) % 2:
            assert state.collection("rule") == before.collection("rule")
    assert len(state.collection("record")) == len(history)
    assert replay(entries).digest() == state.digest()
    assert replay(entries, len(entries) // 2).version == len(entries) // 2
