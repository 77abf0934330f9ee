"""A-MapReduce in whole sweeps: what is asked, recalled and committed, and what models may get wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.core.bank import BankState, replay
from chime_dist.core.episode import EpisodeTrace, Outcome, Proposal, Role, Trajectory, Unit
from chime_dist.core.model_call import ChatReply, ChatRequest, Turn
from chime_dist.core.rule_book import Case, Review, Rule, RuleParams
from chime_dist.core.task import TaskView
from chime_dist.core.task_graph import TaskRecord
from chime_dist.core.vector import Vector
from chime_dist.engine.context import Reflecting
from chime_dist.errors import BackboneError
from chime_dist.methods.a_mapreduce.method import AMapReduce, AMapReduceOptions, Learnt
from chime_dist.methods.a_mapreduce.rewriting import rewritten
from chime_dist.ports import CommitReply, Prepared
from chime_dist.wiring.bank_tools import search
from tests.integration.processes import finish, journals_of, kill_tree, launch_below, start, wait_for_rows
from tests.spec.sweeps import journal_of, launched, records_of, written

SWEEP = """\
name: amr
benchmarks: [{{name: credit_world, families: 4, tasks_per_family: {tasks}, steps: 1, action_mode: {mode}{world}}}]
methods: [{{name: a_mapreduce{options}}}]
backbones: [{{name: m, scripted: {{script: credit_world}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 64}}
protocol: {{epochs: {epochs}, window: {window}}}
cluster:
  slots: 8
  workers: {workers}
  endpoints: {{m: {{kind: scripted, latency_s: [0.0, {latency}]}}}}
"""
SOON = ", rules: {start: 8, compare_every: 4, merge_every: 8}"
"""Rewrites early enough for a short stream."""
EVENTFUL = ", seed: 3, noise: 0.2"
"""A world in which the double writes, corrects, drops and merges rules within 80 cases."""


def sweep(
    tasks: int = 10,
    mode: str = "tools",
    options: str = SOON,
    epochs: int = 1,
    window: int = 4,
    workers: int = 1,
    latency: float = 0.0,
    world: str = "",
) -> str:
    return SWEEP.format(**locals())


def run_of(launch: LaunchDirectory) -> str:
    [run] = launch.manifest.runs
    return run


def bank_of(launch: LaunchDirectory) -> BankState:
    return replay(journal_of(launch, run_of(launch)))


def rules_in(state: BankState) -> list[Rule]:
    return [Rule.of(record) for record in state.collection("rule")]


def kinds_of(launch: LaunchDirectory) -> Counter[str]:
    return Counter(event.kind for entry in journal_of(launch, run_of(launch)) for event in entry.events)


def traces_of(launch: LaunchDirectory, phase: Literal["train", "eval"]) -> list[EpisodeTrace]:
    archive, run = EpisodeArchive(launch), run_of(launch)
    found = []
    for record in records_of(launch, run, phase):
        trace = archive.trace_at(run, phase, record.unit.position, record.unit.read_version)
        assert trace is not None
        found.append(trace)
    return found


Speech = Callable[[ChatRequest], ChatReply | None]


def overhear(monkeypatch: pytest.MonkeyPatch, speech: Speech) -> None:
    """Let ``speech`` answer, or raise, before the shipped double is asked."""
    complete = ScriptedBackbone.complete

    async def said(self: ScriptedBackbone, request: ChatRequest, budget_s: float) -> ChatReply:
        return speech(request) or await complete(self, request, budget_s)

    monkeypatch.setattr(ScriptedBackbone, "complete", said)


# --- episodes --------------------------------------------------------------------------------------------


def test_the_settings_are_the_published_ones() -> None:
    """R43: edges, recall, votes and the arithmetic of rules."""
    options = AMapReduceOptions().model_dump()
    assert options["graph"] == {"edge_similarity": 0.7, "edge_candidates": 10}
    recalled = {key: options["recall"][key] for key in ("successes", "failures", "min_similarity")}
    assert recalled == {"successes": 1, "failures": 1, "min_similarity": 0.3}
    assert (options["recall"]["success_neighbours"], options["recall"]["failure_neighbours"]) == (4, 2)
    assert (options["insights"], options["hints"]) == (3, 3)
    rules = options["rules"]
    assert (rules["start"], rules["compare_every"], rules["merge_every"], rules["merge_share"]) == (40, 20, 40, 3)
    assert (rules["added_score"], rules["step"], rules["crowded"], rules["crowded_step"]) == (2, 1, 10, 3)


async def test_an_episode_costs_what_the_method_says(tmp_path: Path) -> None:
    """Split, one call per subtask, reduce, and a projection where rules were recalled: 2 + s + r planner calls."""
    launch = await launched(tmp_path, sweep())
    stated = AMapReduce(AMapReduceOptions()).calls(1)[Role.PLANNER]
    assert stated == 3 + AMapReduceOptions().max_subtasks
    costs = set()
    for trace in [*traces_of(launch, "train"), *traces_of(launch, "eval")]:
        notes = {step.content: step.data for step in trace.trajectory.steps if step.kind == "event"}
        expected = 2 + len(notes["mapped"]["parts"]) + ("projected" in notes)
        calls = trace.record.usage["planner"].calls
        assert calls == expected <= stated
        assert "gate" not in trace.record.usage
        costs.add(calls)
    assert costs == {4, 5}


async def test_without_insights_there_is_no_projection(tmp_path: Path) -> None:
    options = ", insights: 0, max_subtasks: 1, rules: {start: 8, compare_every: 4, merge_every: 8}"
    launch = await launched(tmp_path, sweep(options=options))
    assert AMapReduce(AMapReduceOptions(insights=0, max_subtasks=1)).calls(1) == {Role.PLANNER: 3}
    assert {trace.record.usage["planner"].calls for trace in traces_of(launch, "train")} == {3}
    assert {recall.collection for t in traces_of(launch, "eval") for recall in t.trajectory.recalls} == {"record"}


async def test_what_was_recalled_is_what_the_prompts_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R17: at most one success, one failure and three rules; each choice is in the trace, with its numbers."""
    asked: dict[str, list[ChatRequest]] = {}

    def listen(request: ChatRequest) -> None:
        asked.setdefault(request.session_id, []).append(request)

    overhear(monkeypatch, listen)
    launch = await launched(tmp_path, sweep(tasks=20))
    state = bank_of(launch)
    for trace in traces_of(launch, "eval"):
        records, rules = trace.trajectory.recalls
        outcomes = [TaskRecord.of(state.records[found.id]).outcome for found in records.selected]
        assert outcomes in (["success", "failure"], ["success"], ["failure"])
        assert len(rules.selected) <= 3
        assert all(candidate.score >= 1 for candidate in rules.candidates)
        assert [c.id for c in sorted(rules.candidates, key=lambda c: c.rank_after)][: len(rules.selected)] == [
            found.id for found in rules.selected
        ]
        said = {
            request.schema_name: str(request.messages[-1]["content"]) for request in asked[trace.record.unit.key]
        }
        assert all(found.experience in said["hints"] for found in rules.selected) or not rules.selected
        for prompt in ("subtasks", "guidance", "reduced"):
            assert all(found.scenario in said[prompt] for found in records.selected)
            assert said[prompt].count("It was a ") == len(records.selected)
        assert "It was a " not in str([r for r in asked[trace.record.unit.key] if r.tools])


async def test_roles_share_the_longest_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every planner prompt of an episode starts alike, and map calls differ at the end alone."""
    asked: dict[str, list[ChatRequest]] = {}

    def listen(request: ChatRequest) -> None:
        asked.setdefault(request.session_id, []).append(request)

    overhear(monkeypatch, listen)
    launch = await launched(tmp_path, sweep(tasks=4, mode="json_schema"))
    for trace in traces_of(launch, "eval"):
        requests = asked[trace.record.unit.key]
        assert len({str(request.messages[0]) for request in requests}) == 1
        assert all(str(r.messages[1]["content"]).startswith(trace.trajectory.view.request) for r in requests)
        one, other = (str(r.messages[1]["content"]) for r in requests if r.schema_name == "guidance")
        assert one.partition("Write the guidance")[0] == other.partition("Write the guidance")[0]


# --- commits ---------------------------------------------------------------------------------------------


async def test_every_scored_position_leaves_a_record_labelled_by_its_outcome(tmp_path: Path) -> None:
    """R47: two epochs over n tasks make 2n records beside the rules; no diagnosis, no label of a gate."""
    launch = await launched(tmp_path, sweep(epochs=2))
    entries = journal_of(launch, run_of(launch))
    state = replay(entries)
    assert len(state.records) == len(entries) + len(state.collection("rule"))
    for entry, trace in zip(entries, traces_of(launch, "train"), strict=True):
        payload = TaskRecord.of(state.records[f"{entry.position}-0"])
        assert (payload.outcome, entry.diagnosis, entry.empty_reason) == (entry.outcome.value, None, None)
        assert (payload.task, payload.plan) == (trace.trajectory.view.request, trace.trajectory.plan)
        assert trace.record.gate_status == "off"
    nodes = [TaskRecord.of(record).node for record in state.collection("record")]
    assert nodes[len(nodes) // 2 :] != [f"{n}-0" for n in range(len(nodes) // 2, len(nodes))]
    assert len(set(nodes)) == len(nodes) // 2


async def test_a_bank_search_looks_through_records_and_rules(tmp_path: Path) -> None:
    """Without values to rank by, what is most similar is told: of a known task its own record."""
    launch = await launched(tmp_path, sweep())
    state = bank_of(launch)
    [known] = [record for record in state.collection("record") if record.id == "5-0"]
    records, rules = await search(launch, run_of(launch), state, TaskRecord.of(known).task, None)
    assert (records.recall.collection, rules.recall.collection) == ("record", "rule")
    assert (records.recall.candidates[0].id, records.recall.candidates[0].sim) == ("5-0", 1.0)
    assert len(records.recall.candidates) + records.beyond_top == len(state.collection("record"))
    assert len(rules.recall.candidates) == len(state.collection("rule")) > 0
    assert not any(candidate.selected for candidate in records.recall.candidates)


async def test_an_infra_position_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed empty: no record, and no count toward the next rewrite."""
    broken = "case 7: berth booking"

    def fail(request: ChatRequest) -> None:
        if request.schema_name == "reduced" and broken in str(request.messages[1]["content"]).partition(".")[0]:
            raise BackboneError("the server fails this prompt", "server_error")

    overhear(monkeypatch, fail)
    launch = await launched(tmp_path, sweep())
    entries = journal_of(launch, run_of(launch))
    [empty] = [entry for entry in entries if entry.outcome is Outcome.INFRA]
    assert (empty.events, empty.empty_reason) == ((), "infra:backbone")
    state = replay(entries)
    assert len(state.collection("record")) == len(entries) - 1
    reviews = [entry.position for entry in entries if len(entry.events) > 1]
    assert reviews
    for position in reviews:
        assert len(replay(entries, position + 1).collection("record")) in (8, 12, 16, 20, 24, 28)


async def test_the_chain_depends_on_the_window_and_never_on_workers_or_delays(tmp_path: Path) -> None:
    """R7: any window is sound; the same one gives the same chain on one slot's pace or another's."""
    chains: dict[int, set[str]] = {}
    for window in (1, 16):
        for workers, latency in ((1, 0.0), (4, 0.02)):
            text = sweep(window=window, workers=workers, latency=latency)
            launch = await launched(tmp_path / f"{window}-{workers}", text)
            chains.setdefault(window, set()).add(journal_of(launch, run_of(launch))[-1].content_hash)
    assert {window: len(found) for window, found in chains.items()} == {1: 1, 16: 1}
    assert chains[1] != chains[16]


async def test_a_review_whose_model_fails_is_skipped_and_the_next_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is up and fails one prompt costs that rewrite, never a record."""
    failed: list[str] = []

    def fail(request: ChatRequest) -> None:
        if request.schema_name == "rule_operations" and request.session_id in ("rules:7", "rules:11"):
            failed.append(request.session_id)
            raise BackboneError("the server fails this prompt", "server_error")

    overhear(monkeypatch, fail)
    launch = await launched(tmp_path, sweep())
    entries = journal_of(launch, run_of(launch))
    skipped = {entry.position for entry in entries for event in entry.events if event.kind == "review.skipped"}
    assert skipped == {7, 11}
    assert Counter(failed) == {"rules:7": 3, "rules:11": 3}
    assert kinds_of(launch)["record.insert"] == len(entries) == 28
    assert kinds_of(launch)["rule.add"] > 0


async def test_replies_that_cannot_be_used_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B1, B8: rules stand in for hints, the task for its subtasks; a rewrite without a usable reply is noted."""
    useless = {"hints", "subtasks", "merged_rules"}

    def mumble(request: ChatRequest) -> ChatReply | None:
        if request.schema_name in useless or request.session_id == "rules:11":
            return ChatReply(text="I would rather not say.")
        return None

    overhear(monkeypatch, mumble)
    launch = await launched(tmp_path, sweep(tasks=20, options=f", graph: {{edge_similarity: 0.3}}{SOON}"))
    faults = {
        str(event.detail["reason"])
        for entry in journal_of(launch, run_of(launch))
        for event in entry.events
        if event.kind == "review.fault"
    }
    assert "comparison: not_json" in faults
    assert any(fault.startswith("merge of ") for fault in faults)
    assert kinds_of(launch)["rule.merged"] == 0
    hinted = 0
    for trace in [*traces_of(launch, "train"), *traces_of(launch, "eval")]:
        notes = {step.content: step.data for step in trace.trajectory.steps if step.kind == "event"}
        assert [part["subtask"] for part in notes["mapped"]["parts"]] == ["The whole task"]
        shown = [found.experience for recall in trace.trajectory.recalls[1:] for found in recall.selected]
        assert notes.get("projected", {"hints": []})["hints"] == shown
        hinted += bool(shown)
    assert hinted


async def test_a_task_that_nobody_can_see_leaves_no_record() -> None:
    """BFCL-v4 has one request of control characters; its text cannot be embedded."""
    method = AMapReduce(AMapReduceOptions())
    unit = Unit(run_id="r", phase="train", epoch=0, position=0, task="t", read_version=0)
    unseen = Trajectory(view=TaskView(request="\u200b\n", messages=()))
    context = Reflecting(unit, bank=None, models=None)  # type: ignore[arg-type]
    reflection = await method.reflect(context, unseen, Outcome.FAILURE)
    assert (reflection.status, reflection.content) == ("off", {})


def test_a_proposal_without_content_commits_nothing() -> None:
    method = AMapReduce(AMapReduceOptions())
    assert method.prepare(BankState(), _proposal({})) == Prepared()


@pytest.mark.parametrize(("count", "crowded"), [(9, False), (10, True)])
async def test_a_comparison_is_told_that_the_book_is_crowded_from_ten_rules_on(count: int, crowded: bool) -> None:
    """R43: at the very number from which a REMOVE takes three points."""
    asked: list[Turn] = []

    async def ask(turn: Turn) -> ChatReply:
        asked.append(turn)
        return ChatReply(text="")

    rules = {f"{n}-0": Rule(rule=f"rule {n}", score=2, tasks=("0-0",)) for n in range(count)}
    case = Case(name="S1", node="0-0", outcome="success", task="t", plan="p")
    review = Review(position=30, rules=rules, cases=(case,), merge=False, types={"0-0": "0-0"})
    await rewritten(review, RuleParams(), ask)
    assert [turn.variables["crowded"] for turn in asked] == [crowded]


def test_an_answer_that_nothing_asked_for_is_refused() -> None:
    learnt = Learnt(task="t", plan="p", vector=Vector.of([1.0])).model_dump(mode="json")
    method = AMapReduce(AMapReduceOptions())
    for content in ({}, learnt):
        with pytest.raises(ValueError, match="position 0: a review is answered that is not due"):
            method.finish(BankState(), _proposal(content), [CommitReply(key="review")])


# --- the command line, crashes, and the real benchmark ---------------------------------------------------


@pytest.mark.slow
async def test_a_killed_sweep_of_the_shipped_settings_resumes_to_the_same_rules(tmp_path: Path) -> None:
    """C1: from the command line, with rewrites at 40, 60 and 80 records; kill -9 around them changes nothing."""
    text = sweep(tasks=30, options="", latency=0.03, window=8, world=EVENTFUL)
    calm = await launched(tmp_path / "calm", sweep(tasks=30, options="", window=8, world=EVENTFUL))
    expected = [entry.content_hash for entry in journal_of(calm, run_of(calm))]
    assert len(expected) == 84
    kinds = kinds_of(calm)
    assert min(kinds[f"rule.{kind}"] for kind in ("add", "edit", "agree", "remove", "drop", "merged")) > 0
    folder = tmp_path / "killed"
    written(folder, text)
    process = start(["sweep", "sweep.yaml"], folder)
    for rows in (42, 81):
        wait_for_rows(process, folder / "runs", rows)
        kill_tree(process)
        launch = launch_below(folder / "runs")
        process = start(["resume", str(launch)], folder)
    assert finish(process, folder) == 0, (folder / "output.txt").read_text()
    [entries] = journals_of(launch).values()
    assert [entry.content_hash for entry in entries] == expected


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_well_formed_nonsense_goes_through_every_branch_on_the_real_benchmark(
    tmp_path: Path, mode: str
) -> None:
    """BFCL-v4 Live with the backbone that answers by hash: everything is scored, nothing is infra."""
    text = f"""\
name: nonsense
benchmarks: [{{name: bfcl_v4, categories: [live_simple, live_irrelevance], action_mode: {mode}}}]
methods:
  - name: a_mapreduce
    recall: {{min_similarity: 0.0}}
    graph: {{edge_similarity: 0.3}}
    rules: {{start: 8, compare_every: 4, merge_every: 8}}
backbones: [{{name: m, scripted: {{seed: 2}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 32}}
protocol: {{limit: 30, epochs: 2, window: 4}}
cluster:
  slots: 4
  endpoints: {{m: {{kind: scripted}}}}
"""
    launch = await launched(tmp_path, text)
    run = run_of(launch)
    for phase in ("train", "eval"):
        assert all(record.outcome is not Outcome.INFRA for record in records_of(launch, run, phase))
    entries = journal_of(launch, run)
    assert all(entry.empty_reason is None for entry in entries)
    assert {"record.insert", "rule.add", "rule.remove", "rule.merge", "rule.merged"} <= kinds_of(launch).keys()
    assert any(rules_in(replay(entries, version)) for version in range(len(entries)))


def _proposal(content: dict[str, object]) -> Proposal:
    return Proposal(
        run_id="r",
        position=0,
        task="t",
        attempt="a",
        read_version=0,
        outcome=Outcome.SUCCESS,
        content=content,
    )
