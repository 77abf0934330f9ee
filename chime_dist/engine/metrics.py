"""Every metric of a launch: its name, as Prometheus spells it, its labels and what it means.

Labels are bounded: no task, position or attempt is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CALLS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 600.0, 1200.0, 2400.0)
"""Upper limits of the buckets for model turns and episodes, in seconds."""
BANK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""The same for the bank."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of samples."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Of a histogram: upper limits, inclusive, ascending; one without a limit comes on top."""

    def key(self, labels: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """What its sample with these label values is kept under."""
        assert len(labels) == len(self.labels), f"{self.name} has the labels {self.labels}, got {labels}"
        return self.name, labels


def _counter(name: str, help: str, *labels: str) -> Metric:
    return Metric(f"chime_dist_{name}_total", "counter", help, labels)


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(f"chime_dist_{name}", "gauge", help, labels)


def _histogram(name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(f"chime_dist_{name}_seconds", "histogram", help, labels, buckets)


# Counted from the rows and journals on disk: exact, whatever died meanwhile, and over all resumes.
EPISODES = _counter(
    "episodes",
    "Finished attempts, one per row; final is false for an infra attempt that may be tried again",
    *("run", "benchmark", "method", "backbone", "phase", "outcome", "final"),
)
EPISODE_SECONDS = _histogram("episode", "Duration of finished attempts, gate included", CALLS_S, "run", "phase")
REDELIVERED = _counter("redelivered_episodes", "Finished attempts whose delivery was not the first", "run")
GATE_ERRORS = _counter("gate_errors", "Scored train episodes of which nothing was learnt", "run")
MODEL_CALLS = _counter("model_calls", "Model turns of finished attempts and of commits", "run", "role", "backbone")
MODEL_RETRIES = _counter("model_retries", "Requests beyond the first of a turn", "run", "role", "backbone")
MODEL_TOKENS = _counter(
    "model_tokens",
    "Tokens of finished attempts and of commits: prompt, completion, and cached, which is a part of prompt",
    *("run", "role", "backbone", "kind"),
)  # fmt: skip

# Told by the processes, from their start; a process that dies takes what it counted since the last scrape along.
TURN_SECONDS = _histogram(
    "model_turn", "Model turns that succeeded, waits and retries included", CALLS_S, "role", "backbone"
)
MODEL_ERRORS = _counter("model_errors", "Model turns that failed for good", "role", "backbone", "code")
READ_SECONDS = _histogram("bank_read", "What an episode waits for a search of the bank", BANK_S, "run")
COMMIT_SECONDS = _histogram("bank_commit", "From the proposal at the head to the next version", BANK_S, "run")
OUTAGES = _counter("outages", "Outages of a run's models, by every process that noticed", "run")
UNITS_HELD = _gauge("units_held", "Units that workers hold; of those in flight the others are ready for one")
BANK_RECORDS = _gauge("bank_records", "Records at the head", "run", "collection")
BANK_FENCE = _gauge("bank_fence", "The bank owner's fence: grows by one with every owner there was", "run")

# Known to the driver.
RUN_HEAD = _gauge("run_head", "The bank's version: train positions committed", "run")
RUN_ADMITTED = _gauge("run_admitted_positions", "Train positions admitted", "run")
RUN_TRAIN = _gauge("run_train_positions", "Train positions of all epochs", "run")
RUN_EVALUATED = _gauge("run_evaluated", "Eval episodes that ended", "run")
RUN_EVAL = _gauge("run_eval_episodes", "Eval episodes planned", "run")
IN_FLIGHT = _gauge("episodes_in_flight", "Episodes admitted and not completed", "run")
SLOTS = _gauge("slots", "Most episodes in flight now")
PAUSED = _gauge("paused", "1 while the launch is paused by ctl, else 0")
PAUSES = _counter("pauses", "Times the launch was paused by ctl since this driver began")
PROCESSES = _gauge("processes", "Processes asked by this scrape: answered, or silent", "state")

METRICS: dict[str, Metric] = {
    metric.name: metric for metric in tuple(globals().values()) if isinstance(metric, Metric)
}
"""All of them, by name."""
