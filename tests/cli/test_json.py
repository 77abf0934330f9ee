"""``--json`` everywhere: every command has it, and then stdout holds JSON and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.app import app
from tests.cli.conftest import Program, run_of

WITHOUT: dict[str, str] = {}
"""Commands that have nothing to say in JSON, and why."""


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(path), command
        return
    for name, child in inner.items():
        yield from _leaves(child, (*path, name))


LEAVES = dict(_leaves(typer.main.get_command(app)))


def test_every_command_has_the_option_or_a_reason() -> None:
    lacking = {name for name, leaf in LEAVES.items() if not any("--json" in option.opts for option in leaf.params)}
    assert lacking == set(WITHOUT)
    assert {"sweep", "resume", "ls", "show", "watch", "clean", "bank at", "ctl pause"} <= set(LEAVES)


WORDS = {
    "ls": "ls",
    "show": "show DIR",
    "show of a run": "show DIR chime",
    "show of an episode": "show DIR chime train:3",
    "watch": "watch DIR --once",
    "report": "report DIR",
    "doctor": "doctor DIR",
    "clean": "clean DIR --dry-run",
    "bank at": "bank at DIR chime",
    "bank checkpoints": "bank checkpoints DIR chime",
    "bank diff": "bank diff DIR chime 0 last",
    "bank search": "bank search DIR chime weather",
    "bank blame": "bank blame DIR chime --episode train:3",
    "bank export": "bank export DIR chime bank.json",
    "bank verify": "bank verify DIR",
    "bank rebuild": "bank rebuild DIR chime",
    "ctl cancel": "ctl DIR cancel no_plan",
    "ctl revive": "ctl DIR revive no_plan",
    "ctl requeue": "ctl DIR requeue RUN --fork-at 20",
    "ctl dead-letters": "ctl DIR dead-letters",
    "resume": "resume DIR",
    "sweep": "sweep sweep.yaml --dry-run",
}


@pytest.mark.parametrize("name", WORDS)
def test_stdout_is_one_json_document(program: Program, launch: LaunchDirectory, name: str) -> None:
    """Whatever else is said is on stderr."""
    program.write()
    if name == "ctl cancel":
        # Of a run that is finished nothing can be cancelled.
        launch.run(run_of(launch, "no_plan")).journal.unlink()
    words = WORDS[name].replace("DIR", str(launch.path)).replace("RUN", run_of(launch, "chime")).split()
    result = program(*words, "--json")
    assert result.exit_code == 0, result.output
    assert isinstance(json.loads(result.stdout), dict)
