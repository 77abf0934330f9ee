"""What tasks rest on is built once, before the runs, and survives whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.directory.prerequisite_files import PrerequisiteCosts, PrerequisiteFiles
from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.benchmarks.bfcl_v4 import package
from chime_dist.config.loading import load_sweep
from chime_dist.core.episode import Outcome, Usage
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.core.spending import Payer
from chime_dist.engine.driver import Ending
from chime_dist.errors import BackboneError, BenchmarkError, RunDirectoryError
from chime_dist.ports import Prerequisite
from chime_dist.wiring import bookkeeping, services
from chime_dist.wiring.following import spent_so_far
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import plan_runs
from chime_dist.wiring.prerequisites import planned, prepared
from chime_dist.wiring.results import launch_report
from tests.benchmarks.rememberer import remembering
from tests.integration.test_real_services import contents_below
from tests.spec.sweeps import SWEEP as CREDIT_WORLD
from tests.spec.sweeps import launched, records_of, resumed, runs_of, written

TASKS = [f"memory_kv_{130 + index}-notetaker-{index}" for index in range(25)]
SESSIONS = [f"memory_kv_prereq_{32 + index}-notetaker-{index}" for index in range(5)]
REQUESTS = dict(zip(SESSIONS, (10, 8, 10, 10, 10), strict=True))
"""Two for each of the user's turns: write it down, say so."""

GOLD = "GOLD-CANARY-93d1"

FULL = f"""\
name: memories
benchmarks: [{{name: bfcl_v4, categories: [memory_kv], task_ids: {json.dumps(TASKS)}}}]
methods: [chime, no_plan]
backbones: [{{name: org/m, scripted: {{seed: 2}}}}]
orderings: [0, 1, 2]
embedder: {{kind: hashing, dim: 16}}
protocol: {{epochs: 1, window: 4}}
episode: {{deadline_s: 60}}
cluster:
  slots: 4
  outage_patience_s: 0.1
  endpoints: {{org/m: {{kind: scripted}}}}
"""
SMALL = FULL.replace("[chime, no_plan]", "[no_plan]").replace("[0, 1, 2]", "[0]").replace("window: 4", "limit: 4")


@dataclass
class Model:
    """The remembering double behind every scripted backbone, and what a test lets go wrong."""

    before: Callable[[ChatRequest], None] = lambda request: None
    """Called with each request; may raise."""
    asked: list[ChatRequest] = field(default_factory=list)
    """What was answered."""
    served: Usage = field(default_factory=Usage)
    """Of everything that was answered; probes ask for one token and are left out."""

    @property
    def sessions(self) -> Counter[str]:
        """Answered requests of each session."""
        return Counter(name for request in self.asked if (name := session_of(request)))

    async def complete(self, request: ChatRequest, budget_s: float) -> ChatReply:
        """See ``ports.Backbone``."""
        self.before(request)
        self.asked.append(request)
        reply = remembering(request) or await _COMPLETE(ScriptedBackbone(), request, budget_s)
        usage = Usage(calls=1, requests=1, prompt_tokens=100 + len(request.messages), completion_tokens=3)
        if request.max_tokens != 1:
            self.served += usage
        return reply.model_copy(update={"usage": usage})


_COMPLETE = ScriptedBackbone.complete


def session_of(request: ChatRequest) -> str:
    """The session that asks; empty for anything else."""
    return request.session_id.rpartition(":")[2] if "_prereq_" in request.session_id else ""


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    found = Model()

    async def complete(_: ScriptedBackbone, request: ChatRequest, budget_s: float) -> ChatReply:
        return await found.complete(request, budget_s)

    monkeypatch.setattr(ScriptedBackbone, "complete", complete)
    return found


def unseen(_: Any) -> None:
    """Progress that nobody looks at."""


def new_launch(folder: Path, text: str = SMALL) -> Launch:
    sweep = load_sweep(written(folder, text), environ={})
    return Launch.new(sweep, plan_runs(sweep))


def files_of(launch: LaunchDirectory) -> dict[str, Path]:
    [folder] = (launch.path / "prerequisites" / "bfcl_v4").iterdir()
    assert folder.name.startswith("org_m-")
    return {path.stem: path for path in sorted(folder.iterdir())}


async def test_sessions_are_held_once_for_all_orderings_and_methods(tmp_path: Path, model: Model) -> None:
    """R42: six runs on one backbone; what it wrote down answers the questions of each."""
    launch = await launched(tmp_path, FULL)
    assert model.sessions == REQUESTS
    assert list(files_of(launch)) == SESSIONS
    assert {path.stat().st_mode & 0o777 for path in files_of(launch).values()} == {0o444}
    hashes = {name: json.loads(path.read_text())["sha256"] for name, path in files_of(launch).items()}
    for run, entry in launch.manifest.runs.items():
        assert entry.prerequisites == {SESSIONS[-1]: hashes[SESSIONS[-1]]}
        records = [*records_of(launch, run, "train"), *records_of(launch, run, "eval")]
        assert [r for r in records if r.outcome is Outcome.INFRA] == []
        assert len(records) == 25
    for run in runs_of(launch, "no_plan"):
        outcomes = Counter(r.outcome for phase in ("train", "eval") for r in records_of(launch, run, phase))
        # The other five ask for a form of words that a text which was merely written down does not have.
        assert outcomes[Outcome.SUCCESS] == 20


async def test_without_tool_calling_the_memory_is_written_and_read_as_well(tmp_path: Path, model: Model) -> None:
    """R42 deviation ``json_schema``: the same sessions, the same answers."""
    launch = await launched(tmp_path, SMALL.replace("[memory_kv],", "[memory_kv], action_mode: json_schema,"))
    assert model.sessions == REQUESTS
    assert all(request.schema_name == "action" for request in model.asked if session_of(request))
    [run] = launch.manifest.runs
    outcomes = {r.outcome for phase in ("train", "eval") for r in records_of(launch, run, phase)}
    assert Outcome.SUCCESS in outcomes
    assert Outcome.INFRA not in outcomes


async def test_a_resume_with_more_orderings_holds_no_session_again(tmp_path: Path, model: Model) -> None:
    launch = await launched(tmp_path, SMALL)
    longer = Launch.resume(launch.path, ["orderings=[0,1]"])
    assert await longer.drive(unseen) is Ending.COMPLETE
    assert model.sessions == REQUESTS
    entries = LaunchDirectory.open(launch.path).manifest.runs.values()
    assert [list(entry.prerequisites) for entry in entries] == [SESSIONS[-1:]] * 2


def test_most_benchmarks_have_nothing_to_prepare(tmp_path: Path) -> None:
    launch = new_launch(tmp_path, CREDIT_WORLD)
    assert planned(spec_of(launch), launch.runs) == []


def spec_of(launch: Launch) -> services.LaunchSpec:
    path = launch.directory.path
    return services.spec_of(launch.directory.id, path, path / "state", launch.runs, launch.sweep.cluster)


async def test_a_canary_in_every_reference_answer_reaches_no_session_prompt_trace_log_or_memory(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: the agentic checker reads the planted answers; once it fails, with an error that quotes them."""
    shared, read = package.shared_package(), []
    load, judge = shared._utils.load_ground_truth_entry, shared._agentic.agentic_checker

    def planted(category: str) -> list[dict[str, Any]]:
        return [{**row, "ground_truth": [*row["ground_truth"], GOLD]} for row in load(category)]

    def quoting(text: str, truth: list[str]) -> Any:
        read.append(truth)
        if len(read) == 3:
            raise ValueError(f"cannot compare with {truth}")
        return judge(text, truth)

    monkeypatch.setattr(shared._utils, "load_ground_truth_entry", planted)
    monkeypatch.setattr(shared._agentic, "agentic_checker", quoting)
    monkeypatch.setattr(shared, "_answers", {})
    launch = await launched(tmp_path, SMALL.replace("[no_plan]", "[chime]").replace("limit: 4", "limit: 8"))
    assert len(read) > 3
    assert all(GOLD in truth for truth in read)
    assert any(session_of(request) for request in model.asked)
    assert [request for request in model.asked if GOLD in request.model_dump_json()] == []
    contents = contents_below(launch.path)
    assert any(name.endswith(".zst") for name in contents)
    assert any("_prereq_" in name for name in contents)
    assert any(b"failed on task" in data for data in contents.values())
    assert [name for name, data in contents.items() if GOLD.encode() in data] == []


# --- what they cost ------------------------------------------------------------------------------------------


def told(launch: LaunchDirectory) -> Usage:
    """What the launch's prerequisites used by its books; what is spent in all is what its report says."""
    spent, report = spent_so_far(launch), launch_report(launch, partial=True)
    assert report.total.usage == sum(spent.usage.values(), Usage())
    used = spent.usage.get(Payer("org/m", "executor", "prerequisites"), Usage())
    assert used == (report.purposes["prerequisites"].usage if used.calls else Usage())
    return used


async def test_what_was_built_is_paid_for_once_whatever_rests_on_it(tmp_path: Path, model: Model) -> None:
    """Six runs share the sessions; a resume that holds none again adds nothing."""
    launch = await launched(tmp_path, FULL.replace("[chime, no_plan]", "[no_plan]"))
    assert told(launch).calls == sum(REQUESTS.values())
    assert sum(spent_so_far(launch).usage.values(), Usage()) == model.served
    longer = Launch.resume(launch.path, ["protocol.epochs=2"])
    assert await longer.drive(unseen) is Ending.COMPLETE
    assert told(LaunchDirectory.open(launch.path)).calls == sum(REQUESTS.values())
    assert sum(spent_so_far(launch).usage.values(), Usage()) == model.served


async def test_a_session_that_failed_on_the_way_was_paid_for_as_well(tmp_path: Path, model: Model) -> None:
    """A9: the second attempt begins anew, and the first one's requests were answered."""
    failed = False

    def fail_once(request: ChatRequest) -> None:
        nonlocal failed
        if not failed and model.sessions[SESSIONS[1]] == 3 and session_of(request) == SESSIONS[1]:
            failed = True
            raise BackboneError("just now", "server_error", 500)

    model.before = fail_once
    launch = await launched(tmp_path, SMALL)
    assert failed
    assert told(launch).calls == sum(REQUESTS.values()) + 3
    assert sum(spent_so_far(launch).usage.values(), Usage()) == model.served


async def test_a_launch_whose_prerequisites_reach_a_limit_pauses_between_them(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session is begun beyond the limit, and those that are there are not held again under a higher one."""
    monkeypatch.setattr(bookkeeping, "LOOK_EVERY_S", 0.01)
    limited = new_launch(tmp_path, SMALL.replace("cluster:\n", "cluster:\n  limits: {tokens: 1500}\n"))
    complete, stop, paused = Model.complete, limited.stop, asyncio.Event()

    def stopped(ending: Ending) -> None:
        stop(ending)
        paused.set()

    async def patient(self: Model, request: ChatRequest, budget_s: float) -> ChatReply:
        if session_of(request) == SESSIONS[2]:
            # If it was begun at all, it goes on until the books have seen the two before.
            await paused.wait()
        return await complete(self, request, budget_s)

    monkeypatch.setattr(limited, "stop", stopped)
    monkeypatch.setattr(Model, "complete", patient)
    assert await limited.drive(unseen) is Ending.PAUSED
    assert limited.reason.startswith("limit: tokens ")
    assert list(files_of(limited.directory)) in (SESSIONS[:2], SESSIONS[:3])
    assert limited.directory.runs() == []
    spent = told(limited.directory)
    assert spent.prompt_tokens + spent.completion_tokens >= 1500
    higher = Launch.resume(limited.directory.path, ["cluster.limits.tokens=1000000"])
    assert await higher.drive(unseen) is Ending.COMPLETE
    assert model.sessions == REQUESTS


def test_a_file_of_before_costs_were_kept_is_still_what_it_was(tmp_path: Path) -> None:
    """Its hash is of what was built; what that cost is not known."""
    files, wanted = PrerequisiteFiles.below(tmp_path, "b", "m", "0" * 64), Prerequisite(name="a")
    built = files.write(wanted, None, {"kept": 1}, "m", Usage(calls=4, prompt_tokens=9))
    assert PrerequisiteCosts(tmp_path).look() == {"m": built.usage}
    [file] = files.folder.iterdir()
    old = json.loads(file.read_text())
    del old["backbone"], old["usage"]
    file.chmod(0o644)
    file.write_text(json.dumps(old))
    assert files.read(wanted, None) == built.model_copy(update={"backbone": "", "usage": Usage()})
    assert PrerequisiteCosts(tmp_path).look() == {}


def test_one_that_is_built_anew_takes_the_place_of_what_it_cost(tmp_path: Path) -> None:
    """Each file is read once, and again where it was replaced."""
    files, wanted = PrerequisiteFiles.below(tmp_path, "b", "m", "0" * 64), Prerequisite(name="a")
    costs = PrerequisiteCosts(tmp_path)
    assert costs.look() == {}
    for calls in (4, 6):
        files.write(wanted, None, {}, "m", Usage(calls=calls))
        files.write(Prerequisite(name="b"), None, {}, "m", Usage(calls=1))
        assert costs.look() == {"m": Usage(calls=calls + 1)}


# --- backbones that fail --------------------------------------------------------------------------------


async def test_a_backbone_that_goes_down_pauses_the_launch_and_a_resume_holds_the_rest(
    tmp_path: Path, model: Model
) -> None:
    """A9: exit 3, the session it died in leaves nothing, and those before it are not held again."""
    down = False

    def go_down(request: ChatRequest) -> None:
        nonlocal down
        down = down or (session_of(request) == SESSIONS[2] and model.sessions[SESSIONS[2]] == 4)
        if down:
            raise BackboneError("nobody listens", "unreachable", retriable=True)

    model.before = go_down
    launch = new_launch(tmp_path)
    assert await launch.drive(unseen) is Ending.PAUSED
    assert "have not answered" in launch.reason
    assert list(files_of(launch.directory)) == SESSIONS[:2]
    assert launch.directory.runs() == []
    model.before = unseen
    await resumed(launch.directory)
    assert model.sessions == {**REQUESTS, SESSIONS[2]: 4 + REQUESTS[SESSIONS[2]]}


async def test_a_session_that_a_living_backbone_keeps_failing_pauses_the_launch_as_well(
    tmp_path: Path, model: Model
) -> None:
    """A9: three attempts, because probes are answered; none of them is taken for what the model remembers."""
    failed = 0

    def refuse(request: ChatRequest) -> None:
        nonlocal failed
        if session_of(request) == SESSIONS[1]:
            failed += 1
            raise BackboneError("this one never", "server_error", 500)

    model.before = refuse
    launch = new_launch(tmp_path)
    assert await launch.drive(unseen) is Ending.PAUSED
    assert f"{SESSIONS[1]} of bfcl_v4 on org/m failed 3 times: server_error: this one never" in launch.reason
    assert (failed, list(files_of(launch.directory))) == (3, SESSIONS[:1])


async def test_a_session_longer_than_an_episode_may_be_is_an_error_that_names_the_key(
    tmp_path: Path, model: Model
) -> None:
    def late(request: ChatRequest) -> None:
        if session_of(request):
            raise BackboneError("no reply in time", "budget")

    model.before = late
    launch = new_launch(tmp_path, SMALL.replace("deadline_s: 60", "deadline_s: 0.000001"))
    with pytest.raises(BenchmarkError, match=rf"{SESSIONS[0]} .*: raise episode\.deadline_s"):
        await launch.drive(unseen)
    status = launch.directory.status()
    assert status is not None
    assert status.state == "incomplete"


# --- a driver that stops --------------------------------------------------------------------------------


@pytest.mark.parametrize("down", [False, True], ids=["while it talks", "in an outage"])
async def test_a_preempted_launch_ends_its_open_session_and_begins_no_other(
    tmp_path: Path, model: Model, down: bool
) -> None:
    """D8: the first signal; an outage is not waited out. The resume holds what is missing and nothing twice."""
    launch = new_launch(tmp_path, SMALL.replace("outage_patience_s: 0.1", "outage_patience_s: 600"))

    stopped: list[ChatRequest] = []

    def stop(request: ChatRequest) -> None:
        if session_of(request) == SESSIONS[1]:
            launch.stop(Ending.PREEMPTED)
            stopped.append(request)
        if stopped and down:
            raise BackboneError("nobody listens", "unreachable", retriable=True)

    model.before = stop
    assert await launch.drive(unseen) is Ending.PREEMPTED
    assert list(files_of(launch.directory)) == SESSIONS[: 1 if down else 2]
    model.before = unseen
    await resumed(launch.directory)
    assert model.sessions == REQUESTS


async def test_a_driver_that_lost_its_launch_builds_no_further(tmp_path: Path, model: Model) -> None:
    """D5: another driver took over while this one talked to its backbone."""
    launch, talking = new_launch(tmp_path), asyncio.Event()
    model.before = lambda request: talking.set()

    async def lost() -> None:
        await talking.wait()
        raise RunDirectoryError("another driver has this launch")

    keeping = asyncio.create_task(lost())
    with pytest.raises(RunDirectoryError, match="another driver"):
        await prepared(
            spec_of(launch),
            launch.runs,
            launch.directory,
            keeping=keeping,
            stopping=asyncio.Event(),
            tell=unseen,
        )
    assert len(model.sessions) < 5


# --- files that were changed ----------------------------------------------------------------------------


def edited(files: dict[str, Path]) -> str:
    file = files[SESSIONS[2]]
    text = file.read_text()
    file.unlink()
    file.write_text(text.replace("Client", "Clint"))
    return rf"{SESSIONS[2]}\.json was changed: its content has SHA-256"


def exchanged(files: dict[str, Path]) -> str:
    first, second = files[SESSIONS[1]].read_bytes(), files[SESSIONS[2]].read_bytes()
    for name, content in ((SESSIONS[1], second), (SESSIONS[2], first)):
        files[name].unlink()
        files[name].write_bytes(content)
    return rf"{SESSIONS[1]}\.json was changed: it holds {SESSIONS[2]}"


def rebuilt(files: dict[str, Path]) -> str:
    file = files[SESSIONS[0]]
    stored = json.loads(file.read_text())
    store = PrerequisiteFiles(file.parent, stored["origin"])
    file.unlink()
    store.write(Prerequisite(name=SESSIONS[0]), None, {**stored["artifact"], "core_memory": {"a": "b"}})
    return rf"{SESSIONS[1]}\.json was changed: it goes on from"


def cut(files: dict[str, Path]) -> str:
    content = files[SESSIONS[4]].read_bytes()
    files[SESSIONS[4]].unlink()
    files[SESSIONS[4]].write_bytes(content[:-10])
    return rf"{SESSIONS[4]}\.json .* [Tt]he file is damaged"


def removed(files: dict[str, Path]) -> str:
    files[SESSIONS[3]].unlink()
    return rf"{SESSIONS[4]}\.json is there, and {SESSIONS[3]}\.json, which it goes on from, is not"


@pytest.mark.parametrize("change", [edited, exchanged, rebuilt, cut, removed])
async def test_a_file_that_was_changed_is_an_error_that_names_it_and_the_way_out(
    tmp_path: Path, model: Model, change: Callable[[dict[str, Path]], str]
) -> None:
    launch = await launched(tmp_path, SMALL)
    expected = change(files_of(launch))
    asked = len(model.asked)
    with pytest.raises(RunDirectoryError, match=expected) as caught:
        await Launch.resume(launch.path).drive(unseen)
    assert str(launch.path) in str(caught.value)
    # One request shows that the backbone lives; nothing was built.
    assert len(model.asked) == asked + 1


async def test_other_memories_than_those_that_episodes_rest_on_are_refused(tmp_path: Path, model: Model) -> None:
    """The manifest keeps the hashes: files that were all removed and built anew, differently, are found."""
    launch = await launched(tmp_path, SMALL)
    for file in files_of(launch).values():
        file.unlink()

    def forgetful(request: ChatRequest) -> None:
        if session_of(request) == SESSIONS[4] and model.sessions[SESSIONS[4]] == REQUESTS[SESSIONS[4]]:
            raise BackboneError("too long", "context_overflow", 400)

    model.before = forgetful
    with pytest.raises(RunDirectoryError, match=f"prerequisite {SESSIONS[4]} of .* built anew"):
        await Launch.resume(launch.path).drive(unseen)


@pytest.mark.parametrize("name", ["../x", "a/b", "", "."])
def test_a_name_that_cannot_be_a_file_is_refused(tmp_path: Path, name: str) -> None:
    files = PrerequisiteFiles.below(tmp_path, "b", "m", "0" * 64)
    with pytest.raises(RunDirectoryError, match="cannot name a prerequisite"):
        files.write(Prerequisite(name=name), None, {})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "prerequisites").write_text("in the way")
    files = PrerequisiteFiles.below(tmp_path, "b", "m", "0" * 64)
    with pytest.raises(RunDirectoryError, match=r"cannot be (read|written)"):
        files.write(Prerequisite(name="a"), None, {})
