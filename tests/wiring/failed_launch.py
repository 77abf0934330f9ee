"""A launch of the toy whose evaluator crashed: positions committed empty, and one that is held."""

from __future__ import annotations

from pathlib import Path

from chime_dist.adapters.directory.launch_directory import LaunchDirectory, RunEntry
from chime_dist.config.models import BackboneModel
from chime_dist.config.run import RunConfig
from chime_dist.config.schema import Component
from chime_dist.engine.driver import Ending
from tests.integration.launching import RUN
from tests.integration.test_outcomes import FailingTasks
from tests.integration.test_stream_semantics import SIZE, local_launch
from tests.stored import CONFIG

HELD = 12


async def failed_launch(path: Path) -> LaunchDirectory:
    """Stopped before position 12: 7, 10 and 11 are committed empty."""
    launched = local_launch(path, window=1)
    launched.benchmark = FailingTasks(SIZE, {7, 10, 11, HELD})
    assert await launched.run() is Ending.PAUSED
    component = Component(name="toy", options={})
    config = RunConfig(
        benchmark=component, method=component, backbone=BackboneModel(name="toy", model="toy"), ordering=0
    )
    entry = RunEntry(
        config=config.model_dump(mode="json"),
        ordering="",
        train_size=SIZE,
        epochs=1,
        window=1,
        eval_size=0,
        stateful=True,
        deviations={"window": "1"},
    )
    return launched.directory.extended(CONFIG, {RUN: entry})
