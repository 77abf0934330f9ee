"""A backbone's limits hold for a whole launch: all its runs, episodes and roles together."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from chime_dist.adapters.local.pacer import LocalPacer
from chime_dist.adapters.local.pacer_fallback import FallbackPacer
from chime_dist.config.loading import load_sweep
from chime_dist.core.episode import Role
from chime_dist.wiring import pacers
from chime_dist.wiring.plans import plan_runs
from chime_dist.wiring.services import LaunchSpec, spec_of
from tests.adapters.stub_server import StubServer, completion
from tests.spec.sweeps import launched, written

SWEEP = """\
name: limited
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 5, steps: 1}]
methods: [chime, no_plan]
backbones: [m]
orderings: [0]
embedder: {kind: hashing, dim: 64}
protocol: {epochs: 1, window: 4}
cluster:
  execution: EXECUTION
  slots: 8
  endpoints: {m: {url: "URL", limits: LIMITS}}
"""


async def _slow(request: web.Request, payload: dict[str, Any]) -> web.StreamResponse:
    await asyncio.sleep(0.005)
    return web.json_response(completion("never mind"))


async def test_no_more_calls_are_in_flight_than_allowed(tmp_path: Path) -> None:
    """Eight slots, two methods and three roles share two calls at a time."""
    async with StubServer([_slow]) as server:
        text = SWEEP.replace("URL", server.url).replace("LIMITS", "{max_in_flight: 2}")
        await launched(tmp_path, text.replace("EXECUTION", "local"))
    assert server.most_in_flight == 2
    assert len(server.received) > 20


def spec(tmp_path: Path, execution: str, limits: str) -> LaunchSpec:
    """Of a launch that is not started."""
    text = SWEEP.replace("URL", "http://127.0.0.1:9/v1").replace("LIMITS", limits).replace("EXECUTION", execution)
    sweep = load_sweep(written(tmp_path, text + "  redis: embedded\n"), environ={})
    made = spec_of("launch", tmp_path, tmp_path, plan_runs(sweep), sweep.cluster)
    return replace(made, redis_url=SecretStr("redis://127.0.0.1:9/0"))


@pytest.mark.parametrize(
    ("execution", "limits", "kind"),
    [
        ("local", "{max_in_flight: 2}", LocalPacer),
        ("ray", "{}", LocalPacer),
        ("ray", "{max_in_flight: 2}", FallbackPacer),
        ("ray", "{tokens_per_minute: 1000}", FallbackPacer),
    ],
)
def test_roles_in_processes_of_their_own_meet_in_redis(
    execution: str, limits: str, kind: type, tmp_path: Path
) -> None:
    """Without limits nothing is asked of Redis before a call."""
    assert isinstance(pacers.pacer(spec(tmp_path, execution, limits), "m"), kind)


async def test_where_redis_does_not_answer_each_role_keeps_to_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D6, D7: six calls at a time are two for each of three roles."""
    monkeypatch.setattr(pacers, "PACE_PATIENCE_S", 0.05)
    paced = pacers.pacer(spec(tmp_path, "ray", "{max_in_flight: 6}"), "m", Role.PLANNER)
    assert [await paced.enter(call, 1, 60.0) == 0 for call in "abc"] == [True, True, False]
