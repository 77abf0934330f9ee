"""BFCL-v4 Live on the installed package: the stream, what an agent sees, and how answers are judged."""

from __future__ import annotations

import asyncio
import importlib
import json
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from chime_dist.benchmarks.bfcl_v4 import package as bfcl_package
from chime_dist.benchmarks.bfcl_v4.benchmark import BfclV4, BfclV4Options
from chime_dist.benchmarks.bfcl_v4.package import BfclPackage, require_installed, shared_package
from chime_dist.benchmarks.bfcl_v4.pins import LIVE
from chime_dist.core.episode import EndReason, Json
from chime_dist.core.model_call import ToolCall
from chime_dist.errors import BenchmarkError, ConfigError
from chime_dist.ports import Action, Benchmark, TaskView

COUNTS = {
    "live_simple": 258,
    "live_multiple": 1053,
    "live_parallel": 16,
    "live_parallel_multiple": 24,
    "live_irrelevance": 884,
    "live_relevance": 16,
}
CANARY = "canary-7f3a9c1e"
WITHOUT_FUNCTIONS = [f"live_irrelevance_12{i}-9-{i}" for i in range(4)]


def bfcl(**options: Any) -> Benchmark:
    return BfclV4(BfclV4Options(**options))


def call(name: str, arguments: dict[str, Json] | None, error: str | None = None) -> ToolCall:
    return ToolCall(id="call_0", name=name, arguments=arguments, raw=json.dumps(arguments), error=error)


async def judged(benchmark: Benchmark, task_id: str, action: Action) -> tuple[EndReason | None, bool]:
    environment = await benchmark.open(task_id)
    observation = await environment.act(action)
    assert observation.done
    success = await environment.score()
    await environment.close()
    return observation.end_reason, success


# --- reference answers as actions -----------------------------------------------------------------------


def reference_answers(category: str) -> dict[str, Any]:
    path = require_installed() / "possible_answer" / f"BFCL_v4_{category}.json"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["id"]: row["ground_truth"] for row in rows}


def reference_action(truth: list[dict[str, Any]], view: TaskView) -> Action:
    """The reference answer as a perfect agent would give it: the first accepted value of every argument."""
    required = {t["function"]["name"]: t["function"]["parameters"]["required"] for t in view.tools}
    calls = []
    for named in truth:
        for name, accepted in named.items():
            tool = name.replace(".", "_")
            calls.append(call(tool, _arguments(accepted, required[tool])))
    return Action(tool_calls=tuple(calls))


def _arguments(accepted: dict[str, list[Json]], required: list[str]) -> dict[str, Json]:
    """An argument for which only "" is accepted is left out, unless the schema requires it (it is then "")."""
    values: dict[str, Json] = {}
    for name, candidates in accepted.items():
        given = [value for value in candidates if value != ""]
        if given:
            values[name] = _value(given[0])
        elif name in required:
            values[name] = ""
    return values


def _value(accepted: Json) -> Json:
    """An object inside an argument lists accepted values for each of its keys; deeper ones are plain values."""
    if isinstance(accepted, list):
        return [_value(item) for item in accepted]
    if isinstance(accepted, dict):
        given = {name: [v for v in candidates if v != ""] for name, candidates in accepted.items()}
        return {name: candidates[0] for name, candidates in given.items() if candidates}
    return accepted


@pytest.mark.parametrize(
    ("category", "passed", "unwinnable"),
    [
        ("live_simple", 256, {"live_simple_106-63-0", "live_simple_112-68-0"}),
        ("live_multiple", 1051, {"live_multiple_862-181-3", "live_multiple_964-207-0"}),
        ("live_parallel", 16, set()),
        ("live_parallel_multiple", 24, set()),
    ],
)
async def test_reference_answers_pass_except_for_the_four_tasks_nobody_can_win(
    category: str, passed: int, unwinnable: set[str]
) -> None:
    """R42: open, act and score agree with the official checker on every reference answer.

    live_multiple reaches 1051, not 1050, because the required ``origin_airport`` of live_multiple_507-149-4 is
    given as the empty string, the only value its reference answer accepts.
    """
    benchmark, answers = bfcl(categories=(category,)), reference_answers(category)
    failed = set()
    for task in benchmark.tasks():
        environment = await benchmark.open(task.id)
        await environment.act(reference_action(answers[task.id], environment.view))
        if not await environment.score():
            failed.add(task.id)
    assert failed == unwinnable
    assert len(benchmark.tasks()) - len(failed) == passed


# --- the stream -----------------------------------------------------------------------------------------


def test_the_stream_holds_every_live_task_in_package_order() -> None:
    """R3: 258, 1053, 16, 24, 884 and 16 tasks, ids unique, categories in the package's order."""
    tasks = bfcl().tasks()
    assert list(Counter(t.domain for t in tasks).items()) == list(COUNTS.items())
    assert len({t.id for t in tasks}) == sum(COUNTS.values())
    assert [t.id for t in tasks if t.domain == "live_simple"][:2] == ["live_simple_0-0-0", "live_simple_1-1-0"]


def test_the_order_of_categories_in_a_config_changes_nothing() -> None:
    forward, backward = (
        bfcl(categories=("live_parallel", "live_relevance")),
        bfcl(categories=("live_relevance", "live_parallel")),
    )
    assert forward.tasks() == backward.tasks()
    assert forward.fingerprint() == backward.fingerprint()


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        (
            ("live_simple", "live_simpel"),
            r"\['live_simpel'\]; valid are: live_simple, live_multiple, live_parallel",
        ),
        ((), "valid are: live_simple"),
        (("live_simple", "live_simple"), "more than once"),
    ],
)
def test_categories_are_checked_when_the_config_is_read(categories: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        BfclV4Options(categories=categories)


def test_task_ids_select_tasks_in_package_order() -> None:
    benchmark = bfcl(task_ids=("live_relevance_0-0-0", "live_simple_1-1-0", "live_simple_0-0-0"))
    assert [t.id for t in benchmark.tasks()] == ["live_simple_0-0-0", "live_simple_1-1-0", "live_relevance_0-0-0"]


def test_an_unknown_or_foreign_task_id_is_a_config_error() -> None:
    benchmark = bfcl(categories=("live_simple",), task_ids=("live_simple_0-0-0", "live_relevance_0-0-0"))
    with pytest.raises(ConfigError, match=r"\['live_relevance_0-0-0'\] are not in"):
        benchmark.tasks()


def test_a_task_id_given_twice_is_refused() -> None:
    with pytest.raises(ValidationError, match="more than once"):
        BfclV4Options(task_ids=("live_simple_0-0-0", "live_simple_0-0-0"))


async def test_max_request_chars_keeps_exactly_the_short_tasks() -> None:
    everything, short = bfcl(categories=("live_simple",)), bfcl(categories=("live_simple",), max_request_chars=600)
    lengths = {}
    for task in everything.tasks():
        view = (await everything.open(task.id)).view
        tools = json.dumps(list(view.tools), ensure_ascii=False, separators=(",", ":"))
        lengths[task.id] = len(view.policy) + len(view.request) + len(tools)
    assert [t.id for t in short.tasks()] == [i for i, length in lengths.items() if length <= 600]
    assert 0 < len(short.tasks()) < 258


def test_options_that_leave_no_task_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="raise max_request_chars"):
        bfcl(max_request_chars=10).tasks()


async def test_opening_an_unknown_or_unselected_task_is_a_benchmark_error() -> None:
    benchmark = bfcl(task_ids=("live_simple_0-0-0",))
    for task_id in ("live_simple_1-1-0", "nonsense"):
        with pytest.raises(BenchmarkError, match=task_id):
            await benchmark.open(task_id)


def test_the_fingerprint_names_version_data_checker_and_categories() -> None:
    """R42: the checker is named, because it is a deviation from the printed one."""
    print_ = bfcl().fingerprint()
    assert print_["package"] == "bfcl-eval 2026.3.23"
    assert print_["checker"] == "official"
    assert print_["categories"] == ",".join(LIVE)
    assert len(print_["data_sha256"]) == 64
    assert bfcl(categories=("live_simple",)).fingerprint()["data_sha256"] != print_["data_sha256"]


def test_limits_come_from_the_options() -> None:
    """R42: at most 10 tool or search steps by default."""
    assert (bfcl().action_mode, bfcl().usual_steps, bfcl().max_steps) == ("tools", 1, 10)
    assert bfcl(action_mode="json_schema", max_steps=3).max_steps == 3


# --- what an agent sees ---------------------------------------------------------------------------------


async def test_a_view_holds_request_messages_and_openai_tools() -> None:
    view = (await bfcl().open("live_simple_0-0-0")).view
    assert view.messages == ({"role": "user", "content": view.request},)
    assert view.policy == ""
    (tool,) = view.tools
    assert tool["type"] == "function"
    assert tool["function"]["name"] == "get_user_info"
    assert tool["function"]["parameters"]["type"] == "object"


async def test_system_messages_of_the_dataset_become_the_policy() -> None:
    benchmark = bfcl()
    views = [(await benchmark.open(t.id)).view for t in benchmark.tasks()]
    assert sum(bool(view.policy) for view in views) == 11 + 37 + 1 + 42 + 1
    assert {m["role"] for view in views for m in view.messages} == {"user", "assistant"}
    assert all(view.request.strip() and view.messages[-1]["role"] == "user" for view in views)


async def test_a_longer_conversation_is_kept_and_the_request_shows_who_said_what() -> None:
    benchmark = bfcl(categories=("live_irrelevance",))
    views = [(await benchmark.open(t.id)).view for t in benchmark.tasks()]
    longer = [view for view in views if len(view.messages) > 1]
    assert len(longer) == 9
    for view in longer:
        assert view.request == "\n\n".join(f"{m['role']}: {m['content']}" for m in view.messages)


async def test_tasks_without_functions_have_no_tools() -> None:
    benchmark = bfcl()
    bare = [t.id for t in benchmark.tasks() if not (await benchmark.open(t.id)).view.tools]
    assert bare == WITHOUT_FUNCTIONS


async def test_dots_in_function_names_become_underscores_and_only_that_spelling_is_accepted() -> None:
    benchmark, answers = bfcl(categories=("live_simple",)), reference_answers("live_simple")
    dotted = next(i for i, truth in answers.items() if "." in next(iter(truth[0])))
    view = (await benchmark.open(dotted)).view
    action = reference_action(answers[dotted], view)
    assert [t["function"]["name"] for t in view.tools] == [action.tool_calls[0].name]
    assert await judged(benchmark, dotted, action) == (EndReason.SCORED, True)

    original = next(iter(answers[dotted][0]))
    as_dotted = Action(tool_calls=(call(original, action.tool_calls[0].arguments),))
    assert await judged(benchmark, dotted, as_dotted) == (EndReason.SCORED, False)


async def test_tools_equal_what_the_package_itself_shows_to_models() -> None:
    benchmark, package = bfcl(categories=("live_parallel_multiple",)), shared_package()
    convert = importlib.import_module("bfcl_eval.model_handler.utils").convert_to_tool
    mapping = importlib.import_module("bfcl_eval.constants.type_mappings").GORILLA_TO_OPENAPI
    style = importlib.import_module("bfcl_eval.constants.enums").ModelStyle.OPENAI_COMPLETIONS
    with package._reading():
        rows = importlib.import_module("bfcl_eval.utils").load_dataset_entry("live_parallel_multiple")
    assert len(rows) == 24
    for row in rows:
        expected = convert(row["function"], mapping, style)
        assert list((await benchmark.open(row["id"])).view.tools) == expected


async def test_every_schema_uses_json_schema_types_only() -> None:
    names = {"object", "array", "string", "number", "integer", "boolean"}

    def types(schema: Json) -> Iterator[str]:
        yield schema["type"]
        for sub in schema.get("properties", {}).values():
            yield from types(sub)
        if "type" in schema.get("items", {}):
            yield from types(schema["items"])

    benchmark = bfcl()
    for task in benchmark.tasks():
        for tool in (await benchmark.open(task.id)).view.tools:
            assert set(types(tool["function"]["parameters"])) <= names


async def test_an_agent_that_edits_its_view_disturbs_no_other_episode() -> None:
    benchmark = bfcl()
    first = (await benchmark.open("live_simple_0-0-0")).view
    expected = first.model_copy(deep=True)
    first.tools[0]["function"]["parameters"]["properties"].clear()
    first.messages[0]["content"] = "changed"
    assert (await benchmark.open("live_simple_0-0-0")).view == expected


# --- how answers are judged -----------------------------------------------------------------------------


async def test_wrong_values_wrong_names_and_extra_calls_fail() -> None:
    benchmark = bfcl()
    right = call("get_user_info", {"user_id": 7890, "special": "black"})
    answers = {
        "right": Action(tool_calls=(right,)),
        "right, with words": Action(text="Let me see.", tool_calls=(right,)),
        "wrong value": Action(tool_calls=(call("get_user_info", {"user_id": 7891, "special": "black"}),)),
        "wrong type": Action(tool_calls=(call("get_user_info", {"user_id": "7890", "special": "black"}),)),
        "missing argument": Action(tool_calls=(call("get_user_info", {"special": "black"}),)),
        "unknown tool": Action(tool_calls=(call("get_user", {"user_id": 7890, "special": "black"}),)),
        "two calls": Action(tool_calls=(right, right)),
        "only words": Action(text="The user is 7890."),
    }
    verdicts = {name: await judged(benchmark, "live_simple_0-0-0", action) for name, action in answers.items()}
    assert {name for name, (_, success) in verdicts.items() if success} == {"right", "right, with words"}
    assert {end for end, _ in verdicts.values()} == {EndReason.SCORED}


UNUSABLE = [
    pytest.param(Action(), EndReason.EMPTY_OUTPUT, id="nothing"),
    pytest.param(Action(text=" \n"), EndReason.EMPTY_OUTPUT, id="white space"),
    pytest.param(Action(malformed="cut at the output limit"), EndReason.MALFORMED_OUTPUT, id="malformed"),
    pytest.param(Action(text="No tool fits.", malformed="cut"), EndReason.MALFORMED_OUTPUT, id="malformed words"),
    pytest.param(
        Action(tool_calls=(call("get_user_info", None, error="two objects"),)),
        EndReason.MALFORMED_OUTPUT,
        id="unreadable arguments",
    ),
    pytest.param(
        Action(tool_calls=(call("get_user_info", {"user_id": 7890, "special": "black"}), call("f", None, "cut"))),
        EndReason.MALFORMED_OUTPUT,
        id="one unreadable call beside a right one",
    ),
    pytest.param(Action(tool_calls=(call(" ", {}),)), EndReason.MALFORMED_OUTPUT, id="call without a name"),
]


@pytest.mark.parametrize("task_id", ["live_simple_0-0-0", "live_irrelevance_0-0-0", "live_relevance_0-0-0"])
@pytest.mark.parametrize(("action", "end"), UNUSABLE)
async def test_unusable_replies_end_the_episode_and_pass_nothing(
    task_id: str, action: Action, end: EndReason
) -> None:
    """R42: a parse failure or an empty reply is no sign of irrelevance (A2)."""
    assert await judged(bfcl(), task_id, action) == (end, False)


@pytest.mark.parametrize("task_id", ["live_irrelevance_0-0-0", WITHOUT_FUNCTIONS[0]])
async def test_irrelevance_wants_words_and_no_call(task_id: str) -> None:
    """R42: of the official checker."""
    benchmark = bfcl()
    assert await judged(benchmark, task_id, Action(text="None of the tools can do that.")) == (
        EndReason.SCORED,
        True,
    )
    for text in ("", "Let me try."):
        action = Action(text=text, tool_calls=(call("anything", {}),))
        assert await judged(benchmark, task_id, action) == (EndReason.SCORED, False)


async def test_relevance_wants_a_call() -> None:
    """R42: of the official checker."""
    benchmark, task_id = bfcl(), "live_relevance_0-0-0"
    name = (await benchmark.open(task_id)).view.tools[0]["function"]["name"]
    assert await judged(benchmark, task_id, Action(tool_calls=(call(name, {}),))) == (EndReason.SCORED, True)
    assert await judged(benchmark, task_id, Action(text="I could call a tool.")) == (EndReason.SCORED, False)


@pytest.mark.parametrize("task_id", ["live_simple_0-0-0", "live_irrelevance_0-0-0", "live_relevance_0-0-0"])
async def test_an_episode_without_an_answer_is_no_success(task_id: str) -> None:
    environment = await bfcl().open(task_id)
    assert not await environment.score()


async def test_a_second_action_is_refused_and_closing_twice_is_fine() -> None:
    environment = await bfcl().open("live_irrelevance_0-0-0")
    await environment.act(Action(text="No."))
    with pytest.raises(BenchmarkError, match="takes one answer"):
        await environment.act(Action(text="No."))
    assert await environment.score()
    await environment.close()
    await environment.close()


async def test_many_environments_may_be_open_at_once() -> None:
    benchmark = bfcl(categories=("live_parallel", "live_parallel_multiple"))
    answers = reference_answers("live_parallel") | reference_answers("live_parallel_multiple")
    tasks = [task for task in benchmark.tasks() for _ in range(4)]
    environments = await asyncio.gather(*(benchmark.open(task.id) for task in tasks))
    actions = [
        reference_action(answers[task.id], environment.view) if index % 2 else Action(text="No.")
        for index, (task, environment) in enumerate(zip(tasks, environments, strict=True))
    ]
    await asyncio.gather(*(e.act(a) for e, a in zip(reversed(environments), reversed(actions), strict=True)))
    verdicts = await asyncio.gather(*(e.score() for e in environments))
    assert verdicts == [bool(index % 2) for index in range(len(tasks))]


# --- reference answers stay inside the scorer -----------------------------------------------------------


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A fresh package whose reference answers of live_simple hold a canary; records what was loaded."""
    package = BfclPackage()
    utils = importlib.import_module("bfcl_eval.utils")
    real, loaded = utils.load_ground_truth_entry, []

    def load(category: str) -> list[dict[str, Any]]:
        loaded.append(category)
        rows: list[dict[str, Any]] = real(category)
        for row in rows:
            for named in row["ground_truth"]:
                for accepted in named.values():
                    for candidates in accepted.values():
                        candidates.append(CANARY)
        return rows

    monkeypatch.setattr(utils, "load_ground_truth_entry", load)
    monkeypatch.setattr(bfcl_package, "_shared", package)
    return loaded


async def test_reference_answers_are_seen_by_the_scorer_alone(planted: list[str]) -> None:
    """R8: a canary planted in a reference answer decides a verdict and appears nowhere else."""
    with capture_logs() as logs:
        benchmark = bfcl(categories=("live_simple",))
        environment = await benchmark.open("live_simple_0-0-0")
        assert planted == []
        answer = call("get_user_info", {"user_id": 7890, "special": CANARY})
        assert await judged(benchmark, "live_simple_0-0-0", Action(tool_calls=(answer,))) == (
            EndReason.SCORED,
            True,
        )
        observation = await environment.act(Action(tool_calls=(call("get_user_info", {"user_id": 1}),)))
        assert not await environment.score()
        seen = [environment.view, observation, *benchmark.tasks(), benchmark.fingerprint(), vars(environment)]
    assert planted == ["live_simple"]
    assert CANARY not in repr([seen, logs])


async def test_a_failing_checker_is_a_benchmark_error_that_tells_nothing(
    planted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: the checker's own error quotes the reference answer; ours leads to it by no path."""
    checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")

    def fail(functions: Any, calls: Any, truth: Any, *_: Any) -> None:
        raise LookupError(repr(truth))

    monkeypatch.setattr(checker, "ast_checker", fail)
    environment = await bfcl(categories=("live_simple",)).open("live_simple_0-0-0")
    await environment.act(Action(tool_calls=(call("get_user_info", {"user_id": 7890}),)))
    with pytest.raises(BenchmarkError, match="live_simple_0-0-0 with LookupError") as caught:
        await environment.score()
    assert caught.value.__context__ is None
    report = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert CANARY not in "".join(report.format())
    assert planted == ["live_simple"]
