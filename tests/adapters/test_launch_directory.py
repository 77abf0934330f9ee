"""The launch folder: created in one step, found by people, driven by one process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from chime_dist.adapters.directory.code_version import code_commit, versions
from chime_dist.adapters.directory.launch_directory import LaunchDirectory, list_launches
from chime_dist.errors import RunDirectoryError
from tests.adapters.traces import NOW, RUN, launch_in, unit
from tests.stored import CONFIG, ENTRY


def test_a_launch_records_what_was_launched_and_opens_as_it_was(tmp_path: Path) -> None:
    launch = LaunchDirectory.create(
        tmp_path / "runs",
        "table1",
        {**CONFIG, "name": Path("x")},
        now=NOW,
        runs={"bfcl_v4-chime-m-o0-1a2b3c4d": ENTRY},
    )
    assert launch.path == tmp_path / "runs" / "table1" / launch.id
    assert launch.id.startswith("20260307T101530Z-")
    stored = json.loads((launch.path / "sweep.json").read_text())
    assert stored["config"] == {**CONFIG, "name": "x"}
    assert stored["runs"]["bfcl_v4-chime-m-o0-1a2b3c4d"]["ordering"] == "ab12"
    assert stored["created_at"] == "2026-03-07T10:15:30+00:00"
    assert stored["versions"]["chime-dist"]
    assert LaunchDirectory.open(launch.path) == launch
    assert [path.name for path in launch.path.iterdir()] == ["sweep.json"]


def test_a_secret_of_the_config_reaches_no_file(tmp_path: Path) -> None:
    """H6: secrets are written masked."""
    launch = LaunchDirectory.create(tmp_path, "s", {"api_key": SecretStr("canary-4711")}, now=NOW)
    assert "canary" not in (launch.path / "sweep.json").read_text()


def test_launch_ids_sort_by_time_and_never_repeat(tmp_path: Path) -> None:
    launches = [
        LaunchDirectory.create(tmp_path, "s", {}, now=NOW + timedelta(seconds=i // 2)).id for i in range(6)
    ]
    assert len(set(launches)) == 6
    assert [launch[:16] for launch in sorted(launches)] == [launch[:16] for launch in launches]


def test_a_sweep_folder_stands_for_its_only_launch_and_latest_for_the_newest(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    old = LaunchDirectory.create(runs, "a", CONFIG, now=NOW)
    assert LaunchDirectory.open(runs / "a").id == old.id
    new = LaunchDirectory.create(runs, "a", CONFIG, now=NOW + timedelta(hours=1))
    newest = LaunchDirectory.create(runs, "b", CONFIG, now=NOW + timedelta(hours=2))
    assert LaunchDirectory.open(runs / "a" / "latest").id == new.id
    assert LaunchDirectory.open(runs / "latest").id == newest.id
    with pytest.raises(RunDirectoryError, match="holds 2 launches") as refusal:
        LaunchDirectory.open(runs / "a")
    assert str(old.path) in str(refusal.value)


def test_a_folder_that_is_no_launch_is_answered_with_what_was_expected_and_what_is_near(tmp_path: Path) -> None:
    launch = launch_in(tmp_path / "runs")
    for wrong in (tmp_path, launch.path / RUN, launch.path.parent / "typo", tmp_path / "runs" / "typo"):
        with pytest.raises(RunDirectoryError, match=r"expected a folder runs/SWEEP/LAUNCH") as refusal:
            LaunchDirectory.open(wrong)
        if wrong != tmp_path:
            assert str(launch.path) in str(refusal.value)
    (tmp_path / "empty" / "x" / "y").mkdir(parents=True)
    with pytest.raises(RunDirectoryError, match="no launch nearby"):
        LaunchDirectory.open(tmp_path / "empty" / "x" / "y" / "latest")


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    (launch.path / "sweep.json").write_text('{"format": 1')
    with pytest.raises(RunDirectoryError, match=r"sweep\.json is no Manifest"):
        LaunchDirectory.open(launch.path)


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "latest", "report", "a b", "-x", "a\n"])
def test_names_that_cannot_be_a_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunDirectoryError, match="a sweep's name"):
        LaunchDirectory.create(tmp_path, name, {}, now=NOW)
    with pytest.raises(RunDirectoryError, match="a run id"):
        launch_in(tmp_path).run(name)


def test_a_runs_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="cannot create the launch"):
        LaunchDirectory.create(tmp_path / "file", "s", {}, now=NOW)


def test_every_file_of_a_run_has_one_place(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    run = launch.run(RUN)
    assert run.journal == launch.path / RUN / "journal.jsonl"
    assert run.failures == launch.path / RUN / "failures.jsonl"
    assert run.trajectory(unit(12)) == run.path / "trajectories/train/0/12.json.zst"
    assert run.trajectory(unit(3, "eval", version=40)) == run.path / "trajectories/eval/v40/3.json.zst"
    assert launch.report == launch.path / "report"
    assert launch.log_file == launch.path / "log.jsonl"
    assert launch.runs() == []
    launch.report.mkdir()
    run.path.mkdir()
    run.journal.touch()
    assert [folder.run_id for folder in launch.runs()] == [RUN]


def test_the_status_is_replaced_as_a_whole(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    assert launch.status() is None
    launch.set_status("running", now=NOW)
    launch.set_status("paused", now=NOW + timedelta(minutes=1), reason="backbone down")
    status = launch.status()
    assert status is not None
    assert (status.state, status.reason, status.changed_at) == (
        "paused",
        "backbone down",
        "2026-03-07T10:16:30+00:00",
    )
    (launch.path / "status.json").unlink()
    (launch.path / "status.json").mkdir()
    with pytest.raises(
        RunDirectoryError, match=r"status\.json: cannot be written: Is a directory; .* move it away"
    ):
        launch.set_status("complete", now=NOW)


HOLD = """
import sys
from pathlib import Path
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from tests.adapters.traces import NOW
lock = LaunchDirectory.open(Path(sys.argv[1])).driver_lock()
lock.acquire(NOW)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_driver_is_refused_with_the_holders_pid_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    """G7, E7: one driver per launch; no manual lock removal after a crash."""
    launch = launch_in(tmp_path)
    assert launch.holder() is None
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(launch.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "held\n"
        holder = launch.holder()
        assert holder is not None
        assert holder.pid == driver.pid
        with pytest.raises(RunDirectoryError, match=rf"driver lock is held by process {driver.pid} on "):
            launch.driver_lock().acquire(NOW)
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    assert launch.holder() is None
    with launch.driver_lock() as lock:
        lock.acquire(NOW)
        holder = launch.holder()
        assert holder is not None
        assert holder.pid == os.getpid()
        lock.path.write_text("")
        assert launch.holder() is None
        with pytest.raises(RunDirectoryError, match="has not written its name"):
            launch.driver_lock().acquire(NOW)
    assert launch.holder() is None


def test_a_lock_where_nothing_can_be_written_is_an_error_that_names_the_fix(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    (launch.path / "driver.lock").mkdir()
    with pytest.raises(RunDirectoryError, match="file system with flock"):
        launch.driver_lock().acquire(NOW)


def test_ls_lists_every_launch_with_its_state(tmp_path: Path) -> None:
    assert list_launches(tmp_path / "nothing") == []
    launches = [launch_in(tmp_path, f"sweep-{i}", NOW + timedelta(hours=i)) for i in range(5)]
    launches[1].set_status("complete", now=NOW)
    launches[2].set_status("running", now=NOW)
    launches[3].set_status("running", now=NOW)
    (launches[4].path / "sweep.json").write_text("{}")
    (tmp_path / "sweep-0" / "not-a-launch").mkdir()
    with launches[3].driver_lock() as lock:
        lock.acquire(NOW)
        listed = list_launches(tmp_path)
    assert [one.state for one in listed] == ["new", "complete", "interrupted", "running", "damaged"]
    assert [one.path for one in listed] == [launch.path for launch in launches]
    assert listed[3].holder is not None
    assert "sweep.json" in listed[4].reason


def test_the_code_is_named_by_commit_only_where_it_runs_from_its_own_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    package = tmp_path / "chime_dist"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr("chime_dist.__file__", str(package / "__init__.py"))
    git("init", "-q")
    assert code_commit() is None
    git("add", ".")
    git("commit", "-q", "-m", "one")
    assert code_commit() == git("rev-parse", "HEAD")
    (package / "__init__.py").write_text("changed = True")
    assert code_commit() == f"{git('rev-parse', 'HEAD')}-dirty"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_commit() is None
    assert "pydantic" in versions()


@pytest.mark.parametrize("back", [False, True])
def test_a_lock_whose_file_was_removed_while_it_was_waited_for_protects_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """``clean --results`` holds the lock and removes the folder with it."""
    launch = launch_in(tmp_path)
    held, waiting = launch.driver_lock(), launch.driver_lock()
    held.acquire(NOW)

    def removed(_: float) -> None:
        shutil.rmtree(launch.path)
        if back:
            launch.path.mkdir()
        held.release()

    monkeypatch.setattr(time, "sleep", removed)
    if not back:
        with pytest.raises(RunDirectoryError, match=f"{launch.path} is not there any more; the command ls"):
            waiting.acquire(NOW)
        assert not launch.path.exists()
        return
    waiting.acquire(NOW)
    monkeypatch.undo()
    with pytest.raises(RunDirectoryError, match="lock is held by"):
        held.acquire(NOW)
    waiting.release()


def test_a_manifest_that_another_process_rewrote_is_not_ours_to_change(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    launch.require_current()
    launch.extended(launch.manifest.config, {**launch.manifest.runs, RUN: ENTRY}).require_current()
    with pytest.raises(RunDirectoryError, match="changed meanwhile"):
        launch.require_current()
    (launch.path / "sweep.json").unlink()
    with pytest.raises(RunDirectoryError, match=r"sweep\.json is not there any more"):
        launch.require_current()
