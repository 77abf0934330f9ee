"""``bank search``: what an episode would find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.episode import Recall
from tests.cli.conftest import Program, run_of


def _recalls(launch: LaunchDirectory, position: int) -> tuple[Recall, ...]:
    trace = EpisodeArchive(launch).trace_at(run_of(launch, "chime"), "train", position)
    assert trace is not None
    return trace.trajectory.recalls


@pytest.mark.parametrize("position", [20, 40, 55])
def test_a_search_finds_what_the_episode_found(program: Program, learnt: LaunchDirectory, position: int) -> None:
    """R12 to R17: the same text at the same version, replayed: every number and rank is the episode's."""
    for recall in _recalls(learnt, position):
        document = program.json(
            *("bank", "search", "runs/latest", "chime", recall.query),
            *("--stage", recall.collection, "--version", str(recall.version), "-n", "20"),
        )
        found = document["stages"][recall.collection]
        expected = sorted(recall.candidates, key=lambda candidate: candidate.rank_after)
        shown = [{k: v for k, v in one.items() if k != "payload"} for one in found["found"]]
        assert shown == [candidate.model_dump() for candidate in expected]
        assert found["candidates"] == len(expected)
        bank = program.json("bank", "at", "runs/latest", "chime", str(recall.version))["collections"]
        assert found["candidates"] + found["below_threshold"] + found["beyond_top"] == len(bank[recall.collection])


def test_both_stages_are_searched_at_the_head_and_shown_by_rank(program: Program, learnt: LaunchDirectory) -> None:
    query = _recalls(learnt, 55)[1].query
    document = program.json("bank", "search", "runs/latest", "chime", query, "-n", "1")
    assert (document["version"], set(document["stages"])) == (56, {"plan", "exec"})
    assert [len(stage["found"]) for stage in document["stages"].values()] == [1, 1]
    shown = program("bank", "search", "runs/latest", "chime", query).stdout
    for stage in document["stages"].values():
        [best] = stage["found"]
        row = next(line for line in shown.splitlines() if f" {best['id']} (v{best['item_version']})" in line)
        assert f"{best['sim']:.6f}" in row
        assert f"{best['score']:.6f}" in row
        assert best["payload"]["scenario"][:30] in row


def test_an_empty_bank_finds_nothing(program: Program, learnt: LaunchDirectory) -> None:
    shown = program("bank", "search", "runs/latest", "chime", "anything", "--version", "0").stdout
    assert "plan: 0 candidates (0 below the threshold, 0 beyond the Top-N)" in shown


def _changed(launch: LaunchDirectory, embedder: dict[str, Any]) -> None:
    manifest = launch.path / "sweep.json"
    document = json.loads(manifest.read_text())
    for run in document["runs"].values():
        run["config"]["embedder"] |= embedder
    manifest.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("embedder", "message"),
    [
        ({"kind": "http"}, "cluster.endpoints.embedder must be the url of its server"),
        ({"kind": "sentence_transformers", "model": "package:no_such_package"}, "no_such_package"),
        ({"dim": 32}, "holds vectors of dimension 64, the embedder made one of 32"),
    ],
)
def test_an_embedder_that_cannot_be_used_is_refused(
    program: Program, learnt: LaunchDirectory, embedder: dict[str, Any], message: str
) -> None:
    """E4: a bank is searched with the embedder that it was built with, or not at all."""
    _changed(learnt, embedder)
    result = program("bank", "search", "runs/latest", "chime", "anything")
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    if "kind" in embedder:
        assert "a search needs the embedder that the bank was built with" in result.stderr


def test_a_text_that_cannot_be_embedded_is_refused(program: Program, learnt: LaunchDirectory) -> None:
    result = program("bank", "search", "runs/latest", "chime", "  ")
    assert (result.exit_code, "without visible characters" in result.stderr) == (1, True)


def test_only_the_embedder_s_secrets_are_asked_for(
    program: Program, learnt: LaunchDirectory, tmp_path: Path
) -> None:
    """H6: a search needs no backbone, so no backbone's variable."""
    manifest = learnt.path / "sweep.json"
    document = json.loads(manifest.read_text())
    document["config"]["cluster"]["endpoints"]["m"] = {"kind": "http", "url": "${UNSET_URL}"}
    manifest.write_text(json.dumps(document))
    assert program("bank", "search", "runs/latest", "chime", "anything").exit_code == 0
    document["config"]["cluster"]["endpoints"]["embedder"] = {"kind": "http", "url": "${UNSET_URL}"}
    manifest.write_text(json.dumps(document))
    result = program("bank", "search", "runs/latest", "chime", "anything")
    assert (result.exit_code, "UNSET_URL is not set" in result.stderr) == (2, True)
