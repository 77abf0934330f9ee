"""``ls``, ``show`` and ``report`` over a launch that is complete."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.journal import JournalEntry
from chime_dist.wiring.results import JournalFile
from tests.cli.conftest import CHIME_EPISODES, Program, run_of
from tests.integration.launching import RUN
from tests.wiring.failed_launch import HELD, failed_launch


def _writing(launch: LaunchDirectory) -> JournalEntry:
    """A position of the first epoch that wrote a memory."""
    entries = JournalFile.read(launch.run(run_of(launch, "chime")).journal).entries()
    return next(entry for entry in entries if any(event.kind == "content.insert" for event in entry.events))


def test_ls_lists_launches_with_their_state(program: Program, launch: LaunchDirectory) -> None:
    result = program("ls")
    assert result.exit_code == 0
    row = next(line for line in result.stdout.splitlines() if launch.id in line)
    assert "complete" in row
    [document] = program.json("ls")["launches"]
    assert (document["launch"], document["state"], document["runs"]) == (launch.id, "complete", 2)


def test_ls_of_an_empty_folder_says_how_to_start(program: Program) -> None:
    result = program("ls", "--runs-dir", "nothing")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there is no launch below nothing" in result.stderr


def test_show_of_a_launch_says_how_far_each_run_is(program: Program, launch: LaunchDirectory) -> None:
    result = program("show", "runs/latest")
    row = next(line for line in result.stdout.splitlines() if run_of(launch, "chime") in line)
    assert "28/28" in row
    assert "6/6" in row
    document = program.json("show", "runs/latest")
    assert [run["owed"] for run in document["runs"]] == [0, 0]
    assert document["status"]["state"] == "complete"


def test_show_of_a_run_lists_its_episodes(program: Program, launch: LaunchDirectory) -> None:
    result = program("show", launch.path, "chime")
    assert f"the last 20 of {CHIME_EPISODES} attempts" in result.stdout
    assert "eval:v28:5" in result.stdout
    document = program.json("show", launch.path, "chime")
    assert len(document["records"]) == CHIME_EPISODES
    assert document["totals"]["train"]["attempts"] == 28


def test_show_of_an_episode_tells_what_it_read_did_and_wrote(program: Program, launch: LaunchDirectory) -> None:
    """R17, R34: memories with sim, v~, score and ranks; plan and steps; diagnosis; what the commit wrote."""
    run, entry = run_of(launch, "chime"), _writing(launch)
    name = f"train:{entry.position}"
    trace = EpisodeArchive(launch).trace_at(run, "train", entry.position)
    assert trace is not None
    result = program("show", launch.path, run, name)
    assert result.exit_code == 0
    shown = result.stdout
    assert f"{run}:{name}" in shown
    assert f"reads bank version {entry.read_version}" in shown
    assert trace.trajectory.view.request.splitlines()[0] in shown
    assert f"\nPlan\n{trace.trajectory.plan}\n" in shown
    assert "\n0 plan: as above\n" in shown
    assert f"label: {trace.record.label}" in shown
    assert f"version {entry.position} to {entry.position + 1}" in shown
    inserted = next(event for event in entry.events if event.kind == "content.insert")
    assert f"content.insert {inserted.collection} {inserted.id}" in shown
    assert inserted.payload is not None
    assert f"scenario: {inserted.payload['scenario']}" in shown


def test_show_of_an_eval_episode_has_the_memories_with_their_scores(
    program: Program, launch: LaunchDirectory
) -> None:
    """R5, R17: an evaluation reads the frozen bank, and writes nothing."""
    archive, run = EpisodeArchive(launch), run_of(launch, "chime")
    traces = [archive.trace_at(run, "eval", index) for index in range(6)]
    index, candidate = next(
        (index, candidate)
        for index, trace in enumerate(traces)
        if trace is not None
        for recall in trace.trajectory.recalls
        for candidate in recall.candidates
    )
    shown = program("show", launch.path / "bfcl_v4-chime", f"eval:{index}").stdout
    assert "at version 28" in shown
    row = next(line for line in shown.splitlines() if f"{candidate.id} (v{candidate.item_version})" in line)
    for number in (f"{candidate.sim:.6f}", f"{candidate.adjusted_value:+.4f}", f"{candidate.score:.6f}"):
        assert number in row
    assert "frozen at version 28: an evaluation writes nothing" in shown


def test_show_of_an_episode_in_json_holds_trace_and_commit(program: Program, launch: LaunchDirectory) -> None:
    document = program.json("show", launch.path, "chime", "train:3")
    assert document["trace"]["record"]["unit"]["position"] == 3
    assert document["commit"]["position"] == 3
    assert document["commit"]["attempt"] == document["trace"]["record"]["attempt"]


@pytest.mark.parametrize(
    "form", ["{dir}/{run} train:3", "{dir} {run}:train:3", "{dir} train:3 chime", "{dir} -chime- train:3"]
)
def test_an_episode_is_named_in_several_ways(program: Program, launch: LaunchDirectory, form: str) -> None:
    """A unit's key is what logs say, so it can be pasted."""
    words = form.format(dir="runs/latest", run=run_of(launch, "chime")).split()
    assert f"{run_of(launch, 'chime')}:train:3" in program("show", "--", *words).stdout


def test_an_ambiguous_run_is_a_usage_error_that_lists_the_candidates(
    program: Program, launch: LaunchDirectory
) -> None:
    path = str(launch.path)
    for words in (["show", path, "bfcl"], ["show", path, "train:0"], ["bank", "at", path, "m-o0"]):
        result = program(*words)
        assert result.exit_code == 2
        assert all(f"\n  {run}\n" in result.stderr for run in launch.manifest.runs)


def test_a_run_or_episode_that_is_not_there_is_a_usage_error(program: Program, launch: LaunchDirectory) -> None:
    assert "has no run 'nope'; it has:" in program("show", launch.path, "nope").stderr
    beyond = program("show", launch.path, "chime", "train:28")
    assert (beyond.exit_code, "train goes from 0 to 27" in beyond.stderr) == (2, True)
    doubled = program("show", launch.path, "chime", "no_plan")
    assert (doubled.exit_code, "at most one run and one episode" in doubled.stderr) == (2, True)


def test_an_episode_that_has_not_ended_says_so(program: Program, launch: LaunchDirectory) -> None:
    """The last row of the file goes, as if it was still to come."""
    episodes = launch.run(run_of(launch, "chime")).episodes
    *rows, _ = episodes.read_bytes().splitlines(keepends=True)
    gone = json.loads(episodes.read_bytes().splitlines()[-1])["unit"]["position"]
    episodes.write_bytes(b"".join(rows))
    assert f"eval:{gone} has not ended yet" in program("show", launch.path, "chime", f"eval:{gone}").stderr


def test_a_path_that_is_no_launch_exits_with_1_and_names_what_is_near(
    program: Program, launch: LaunchDirectory
) -> None:
    for words in (["show", "runs/nope"], ["report", "runs/nope"], ["bank", "verify", "runs/nope"]):
        result = program(*words)
        assert result.exit_code == 1
        assert launch.id in result.stderr


def test_a_report_comes_as_table_markdown_csv_and_json(program: Program, launch: LaunchDirectory) -> None:
    table = program("report", "runs/latest")
    assert table.exit_code == 0
    assert "Results, Avg@1 in percent" in table.stdout
    markdown = program("report", "runs/latest", "--format", "markdown").stdout
    assert markdown.startswith("# Report\n")
    assert (launch.report / "report.md").read_text() == markdown
    text = program("report", "runs/latest", "--format", "csv").stdout
    assert [row["method"] for row in csv.DictReader(text.splitlines())] == ["chime", "no_plan"]
    assert (launch.report / "report.csv").read_text() == text
    document = program.json("report", "runs/latest")
    assert document == json.loads(program("report", "runs/latest", "--format", "json").stdout)
    lines = [line for row in document["rows"] for line in row["runs"]]
    assert [line["eval_memory"] for line in lines] == ["frozen", "none"]
    assert lines[0]["bank_size"] == sum(
        len(items) for items in program.json("bank", "at", launch.path, "chime")["collections"].values()
    )


def test_an_incomplete_launch_is_reported_as_such_and_exits_with_3(
    program: Program, launch: LaunchDirectory
) -> None:
    """G3, H1: what is missing is named, and averaged over only on demand."""
    folder = launch.run(run_of(launch, "no_plan"))
    for file in (folder.episodes, folder.journal, folder.evaluation):
        file.unlink()
    result = program("report", launch.path)
    assert result.exit_code == 3
    assert "0 of 6 episodes scored, 0 infra, 6 missing" in result.stdout
    partial = program("report", launch.path, "--partial", "--denominator", "planned", "--json")
    assert partial.exit_code == 3
    assert json.loads(partial.stdout)["options"]["denominator"] == "planned"


def test_text_of_a_model_cannot_reach_the_terminal_as_control_codes(program: Program) -> None:
    """Trajectories hold what models and benchmarks say; half a surrogate pair has no UTF-8 either."""
    from chime_dist.cli.output import printable

    assert printable("a\x1b[2Jb\x07\r\n\tc\ud83d") == "a\\x1b[2Jb\\x07\\r\n\tc\\ud83d"
    assert printable("中文 ± é") == "中文 ± é"


async def test_a_position_committed_empty_is_shown_as_infra_with_its_attempts(
    program: Program, tmp_path: Path
) -> None:
    """D9: no resume tries it again, so it is not unsettled, and what was tried is told."""
    launch = await failed_launch(tmp_path / "failed")
    [run] = program.json("show", launch.path)["runs"]
    assert (run["committed"], run["committed_empty"], run["outcomes"]["infra"]) == (HELD, 3, 3)
    totals = program.json("show", launch.path, RUN)["totals"]["train"]
    assert (totals["infra"], totals["unsettled"]) == (3, 1), "the held position is still owed"
    shown = program("show", launch.path, RUN, "train:7")
    assert shown.exit_code == 0
    assert "committed empty: infra:benchmark" in shown.stdout
    assert shown.stdout.count("benchmark: ") == 3
    document = program.json("show", launch.path, RUN, "train:7")
    assert [failed["record"]["delivery"] for failed in document["failed_attempts"]] == [1, 2, 3]
    assert program("show", launch.path, RUN, f"train:{HELD}").exit_code == 2
