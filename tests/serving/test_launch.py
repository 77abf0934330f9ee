"""A launch serves its backbones: started and tried before its runs, ended with them. The servers are doubles."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chime_dist.adapters.vllm.actor import work_folder
from chime_dist.adapters.vllm.child import processes_in
from chime_dist.adapters.vllm.status import ServingStatus
from chime_dist.config.loading import load_sweep
from chime_dist.config.serving import VllmEndpoint
from chime_dist.engine.driver import Ending
from chime_dist.errors import MissingExtraError, ServingError
from chime_dist.wiring.health.models import backbone_findings
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import plan_runs
from chime_dist.wiring.requirements import require_parts
from chime_dist.wiring.services import secrets_of, spec_of
from chime_dist.wiring.serving import live_metrics, read_status
from tests.chaos.patience import eventually
from tests.serving.endpoints import STUB

SWEEP = """\
name: served
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 4, steps: 1, action_mode: json_schema}]
methods: [no_plan]
backbones: [{name: m, max_input_tokens: 4000, structured_output: none}]
orderings: [0]
embedder: {kind: hashing, dim: 64}
requests: {timeout_s: 60, max_retries: 1, base_interval_s: 1}
cluster:
  slots: 2
"""


def stub(router_command: list[str], **keys: Any) -> dict[str, Any]:
    """An endpoint as a file has it."""
    router = {"command": router_command}
    return {"kind": "vllm", "gpus": 0, "cpus": 0.1, "command": list(STUB), "router": router, **keys}


def launch_of(folder: Path, endpoints: dict[str, Any], text: str = SWEEP) -> Launch:
    """A new launch of the sweep with these endpoints."""
    file = folder / "sweep.yaml"
    places = {"runs_dir": str(folder / "runs"), "state_dir": str(folder / "state"), "endpoints": endpoints}
    lines = [f"  {key}: {json.dumps(value)}\n" for key, value in places.items()]
    file.write_text(text + "".join(lines))
    sweep = load_sweep(file)
    require_parts(sweep)
    return Launch.new(sweep, plan_runs(sweep))


def processes_of(launch: Launch) -> list[int]:
    """Whatever serves it."""
    folders = [work_folder(launch.directory.id, part) for part in ("m-0", "m-router", "embedder-0")]
    return [pid for folder in folders for pid in processes_in(folder)]


def unseen(_: Any) -> None:
    """Progress that nobody looks at."""


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
async def test_a_sweep_runs_on_what_it_serves_and_leaves_nothing(
    tmp_path: Path, router_command: list[str]
) -> None:
    launch = launch_of(tmp_path, {"m": stub(router_command)})
    told: list[str] = []
    launch.tell = told.append
    assert await launch.drive(unseen) is Ending.COMPLETE, launch.reason
    assert processes_of(launch) == []
    status = read_status(launch.directory.path)
    assert [fleet.replicas[0].state for fleet in status.fleets] == ["stopped"]
    assert await live_metrics(status) == {}
    assert told[0].startswith("starting 1 vLLM replicas of m; logs: ")
    assert told[-1] == "prefix cache, m replica 0: 60.0% of 1,000 prompt tokens"
    assert (launch.directory.path / "serving" / "m-0.log").is_file()
    again = Launch.resume(launch.directory.path)
    assert await again.drive(unseen) is Ending.COMPLETE, again.reason
    assert processes_of(launch) == []


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
async def test_a_backbone_that_cannot_do_what_its_roles_need_stops_the_launch_and_names_the_keys(
    tmp_path: Path, router_command: list[str]
) -> None:
    """A9, R35, R36: everything that is wrong is said at once, before the first episode."""
    text = SWEEP.replace("max_input_tokens: 4000, structured_output: none", "max_input_tokens: 9000")
    thinks = stub(router_command, env={"STUB_THINKS": "well, well"})
    launch = launch_of(tmp_path, {"m": thinks}, text)
    with pytest.raises(ServingError) as caught:
        await launch.drive(unseen)
    said = str(caught.value)
    assert "max_input_tokens (9000) are sent to a server that takes 4096 tokens" in said
    assert "lower backbones.m.max_input_tokens, or raise cluster.endpoints.m.context_tokens" in said
    assert "'well, well'" in said
    assert "the reply does not follow the schema" in said
    assert processes_of(launch) == []
    status = launch.directory.status()
    assert status is not None
    assert status.state == "incomplete"


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
async def test_a_launch_that_is_stopped_while_its_models_load_ends_at_once(
    tmp_path: Path, router_command: list[str]
) -> None:
    """H9: weights may take half an hour to load."""
    launch = launch_of(tmp_path, {"m": stub(router_command, command=["sh", "-c", "sleep 600"])})
    driving = asyncio.create_task(launch.drive(unseen))
    await eventually(lambda: processes_in(work_folder(launch.directory.id, "m-0")) != [] or driving.done())
    launch.stop(Ending.PREEMPTED)
    assert await driving is Ending.PREEMPTED
    await eventually(lambda: processes_of(launch) == [])


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
async def test_a_served_embedder_is_asked_at_its_router(tmp_path: Path, router_command: list[str]) -> None:
    text = SWEEP.replace("embedder: {kind: hashing, dim: 64}", "embedder: {kind: http, model: e, dim: 2}")
    endpoints = {"m": stub(router_command), "embedder": stub(router_command, runner="pooling")}
    launch = launch_of(tmp_path, endpoints, text)
    assert await launch.drive(unseen) is Ending.COMPLETE, launch.reason
    status: ServingStatus = read_status(launch.directory.path)
    assert [(fleet.backbone, fleet.model) for fleet in status.fleets] == [("m", "m"), ("embedder", "e")]
    assert processes_of(launch) == []


def test_commands_that_are_not_installed_are_said_before_anything_is_written(tmp_path: Path) -> None:
    endpoint = stub(["no-such-router"], command=["no-such-vllm", "serve"])
    with pytest.raises(MissingExtraError) as caught:
        launch_of(tmp_path, {"m": endpoint})
    assert "the command no-such-router: needed by cluster.endpoints.m.router.command" in str(caught.value)
    assert "the command no-such-vllm: needed by cluster.endpoints.m.command" in str(caught.value)
    assert "chime-dist[serve]" in str(caught.value)
    assert not (tmp_path / "runs").exists()


async def test_doctor_says_what_a_launch_will_start(tmp_path: Path) -> None:
    endpoint = stub(["sh"], replicas=3, gpus=None, tensor_parallel=4, accelerator="H100")
    launch = launch_of(tmp_path, {"m": endpoint})
    spec = spec_of("doctor", tmp_path, tmp_path, launch.runs, launch.sweep.cluster)
    [finding] = [finding async for finding in backbone_findings(spec, launch.runs)]
    assert finding.level == "ok"
    assert "starts 3 of it, each on 0.1 CPU, 4 GPU, accelerator H100" in finding.what
    without = VllmEndpoint.model_validate({**endpoint, "router": {"command": ["no-such-router"]}})
    spec = replace(spec, cluster=spec.cluster.model_copy(update={"endpoints": {"m": without}}))
    [finding] = [finding async for finding in backbone_findings(spec, launch.runs)]
    assert finding.level == "problem"
    assert "cluster.endpoints.m.router.command" in finding.fix


def test_the_servers_secrets_are_masked(tmp_path: Path) -> None:
    launch = launch_of(tmp_path, {"m": stub(["sh"], secret_env={"HF_TOKEN": "hf_secret_value"})})
    assert "hf_secret_value" in secrets_of(launch.sweep.cluster)
    assert "hf_secret_value" not in (launch.directory.path / "sweep.json").read_text()
