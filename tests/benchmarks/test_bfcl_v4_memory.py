"""BFCL-v4 memory_kv on the installed package: the sessions, the private memory, the questions, the verdicts."""

from __future__ import annotations

import asyncio
import copy
import importlib
import json
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from structlog.testing import capture_logs

from chime_dist.benchmarks.bfcl_v4 import package as bfcl_package
from chime_dist.benchmarks.bfcl_v4.benchmark import BfclV4, BfclV4Options
from chime_dist.benchmarks.bfcl_v4.memory import MAX_RESULT, PrivateMemory
from chime_dist.benchmarks.bfcl_v4.package import BfclPackage, require_installed, shared_package
from chime_dist.benchmarks.bfcl_v4.pins import FILES, LIVE, MEMORY
from chime_dist.core.episode import EndReason, Json
from chime_dist.core.model_call import ChatReply, ToolCall, Turn
from chime_dist.core.paper import PAPER
from chime_dist.core.split import PROTOCOLS, order_tasks
from chime_dist.errors import BackboneError, BenchmarkError
from chime_dist.ports import Action, Environment, PreparedBenchmark
from tests.benchmarks.rememberer import call, diligent, said

FIRST = "memory_kv_0-customer-0"
LAST = "memory_kv_154-notetaker-24"
SESSION = "memory_kv_prereq_32-notetaker-0"
"""The first of five."""
EMPTY: dict[str, Json] = {"core_memory": {}, "archival_memory": {}, "ended": "complete"}
CANARY = "canary-51b0d7e2"
SESSIONS = {"customer": 10, "finance": 7, "healthcare": 5, "notetaker": 5, "student": 10}


def memory_kv(**options: Any) -> BfclV4:
    return BfclV4(BfclV4Options(categories=(MEMORY,), **options))


def tools() -> tuple[dict[str, Json], ...]:
    package = shared_package()
    return package.tools(package.entries(MEMORY)[FIRST])


def provided(benchmark: BfclV4, memory: Json = EMPTY) -> BfclV4:
    """With the same memory for every scenario."""
    last = {talks[-1].id: memory for talks in shared_package().conversations().values()}
    benchmark.provide(last)
    return benchmark


async def opened(memory: Json = EMPTY, **options: Any) -> Environment:
    return await provided(memory_kv(**options), memory).open(FIRST)


# --- the stream -----------------------------------------------------------------------------------------


def test_the_stream_holds_155_questions_about_five_users() -> None:
    """R3: one memory backend with 155 questions, 108 to train on and 47 to evaluate."""
    benchmark = memory_kv()
    tasks = benchmark.tasks()
    assert (len(tasks), len({t.id for t in tasks}), {t.domain for t in tasks}) == (155, 155, {MEMORY})
    scenarios = Counter(entry.scenario for entry in shared_package().entries(MEMORY).values())
    assert scenarios == {"student": 50, "customer": 30, "finance": 25, "healthcare": 25, "notetaker": 25}
    ordering = order_tasks(tasks, PROTOCOLS["paper_numbers"], 0)
    assert (len(ordering.train), len(ordering.eval)) == (108, 47)
    assert (benchmark.max_steps, benchmark.usual_steps) == (10, 3)


def test_the_category_follows_the_live_ones_as_in_the_paper_and_is_asked_for_by_name() -> None:
    """R3: the order of the domains is the paper's; without a word about categories nothing changes."""
    domains = PAPER["bfcl_v4"].streams["paper_numbers"].domains
    assert domains is not None
    assert (*LIVE, MEMORY) == domains[:7]
    both = BfclV4(BfclV4Options(categories=(MEMORY, "live_relevance")))
    assert list(dict.fromkeys(t.domain for t in both.tasks())) == ["live_relevance", MEMORY]
    assert both.usual_steps == 1
    assert BfclV4Options().categories == LIVE
    with pytest.raises(
        ValidationError, match=r"valid are: live_simple.*memory_kv; web_search is not available yet"
    ):
        BfclV4Options(categories=("web_search_base",))


def test_the_fingerprint_knows_the_prompt_of_the_sessions_where_it_matters() -> None:
    live, memory = BfclV4(BfclV4Options()).fingerprint(), memory_kv().fingerprint()
    assert "prompts" not in live
    assert len(memory["prompts"]) == len(memory["data_sha256"]) == 64
    # Pinned, because run ids of launches that exist are made of it.
    assert live["data_sha256"] == "b40234178854d3a57a00fa5542cffefe93a5b6e98a1363171663165c3139893b"


@pytest.mark.parametrize("name", FILES[MEMORY])
def test_changed_data_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in FILES[MEMORY]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((require_installed() / path).read_bytes())
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"\n")
    monkeypatch.setattr(bfcl_package, "require_installed", lambda: tmp_path)
    with pytest.raises(BenchmarkError, match=f"{Path(name).name} of bfcl-eval .*reinstall"):
        BfclPackage().entries(MEMORY)


def test_max_request_chars_counts_the_core_memory_as_empty() -> None:
    benchmark = memory_kv(task_ids=(FIRST,))
    [task] = benchmark.tasks()
    view = asyncio.run(provided(benchmark).open(task.id)).view
    compact = json.dumps(list(view.tools), ensure_ascii=False, separators=(",", ":"))
    length = len(view.policy) + len(view.request) + len(compact)
    assert [t.id for t in memory_kv(max_request_chars=length).tasks()].count(FIRST) == 1
    assert FIRST not in [t.id for t in memory_kv(max_request_chars=length - 1).tasks()]


# --- what an agent sees ---------------------------------------------------------------------------------


async def test_a_view_holds_the_question_the_instruction_with_the_core_memory_and_the_tools() -> None:
    """R42: all words are the package's own, read from it at run time; ``response`` is no part of a tool."""
    told = {**EMPTY, "core_memory": {"user_name": "Zoë"}, "archival_memory": {"hidden": "not shown"}}
    view = (await opened(told)).view
    assert view.request == "What is my first name?"
    assert view.messages == ({"role": "user", "content": view.request},)
    prompts = importlib.import_module("bfcl_eval.constants.default_prompts")
    instruction = prompts.MEMORY_BACKEND_INSTRUCTION_CORE_ARCHIVAL.format(
        scenario_setting=prompts.MEMORY_AGENT_SETTINGS["customer"],
        memory_content=json.dumps(told["core_memory"], indent=4),
    )
    form = prompts.ADDITIONAL_SYSTEM_PROMPT_FOR_AGENTIC_RESPONSE_FORMAT
    assert view.policy == f"{instruction}\n\n{form}"
    assert "hidden" not in view.model_dump_json()
    assert len(view.tools) == 15
    assert all(set(tool["function"]) == {"name", "description", "parameters"} for tool in view.tools)
    assert all("Python 3 syntax" in tool["function"]["description"] for tool in view.tools)


async def test_opening_the_same_question_again_repeats_nothing_of_the_instruction() -> None:
    """The package's function changes the entry that it is given; ours are shared and stay as they are."""
    before = copy.deepcopy((shared_package().entries(MEMORY), shared_package().conversations()))
    first, second = (await opened()).view, (await opened()).view
    assert first == second
    await memory_kv().build("memory_kv_prereq_0-customer-0", None, said(ChatReply(text="Hello.")))
    assert (shared_package().entries(MEMORY), shared_package().conversations()) == before


async def test_a_question_is_not_opened_before_its_memory_was_provided() -> None:
    with pytest.raises(BenchmarkError, match=r"nobody provided .* scenario 'customer'"):
        await memory_kv().open(FIRST)
    benchmark = memory_kv()
    benchmark.provide({shared_package().conversations()["student"][-1].id: EMPTY})
    with pytest.raises(BenchmarkError, match=r"nobody provided .* scenario 'customer'"):
        await benchmark.open(FIRST)


# --- tools ----------------------------------------------------------------------------------------------

EVERY_TOOL: list[tuple[str, dict[str, Json], Json]] = [
    ("core_memory_add", {"key": "age", "value": "35"}, {"status": "Key-value pair added."}),
    ("core_memory_add", {"key": "city_name", "value": 7}, {"status": "Key-value pair added."}),
    ("core_memory_add", {"key": "Not Snake", "value": "x"}, {"error": ...}),
    ("core_memory_replace", {"key": "age", "value": "36"}, {"status": "Key replaced."}),
    ("core_memory_retrieve", {"key": "age"}, {"value": "36"}),
    ("core_memory_list_keys", {}, {"keys": ["age", "city_name"]}),
    ("core_memory_key_search", {"query": "age", "k": 1}, {"ranked_results": ...}),
    ("core_memory_retrieve_all", {}, {"age": "36", "city_name": "7"}),
    ("core_memory_remove", {"key": "age"}, {"status": "Key removed."}),
    ("core_memory_clear", {}, {"status": "Short term memory cleared."}),
    ("archival_memory_key_search", {"query": "anything"}, {"error": ...}),
    ("archival_memory_add", {"key": "cat", "value": "Miez"}, {"status": "Key added."}),
    ("archival_memory_replace", {"key": "cat", "value": "Mauz"}, {"status": "Key replaced."}),
    ("archival_memory_retrieve", {"key": "cat"}, {"value": "Mauz"}),
    ("archival_memory_list_keys", {}, {"keys": ["cat"]}),
    ("archival_memory_key_search", {"query": "cat", "k": -5}, {"ranked_results": []}),
    ("archival_memory_key_search", {"query": "cat", "k": 10**30}, {"ranked_results": ...}),
    ("archival_memory_remove", {"key": "dog"}, {"error": ...}),
    ("archival_memory_remove", {"key": "cat"}, {"status": "Key removed."}),
    ("archival_memory_clear", {}, {"status": "Long term memory cleared."}),
]


def test_every_tool_of_the_package_answers() -> None:
    assert {name for name, _, _ in EVERY_TOOL} == {tool["function"]["name"] for tool in tools()}
    memory = PrivateMemory(tools())
    for name, arguments, expected in EVERY_TOOL:
        answer = json.loads(memory.call(call(name, arguments)))
        assert answer.keys() == expected.keys(), (name, answer)
        assert all(value is ... or answer[key] == value for key, value in expected.items()), (name, answer)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (call("core_memory_add", {"key": "a"}), "missing 1 required"),
        (call("core_memory_add", {"key": "a", "value": "b", "why": "c"}), "unexpected keyword"),
        (call("core_memory_clear", {"self": 1}), "multiple values"),
        (call("core_memory_retrieve", {"key": ["a"]}), "unhashable"),
        (call("core_memory_key_search", {"query": "a"}), "ZeroDivisionError"),
        (call("archival_memory_key_search", {"query": 5, "k": "x"}), "failed with"),
        (ToolCall(id="c", name="core_memory_add", arguments=None, raw="{", error="cut off"), "cut off"),
        (ToolCall(id="c", name="core_memory_add", arguments=None, raw=""), "not one JSON object"),
    ],
)
def test_a_call_that_cannot_be_made_is_answered_with_what_is_wrong(made: ToolCall, told: str) -> None:
    """R42: the executor may correct itself; an empty memory makes the package's search divide by zero."""
    assert told in json.loads(PrivateMemory(tools()).call(made))["error"]


@pytest.mark.parametrize(
    "name",
    [
        "_flush_memory_to_local_file",
        "_load_scenario",
        "_prepare_snapshot",
        "_similarity_search",
        "__init__",
        "__class__",
        "core_memory",
        "snapshot_folder",
        "eval",
        "core_memory_clear()",
        "",
    ],
)
def test_nothing_but_a_tool_can_be_called(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    memory = PrivateMemory(tools(), {**EMPTY, "core_memory": {"a": "b"}})
    assert "there is no tool" in json.loads(memory.call(call(name, {})))["error"]
    assert memory.snapshot["core_memory"] == {"a": "b"}
    assert list(tmp_path.iterdir()) == []


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["key", "value", "query", "k", "self"]) | st.text(), ANY_JSON, max_size=4
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([name for name, _, _ in EVERY_TOOL]), ARGUMENTS), max_size=6))
def test_whatever_a_model_sends_is_answered_and_can_be_kept(calls: list[tuple[str, dict[str, Json]]]) -> None:
    """R42: every answer is bounded text, and the memory stays what a snapshot can hold."""
    memory = PrivateMemory(tools(), {**EMPTY, "archival_memory": {"k": "v"}})
    for name, arguments in calls:
        assert len(memory.call(call(name, arguments))) < MAX_RESULT + 100
    assert json.loads(json.dumps(memory.snapshot).encode()) == memory.snapshot


def test_half_an_emoji_is_made_whole_before_it_is_kept() -> None:
    memory = PrivateMemory(tools())
    memory.call(call("core_memory_add", {"key": "mood", "value": "\ud83d"}))
    assert memory.snapshot["core_memory"] == {"mood": "\ufffd"}


def test_a_long_answer_is_cut_and_says_how_long_it_was() -> None:
    memory = PrivateMemory(tools())
    memory.call(call("core_memory_add", {"key": "a" * 20_000, "value": "x"}))
    answer = memory.call(call("core_memory_list_keys", {}))
    assert answer.endswith(f"a... ({20_000 + len(json.dumps({'keys': ['']}))} characters in all)")


async def test_two_episodes_and_the_snapshot_share_nothing() -> None:
    """R42: a private copy for each episode; what an agent destroys, only that agent misses."""
    snapshot = {**EMPTY, "core_memory": {"name": "Michael"}, "archival_memory": {"age": "35"}}
    benchmark = provided(memory_kv(), snapshot)
    first, second = await benchmark.open(FIRST), await benchmark.open(FIRST)
    destroying = [call("core_memory_clear", {}), call("archival_memory_replace", {"key": "age", "value": "99"})]
    await first.act(Action(tool_calls=tuple(destroying)))
    read = Action(
        tool_calls=(call("core_memory_retrieve_all", {}), call("archival_memory_retrieve", {"key": "age"}))
    )
    assert [m["content"] for m in (await first.act(read)).messages] == ["{}", '{"value": "99"}']
    for untouched in (second, await benchmark.open(FIRST)):
        contents = [m["content"] for m in (await untouched.act(read)).messages]
        assert contents == ['{"name": "Michael"}', '{"value": "35"}']
    assert snapshot["core_memory"] == {"name": "Michael"}


# --- episodes -------------------------------------------------------------------------------------------


async def test_calls_are_answered_until_there_are_words() -> None:
    environment = await opened({**EMPTY, "core_memory": {"first_name": "Michael"}})
    calls = (call("core_memory_retrieve", {"key": "first_name"}), call("nonsense", {}))
    told = await environment.act(Action(text="Let me look.", tool_calls=calls))
    assert (told.done, told.end_reason) == (False, None)
    assert [(m["role"], m["tool_call_id"]) for m in told.messages] == [("tool", "call_0"), ("tool", "call_0")]
    assert not await environment.score()
    assert (await environment.act(Action(text="It is Michael."))).end_reason is EndReason.SCORED
    assert await environment.score()
    with pytest.raises(BenchmarkError, match="is over"):
        await environment.act(Action(text="Or not."))
    await environment.close()
    await environment.close()


async def test_without_tool_calling_the_answers_are_one_message_of_the_user() -> None:
    """R42 deviation ``json_schema``: not every chat template takes two messages of one side in a row."""
    environment = await opened({**EMPTY, "core_memory": {"first_name": "Michael"}}, action_mode="json_schema")
    calls = (call("core_memory_retrieve", {"key": "first_name"}), call("nonsense", {}))
    [message] = (await environment.act(Action(text="", tool_calls=calls))).messages
    first, second = message["content"].split("\n")
    assert message["role"] == "user"
    assert first == 'core_memory_retrieve: {"value": "Michael"}'
    assert second.startswith("nonsense: ")


@pytest.mark.parametrize(
    ("action", "end"),
    [
        (Action(), EndReason.EMPTY_OUTPUT),
        (Action(text=" \n"), EndReason.EMPTY_OUTPUT),
        (Action(text="Michael", malformed="cut"), EndReason.MALFORMED_OUTPUT),
        (Action(text="Michael", tool_calls=(call("f", {}),), malformed="cut"), EndReason.MALFORMED_OUTPUT),
    ],
)
async def test_unusable_replies_end_the_episode_and_pass_nothing(action: Action, end: EndReason) -> None:
    environment = await opened()
    assert (await environment.act(action)).end_reason is end
    assert not await environment.score()


def reference_answers() -> list[list[str]]:
    path = require_installed() / "possible_answer" / "BFCL_v4_memory.json"
    return [json.loads(line)["ground_truth"] for line in path.read_text(encoding="utf-8").splitlines()]


async def test_all_155_reference_answers_pass_when_they_are_said() -> None:
    """R42: answers are joined by place, because ids differ; every accepted answer of every question passes."""
    benchmark, passed = provided(memory_kv()), 0
    for task, accepted in zip(benchmark.tasks(), reference_answers(), strict=True):
        verdicts = []
        for answer in accepted:
            environment = await benchmark.open(task.id)
            await environment.act(Action(text=f"{{'answer': '{answer}', 'context': 'I looked it up.'}}"))
            verdicts.append(await environment.score())
        passed += all(verdicts)
    assert passed == 155


async def test_the_official_checker_looks_for_words_only() -> None:
    """Known, and kept, because published numbers have it too: a denial that names the answer passes."""
    verdicts = {}
    for text in ("The user is not called Michael.", "MICHAEL!", "Michaela", "I do not know"):
        environment = await opened()
        await environment.act(Action(text=text))
        verdicts[text] = await environment.score()
    assert list(verdicts.values()) == [True, True, False, False]


# --- sessions -------------------------------------------------------------------------------------------


def test_sessions_are_those_of_the_users_asked_about_and_each_follows_the_one_before() -> None:
    benchmark = memory_kv()
    assert isinstance(benchmark, PreparedBenchmark)
    wanted = benchmark.prerequisites([t.id for t in benchmark.tasks()])
    assert Counter(one.name.split("-")[1] for one in wanted) == SESSIONS
    assert sum(one.after is None for one in wanted) == 5
    for one, before in zip(wanted[1:], wanted, strict=False):
        assert one.after in (None, before.name)
        assert one.after is None or int(one.name.rsplit("-", 1)[1]) == int(before.name.rsplit("-", 1)[1]) + 1
    assert benchmark.prerequisites([FIRST]) == [one for one in wanted if "-customer-" in one.name]
    both = BfclV4(BfclV4Options(categories=("live_simple", MEMORY)))
    assert both.prerequisites(["live_simple_0-0-0"]) == []


@pytest.mark.parametrize("action_mode", ["tools", "json_schema"])
async def test_every_session_goes_on_from_the_memory_of_the_one_before(action_mode: str) -> None:
    """R42: five sessions of 24 turns in all, each written down; what a session starts from is left as it was."""
    benchmark = memory_kv(action_mode=action_mode)
    memories: list[Json] = [None]
    for one in benchmark.prerequisites([LAST]):
        before = copy.deepcopy(memories[-1])
        memories.append(await benchmark.build(one.name, memories[-1], diligent))
        assert memories[-2] == before
    sizes = [len(memory["archival_memory"]) for memory in memories[1:]]
    assert sizes == [5, 9, 14, 19, 24]
    assert {memory["ended"] for memory in memories[1:]} == {"complete"}


async def test_a_session_lasts_until_the_model_says_something_to_each_of_the_users_turns() -> None:
    """The history grows by the user's words, the replies and the tools' answers, in that order."""
    asked: list[Turn] = []

    async def ask(turn: Turn) -> ChatReply:
        asked.append(turn)
        if len(asked) == 1:
            return ChatReply(tool_calls=(call("core_memory_add", {"key": "a", "value": "b"}),))
        return ChatReply(text="I see.")

    built = await memory_kv().build(SESSION, None, ask)
    assert built == {"core_memory": {"a": "b"}, "archival_memory": {}, "ended": "complete"}
    assert len(asked) == 6
    assert "There is no content in the core memory" in asked[0].variables["instruction"]
    assert asked[0].history == ()
    assert [m["role"] for m in asked[2].history] == ["assistant", "tool", "assistant", "user"]
    assert asked[2].history[0]["tool_calls"][0]["function"]["name"] == "core_memory_add"
    assert all(turn.conversation == asked[0].conversation for turn in asked)
    assert len(asked[0].conversation) == 1


async def test_the_core_memory_of_earlier_sessions_is_in_the_instruction() -> None:
    asked: list[Turn] = []
    before = {**EMPTY, "core_memory": {"user_name": "Ada"}}
    after = await memory_kv().build("memory_kv_prereq_33-notetaker-1", before, said(ChatReply(text="Hm."), asked))
    assert '"user_name": "Ada"' in asked[0].variables["instruction"]
    assert after == {**before, "ended": "complete"}


Replies = Callable[[int], ChatReply]


@pytest.mark.parametrize(
    ("replies", "calls", "ended"),
    [
        (lambda n: ChatReply(tool_calls=(call("core_memory_list_keys", {}),)), 4, "step_cap"),
        (lambda n: ChatReply(text=""), 5, "complete"),
        (lambda n: ChatReply(text="<tool_call> core", finish_reason="stop"), 5, "complete"),
        (
            lambda n: ChatReply(
                tool_calls=(call("core_memory_add", {"key": "x", "value": "y"}),), finish_reason="length"
            ),
            5,
            "complete",
        ),
    ],
    ids=["calls for ever", "says nothing", "a call in the text", "cut"],
)
async def test_a_model_that_does_badly_gets_a_memory_that_shows_it(
    replies: Replies, calls: int, ended: str
) -> None:
    """Like the package: the step cap ends the session, what cannot be read ends the user's turn. Calls of a reply
    that was cut are not made, and do not stand in the history without an answer."""
    asked: list[Turn] = []

    async def ask(turn: Turn) -> ChatReply:
        asked.append(turn)
        return replies(len(asked))

    built = await memory_kv(max_steps=4).build(SESSION, None, ask)
    assert (built["ended"], built["core_memory"], len(asked)) == (ended, {}, calls)
    if ended == "complete":
        assert all("tool_calls" not in message for message in asked[-1].history)


async def test_an_overflow_ends_the_session_and_keeps_what_was_written_down() -> None:
    asked: list[Turn] = []

    async def ask(turn: Turn) -> ChatReply:
        asked.append(turn)
        if len(asked) == 3:
            raise BackboneError("too long", "context_overflow", 400)
        return ChatReply(tool_calls=(call("core_memory_add", {"key": f"k_{len(asked)}", "value": "v"}),))

    built = await memory_kv().build(SESSION, None, ask)
    assert built == {"core_memory": {"k_1": "v", "k_2": "v"}, "archival_memory": {}, "ended": "context_overflow"}


async def test_a_backbone_that_fails_leaves_no_artifact() -> None:
    async def ask(turn: Turn) -> ChatReply:
        raise BackboneError("down", "unreachable", retriable=True)

    with pytest.raises(BackboneError, match="down"):
        await memory_kv().build(SESSION, None, ask)
    with pytest.raises(BenchmarkError, match="no session 'nonsense'"):
        await memory_kv().build("nonsense", None, ask)


# --- reference answers stay inside the scorer -----------------------------------------------------------


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A fresh package whose reference answers hold a canary; records what was loaded."""
    package = BfclPackage()
    utils = importlib.import_module("bfcl_eval.utils")
    real, loaded = utils.load_ground_truth_entry, []

    def load(category: str) -> list[dict[str, Any]]:
        loaded.append(category)
        return [{**row, "ground_truth": [*row["ground_truth"], CANARY]} for row in real(category)]

    monkeypatch.setattr(utils, "load_ground_truth_entry", load)
    monkeypatch.setattr(bfcl_package, "_shared", package)
    return loaded


async def test_reference_answers_are_seen_by_the_scorer_alone(planted: list[str]) -> None:
    """R8: a canary planted in the reference answers decides a verdict and appears nowhere else."""
    with capture_logs() as logs:
        benchmark = memory_kv()
        asked: list[Turn] = []
        built = await benchmark.build(SESSION, None, said(ChatReply(text="I see."), asked))
        environment = await provided(benchmark).open(FIRST)
        told = await environment.act(Action(tool_calls=(call("core_memory_list_keys", {}),)))
        assert planted == []
        await environment.act(Action(text=f"It is {CANARY}."))
        vars_before = repr(vars(environment)).replace(f"It is {CANARY}.", "")
        assert await environment.score()
        seen = [environment.view, told, *benchmark.tasks(), benchmark.fingerprint(), built, asked, vars_before]
    assert planted == [MEMORY]
    assert CANARY not in repr([seen, logs])


async def test_a_failing_checker_is_a_benchmark_error_that_tells_nothing(
    planted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: the checker's own error quotes the reference answer; ours leads to it by no path."""
    checker = importlib.import_module("bfcl_eval.eval_checker.agentic_eval.agentic_checker")

    def fail(text: str, truth: Any) -> None:
        raise LookupError(repr(truth))

    monkeypatch.setattr(checker, "agentic_checker", fail)
    environment = await opened()
    await environment.act(Action(text="Michael"))
    with pytest.raises(BenchmarkError, match=f"agentic checker .* {FIRST} with LookupError") as caught:
        await environment.score()
    assert caught.value.__context__ is None
    report = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert CANARY not in "".join(report.format())
