"""Following a launch gives what reading all of it gives, and reads only what is new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chime_dist.adapters.directory.artifact_json import decode
from chime_dist.adapters.directory.launch_directory import ForkedFrom, LaunchDirectory
from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import Usage
from chime_dist.core.spending import Payer
from chime_dist.engine.driven_run import Progress
from chime_dist.wiring.following import Follower, spent_so_far
from chime_dist.wiring.results import Standing, standings
from chime_dist.wiring.watching import Observer
from tests import stored
from tests.integration.launching import RUN
from tests.wiring.failed_launch import HELD, failed_launch

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _agree(seen: Progress, standing: Standing) -> bool:
    return (
        seen.head == standing.committed
        and seen.total == standing.train_total
        and seen.evaluated == standing.evaluated
        and seen.position == standing.committed + standing.finished
        and all(seen.outcomes[outcome] == count for outcome, count in standing.outcomes.items())
    )


async def test_positions_that_were_committed_empty_are_infra(tmp_path: Path) -> None:
    """D9: as the driver's own report and ``show`` have it."""
    launch = await failed_launch(tmp_path)
    follower = Follower(launch)
    follower.look(None)
    [seen] = follower.progress
    [standing] = standings(launch)
    assert _agree(seen, standing)
    assert (seen.head, seen.outcomes["infra"]) == (HELD, 3)


ENTRY = stored.ENTRY.model_copy(
    update={
        "config": {**stored.ENTRY.config, "roles": {"gate": {"name": "g", "model": "g"}}},
        "train_size": 1_000,
        "epochs": 1,
        "eval_size": 1_000,
    }
)


@pytest.fixture
def launch(tmp_path: Path) -> LaunchDirectory:
    """Without any row."""
    cluster = {"endpoints": {"m": {"kind": "scripted", "price": {"input": 1.0, "output": 2.0}}}}
    config = {**stored.CONFIG, "cluster": cluster}
    made = LaunchDirectory.create(tmp_path, "followed", config, now=NOW, runs={RUN: ENTRY})
    made.run(RUN).path.mkdir()
    return made


def _row(number: int, *, phase: str = "train", final: bool = True) -> bytes:
    """Ten seconds after the one before it, five seconds long."""
    version = 1_000 if phase == "eval" else 0
    unit = {"run_id": RUN, "phase": phase, "epoch": 0, "position": number, "task": "t", "read_version": version}
    row: dict[str, Any] = {"unit": unit, "attempt": str(number), "delivery": 1, "final": final, "steps": 1}
    row |= {"outcome": "success" if final else "infra", "end_reason": "scored", "worker": "w"}
    row["gate_status"] = "off"
    row |= {"started_at": (NOW + timedelta(seconds=10 * number)).isoformat(), "duration_s": 5.0}
    row["usage"] = {"planner": {"prompt_tokens": 10, "completion_tokens": 1}, "gate": {"prompt_tokens": 5}}
    return json.dumps(row).encode() + b"\n"


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_look_reads_only_what_is_new(launch: LaunchDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a launch with hundreds of thousands of rows can be watched."""
    decoded = 0

    def counted(*arguments: Any) -> Any:
        nonlocal decoded
        decoded += 1
        return decode(*arguments)

    monkeypatch.setattr("chime_dist.wiring.following.decode", counted)
    folder, follower = launch.run(RUN), Follower(launch)
    _append(folder.episodes, b"".join(map(_row, range(300))) + _row(300)[:40])
    _append(folder.journal, b"{}\n" * 200 + b"{")
    follower.look(None)
    [seen] = follower.progress
    assert (seen.head, seen.position, seen.outcomes["success"], decoded) == (200, 300, 300, 300)
    follower.look(None)
    assert decoded == 300
    _append(
        folder.episodes, _row(300)[40:] + _row(300) + _row(0, phase="eval") + _row(1, phase="eval", final=False)
    )
    _append(folder.journal, b"}\n")
    follower.look(None)
    [seen] = follower.progress
    assert decoded == 304
    assert (seen.head, seen.position, seen.evaluated, seen.outcomes["success"]) == (201, 301, 1, 302)


def test_a_row_that_came_after_its_position_was_committed_empty_is_history(launch: LaunchDirectory) -> None:
    """D9: whether it is seen before its commit or after, the position is infra, once; its tokens were spent."""
    folder, follower = launch.run(RUN), Follower(launch)
    _append(folder.episodes, _row(0) + _row(1))
    follower.look(None)
    _append(folder.journal, b"".join(b'{"attempt":"%s",}\n' % name for name in (b"0", b"lost", b"lost-as-well")))
    follower.look(None)
    _append(folder.episodes, _row(2) + _row(3))
    for seen in (follower, Follower(launch)):
        seen.look(None)
        [progress] = seen.progress
        assert (progress.head, progress.position) == (3, 4)
        assert (progress.outcomes["success"], progress.outcomes["infra"]) == (2, 2)
        assert seen.spent(NOW, None).tokens == 4 * 16
        assert _agree(progress, standings(launch)[0])


def test_tokens_money_and_time_are_those_of_all_attempts(launch: LaunchDirectory) -> None:
    """The gate has an endpoint of its own, whose price is not known; the driver's pauses are not work."""
    rows = [*map(_row, range(12)), _row(12, final=False), _row(500)]
    _append(launch.run(RUN).episodes, b"".join(rows))
    spent = spent_so_far(launch)
    assert spent.tokens == 14 * 16
    assert spent.cost is None
    assert spent.cost_of(Payer("m", "planner")) == pytest.approx(14 * 12 / 1_000_000)
    assert spent.usage[Payer("g", "gate")].prompt_tokens == 70
    assert spent.wall_s == pytest.approx(12 * 10 + 5 + 5)


def _commit(number: int, **used: Usage) -> bytes:
    """An entry's line; what is before its end does not matter here."""
    usage = {role: spent.model_dump() for role, spent in used.items()}
    return canonical_json({"task": str(number), "usage": usage})[:-1].encode() + _SEAL


_SEAL = b',"line_hash":"' + b"0" * 64 + b'"}\n'


def test_what_commits_asked_is_spent_once_and_for_commits(launch: LaunchDirectory) -> None:
    """As it is appended, with the rows of before; the driver counts with it, too."""
    folder, follower = launch.run(RUN), Follower(launch)
    merged = Usage(calls=1, requests=1, prompt_tokens=30, completion_tokens=2)
    _append(folder.episodes, _row(0))
    _append(folder.journal, _commit(0) + _commit(1, gate=merged) + _commit(2, gate=merged)[:-9])
    follower.look(None)
    assert follower.spent(NOW, None).tokens == 16 + 32
    _append(folder.journal, _commit(2, gate=merged)[-9:] + _commit(3, embedder=Usage(calls=1, prompt_tokens=5)))
    for _ in range(2):
        follower.look(None)
        spent = follower.spent(NOW, None)
        assert spent.usage[Payer("g", "gate", "commits")] == merged + merged
        assert spent.usage[Payer("g", "gate")].prompt_tokens == 5
        assert spent.usage[Payer("embedder", "embedder", "commits")].prompt_tokens == 5
        assert (spent.tokens, follower.progress[0].head) == (16 + 69, 4)


def test_what_a_fork_copied_was_paid_for_by_the_run_that_it_left(launch: LaunchDirectory) -> None:
    """Its rows and entries before the position are the other run's; they are counted there."""
    fork = ENTRY.model_copy(update={"forked_from": ForkedFrom(run=RUN, position=2)})
    launch = launch.extended(launch.manifest.config, {RUN: ENTRY, "fork": fork})
    launch.run("fork").path.mkdir()
    merged = Usage(calls=1, prompt_tokens=100)
    for run in (RUN, "fork"):
        rows = [*map(_row, range(3)), _row(0, phase="eval")]
        _append(launch.run(run).episodes, b"".join(rows))
        _append(launch.run(run).journal, b"".join(_commit(number, gate=merged) for number in range(3)))
    assert spent_so_far(launch).tokens == (4 + 2) * 16 + (3 + 1) * 100


def test_the_time_of_a_driver_counts_while_it_holds_the_launch(launch: LaunchDirectory) -> None:
    follower = Follower(launch)
    since = NOW + timedelta(hours=1)
    assert follower.spent(since, None).wall_s == 0.0
    assert follower.spent(since + timedelta(seconds=90), since).wall_s == 90.0
    assert follower.spent(since + timedelta(seconds=95), since).wall_s == 95.0


def test_runs_that_a_resume_adds_are_followed(launch: LaunchDirectory) -> None:
    follower = Follower(launch)
    follower.look(None)
    launch.extended(launch.manifest.config, {RUN: ENTRY, "other": ENTRY})
    follower.look(None)
    assert [run.run_id for run in follower.progress] == [RUN, "other"]


def _logged(*events: dict[str, Any]) -> Iterator[bytes]:
    for second, event in enumerate(events):
        at = (NOW + timedelta(seconds=second)).isoformat()
        yield json.dumps({"timestamp": at, "level": "info", **event}).encode() + b"\n"


def test_open_episodes_outages_and_events_come_from_the_log(launch: LaunchDirectory) -> None:
    started = [{"event": "episode.started", "unit": f"{RUN}:train:{k}", "worker": "w"} for k in range(3)]
    told = [
        *started,
        {"event": "episode.finished", "unit": f"{RUN}:train:1"},
        {"event": "outage.began", "level": "error", "run": RUN, "reason": "refused"},
    ]
    _append(launch.log_file, b"no json\n[]\n" + b"".join(_logged(*told)))
    follower = Follower(launch)
    follower.look(NOW)
    [seen] = follower.progress
    assert (seen.in_flight, seen.position) == (2, 2)
    assert [event.name for event in follower.take_events()] == ["outage.began"]
    assert follower.take_events() == ()
    assert list(follower.activity.outages) == [RUN]
    follower.look(None)
    assert [run.in_flight for run in follower.progress] == [0], "nothing is open of a driver that is gone"


def test_a_launch_without_a_driver_is_new_then_forgotten_or_interrupted(launch: LaunchDirectory) -> None:
    sight = Observer(launch).look()
    assert (sight.state, sight.over) == ("new", True)
    young = LaunchDirectory.create(launch.path.parent.parent, "followed", {}, now=datetime.now(UTC))
    sight = Observer(young).look()
    assert (sight.state, sight.over) == ("new", False)
    launch.set_status("running", now=NOW)
    sight = Observer(launch).look()
    assert (sight.state, sight.over) == ("interrupted", True)
    with launch.driver_lock() as lock:
        lock.acquire(NOW + timedelta(seconds=1))
        assert Observer(launch).look().state == "starting", "what the one before said is over"
        launch.set_status("paused", now=NOW + timedelta(seconds=2), reason="by ctl")
        sight = Observer(launch).look()
        assert (sight.state, sight.reason, sight.over) == ("paused", "by ctl", False)
