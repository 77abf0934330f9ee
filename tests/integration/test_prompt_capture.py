"""``cluster.capture_prompts``: what models were asked and what they said, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.directory.prompt_files import load_prompts
from chime_dist.adapters.models.scripted import ScriptedBackbone
from chime_dist.core.captured import CapturedEpisode
from chime_dist.core.model_call import ChatReply, ChatRequest
from chime_dist.errors import BackboneError, RunDirectoryError
from tests.spec.sweeps import launched

CANARY = "canary-5d2b80e7aa41"

SWEEP = """\
name: prompts
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 10, steps: 1}]
methods: [chime]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0]
embedder: {kind: hashing, dim: 16}
protocol: {epochs: 1, window: 1}
requests: {max_retries: 0}
cluster:
  slots: 2
  capture_prompts: true
  secrets: {search: '${CHIME_TEST_KEY}'}
  endpoints: {m: {kind: scripted}}
"""


def prompts_of(launch: LaunchDirectory) -> dict[str, CapturedEpisode]:
    """By unit key, of every final attempt."""
    [run] = launch.manifest.runs
    found = {}
    for key, record in EpisodeArchive(launch).finals(run).items():
        episode = load_prompts(launch.run(run), record)
        assert episode is not None
        found[key] = episode
    return found


async def test_every_turn_of_an_episode_is_kept_as_it_was_sent_and_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly what the backbone was given, gate included, with known secrets out (H6) and nothing else changed."""
    heard: list[tuple[ChatRequest, ChatReply]] = []
    complete = ScriptedBackbone.complete

    async def leaking(self: ScriptedBackbone, request: ChatRequest, budget_s: float) -> ChatReply:
        reply = await complete(self, request, budget_s)
        if request.response_schema is None and not request.tools and request.max_tokens != 1:
            reply = reply.model_copy(update={"text": f"{reply.text} {CANARY}"})
        heard.append((request, reply))
        return reply

    monkeypatch.setattr(ScriptedBackbone, "complete", leaking)
    launch = await launched(tmp_path, SWEEP, environ={"CHIME_TEST_KEY": CANARY})
    found = prompts_of(launch)
    for key, episode in found.items():
        sent = [pair for pair in heard if pair[0].session_id == key]
        masked = [tuple(part.model_dump_json().replace(CANARY, "***") for part in pair) for pair in sent]
        calls = [(call.request, call.reply) for call in episode.calls]
        assert [(r and r.model_dump_json(), a and a.model_dump_json()) for r, a in calls] == masked
        roles = [call.role for call in episode.calls]
        assert roles[:2] == ["planner", "executor"]
        assert ("gate" in roles) == (":train:" in key)
    assert any(CANARY in request.model_dump_json() for request, _ in heard)


async def test_a_turn_that_failed_is_kept_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = ScriptedBackbone.complete

    async def refusing(self: ScriptedBackbone, request: ChatRequest, budget_s: float) -> ChatReply:
        if request.tools:
            raise BackboneError("the context is 4,096 tokens", "context_overflow", 400)
        return await complete(self, request, budget_s)

    monkeypatch.setattr(ScriptedBackbone, "complete", refusing)
    launch = await launched(tmp_path, SWEEP, environ={"CHIME_TEST_KEY": CANARY})
    for episode in prompts_of(launch).values():
        failed = episode.calls[1]
        assert (failed.role, failed.reply) == ("executor", None)
        assert "context_overflow" in failed.error
        assert failed.request is not None
        assert failed.request.tools


async def test_prompts_of_another_attempt_are_none_and_damage_is_told(tmp_path: Path) -> None:
    launch = await launched(tmp_path, SWEEP, environ={"CHIME_TEST_KEY": CANARY})
    [run] = launch.manifest.runs
    record = next(iter(EpisodeArchive(launch).finals(run).values()))
    assert load_prompts(launch.run(run), record.model_copy(update={"attempt": "another"})) is None
    launch.run(run).prompts(record.unit).write_bytes(b"?")
    with pytest.raises(RunDirectoryError, match="is damaged"):
        load_prompts(launch.run(run), record)
