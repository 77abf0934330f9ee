"""Estimates before a start: what they are made of."""

from __future__ import annotations

from chime_dist.core.episode import Role
from chime_dist.core.estimate import (
    ENTRY_BYTES,
    EVENTS_BYTES,
    RECORD_BYTES,
    USUAL_STEPS,
    Tokens,
    asked_by_benchmark,
    disk_bytes,
    tokens,
)
from chime_dist.core.paper import PAPER


def test_tokens_are_calls_times_the_average_of_role_and_benchmark() -> None:
    found = tokens("bfcl_v4", {Role.PLANNER: 10, Role.EXECUTOR: 20, Role.GATE: 3})
    assert found == {
        Role.PLANNER: Tokens(11_000, 2_500),
        Role.EXECUTOR: Tokens(20_000, 1_600),
        Role.GATE: Tokens(4_500, 1_050),
    }


def test_a_benchmark_of_somebody_else_gets_one_guess_for_all_roles() -> None:
    assert tokens("theirs", {Role.PLANNER: 1, Role.EXECUTOR: 2}) == {
        Role.PLANNER: Tokens(4_000, 200),
        Role.EXECUTOR: Tokens(8_000, 400),
    }


def test_a_user_simulator_speaks_every_few_steps_and_a_judge_once() -> None:
    assert asked_by_benchmark("tau2", 5) == {Role.USER_SIMULATOR: 3}
    assert asked_by_benchmark("vitabench", 9) == {Role.USER_SIMULATOR: 3, Role.JUDGE: 1}
    assert asked_by_benchmark("bfcl_v4", 5) == {}


def test_disk_counts_records_trajectories_and_what_a_position_writes_to_the_journal() -> None:
    """A vector of 1,024 floats is 5,462 bytes of base64; a method without memory writes no events."""
    each = RECORD_BYTES + 2_500
    assert disk_bytes("bfcl_v4", 10, 5, 0, 1024) == 15 * each + 10 * ENTRY_BYTES
    memory = EVENTS_BYTES + 4 * 5_462
    assert disk_bytes("bfcl_v4", 10, 5, 4, 1024) == 15 * each + 10 * (ENTRY_BYTES + memory)
    assert disk_bytes("theirs", 1, 0, 0, 1) == RECORD_BYTES + 20_000 + ENTRY_BYTES


def test_every_benchmark_of_the_paper_that_is_not_there_yet_has_usual_steps() -> None:
    """R39, R40, R41: within the printed caps."""
    for name, steps in USUAL_STEPS.items():
        assert 0 < steps <= PAPER[name].max_steps
