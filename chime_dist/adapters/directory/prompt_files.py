"""Captured prompts: one file beside each trajectory, JSON in a zstd frame with a checksum."""

from __future__ import annotations

import zstandard

from chime_dist.adapters.directory.artifact_json import decode, encode
from chime_dist.adapters.directory.launch_directory import RunFolder
from chime_dist.core.captured import CapturedCall, CapturedEpisode
from chime_dist.core.episode import EpisodeRecord, EpisodeTrace
from chime_dist.errors import RunDirectoryError


def pack_prompts(trace: EpisodeTrace) -> bytes | None:
    """The file's content; None where nothing was captured. Raises RunDirectoryError for what is no JSON."""
    if not trace.calls:
        return None
    calls = tuple(CapturedCall.model_validate(call) for call in trace.calls)
    episode = CapturedEpisode(attempt=trace.record.attempt, calls=calls)
    return zstandard.ZstdCompressor(write_checksum=True).compress(
        encode(episode, f"the prompts of {trace.record.unit.key}")
    )


def load_prompts(folder: RunFolder, record: EpisodeRecord) -> CapturedEpisode | None:
    """What was captured of the attempt of a final row; None where nothing was.

    Raises RunDirectoryError where the file is damaged.
    """
    path = folder.prompts(record.unit)
    where = f"{path} (prompts of {record.unit.key})"
    try:
        data = zstandard.ZstdDecompressor().decompress(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunDirectoryError(f"{where} cannot be read ({error.strerror})") from error
    except zstandard.ZstdError as error:
        raise RunDirectoryError(f"{where} is damaged ({error}); delete it") from None
    episode = decode(CapturedEpisode, data, where)
    # An attempt that a crash kept from its row may have left its prompts behind.
    return episode if episode.attempt == record.attempt else None
