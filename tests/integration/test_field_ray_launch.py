"""One launch on Ray that meets what real ones meet: a poison task, a leaking error, a driver that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
import zstandard

from chime_dist.core.split import PROTOCOLS, order_tasks
from chime_dist.core.task import Task
from tests.integration import processes
from tests.integration.plugin import installed
from tests.integration.processes import finish, journals_of, launch_below, members, rows_of, wait_for_rows

pytestmark = pytest.mark.slow

CANARY = "canary-41d7a90b6e"
MARK = "CHIME_FIELD_MARK"
GONE_S = 30.0
"""Longest time that processes of a killed driver may linger, in seconds."""
ORDER = order_tasks([Task(id=f"task-{n}", domain="hell") for n in range(10)], PROTOCOLS["paper_numbers"], 0)
POISON, CRASHING, ECHOED = (ORDER.train[n].id for n in (1, 3, 4))

SWEEP = """\
name: field
benchmarks: [{{name: hell, marks: {marks}, poison: {poison}, crashing: {crashing}}}]
methods: [no_plan]
backbones: [m]
orderings: [0]
embedder: {{kind: hashing, dim: 16}}
protocol: {{epochs: 1, window: 7}}
requests: {{timeout_s: 20.0, max_retries: 0}}
cluster:
  slots: 2
  workers: 2
  lease_s: 2
  max_deliveries: 2
  runs_dir: runs
  state_dir: state
  redis: embedded
  qdrant: edge
  execution: ray
  ray: {{num_cpus: 2}}
  endpoints: {{m: {{kind: http, url: '{url}', api_key: '${{CHIME_FIELD_KEY}}'}}}}
  secrets: {{search: '${{CHIME_FIELD_KEY}}'}}
"""


class Echoing(BaseHTTPRequestHandler):
    """A model server. It refuses one task once, and says which key it was given, as real ones do."""

    echoed = 0
    keys: set[str] = set()

    def do_POST(self) -> None:
        """One chat completion."""
        asked = self.rfile.read(int(self.headers["content-length"])).decode()
        key = self.headers["authorization"]
        Echoing.keys.add(key)
        if f"Do {ECHOED}." in asked and not Echoing.echoed:
            Echoing.echoed += 1
            self._reply(401, {"error": {"message": f"Incorrect API key provided: {key}"}})
            return
        message = {"role": "assistant", "content": "Done."}
        self._reply(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    def _reply(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def model() -> Iterator[str]:
    """The model server's URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echoing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    """Where Ray keeps its session; short, because sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="cd-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def marked(mark: str) -> list[str]:
    """Everything alive that was started by processes with this mark, with its command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def wait_until_gone(mark: str) -> None:
    """Return once no marked process is left."""
    deadline = time.monotonic() + GONE_S
    while left := marked(mark):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def wait_until_swept(process: subprocess.Popen[bytes], deaths: Path) -> None:
    """Return once the session that the first dead worker left behind is empty, in a launch that runs."""
    deadline = time.monotonic() + processes.PATIENCE_S
    while not deaths.exists() or not (leaders := deaths.read_text().split()):
        assert process.poll() is None, "the launch ended before its poison"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    deadline = time.monotonic() + GONE_S
    while session := members(int(leaders[0])):
        assert process.poll() is None, "the launch ended, and only then"
        assert time.monotonic() < deadline, session
        time.sleep(0.02)


def test_a_launch_survives_a_poison_task_leaks_no_key_and_leaves_no_process(
    tmp_path: Path, model: str, ray_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7, C8, D9, H6: a launch from bad to worse.

    First the driver alone is killed with -9: no process of the launch is left, without anybody cleaning up. The
    resumed launch meets a task that kills its worker every time: after two deliveries by the server's count its
    position is committed empty with a reason, its children, in a session of their own, are gone while the launch
    goes on, the other nine are scored, and the exit code says that the numbers are not whole. A model server puts
    the key into an error's text and a benchmark crashes with a traceback; the key is in no file of the run
    directory, the state or Ray's session logs.
    """
    mark = uuid.uuid4().hex
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed(tmp_path / "site")), str(Path.cwd())]))
    monkeypatch.setenv("CHIME_FIELD_KEY", CANARY)
    monkeypatch.setenv("RAY_TMPDIR", str(ray_folder))
    monkeypatch.setenv(MARK, mark)
    folder = tmp_path / "sweep"
    folder.mkdir()
    text = SWEEP.format(marks=marks, poison=POISON, crashing=CRASHING, url=model)
    (folder / "sweep.yaml").write_text(text)

    process = processes.start(["sweep", "sweep.yaml"], folder)
    wait_for_rows(process, folder / "runs", 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until_gone(mark)

    (marks / "armed").touch()
    launch = launch_below(folder / "runs")
    process = processes.start(["resume", str(launch)], folder)
    wait_until_swept(process, marks / "deaths")
    code = finish(process, folder)
    output = (folder / "output.txt").read_text()
    assert code == 3, output
    wait_until_gone(mark)

    final = {row["unit"]["task"]: row["outcome"] for row in rows_of(launch) if row["final"]}
    assert final == {f"task-{n}": "success" for n in range(10) if f"task-{n}" != POISON}
    [entries] = journals_of(launch).values()
    assert {e.task: e.empty_reason for e in entries if e.empty_reason} == {POISON: "infra:worker_lost"}
    [lost] = [row for row in rows_of(launch) if row["end_reason"] == "worker_lost"]
    assert "no worker survived the unit in 2 deliveries" in lost["detail"]
    assert len((marks / "deaths").read_text().split()) == 2

    assert Echoing.keys == {f"Bearer {CANARY}"}
    assert Echoing.echoed == 1
    failures = [row["detail"] for row in rows_of(launch) if row["outcome"] == "infra"]
    assert any("Incorrect API key provided" in detail for detail in failures)
    assert any("RuntimeError: the simulator fell over" in detail for detail in failures)
    logs = list(ray_folder.rglob("*.log")) + list(ray_folder.rglob("*.err"))
    assert logs, "Ray wrote its session logs where the test looks"
    assert leaking(tmp_path, ray_folder) == []
    assert CANARY not in output


def leaking(*folders: Path) -> list[str]:
    """Files that hold the canary, also inside compressed trajectories."""
    found = []
    for path in (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()):
        data = path.read_bytes()
        if path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        if CANARY.encode() in data:
            found.append(str(path))
    return found
