"""Trajectory files: one EpisodeTrace each, JSON in a zstd frame with a checksum."""

from __future__ import annotations

from pathlib import Path

import zstandard

from chime_dist.adapters.directory.artifact_json import decode, encode
from chime_dist.core.episode import EpisodeRecord, EpisodeTrace
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
        raise RunDirectoryError(f"{where} is missing although episodes.jsonl has its final row") from None
    except OSError as error:
        raise RunDirectoryError(f"{where} cannot be read ({error})") from error
    except zstandard.ZstdError as error:
        raise RunDirectoryError(f"{where} is damaged ({error}); restore it from a backup") from None
    trace = decode(EpisodeTrace, data, where)
    if trace.record != record:
        raise RunDirectoryError(
            f"{where} does not belong to the final row in episodes.jsonl (attempt {trace.record.attempt} here, "
            f"{record.attempt} there): the folder was changed by hand or mixed from two copies"
        )
    return trace
