"""D9: what our machinery failed is listed with its reason and its fate."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chime_dist.core.episode import EndReason
from chime_dist.wiring.dead_letters import dead_letters
from tests.integration.launching import RUN
from tests.wiring.failed_launch import HELD, failed_launch


def _row(place: str) -> dict[str, Any]:
    file, _, line = place.rpartition(":")
    row: dict[str, Any] = json.loads(Path(file).read_text().splitlines()[int(line) - 1])
    return row


async def test_a_dead_letter_says_why_where_and_what_becomes_of_it(tmp_path: Path) -> None:
    launch = await failed_launch(tmp_path)
    letters = dead_letters(launch)
    fates = {letter.unit: letter.fate for letter in letters}
    committed = {f"{RUN}:train:{position}": "committed_empty" for position in (7, 10, 11)}
    assert fates == {**committed, f"{RUN}:train:{HELD}": "held"}
    for letter in letters:
        assert (letter.deliveries, letter.attempts, letter.reason) == (3, 3, EndReason.BENCHMARK)
        assert letter.detail == f"the simulator of {letter.task} crashed"
        row = _row(letter.row)
        assert row["record"]["unit"]["task"] == letter.task
        assert row["record"]["delivery"] == 3


async def test_while_a_driver_runs_a_position_that_failed_waits_for_its_turn(tmp_path: Path) -> None:
    launch = await failed_launch(tmp_path)
    with launch.driver_lock() as lock:
        lock.acquire(datetime.now(UTC))
        assert [letter.fate for letter in dead_letters(launch)] == ["committed_empty"] * 3 + ["waits"]
