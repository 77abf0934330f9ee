"""WebAnchor: plans are sampled, scored side by side, and one is pinned (R43, R35)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.benchmarks.credit_world.benchmark import CreditWorld, CreditWorldOptions
from chime_dist.core.episode import EndReason, Outcome, Role
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.core.reply import Fault
from chime_dist.errors import BackboneError
from chime_dist.methods.webanchor.judging import DIMENSIONS, choose, scores_schema
from chime_dist.methods.webanchor.method import WebAnchor, WebAnchorOptions
from tests.integration.toy import ToyBenchmark
from tests.methods import single_episode
from tests.methods.single_episode import Told, Words, episode
from tests.spec.sweeps import journal_of, launched, records_of, runs_of


def marks(*values: float) -> dict[str, Any]:
    return dict(zip(DIMENSIONS, values, strict=True))


def verdict(*plans: Any) -> str:
    return json.dumps({f"plan_{number}": plan for number, plan in enumerate(plans, 1)})


GOOD, FAIR, POOR = marks(9, 9, 8, 8, 9, 8), marks(6, 6, 6, 6, 6, 6), marks(1, 2, 1, 2, 1, 2)


def test_the_highest_mean_wins_and_all_dimensions_count_alike() -> None:
    """R43: (9+9+8+8+9+8)/6 = 8.5 beats (10+10+10+10+9+1)/6 = 8.33."""
    choice = choose(verdict(FAIR, marks(10, 10, 10, 10, 9, 1), GOOD, POOR), "stop", 4)
    assert [score.mean for score in choice.scores] == [6.0, 8.333333, 8.5, 1.5]
    assert (choice.chosen, choice.judged, choice.fault) == (2, True, None)


def test_of_equal_means_the_lowest_index_wins() -> None:
    """R43: in whatever dimensions the points were given, and whatever their order does to a float sum."""
    choice = choose(verdict(POOR, marks(10, 10, 10, 10, 10, 1), GOOD, marks(1, 10, 10, 10, 10, 10)), "stop", 4)
    assert [score.mean for score in choice.scores] == [1.5, 8.5, 8.5, 8.5]
    assert choice.chosen == 1
    tenths = marks(1.1, 2.2, 3.3, 4.4, 5.5, 6.6), marks(6.6, 5.5, 4.4, 3.3, 2.2, 1.1)
    assert choose(verdict(*tenths), "stop", 2).chosen == 0


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "8",
        [9, 9, 9, 9, 9, 9],
        marks(10, 10, 10, 10, 10, 10) | {"feasibility": "10"},
        marks(10, 10, 10, 10, 10, 10) | {"feasibility": True},
        marks(10, 10, 10, 10, 10, 10) | {"feasibility": None},
        dict.fromkeys(DIMENSIONS[:5], 10),
        marks(10, 10, 10, 10, 10, 11),
        marks(10, 10, 10, 10, 10, 0),
        marks(10, 10, 10, 10, 10, 10**400),
    ],
)
def test_a_plan_with_a_missing_or_impossible_score_is_unscored_and_cannot_win(bad: Any) -> None:
    choice = choose(verdict(bad, POOR), "stop", 2)
    assert [score.mean for score in choice.scores] == [None, 1.5]
    assert (choice.chosen, choice.scores[0].scores) == (1, {})


def test_a_number_that_is_not_finite_is_no_score() -> None:
    text = verdict(GOOD, POOR).replace("9", "Infinity", 1)
    assert choose(text, "stop", 2).chosen == 1
    assert choose(text.replace("Infinity", "NaN"), "stop", 2).chosen == 1


@pytest.mark.parametrize(
    ("text", "finish_reason", "fault"),
    [
        (verdict(POOR, GOOD), "length", Fault.TRUNCATED),
        ("", "stop", Fault.EMPTY),
        ("plan_2 is the best one", "stop", Fault.NOT_JSON),
        (verdict(POOR, GOOD) + verdict(GOOD, POOR), "stop", Fault.CONFLICTING),
        ('{"plan_1": {}, "plan_1": {"feasibility": 3}}', "stop", Fault.CONFLICTING),
        ("{}", "stop", None),
        (verdict({"overall": 9}, {"overall": 3}), "stop", None),
    ],
)
def test_where_no_plan_is_scored_the_first_is_taken(text: str, finish_reason: str, fault: Fault | None) -> None:
    """R43 [U]: no second judging call; the reply's start is kept as evidence."""
    choice = choose(text, finish_reason, 2)
    assert (choice.chosen, choice.judged, choice.fault) == (0, False, fault)
    assert choice.excerpt == " ".join(text.split())[:200]


def test_words_around_the_object_and_unknown_keys_change_no_choice() -> None:
    text = f"Here you are:\n```json\n{verdict(POOR, GOOD | {'note': 'clear'}, None)}\n```"
    assert choose(text, "stop", 2).chosen == 1


def test_the_schema_asks_for_each_plan_and_dimension_once_and_nothing_else() -> None:
    schema = scores_schema(2)
    jsonschema.validate(json.loads(verdict(POOR, GOOD)), schema)
    for reply in (verdict(POOR), verdict(POOR, GOOD, FAIR), verdict(POOR, marks(0, 1, 1, 1, 1, 1))):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(reply), schema)


def planner(scores: str = verdict(POOR, FAIR, GOOD, FAIR)) -> Words:
    def said(request: ChatRequest) -> str:
        if request.schema_name == "scores":
            return scores
        text = str(request.messages[-1]["content"])
        return f"  route {text[text.index('draft ') + 6]}\n"

    return said


def world(mode: Literal["tools", "json_schema"] = "tools") -> CreditWorld:
    return CreditWorld(CreditWorldOptions(steps=2, action_mode=mode))


async def planned(scores: str | None = None, mode: Literal["tools", "json_schema"] = "tools") -> Told:
    words = planner() if scores is None else planner(scores)
    return await episode(WebAnchor(WebAnchorOptions()), world(mode), {Role.PLANNER: words})


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_an_episode_makes_five_planner_calls_and_pins_the_chosen_plan(
    mode: Literal["tools", "json_schema"],
) -> None:
    """R43, R35: four at T=0.6, one at T=0 that reads all four, then one executor call per step."""
    told = await planned(mode=mode)
    *drafts, judge = told.requests(Role.PLANNER)
    assert [request.temperature for request in drafts] == [0.6] * 4
    assert (judge.temperature, judge.schema_name) == (0.0, "scores")
    assert all(f"route {number}" in str(judge.messages) for number in (1, 2, 3, 4))
    assert told.calls == {"executor": 2, "planner": 5}
    assert told.calls["planner"] == WebAnchor(WebAnchorOptions()).calls(2)[Role.PLANNER]
    assert told.trace.trajectory.plan == "route 3"
    for request in told.requests(Role.EXECUTOR):
        assert "route 3" in str(request.messages)
        assert not any(f"route {number}" in str(request.messages) for number in (1, 2, 4))


async def test_all_requests_share_one_session_and_drafts_differ_in_their_last_line_only() -> None:
    """The server's prefix cache serves every draft, and equal requests do not make equal drafts."""
    told = await planned()
    assert len({request.session_id for _, request in told.asked}) == 1
    drafts = [
        str(request.messages[-1]["content"]).rpartition("\n") for request in told.requests(Role.PLANNER, "draft")
    ]
    assert len({head for head, _, _ in drafts}) == 1
    assert len({last for _, _, last in drafts}) == 4
    assert len({json.dumps(request.messages[:-1]) for request in told.requests(Role.PLANNER, "draft")}) == 1


async def test_candidates_scores_and_choice_are_steps_of_the_trajectory() -> None:
    told = await planned()
    *candidates, choice = told.events
    assert [(step.content, step.data["candidate"]) for step in candidates] == [
        (f"route {number}", number) for number in (1, 2, 3, 4)
    ]
    assert choice.content == "plan 3 of 4 is chosen, mean score 8.5"
    assert choice.data["chosen"] == 3
    assert [score["mean"] for score in choice.data["scores"]] == [1.5, 6.0, 8.5, 6.0]
    assert choice.data["scores"][0]["scores"] == POOR
    assert [step.kind for step in told.trace.trajectory.steps[:6]] == ["event"] * 5 + ["plan"]


async def test_a_judge_without_scores_costs_no_further_call_and_is_recorded() -> None:
    told = await planned("They are all fine.")
    choice = told.events[-1]
    assert told.calls["planner"] == 5
    assert told.trace.trajectory.plan == "route 1"
    assert choice.content == "plan 1 of 4 is taken: the judge's reply scores none"
    assert (choice.data["reason"], choice.data["reply"]) == ("not_json", "They are all fine.")
    assert (await planned("{}")).events[-1].data["reason"] == "no usable scores"


async def test_the_drafts_are_asked_for_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four that wait for each other all come back; one after the other they would hang."""
    barrier = asyncio.Barrier(4)
    complete = single_episode.Speaking.complete

    async def together(self: single_episode.Speaking, request: ChatRequest, budget_s: float) -> ChatReply:
        if request.schema_name == "draft":
            async with asyncio.timeout(30):
                await barrier.wait()
        return await complete(self, request, budget_s)

    monkeypatch.setattr(single_episode.Speaking, "complete", together)
    assert (await planned()).calls["planner"] == 5


async def test_a_draft_that_fails_ends_the_attempt_and_the_other_calls() -> None:
    """A9: our endpoint's failure is infra, and nothing goes on calling in the episode's name."""

    def fails(request: ChatRequest) -> str:
        raise BackboneError("no healthy upstream", "server_error", 503)

    told = await episode(WebAnchor(WebAnchorOptions()), world(), {Role.PLANNER: fails})
    assert (told.trace.record.outcome, told.trace.record.end_reason) == (Outcome.INFRA, EndReason.BACKBONE)
    assert told.requests(Role.EXECUTOR) == []
    assert told.requests(Role.PLANNER, "scores") == []


async def test_other_widths_cost_what_they_say() -> None:
    """R35: the judge decodes at 0 whatever the backbone's own temperature is."""
    method = WebAnchor(WebAnchorOptions(candidates=2, temperature=1.0))
    told = await episode(method, ToyBenchmark(3), {Role.PLANNER: planner(verdict(POOR, FAIR))}, temperature=0.9)
    assert told.calls["planner"] == method.calls(3)[Role.PLANNER] == 3
    assert told.trace.trajectory.plan == "route 2"
    assert [request.temperature for request in told.requests(Role.PLANNER)] == [1.0, 1.0, 0.0]


SWEEP = """\
name: anchored
benchmarks: [{name: credit_world, families: 2, tasks_per_family: 10, steps: 1, action_mode: %s}]
methods: [webanchor, no_plan]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0]
embedder: {kind: hashing, dim: 64}
protocol: {epochs: 2, window: 4}
cluster:
  slots: 8
  endpoints: {m: {kind: scripted}}
"""


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_a_sweep_runs_one_epoch_and_commits_no_event(tmp_path: Path, mode: str) -> None:
    """R6, R43: no state, so the train stream is passed once; every position is committed, none with an event."""
    launch = await launched(tmp_path, SWEEP % mode)
    [run] = runs_of(launch, "webanchor")
    train, evaluated = records_of(launch, run, "train"), records_of(launch, run, "eval")
    assert (len(train), len(evaluated)) == (14, 6)
    entries = journal_of(launch, run)
    assert [(entry.events, entry.empty_reason) for entry in entries] == [((), None)] * 14
    assert {used.calls for record in train for role, used in record.usage.items() if role == "planner"} == {5}
    assert {record.outcome for record in train} == {Outcome.SUCCESS, Outcome.FAILURE}
    trace = EpisodeArchive(launch).trace(train[0].unit)
    assert trace is not None
    drafts = {step.content for step in trace.trajectory.steps if "candidate" in step.data}
    assert trace.trajectory.plan in drafts
    assert len(drafts) > 1


async def test_well_formed_nonsense_passes_through_bfcl_without_a_fault_of_ours(tmp_path: Path) -> None:
    """R42: real tasks, a model whose words mean nothing."""
    text = SWEEP.replace(
        "{name: credit_world, families: 2, tasks_per_family: 10, steps: 1, action_mode: %s}", "bfcl_v4"
    )
    text = text.replace("{script: credit_world}", "{seed: 1}").replace("window: 4", "window: 4, limit: 20")
    launch = await launched(tmp_path, text)
    [run] = runs_of(launch, "webanchor")
    records = [*records_of(launch, run, "train"), *records_of(launch, run, "eval")]
    assert len(records) == 20
    assert {record.usage["planner"].calls for record in records} == {5}
    assert {record.usage["executor"].calls for record in records} == {1}
