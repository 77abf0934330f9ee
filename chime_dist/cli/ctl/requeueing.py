"""``ctl requeue``: a new run from a train position on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.invocation import suggested
from chime_dist.cli.output import counted, show_json, show_text
from chime_dist.cli.targets import pick_run
from chime_dist.wiring.fork import fork_run


def requeue(path: Path, run: str, position: int, as_json: bool) -> None:
    """Fork a run, and say how to go on."""
    launch = LaunchDirectory.open(path)
    run_id = pick_run(launch, run)
    fork = fork_run(launch, run_id, position, now=datetime.now(UTC))
    resume = suggested("resume", launch.path)
    if as_json:
        show_json({"directory": launch.path, "run_id": run_id, "position": position, "fork": fork, "next": resume})
        return
    shared = counted(position, "position")
    show_text(f"{fork} shares {shared} with {run_id} and owes the rest; run it with: {resume}\n")
