"""Reference answers of the real BFCL-v4: the checker reads them, and nobody and nothing else ever does (R8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.benchmarks.bfcl_v4 import package
from chime_dist.core.episode import Outcome
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.engine.driver import Ending
from tests.integration.test_real_services import contents_below
from tests.spec.sweeps import journal_of, launched, records_of

GOLD = "GOLD-CANARY-5c0e"

SWEEP = """\
name: gold
benchmarks: [{name: bfcl_v4, categories: [live_simple, live_multiple], action_mode: json_schema}]
methods:
  - name: chime
    retrieval: {min_similarity: 0.0}
    evolution: {conf_threshold: 0.0, addition: "off"}
backbones: [{name: m, scripted: {seed: 2}}]
orderings: [0]
embedder: {kind: hashing, dim: 32}
protocol: {limit: 16, epochs: 1, window: 2}
cluster:
  slots: 2
  stop_after_infra: 99
  capture_prompts: true
  endpoints: {m: {kind: scripted}}
"""


async def test_a_canary_in_every_reference_answer_reaches_no_prompt_trace_log_or_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: every accepted value of every task is joined by a canary, and on one task the checker raises an error
    that quotes the answer. What the models are asked, what is stored and what is logged knows nothing of it."""
    shared = package.shared_package()
    read: list[Any] = []
    load, judge = shared._utils.load_ground_truth_entry, shared._checker.ast_checker
    asked: list[ChatRequest] = []
    complete = ScriptedBackbone.complete

    def planted(category: str) -> list[dict[str, Any]]:
        return [{**row, "ground_truth": _with_canary(row["ground_truth"])} for row in load(category)]

    def quoting(functions: Any, calls: Any, truth: Any, *rest: Any) -> Any:
        read.append(truth)
        if len(read) == 3:
            raise ValueError(f"cannot compare with {truth}")
        return judge(functions, calls, truth, *rest)

    async def heard(self: ScriptedBackbone, request: ChatRequest, budget_s: float) -> ChatReply:
        asked.append(request)
        return await complete(self, request, budget_s)

    monkeypatch.setattr(shared._utils, "load_ground_truth_entry", planted)
    monkeypatch.setattr(shared._checker, "ast_checker", quoting)
    monkeypatch.setattr(shared, "_answers", {})
    monkeypatch.setattr(ScriptedBackbone, "complete", heard)

    launch = await launched(tmp_path, SWEEP, Ending.COMPLETE)
    assert GOLD in str(read), "the checker did read the planted answers"
    assert len(read) > 3
    [run] = launch.manifest.runs
    entries = journal_of(launch, run)
    assert any(event.kind == "content.insert" for entry in entries for event in entry.events)
    assert any(record.outcome is not Outcome.INFRA for record in records_of(launch, run, "train"))
    assert {request.schema_name for request in asked} >= {"action", "diagnosis"}
    assert len(list(launch.run(run).path.rglob("prompts/**/*.zst"))) == len(
        list(launch.run(run).path.rglob("trajectories/**/*.zst"))
    )
    assert [request for request in asked if GOLD in request.model_dump_json()] == []
    contents = contents_below(tmp_path)
    assert any(name.endswith(".zst") for name in contents)
    assert any(b"failed on task" in data for data in contents.values()), (
        "the checker's error is told without words"
    )
    assert [name for name, data in contents.items() if GOLD.encode() in data] == []


def _with_canary(truth: Any) -> Any:
    """The same answer with one more accepted value in every list of accepted values."""
    if isinstance(truth, dict):
        return {name: _with_canary(value) for name, value in truth.items()}
    if isinstance(truth, list) and all(isinstance(value, dict) for value in truth):
        return [_with_canary(value) for value in truth]
    return [*truth, GOLD] if isinstance(truth, list) else truth
