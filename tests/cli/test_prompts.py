"""``--capture-prompts`` and ``show --prompts``."""

from __future__ import annotations

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from tests.cli.conftest import Program, run_of


def test_show_prints_the_prompts_that_were_kept(program: Program) -> None:
    sweep = program("sweep", program.write(), "--quiet", "--capture-prompts", "--set", "protocol.limit=4")
    assert sweep.exit_code == 0, sweep.output
    launch = LaunchDirectory.open(program.folder / "runs" / "latest")
    run = run_of(launch, "chime")
    shown = program("show", "runs/latest", run, "train:0", "--prompts").stdout
    for part in (
        "0 planner: chime/plan",
        "1 executor: chime/execute",
        "schema action: {",
        "--- system",
        "--- reply",
    ):
        assert part in shown, shown
    document = program.json("show", "runs/latest", run, "train:0", "--prompts")
    assert [call["role"] for call in document["prompts"]["calls"]][:2] == ["planner", "executor"]
    assert "calls" not in program.json("show", "runs/latest", run, "train:0")["trace"]["record"]
    assert program("show", "runs/latest", "--prompts").exit_code == 2


def test_nothing_is_kept_unless_somebody_asked(program: Program) -> None:
    assert program("sweep", program.write(), "--quiet", "--set", "protocol.limit=4").exit_code == 0
    assert list((program.folder / "runs").rglob("prompts")) == []
    told = program("show", "runs/latest", "chime", "train:0", "--prompts")
    assert told.exit_code == 2
    assert "--capture-prompts" in told.stderr
