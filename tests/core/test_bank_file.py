"""Exported banks: what comes out is what went in, and nothing else is accepted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chime_dist.core.bank import BankState, ItemId, Record
from chime_dist.core.bank_file import BankEmbedder, BankSource, decode_bank, encode_bank, export_bank
from chime_dist.core.canonical import canonical_json
from chime_dist.core.vector import Vector
from chime_dist.errors import BankFileError

EMBEDDER = BankEmbedder(kind="hashing", model="hashing-1", dim=2)
SOURCE = BankSource(sweep="s", launch="l", run_id="r", config_digest="c" * 64)
CONTENT_HASH = "a" * 64


def _record(item: str, collection: str = "plan", **vectors: Vector) -> Record:
    return Record(
        collection=collection,
        id=item,
        version=3,
        payload={"text": "退货 \u2028 “e”\n", "v": -0.25},
        vectors=vectors,
    )


STATE = BankState(
    7,
    {
        record.id: record
        for record in (
            _record("10-0", c=Vector.of([1, 0]), e=Vector.of([0.5, -1.5])),
            _record("9-1", c=Vector.of([0, 1])),
            _record("2-0", collection="exec"),
        )
    },
)
FILE = encode_bank(export_bank(STATE, CONTENT_HASH, SOURCE, EMBEDDER))


def _sealed(*lines: str | dict[str, Any]) -> bytes:
    """A file with these lines and a right checksum: what somebody else's program could write."""
    texts = [line if isinstance(line, str) else canonical_json(line) for line in lines]
    body = "".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass")
    return body + canonical_json({"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n"


def _lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.splitlines()[:-1]]


def test_a_file_holds_header_records_in_order_and_checksum() -> None:
    header, *records = _lines()
    assert (header["format"], header["version"], header["records"]) == ("chime_dist.bank/1", 7, 3)
    assert (header["state_digest"], header["content_hash"]) == (STATE.digest(), CONTENT_HASH)
    assert [record["id"] for record in records] == ["2-0", "9-1", "10-0"]
    assert records[2]["vectors"]["c"] == Vector.of([1, 0]).to_base64()
    assert set(json.loads(FILE.splitlines()[-1])) == {"sha256"}


def test_what_comes_out_is_what_went_in() -> None:
    """R52, R53: state, digest, version, source and embedder."""
    bank = decode_bank(FILE, "file")
    assert bank.state == STATE
    assert bank.state.digest() == STATE.digest() == bank.header.state_digest
    assert (bank.header.source, bank.header.embedder, bank.header.content_hash) == (SOURCE, EMBEDDER, CONTENT_HASH)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_VECTOR = (
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=2)
    .map(Vector.of)
    .filter(lambda vector: bool(vector.array.any()))
)
_RECORDS = st.dictionaries(
    st.builds(ItemId, st.integers(0, 10**6), st.integers(0, 3)),
    st.tuples(
        st.sampled_from(["plan", "exec", "rules"]),
        st.integers(0, 50),
        st.dictionaries(_TEXT, _JSON, max_size=3),
        st.dictionaries(st.sampled_from(["c", "e"]), _VECTOR, max_size=2),
    ),
    max_size=6,
)


@given(_RECORDS, st.integers(0, 10**6))
@settings(max_examples=60)
def test_any_bank_survives_the_way_through_a_file(drawn: dict[ItemId, Any], version: int) -> None:
    """Identical digest, and the same bank gives the same bytes again."""
    records = {
        str(item): Record(collection=collection, id=str(item), version=chain, payload=payload, vectors=vectors)
        for item, (collection, chain, payload, vectors) in drawn.items()
    }
    state = BankState(version, records)
    data = encode_bank(export_bank(state, CONTENT_HASH, SOURCE, EMBEDDER))
    read = decode_bank(data, "file")
    assert read.state.digest() == state.digest()
    assert read.state.version == version
    assert encode_bank(read) == data


@given(st.integers(0, len(FILE) - 1), st.integers(1, 255))
def test_one_changed_byte_anywhere_is_found(place: int, change: int) -> None:
    data = bytearray(FILE)
    data[place] ^= change
    with pytest.raises(BankFileError, match="file"):
        decode_bank(bytes(data), "file")


@given(st.integers(0, len(FILE) - 1))
def test_a_file_that_was_cut_anywhere_is_found(length: int) -> None:
    with pytest.raises(BankFileError, match="file"):
        decode_bank(FILE[:length], "file")


@pytest.mark.parametrize("data", [b"", b"\n", b"hello\n", b"[1]\n{}\n", b'{"a":1}\n{}\n', b"\xff\xfe\n"])
def test_another_file_is_not_taken_for_a_bank(data: bytes) -> None:
    with pytest.raises(BankFileError, match="not a bank exported by chime_dist"):
        decode_bank(data, "file")


def test_another_format_is_named() -> None:
    header, *records = _lines()
    with pytest.raises(BankFileError, match=r"format is 'chime_dist\.bank/2', this version reads"):
        decode_bank(_sealed({**header, "format": "chime_dist.bank/2"}, *records), "file")


def _duplicate(lines: list[dict[str, Any]]) -> None:
    lines[3]["id"] = lines[2]["id"]


def _wrong_id(lines: list[dict[str, Any]]) -> None:
    lines[1]["id"] = "first"


def _longer_vector(lines: list[dict[str, Any]]) -> None:
    lines[3]["vectors"]["e"] = Vector.of([1, 2, 3]).to_base64()


def _zero_vector(lines: list[dict[str, Any]]) -> None:
    lines[3]["vectors"]["e"] = Vector.of([0, 0]).to_base64()


def _no_base64(lines: list[dict[str, Any]]) -> None:
    lines[3]["vectors"]["e"] = "?"


def _other_payload(lines: list[dict[str, Any]]) -> None:
    lines[1]["payload"]["v"] = 0.5


def _fewer_records(lines: list[dict[str, Any]]) -> None:
    del lines[2]


def _unknown_key(lines: list[dict[str, Any]]) -> None:
    lines[1]["extra"] = 1


def _header_key(lines: list[dict[str, Any]]) -> None:
    del lines[0]["embedder"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_duplicate, "line 4: the id 9-1 comes a second time"),
        (_wrong_id, "line 2: not an item id"),
        (_longer_vector, "line 4: vector 'e' of 10-0 has dimension 3, the bank's embedder 'hashing-1' has 2"),
        (_zero_vector, "line 4: vector 'e' of 10-0 is zero"),
        (_no_base64, "line 4: not a record"),
        (_other_payload, "the header says 3 records with the digest .* but there are 3 with"),
        (_fewer_records, "but there are 2 with"),
        (_unknown_key, "line 2: not a record"),
        (_header_key, "line 1: not a header"),
    ],
)
def test_a_well_sealed_file_is_still_checked(change: Callable[[list[dict[str, Any]]], None], message: str) -> None:
    """A checksum says that nobody altered the file, not that it holds a bank."""
    lines = _lines()
    change(lines)
    with pytest.raises(BankFileError, match=message):
        decode_bank(_sealed(*lines), "file")


def test_numbers_that_json_does_not_have_and_half_characters_are_refused() -> None:
    header, *records = _lines()
    not_a_number = canonical_json(records[0]).replace("-0.25", "NaN")
    with pytest.raises(BankFileError, match="NaN is no JSON number"):
        decode_bank(_sealed(header, not_a_number, *records[1:]), "file")
    half = canonical_json(records[0]).replace("退", "\\ud800")
    with pytest.raises(BankFileError, match="text that is no text"):
        decode_bank(_sealed(header, half, *records[1:]), "file")


def test_a_file_whose_last_line_is_no_checksum_was_cut() -> None:
    """Cut behind a line break: every line in it is whole."""
    data = b"".join(FILE.splitlines(keepends=True)[:-1])
    with pytest.raises(BankFileError, match="line 4: not the checksum that ends an exported bank"):
        decode_bank(data, "file")


def test_a_bank_that_is_not_the_embedder_s_is_not_exported() -> None:
    with pytest.raises(BankFileError, match=r"r, version 7: vector 'c' of .* has dimension 2, .* has 3"):
        export_bank(STATE, CONTENT_HASH, SOURCE, EMBEDDER.model_copy(update={"dim": 3}))


def test_embedders_differ_by_name_value_and_value() -> None:
    """E4: model, dimension, prompt and cut length all change what a similarity means."""
    other = EMBEDDER.model_copy(update={"dim": 3, "query_prompt": "query: "})
    assert EMBEDDER.differences(EMBEDDER) == ()
    assert EMBEDDER.differences(other) == ("dim: 2, not 3", "query_prompt: '', not 'query: '")
