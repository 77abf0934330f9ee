"""``chime-dist doctor``: what a sweep needs, and why a launch stands still; every problem names its fix."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from chime_dist.adapters import host
from chime_dist.adapters.directory.control_file import ControlFile
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.adapters.redis.server import EmbeddedRedis
from chime_dist.core.episode import Unit
from chime_dist.engine.control import Command
from chime_dist.wiring.health import servers
from tests.adapters.stub_server import StubServer, answers, completion, text
from tests.cli.conftest import Program, run_of

CANARY = "canary-7f3d9b52c1"

LOCAL = """\
name: quick
benchmarks: [{name: credit_world, families: 1, tasks_per_family: 16}]
methods: [chime]
backbones: [{name: m, scripted: {script: credit_world}}]
orderings: [0]
embedder: {kind: hashing, dim: 16}
protocol: {window: 2}
requests: {timeout_s: 30.0, max_retries: 0}
cluster:
  state_dir: state
  endpoints: {m: {kind: scripted}}
"""


def findings_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By check; the last one of a check that has several."""
    return {finding["check"]: finding for finding in document["findings"]}


def examined(program: Program, target: Path, *words: str) -> dict[str, dict[str, Any]]:
    """What the doctor found, whatever that is."""
    result = program("doctor", target, "--json", *words)
    document = json.loads(result.stdout)
    assert result.exit_code == (0 if document["healthy"] else 1), result.output
    return findings_of(document)


def bad(found: dict[str, dict[str, Any]]) -> set[str]:
    """The checks with a problem."""
    return {check for check, finding in found.items() if finding["level"] == "problem"}


def test_without_a_target_the_installation_is_checked(program: Program) -> None:
    result = program("doctor")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("ok      python: 3.")
    assert "packages: chime-dist" in result.stdout


def test_a_sweep_that_needs_nothing_is_healthy(program: Program) -> None:
    found = examined(program, program.write(LOCAL))
    assert bad(found) == set()
    assert found["backbone m"]["what"] == "scripted, in this process"
    assert found["embedder hashing"]["what"] == "gives vectors of 16 components"
    assert "disk of cluster.state_dir" not in found
    assert list(program.folder.iterdir()) == [program.folder / "sweep.yaml"]


def test_the_embedded_parts_are_tried(program: Program) -> None:
    sweep = program.write(
        LOCAL.replace("  state_dir: state\n", "  state_dir: state\n  redis: embedded\n  qdrant: edge\n")
    )
    found = examined(program, sweep)
    assert bad(found) == set()
    assert "persists every write and does not evict; its socket's path has" in found["redis"]["what"]
    assert found["qdrant"]["what"] == "embedded engine"
    assert found["disk of cluster.state_dir"]["level"] in ("ok", "warning")


def test_a_config_that_cannot_be_used_is_a_problem_with_its_place(program: Program) -> None:
    found = examined(program, program.write(LOCAL.replace("slots", "sluts").replace("dim: 16", "dim: 0")))
    assert bad(found) == {"config"}
    assert "sweep.yaml:6" in found["config"]["what"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that are not there are given up after a second."""
    monkeypatch.setattr(servers, "PATIENCE_S", 1.0)


@pytest.mark.usefixtures("impatient")
def test_services_that_are_not_there_are_named_with_their_setting(program: Program) -> None:
    nowhere = "  execution: ray\n  redis: 'redis://127.0.0.1:9/0'\n  qdrant: 'http://127.0.0.1:9'\n"
    away = LOCAL.replace("  state_dir: state\n", f"{nowhere}  ray: {{address: '127.0.0.1:9'}}\n")
    file = program.write(away.replace("m: {kind: scripted}", "m: {kind: http, url: 'http://127.0.0.1:9/v1'}"))
    found = examined(program, file)
    assert bad(found) == {"redis", "qdrant", "ray", "backbone m"}
    fixes = {check: found[check]["fix"] for check in bad(found)}
    assert fixes["redis"] == "check cluster.redis or CHIME_REDIS_URL"
    assert "CHIME_QDRANT_URL" in fixes["qdrant"]
    assert "RAY_ADDRESS" in fixes["ray"]
    assert "cluster.endpoints.m.url" in fixes["backbone m"]


def test_a_machine_without_room_is_told_what_to_change(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "free_bytes", lambda path: 2**28)
    monkeypatch.setattr(host, "open_files_limit", lambda: 128)
    found = examined(program, program.write(LOCAL))
    assert bad(found) == {"disk of cluster.runs_dir", "open files"}
    assert found["open files"]["fix"] == "run: ulimit -n 65536"
    assert "0.2 GiB free" in found["disk of cluster.runs_dir"]["what"]


def test_embedded_state_on_a_network_file_system_is_a_problem(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design "Run directory": results may be on a shared disk, embedded state may not."""
    monkeypatch.setattr(host, "file_system", lambda path: "nfs4")
    found = examined(
        program, program.write(LOCAL.replace("state_dir: state", "state_dir: state\n  redis: embedded"))
    )
    assert bad(found) == {"disk of cluster.state_dir"}
    assert "local disk" in found["disk of cluster.state_dir"]["fix"]


Reply = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def serves(*, tools: Any = None, schema: Any = None, tools_status: int = 200) -> Reply:
    """A model server: a token for all, and these bodies where tools or a schema are in the request."""
    called = {"id": "1", "type": "function", "function": {"name": "report", "arguments": '{"answer": 7}'}}
    tools = tools or completion(None, "tool_calls", tool_calls=[called])
    schema = schema or completion('{"answer": 7}')

    async def behave(request: web.Request, payload: dict[str, Any]) -> web.StreamResponse:
        if "tools" in payload:
            return await answers(tools, tools_status)(request, payload)
        return await answers(schema if "response_format" in payload else completion("h"))(request, payload)

    return behave


async def probed(program: Program, behaviour: Reply) -> dict[str, dict[str, Any]]:
    """What the doctor finds of a sweep whose executor calls tools and whose gate follows a schema."""
    async with StubServer([behaviour]) as server:
        file = program.write(LOCAL.replace("m: {kind: scripted}", f"m: {{kind: http, url: '{server.url}'}}"))
        return await asyncio.to_thread(examined, program, file)


TOOLS = "backbone m, tool calls (asked by executor)"
SCHEMA = "backbone m, schema diagnosis (asked by gate)"


async def test_a_backbone_is_asked_in_every_form_that_its_roles_need(program: Program) -> None:
    found = await probed(program, serves())
    assert bad(found) == set()
    assert (found[TOOLS]["what"], found[SCHEMA]["what"]) == ("called the tool", "followed the schema")


async def test_a_planner_that_has_to_follow_schemas_is_tried_for_them_once(program: Program) -> None:
    """A9: todoevolve has no gate; a planner whose schemas nobody enforces would fall back in every episode."""
    planner = "backbone m, schema design, outline, revise (asked by planner)"
    for behaviour, level in ((serves(), "ok"), (serves(schema=completion("It is 7.")), "problem")):
        async with StubServer([behaviour]) as server:
            sweep = LOCAL.replace("m: {kind: scripted}", f"m: {{kind: http, url: '{server.url}'}}")
            file = program.write(sweep.replace("methods: [chime]", "methods: [todoevolve]"))
            found = await asyncio.to_thread(examined, program, file)
            assert (found[planner]["level"], len(server.received)) == (level, 3)


async def test_forms_that_are_enforced_differently_are_tried_apart(program: Program) -> None:
    """A schema that is not enforced is not tried; who asks freely, like no_plan, is not tried for any."""
    switched = "name: m, structured_output_by_schema: {design: none}"
    async with StubServer([serves()]) as server:
        sweep = LOCAL.replace("m: {kind: scripted}", f"m: {{kind: http, url: '{server.url}'}}")
        file = program.write(
            sweep.replace("methods: [chime]", "methods: [todoevolve, no_plan]").replace("name: m", switched)
        )
        found = await asyncio.to_thread(examined, program, file)
    assert found["backbone m, schema design (asked by planner)"]["what"].startswith("structured output is off")
    assert found["backbone m, schema outline, revise (asked by planner)"]["what"] == "followed the schema"


REFUSAL = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'


@pytest.mark.parametrize(
    ("behaviour", "check", "level", "what"),
    [
        (serves(tools={"error": {"message": REFUSAL}}, tools_status=400), TOOLS, "problem", "auto"),
        (serves(tools=completion('<tool_call>{"name": "report"}')), TOOLS, "problem", "came as text"),
        (serves(tools=completion("seven")), TOOLS, "warning", "did not call the tool"),
        (serves(schema=completion("It is 7.")), SCHEMA, "problem", "does not enforce it"),
        (serves(schema=completion('{"answer": "7"}')), SCHEMA, "problem", "does not enforce it"),
        (serves(schema=completion('{"ans', "length")), SCHEMA, "warning", "was cut"),
    ],
)
async def test_a_server_that_lacks_a_form_is_told_which_flag_to_change(
    program: Program, behaviour: Reply, check: str, level: str, what: str
) -> None:
    finding = (await probed(program, behaviour))[check]
    assert finding["level"] == level
    assert what in finding["what"]
    assert ("--tool-call-parser" if check == TOOLS else "structured_output") in finding["fix"]


async def test_a_wrong_key_model_or_url_is_told_apart(program: Program) -> None:
    found = await probed(program, answers({"error": {"message": "no such key"}}, 401))
    assert found["backbone m"]["fix"] == "correct cluster.endpoints.m.api_key"
    assert TOOLS not in found
    found = await probed(program, answers({"error": {"message": "The model `m` does not exist"}}, 404))
    assert "--served-model-name" in found["backbone m"]["fix"]
    found = await probed(program, text("<html><title>Welcome</title></html>"))
    assert "no OpenAI-compatible API" in found["backbone m"]["fix"]
    assert "Welcome" in found["backbone m"]["what"]


@pytest.mark.usefixtures("impatient")
def test_no_secret_is_in_what_is_found(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """H6."""
    monkeypatch.setenv("CHIME_TEST_KEY", CANARY)
    urls = (
        "  redis: 'redis://:${CHIME_TEST_KEY}@127.0.0.1:9/0'\n  qdrant: 'http://u:${CHIME_TEST_KEY}@127.0.0.1:9'\n"
    )
    sweep = LOCAL.replace("  state_dir: state\n", urls).replace(
        "m: {kind: scripted}", "m: {kind: http, url: 'http://u:${CHIME_TEST_KEY}@127.0.0.1:9/v1'}"
    )
    result = program("doctor", program.write(sweep))
    assert result.exit_code == 1
    assert CANARY not in result.output


def test_a_complete_launch_is_healthy(program: Program, launch: LaunchDirectory) -> None:
    found = examined(program, launch.path)
    assert bad(found) == set()
    assert found["driver"]["what"] == "the launch is complete"
    assert found[f"journal of {run_of(launch, 'chime')}"]["what"] == "28 entries, all sound"


def test_a_launch_without_its_driver_is_to_be_resumed(program: Program, launch: LaunchDirectory) -> None:
    launch.set_status("running", now=datetime.now(UTC))
    driver = examined(program, launch.path)["driver"]
    assert (driver["level"], driver["what"]) == (
        "problem",
        "its driver is gone without a word; 0 episodes are owed",
    )
    assert driver["fix"] == f"chime-dist resume {launch.path}"
    launch.set_status("paused", now=datetime.now(UTC), reason="3 train positions in a row ended infra")
    driver = examined(program, launch.path)["driver"]
    assert driver["what"].endswith("it is paused: 3 train positions in a row ended infra")


def test_what_is_to_be_done_can_be_pasted_however_the_program_was_called(
    program: Program, launch: LaunchDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks name the command, and only the command line knows what this program is called."""
    run = launch.run(run_of(launch, "chime"))
    run.journal.write_bytes(run.journal.read_bytes().replace(b"success", b"failure", 1))
    launch.set_status("running", now=datetime.now(UTC))
    monkeypatch.setattr(sys, "argv", ["/opt/elsewhere/chime-dist"])
    found = examined(program, launch.path)
    assert found["driver"]["command"] == ["resume", str(launch.path)]
    assert found["driver"]["fix"] == f"/opt/elsewhere/chime-dist resume {launch.path}"
    look = f"look closer with: /opt/elsewhere/chime-dist bank verify {launch.path} {run.run_id}"
    assert found[f"journal of {run.run_id}"]["fix"] == look


def test_damage_is_a_problem_and_not_a_crash(program: Program, launch: LaunchDirectory) -> None:
    run = launch.run(run_of(launch, "chime"))
    run.journal.write_bytes(run.journal.read_bytes().replace(b"success", b"failure", 1))
    assert f"journal of {run.run_id}" in bad(examined(program, launch.path))
    with run.episodes.open("a") as rows:
        rows.write("{}\n")
    assert bad(examined(program, launch.path)) == {"records"}


def test_a_cancelled_run_is_pointed_out(program: Program, launch: LaunchDirectory) -> None:
    run = run_of(launch, "chime")
    ControlFile(launch).ask(Command(id="1", command="cancel", run_id=run, at="noon", by="somebody"))
    found = examined(program, launch.path)
    assert found["cancelled"]["what"] == f"{run} is cancelled by somebody since noon"
    assert found["cancelled"]["fix"] == f"chime-dist ctl {launch.path} revive {run}"


class Driven:
    """A launch that this process drives as far as anybody can tell: it holds the lock and wrote the log."""

    def __init__(self, program: Program, launch: LaunchDirectory) -> None:
        self._program = program
        self.launch = launch
        self.run = run_of(launch, "chime")
        journal = launch.run(self.run).journal
        # One commit short, and its episode not yet finished.
        *lines, _, _ = journal.read_text().split("\n")
        journal.write_text("".join(f"{line}\n" for line in lines))
        self.head = f"{self.run}:train:{len(lines)}"
        rows = launch.run(self.run).episodes
        kept = [
            line for line in rows.read_text().splitlines() if json.loads(line)["unit"]["position"] != len(lines)
        ]
        rows.write_text("".join(f"{line}\n" for line in kept))
        launch.log_file.unlink(missing_ok=True)

    def logged(self, age_s: float, event: str, **fields: Any) -> None:
        """An event of some time ago."""
        at = datetime.now(UTC) - timedelta(seconds=age_s)
        with self.launch.log_file.open("a") as log:
            log.write(
                json.dumps({"timestamp": at.isoformat(timespec="milliseconds"), "event": event, **fields}) + "\n"
            )

    def examined(self, started_s: float = 1e5) -> dict[str, dict[str, Any]]:
        """What is found while it is held, since ``started_s`` seconds."""
        with self.launch.driver_lock() as lock:
            lock.acquire(datetime.now(UTC) - timedelta(seconds=started_s))
            self.launch.set_status("running", now=datetime.now(UTC))
            return examined(self._program, self.launch.path)


@pytest.fixture
def driven(program: Program, launch: LaunchDirectory) -> Driven:
    """See ``Driven``."""
    return Driven(program, launch)


@pytest.mark.parametrize(("age_s", "level"), [(1.0, "ok"), (100.0, "warning"), (8_000.0, "problem")])
def test_the_head_waits_for_a_unit_at_a_worker_since_some_time(driven: Driven, age_s: float, level: str) -> None:
    driven.logged(age_s, "episode.started", unit=driven.head, worker="node-3-w1", delivery=2)
    head = driven.examined()[f"head of {driven.run}"]
    assert head["level"] == level
    assert f"waits for {driven.head}, in flight for {age_s:,.0f} s at node-3-w1 (delivery 2)" in head["what"]


def test_the_head_waits_for_a_unit_that_is_to_be_delivered_again(driven: Driven) -> None:
    """D9."""
    check, worker = f"head of {driven.run}", "node-3-w1"
    driven.logged(40.0, "episode.started", unit=driven.head, worker=worker, delivery=2)
    driven.logged(30.0, "episode.finished", unit=driven.head, outcome="infra", end_reason="benchmark")
    driven.logged(30.0, "episode.rests", unit=driven.head, worker=worker, delivery=2, pause_s=1000.0)
    assert (
        f"waits for {driven.head}, whose delivery 2 ended infra: {worker} waits 9"
        in driven.examined()[check]["what"]
    )
    driven.logged(1.0, "episode.started", unit=driven.head, worker=worker, delivery=3)
    assert f"in flight for 1 s at {worker} (delivery 3)" in driven.examined()[check]["what"]


def test_a_unit_that_an_earlier_driver_started_is_not_in_flight(driven: Driven) -> None:
    driven.logged(50.0, "episode.started", unit=driven.head, worker="w", delivery=1)
    head = driven.examined(started_s=10.0)[f"head of {driven.run}"]
    assert (head["level"], head["what"].rpartition(", ")[2]) == ("ok", "which no worker has at the moment")


def test_an_outage_lasts_until_every_process_has_seen_its_end(driven: Driven) -> None:
    """A9."""
    for _ in range(2):
        driven.logged(30.0, "outage.began", run=driven.run, reason="503 no healthy upstream")
    driven.logged(20.0, "outage.ended", run=driven.run)
    outage = driven.examined()["outage"]
    assert outage["level"] == "problem"
    assert "503 no healthy upstream" in outage["what"]
    driven.logged(10.0, "outage.ended", run=driven.run)
    assert "outage" not in driven.examined()


def test_a_disk_that_takes_no_rows_is_a_problem_until_it_does(driven: Driven) -> None:
    """H8."""
    driven.logged(30.0, "run_directory.write_failed", run=driven.run, reason="No space left on device")
    assert "No space left on device" in driven.examined()["records"]["what"]
    driven.logged(20.0, "episode.finished", unit=f"{driven.run}:train:0", outcome="success")
    assert "records" not in driven.examined()


def test_a_driver_under_which_nothing_happens_is_pointed_out(driven: Driven) -> None:
    assert driven.examined()["progress"]["what"].startswith(
        "no episode ended and nothing was committed for 100,000 s"
    )


async def test_leases_that_nobody_renews_are_pointed_out(driven: Driven) -> None:
    """D2: a dead, cut off or frozen worker."""
    server = await EmbeddedRedis.start(driven.launch.path.parent.parent / "redis")
    try:
        connection = RedisConnection(server.url)
        queue = RedisQueue(connection, RedisKeys(driven.launch.id), 30.0, DriverTurn())
        config = driven.launch.manifest.config
        cluster = {**config["cluster"], "redis": {"mode": "server", "url": server.url}, "lease_s": 30.0}
        driven.launch.extended({**config, "cluster": cluster}, driven.launch.manifest.runs)
        await queue.reset()
        for position in range(2):
            unit = Unit(run_id=driven.run, phase="train", epoch=0, position=position, task="t", read_version=0)
            await queue.admit(unit)
        await queue.claim("frozen", 1, 1.0)
        found = await asyncio.to_thread(driven.examined)
        assert found["leases"]["what"] == "1 units are held, every lease is renewed in time"
        driven.launch.extended({**config, "cluster": {**cluster, "lease_s": 0.001}}, driven.launch.manifest.runs)
        await asyncio.sleep(0.05)
        found = await asyncio.to_thread(driven.examined)
        assert (found["leases"]["level"], found["leases"]["what"]) == ("problem", "no worker renews a lease")
        await connection.close()
    finally:
        await server.stop()
