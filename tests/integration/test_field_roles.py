"""Roles on backbones of their own, seen from the backbones (R38, R9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.adapters.stub_server import Received, StubServer, answers, completion
from tests.spec.parts import verdict
from tests.spec.sweeps import launched, runs_of

SWEEP = """\
name: roles
benchmarks: [{{name: credit_world, families: 1, tasks_per_family: 4, steps: 1}}]
methods: [chime]
backbones: [{{name: agent, model: agent-weights}}]
{roles}
orderings: [0]
embedder: {{kind: hashing, dim: 16}}
protocol: {{epochs: 1, window: 1}}
cluster:
  slots: 2
  endpoints:
    agent: {{url: '{agent}'}}
    reviewer: {{url: '{reviewer}'}}
"""
REVIEWER = "roles: {gate: {name: reviewer, model: reviewer-weights}}"

SAYS: dict[str, Any] = completion(json.dumps(verdict("none")))


def sorted_out(server: StubServer) -> dict[str, int]:
    """How many requests of each kind came in, after those that try the model before anything starts."""
    kinds = {"plan": 0, "act": 0, "review": 0, "probe": 0, "form": 0}
    for received in server.received:
        if received.body.get("max_tokens") == 1:
            kinds["probe"] += 1
        elif _session(received) == "doctor":
            kinds["form"] += 1
        elif "response_format" in received.body:
            kinds["review"] += 1
        else:
            kinds["act" if received.body.get("tools") else "plan"] += 1
    return kinds


async def test_a_role_with_a_model_of_its_own_is_asked_there_and_nowhere_else(tmp_path: Path) -> None:
    """R38: the gate on another backbone (as RQ5 needs it); planner and executor stay on the run's, each request
    names the weights of its own backbone, and both showed a token and the form that their roles need before any
    episode."""
    async with StubServer([answers(SAYS)]) as agent, StubServer([answers(SAYS)]) as reviewer:
        text = SWEEP.format(roles=REVIEWER, agent=agent.url, reviewer=reviewer.url)
        launch = await launched(tmp_path, text)
    assert sorted_out(agent) == {"plan": 4, "act": 4, "review": 0, "probe": 1, "form": 1}
    assert sorted_out(reviewer) == {"plan": 0, "act": 0, "review": 2, "probe": 1, "form": 1}
    assert {received.body["model"] for received in agent.received} == {"agent-weights"}
    assert {received.body["model"] for received in reviewer.received} == {"reviewer-weights"}
    [run] = runs_of(launch, "chime")
    assert run in launch.manifest.runs


async def test_without_roles_one_backbone_serves_planner_executor_and_gate(tmp_path: Path) -> None:
    """R9, R38: the default; every request of an episode carries one session id, so its prefix is cached in one
    place."""
    async with StubServer([answers(SAYS)]) as agent, StubServer([answers(SAYS)]) as nobody:
        await launched(tmp_path, SWEEP.format(roles="", agent=agent.url, reviewer=nobody.url))
    assert sorted_out(agent) == {"plan": 4, "act": 4, "review": 2, "probe": 1, "form": 2}
    assert nobody.received == []
    sessions = [_session(received) for received in agent.received[3:]]
    assert sorted(sessions.count(session) for session in set(sessions)) == [2, 2, 3, 3]


def _session(received: Received) -> str:
    return next(value for key, value in received.headers.items() if key.lower() == "x-session-id")
