"""Exported banks on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from chime_dist.adapters.directory.bank_export import read_bank, write_bank
from chime_dist.core.bank import BankState, Record
from chime_dist.core.bank_file import BankEmbedder, BankSource, ExportedBank, export_bank
from chime_dist.core.vector import Vector
from chime_dist.errors import BankFileError


@pytest.fixture
def bank() -> ExportedBank:
    vectors = {"c": Vector.of([1, 0])}
    records = [
        Record(collection="plan", id=f"{k}-0", version=0, payload={"text": "词" * 50}, vectors=vectors)
        for k in range(40)
    ]
    return export_bank(
        BankState(40, {record.id: record for record in records}),
        "a" * 64,
        BankSource(sweep="s", launch="l", run_id="r", config_digest="c" * 64),
        BankEmbedder(kind="hashing", model="hashing-1", dim=2),
    )


@pytest.mark.parametrize("name", ["bank.jsonl", "deep/folder/bank.jsonl.zst"])
def test_a_file_gives_the_bank_back(tmp_path: Path, bank: ExportedBank, name: str) -> None:
    file = tmp_path / name
    size = write_bank(file, bank)
    assert file.stat().st_size == size
    assert read_bank(file) == bank
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_only_a_name_that_ends_so_is_compressed_and_any_name_is_read(tmp_path: Path, bank: ExportedBank) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.zst"
    assert write_bank(packed, bank) < write_bank(plain, bank)
    assert plain.read_bytes().startswith(b'{"content_hash"')
    renamed = packed.rename(tmp_path / "c.jsonl")
    assert read_bank(renamed) == read_bank(plain)


def test_a_file_of_several_frames_is_one_file(tmp_path: Path, bank: ExportedBank) -> None:
    """What ``zstd`` and ``cat`` make of it elsewhere."""
    file = tmp_path / "bank.jsonl"
    write_bank(file, bank)
    data = file.read_bytes()
    file.write_bytes(zstandard.compress(data[:100]) + zstandard.compress(data[100:]))
    assert read_bank(file) == bank


def test_no_file_is_replaced(tmp_path: Path, bank: ExportedBank) -> None:
    file = tmp_path / "bank.jsonl"
    file.write_text("mine")
    with pytest.raises(BankFileError, match="exists already; remove it, or name another file"):
        write_bank(file, bank)
    assert file.read_text() == "mine"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, bank: ExportedBank) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BankFileError, match=r"bank\.jsonl: cannot be written"):
        write_bank(tmp_path / "file" / "bank.jsonl", bank)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BankFileError, match=r"nothing: cannot be read \(No such file or directory\)"):
        read_bank(tmp_path / "nothing")


@pytest.mark.parametrize("cut", [0.2, 0.6, 0.9])
def test_a_compressed_file_that_was_cut_is_found(tmp_path: Path, bank: ExportedBank, cut: float) -> None:
    file = tmp_path / "bank.zst"
    write_bank(file, bank)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * cut)])
    with pytest.raises(BankFileError, match=r"bank\.zst"):
        read_bank(file)


def test_a_changed_byte_in_a_compressed_file_is_found(tmp_path: Path, bank: ExportedBank) -> None:
    file = tmp_path / "bank.zst"
    write_bank(file, bank)
    data = bytearray(file.read_bytes())
    for place in range(0, len(data), max(1, len(data) // 40)):
        changed = bytearray(data)
        changed[place] ^= 0x10
        file.write_bytes(changed)
        with pytest.raises(BankFileError, match=r"bank\.zst"):
            read_bank(file)
