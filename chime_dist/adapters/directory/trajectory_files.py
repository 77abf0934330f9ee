"""Trajectory files: one EpisodeTrace each, JSON in a zstd frame with a checksum."""

from __future__ import annotations

from pathlib import Path

import zstandard

from chime_dist.adapters.directory.artifact_json import decode, encode, unreadable
from chime_dist.core.episode import EpisodeRecord, EpisodeTrace, Unit
from chime_dist.errors import RunDirectoryError


def pack(trace: EpisodeTrace) -> bytes:
    """The file's content. Raises RunDirectoryError where the trace holds something that is no JSON."""
    data = encode(trace, f"the trace of {trace.record.unit.key}, attempt {trace.record.attempt},")
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def load(path: Path, record: EpisodeRecord) -> EpisodeTrace:
    """Read the trace of the final row ``record``.

    Raises RunDirectoryError where the file is missing, damaged, or another attempt's.
    """
    where = f"{path} (trace of {record.unit.key})"
    try:
        data = zstandard.ZstdDecompressor().decompress(path.read_bytes())
    except FileNotFoundError:
        raise RunDirectoryError(
            f"{where} is missing although episodes.jsonl has its final row: {_fix(path, record.unit)}"
        ) from None
    except OSError as error:
        raise unreadable(path, error) from error
    except zstandard.ZstdError as error:
        raise RunDirectoryError(f"{where} is damaged ({error}): {_fix(path, record.unit)}") from None
    trace = decode(EpisodeTrace, data, where)
    if trace.record != record:
        raise RunDirectoryError(
            f"{where} does not belong to the final row in episodes.jsonl (attempt {trace.record.attempt} here, "
            f"{record.attempt} there): the folder was changed by hand or mixed from two copies; "
            f"{_fix(path, record.unit)}"
        )
    return trace


def _fix(path: Path, unit: Unit) -> str:
    # A fork has copies of what is before its position, and runs the rest and the evaluation.
    run, position = path.parents[3], unit.position if unit.phase == "train" else unit.read_version - 1
    if position < 0:
        return "restore it from a backup"
    return (
        f"restore it from a backup, or fork the run there with ctl {run.parent} requeue {run.name} --fork-at "
        f"{position} (or at its head, where it has not come so far), and resume"
    )
