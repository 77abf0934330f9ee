"""An exported bank as text: what transfers carry from one run to another (R52, R53).

One JSON document per line: a header that says what the bank is and where it comes from, one record per line with
its vectors (base64 of little-endian float32) in (collection, id) order, and a last line with the SHA-256 of all
bytes before it. Nothing in it depends on when or where it was written, so equal banks give equal files.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

from pydantic import Field, ValidationError

from chime_dist.core.bank import BankState, ItemId, Record
from chime_dist.core.canonical import canonical_json
from chime_dist.core.frozen import Frozen
from chime_dist.errors import BankFileError

FORMAT: Literal["chime_dist.bank/1"] = "chime_dist.bank/1"

_Line = TypeVar("_Line", bound=Frozen)


class BankSource(Frozen):
    """Where a bank comes from."""

    sweep: str
    launch: str
    run_id: str
    config_digest: str
    """Of the run's config (``RunConfig.digest``)."""


class BankEmbedder(Frozen):
    """What a bank's vectors were made with, as the run's config records it."""

    kind: str
    model: str
    dim: int = Field(ge=1)
    query_prompt: str = ""
    max_tokens: int | None = None
    """Where longer texts were cut; None where the embedder has no such setting."""

    def differences(self, other: BankEmbedder) -> tuple[str, ...]:
        """What ``other`` has different, as ``field: own, not theirs``; empty where vectors may be compared."""
        return tuple(
            f"{name}: {getattr(self, name)!r}, not {getattr(other, name)!r}"
            for name in type(self).model_fields
            if getattr(self, name) != getattr(other, name)
        )


class BankHeader(Frozen):
    """The first line."""

    format: Literal["chime_dist.bank/1"] = FORMAT
    source: BankSource
    version: int = Field(ge=0)
    """The bank's version in its source run."""
    records: int = Field(ge=0)
    state_digest: str
    content_hash: str
    """Of the source journal's last entry in the bank: what had been learnt, in which order."""
    embedder: BankEmbedder


class _Seal(Frozen):
    """The last line."""

    sha256: str


@dataclass(frozen=True, slots=True)
class ExportedBank:
    """A bank with its header, whose digest is the state's; every vector has the embedder's dimension."""

    header: BankHeader
    state: BankState


def export_bank(state: BankState, content_hash: str, source: BankSource, embedder: BankEmbedder) -> ExportedBank:
    """``state`` with its header. Raises BankFileError for a vector of another dimension than the embedder's."""
    header = BankHeader(
        source=source,
        version=state.version,
        records=len(state.records),
        state_digest=state.digest(),
        content_hash=content_hash,
        embedder=embedder,
    )
    for record in state.records.values():
        _check_vectors(record, embedder, f"{source.run_id}, version {state.version}")
    return ExportedBank(header, state)


def encode_bank(bank: ExportedBank) -> bytes:
    """The file's content."""
    records = sorted(bank.state.records.values(), key=_order)
    lines = [canonical_json(line.model_dump(mode="json")) for line in (bank.header, *records)]
    body = "".join(f"{line}\n" for line in lines).encode()
    seal = _Seal(sha256=hashlib.sha256(body).hexdigest())
    return body + f"{canonical_json(seal.model_dump())}\n".encode()


def decode_bank(data: bytes, where: str) -> ExportedBank:
    """Inverse of ``encode_bank``; ``where`` names the file.

    Raises BankFileError, naming the 1-based line where there is one: another format, a cut or altered file, a
    record that cannot be read, an id that comes twice, a vector of another dimension or without direction, a
    digest that is not the header's.
    """
    *lines, tail = data.split(b"\n")
    header = _header(lines[0] if lines else tail, where)
    if tail or len(lines) < 2:
        raise BankFileError(f"{where}: its last line is not finished; the file was cut, export or copy it again")
    body, last = data[: -len(lines[-1]) - 1], f"{where}, line {len(lines)}"
    seal = _parsed(_Seal, lines[-1], f"{last}: not the checksum that ends an exported bank; the file was cut")
    if hashlib.sha256(body).hexdigest() != seal.sha256:
        raise BankFileError(f"{last}: the checksum does not match; the file was altered, export or copy it again")
    records: dict[str, Record] = {}
    for number, line in enumerate(lines[1:-1], start=2):
        place = f"{where}, line {number}"
        record = _parsed(Record, line, f"{place}: not a record")
        _check_id(record, records, place)
        _check_vectors(record, header.embedder, place)
        records[record.id] = record
    state = BankState(header.version, records)
    try:
        digest = state.digest()
    except UnicodeEncodeError as error:
        raise BankFileError(f"{where}: a record holds text that is no text: {error}") from None
    if len(records) != header.records or digest != header.state_digest:
        raise BankFileError(
            f"{where}: the header says {header.records} records with the digest {header.state_digest}, but there "
            f"are {len(records)} with {digest}; this is not the bank that was exported"
        )
    return ExportedBank(header, state)


def _header(line: bytes, where: str) -> BankHeader:
    message = f"{where}: not a bank exported by chime_dist (expected a first line with the format {FORMAT!r})"
    found = _json(line, message)
    if not isinstance(found, dict) or "format" not in found:
        raise BankFileError(message)
    if found["format"] != FORMAT:
        raise BankFileError(f"{where}: its format is {found['format']!r}, this version reads {FORMAT!r}")
    return _parsed(BankHeader, line, f"{where}, line 1: not a header")


def _check_id(record: Record, known: dict[str, Record], place: str) -> None:
    try:
        ItemId.parse(record.id)
    except ValueError as error:
        raise BankFileError(f"{place}: {error}") from None
    if record.id in known:
        raise BankFileError(f"{place}: the id {record.id} comes a second time; ids are unique in a bank")


def _check_vectors(record: Record, embedder: BankEmbedder, place: str) -> None:
    for name, vector in record.vectors.items():
        if vector.dim != embedder.dim:
            raise BankFileError(
                f"{place}: vector {name!r} of {record.id} has dimension {vector.dim}, the bank's embedder "
                f"{embedder.model!r} has {embedder.dim}"
            )
        if not vector.array.any():
            raise BankFileError(f"{place}: vector {name!r} of {record.id} is zero, so it has no direction")


def _order(record: Record) -> tuple[str, ItemId]:
    return record.collection, ItemId.parse(record.id)


def _parsed(model: type[_Line], line: bytes, message: str) -> _Line:
    try:
        return model.model_validate(_json(line, message))
    except ValidationError as error:
        raise BankFileError(f"{message}: {error}") from None


def _json(line: bytes, message: str) -> Any:
    try:
        return json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BankFileError(f"{message}: {error}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
