"""The protocol of a run and its limits in time, and what a launch may spend."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from chime_dist.config.schema import ConfigModel
from chime_dist.core.duration import seconds_in
from chime_dist.core.retry import RetryPolicy
from chime_dist.core.spending import Limits, Price


class ProtocolSpec(ConfigModel):
    """How a benchmark's tasks become a train stream and an eval split (R3, R4, R6, R7)."""

    preset: Literal["paper_numbers", "paper_text"] = "paper_numbers"
    """S0's split as its printed numbers say, or as its text says (R3)."""
    epochs: int | None = Field(default=None, ge=1)
    """Passes over the train stream; None takes the benchmark's selected epoch (R6)."""
    window: int | None = Field(default=None, ge=1)
    """W of R7 in positions; None takes the benchmark's concurrency. 1 is the sequential paper formula."""
    fixed_split: bool = False
    """One split for all orderings (R4)."""
    interleave: Literal["shuffled", "blocks"] = "shuffled"
    """How domains share the stream (R4)."""
    seed: int = 0
    """Base of every shuffle; the ordering's index is added to it by name, not by sum."""
    limit: int | None = Field(default=None, ge=2)
    """Tasks of train and eval together, for short runs; None takes all."""
    train_metric: Literal["selected", "first"] = "selected"
    """The epoch whose train accuracy heads a table (R6); changes reports, not runs."""
    denominator: Literal["scored", "planned"] = "scored"
    """What accuracy divides by; ``planned`` counts infra as failure (S2). Changes reports, not runs."""


REPORTING_KEYS = frozenset({"train_metric", "denominator"})
"""Keys of ``ProtocolSpec`` that no episode depends on."""


class RequestPolicy(RetryPolicy):
    """Timeout and retries of one model call (R37), as written in a config."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class EpisodePolicy(ConfigModel):
    """Limits of one episode attempt."""

    deadline_s: float = Field(default=3600.0, gt=0)
    """Wall clock of one attempt, every model call and wait included (R37, R39)."""


def _read_duration(data: Any) -> Any:
    return seconds_in(data) if isinstance(data, str) else data


class LimitPolicy(Limits):
    """What a launch may spend before it pauses, as written in a config."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    wall_s: Annotated[float | None, BeforeValidator(_read_duration)] = Field(default=None, gt=0)
    """Seconds, or a text such as ``2h30m``; see ``core.spending.Spent.wall_s``."""


class EndpointPrice(Price):
    """What an endpoint asks for a million tokens, as written in a config."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


def deadline_warning(requests: RequestPolicy, episode: EpisodePolicy) -> str | None:
    """What to tell people whose retries cannot all happen inside an episode (R37, A7c); None where they can."""
    if requests.worst_case_s <= episode.deadline_s:
        return None
    return (
        f"requests allow {requests.max_retries + 1} attempts of {requests.timeout_s:g} s and their waits, up to"
        f" {requests.worst_case_s:,.0f} s for one model call, but episode.deadline_s is {episode.deadline_s:g}:"
        " every attempt and wait is bounded by what remains of the episode's deadline"
    )


def window_warning(window: int, train_size: int) -> str | None:
    """What to tell people whose window spans a whole epoch of ``train_size`` positions (R7); None otherwise."""
    if window < train_size:
        return None
    return (
        f"the window is {window} and the train stream has {train_size} tasks: every episode of an epoch reads the"
        " memory the epoch started with, so nothing is learnt within one; lower protocol.window"
    )
