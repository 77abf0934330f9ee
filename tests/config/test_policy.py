"""Protocol, requests, episodes."""

from __future__ import annotations

import pytest
import structlog
from pydantic import ValidationError

from chime_dist.config.policy import (
    EpisodePolicy,
    ProtocolSpec,
    RequestPolicy,
    deadline_warning,
    window_warning,
)
from tests.config.conftest import SWEEP, Load


def test_the_defaults_are_those_the_papers_print() -> None:
    """R3, R6, R37, R39: table 7's figures, and the readings that are ours."""
    assert ProtocolSpec().model_dump() == {
        "preset": "paper_numbers",
        "epochs": None,
        "window": None,
        "fixed_split": False,
        "interleave": "shuffled",
        "seed": 0,
        "limit": None,
        "train_metric": "selected",
        "denominator": "scored",
    }
    assert RequestPolicy().model_dump() == {
        "timeout_s": 2400.0,
        "max_retries": 15,
        "base_interval_s": 50.0,
        "cap_s": 600.0,
        "jitter": True,
    }
    assert EpisodePolicy().deadline_s == 3600.0


def test_retries_that_outlast_the_episode_are_warned_about(load: Load) -> None:
    """A7c: 16 attempts x 2400 s + 15 x 50 s = 39,150 s against 3,600 s; the loader says so and logs it."""
    with structlog.testing.capture_logs() as logs:
        sweep = load(SWEEP + "requests: {cap_s: 50}\n")
    (warning,) = sweep.warnings()
    assert "16 attempts of 2400 s" in warning
    assert "39,150 s" in warning
    assert "episode.deadline_s is 3600" in warning
    assert "bounded by what remains of the episode's deadline" in warning
    assert logs == [{"event": "config.warning", "log_level": "warning", "sweep": "quick", "warning": warning}]


def test_retries_that_fit_into_the_episode_are_fine(load: Load) -> None:
    """A7c: equal is still inside."""
    text = SWEEP + "requests: {timeout_s: 100, max_retries: 1, base_interval_s: 50}\nepisode: {deadline_s: 250}\n"
    with structlog.testing.capture_logs() as logs:
        assert load(text).warnings() == []
    assert logs == []
    assert deadline_warning(RequestPolicy(), EpisodePolicy(deadline_s=60_000.0)) is None


def test_a_window_as_long_as_the_epoch_is_warned_about_once_the_size_is_known() -> None:
    """R7: with W >= the train size nothing learnt in an epoch is read in it."""
    assert window_warning(15, 16) is None
    warning = window_warning(16, 16)
    assert warning is not None
    assert "the window is 16 and the train stream has 16 tasks" in warning


@pytest.mark.parametrize(
    "fields",
    [
        {"epochs": 0},
        {"window": 0},
        {"limit": 1},
        {"epochs": True},
        {"seed": 1.5},
        {"interleave": "mixed"},
        {"x": 1},
    ],
)
def test_a_protocol_outside_its_ranges_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ProtocolSpec.model_validate(fields)


@pytest.mark.parametrize("fields", [{"timeout_s": 0}, {"max_retries": -1}, {"jitter": 1}, {"cap_s": "600"}])
def test_a_request_policy_is_as_strict_as_the_rest_of_a_config(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RequestPolicy.model_validate(fields)
