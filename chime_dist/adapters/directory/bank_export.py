"""Exported banks as files (see ``core.bank_file``), compressed with zstd where their name ends in ``.zst``."""

from __future__ import annotations

import io
from pathlib import Path

import zstandard

from chime_dist.adapters.directory.durable_file import replace_files
from chime_dist.core.bank_file import ExportedBank, decode_bank, encode_bank
from chime_dist.errors import BankFileError

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def write_bank(path: Path, bank: ExportedBank) -> int:
    """Put a bank into a new file, durably and as a whole; returns its size in bytes.

    Raises BankFileError where the file exists already or cannot be written.
    """
    data = encode_bank(bank)
    if path.suffix == ".zst":
        data = zstandard.ZstdCompressor(write_checksum=True).compress(data)
    if path.exists():
        raise BankFileError(f"{path} exists already; remove it, or name another file")
    try:
        replace_files([(path, data)])
    except OSError as error:
        raise BankFileError(f"{path}: cannot be written ({error}); choose another place") from error
    return len(data)


def read_bank(path: Path) -> ExportedBank:
    """The bank in a file, with everything checked; it is decompressed whatever its name is.

    Raises BankFileError as ``decode_bank`` does, and where the file cannot be read.
    """
    try:
        data = path.read_bytes()
        if data.startswith(_ZSTD_MAGIC):
            reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True)
            data = reader.read()
    except OSError as error:
        raise BankFileError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except zstandard.ZstdError as error:
        raise BankFileError(f"{path}: its compression is damaged ({error}); copy or export it again") from None
    return decode_bank(data, str(path))
