"""``bank export`` and ``bank import --check``: a bank to take along."""

from __future__ import annotations

from pathlib import Path

import pytest

from chime_dist.adapters.directory.bank_export import read_bank
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.core.bank import as_of
from chime_dist.core.journal import JournalEntry
from chime_dist.wiring.results import run_config
from tests.cli.bank.conftest import LEARNING
from tests.cli.conftest import Program, run_of


@pytest.mark.parametrize("name", ["bank.jsonl", "bank.jsonl.zst"])
@pytest.mark.parametrize(("words", "version"), [([], 56), (["50%"], 28), (["0"], 0)])
def test_an_exported_bank_is_the_bank(
    program: Program,
    learnt: LaunchDirectory,
    entries: list[JournalEntry],
    words: list[str],
    version: int,
    name: str,
) -> None:
    """R52: source, version and both hashes; the state has the digest of the replay, vectors included."""
    document = program.json("bank", "export", "runs/latest", "chime", *words, name)
    bank = read_bank(Path(name))
    state = as_of(entries, version)
    assert bank.state.records == state.records
    assert (bank.header.version, bank.header.state_digest) == (version, state.digest())
    known = program.json("bank", "at", "runs/latest", "chime", str(version))
    assert (bank.header.content_hash, bank.header.state_digest) == (known["content_hash"], known["digest"])
    run = run_of(learnt, "chime")
    assert (bank.header.source.launch, bank.header.source.run_id) == (learnt.id, run)
    assert bank.header.source.config_digest == run_config(learnt, run).digest
    assert (bank.header.embedder.model, bank.header.embedder.dim) == ("chime-dist/hashing-1", 64)
    assert (document["bytes"], document["header"]["records"]) == (Path(name).stat().st_size, len(state.records))


def test_two_exports_of_one_bank_are_one_file(program: Program, learnt: LaunchDirectory) -> None:
    """Nothing in it depends on when or where it was written."""
    for name in ("a.zst", "b.zst"):
        assert program("bank", "export", "runs/latest", "chime", name).exit_code == 0
    assert Path("a.zst").read_bytes() == Path("b.zst").read_bytes()


def test_export_says_what_it_wrote_and_replaces_nothing(program: Program, learnt: LaunchDirectory) -> None:
    shown = program("bank", "export", "runs/latest", "chime", "75%", "bank.jsonl").stdout
    assert f"bank    {run_of(learnt, 'chime')}, version 42, " in shown
    again = program("bank", "export", "runs/latest", "chime", "bank.jsonl")
    assert (again.exit_code, "bank.jsonl exists already" in again.stderr) == (1, True)
    many = program("bank", "export", "runs/latest", "chime", "1", "2", "bank.jsonl")
    assert (many.exit_code, "expected [VERSION] FILE" in many.stderr) == (2, True)


def test_a_check_tells_what_is_in_a_file_and_whether_it_fits(program: Program, learnt: LaunchDirectory) -> None:
    """R52, R53: the bank of one run for the embedder of another sweep."""
    program("bank", "export", "runs/latest", "chime", "bank.zst")
    same = program.write(LEARNING, "same.yaml")
    sizes = program.json("bank", "checkpoints", "runs/latest", "chime")["checkpoints"][-1]["collections"]
    for sweep in (same, learnt.path):
        document = program.json("bank", "import", "bank.zst", "--check", "--for", sweep)
        assert (document["collections"], document["fits"], document["differences"]) == (sizes, True, [])
    plain = program.json("bank", "import", "bank.zst", "--check")
    assert (plain["fits"], plain["sweep"]) == (None, None)
    shown = program("bank", "import", "bank.zst", "--check", "--for", same).stdout
    assert f"fits    {same}" in shown
    assert "vectors chime-dist/hashing-1 (hashing), dimension 64\n" in shown


def test_a_bank_of_another_embedder_does_not_fit(program: Program, learnt: LaunchDirectory) -> None:
    """E4: every difference is named."""
    program("bank", "export", "runs/latest", "chime", "bank.zst")
    model = "{kind: sentence_transformers, model: a/model, dim: 384, query_prompt: 'query: '}"
    other = program.write(LEARNING.replace("{kind: hashing, dim: 64}", model), "other.yaml")
    result = program("bank", "import", "bank.zst", "--check", "--for", other)
    assert result.exit_code == 1
    assert f"does not fit {other}" in result.stdout
    assert "dim: 64, not 384" in result.stderr
    assert "model: 'chime-dist/hashing-1', not 'model'" in result.stderr
    assert "query_prompt: '', not 'query: '" in result.stderr
    assert "max_tokens: None, not 16384" in result.stderr


def test_a_damaged_file_is_refused(program: Program, learnt: LaunchDirectory) -> None:
    program("bank", "export", "runs/latest", "chime", "bank.jsonl")
    file = Path("bank.jsonl")
    file.write_bytes(file.read_bytes().replace(b'"value":', b'"value" :', 1))
    result = program("bank", "import", file, "--check")
    assert (result.exit_code, "the checksum does not match" in result.stderr) == (1, True)


def test_import_says_that_it_only_checks(program: Program) -> None:
    result = program("bank", "import", "bank.jsonl")
    assert (result.exit_code, "say --check" in result.stderr) == (2, True)
