"""The journal's two hash chains."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chime_dist.core.bank import Event, replay
from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.episode import Outcome, Usage
from chime_dist.core.journal import GENESIS, JournalEntry, content_hash, parse_line, usage_in, verified
from chime_dist.core.vector import Vector
from chime_dist.errors import JournalError

LEARNT: dict[str, Any] = {
    "task": "retail-7",
    "outcome": Outcome.FAILURE,
    "diagnosis": {"label": "planning", "confidence": 0.8},
}
RAN: dict[str, Any] = {
    "run_id": "run",
    "fence": 3,
    "attempt": "a1",
    "read_version": 0,
    "committed_at": "2026-01-01T00:00:00+00:00",
}


USED = {"gate": Usage(calls=2, requests=3, prompt_tokens=90, completion_tokens=7), "embedder": Usage(calls=1)}


def insert(position: int, text: str = "退货 \u2028 “e”", vector: Vector | None = None) -> Event:
    return Event(
        op="put",
        kind="content.insert",
        collection="plan",
        id=f"{position}-0",
        payload={"text": text, "v": 0.1},
        vectors={"c": vector or Vector.of([0.25, -1.5])},
        detail={"sim": 0.7},
    )


def sealed(position: int, previous: str, **changed: Any) -> JournalEntry:
    learnt = {**LEARNT, "events": (insert(position),), **{k: v for k, v in changed.items() if k not in RAN}}
    link = content_hash(previous, position=position, **learnt)
    ran = {**RAN, **{k: v for k, v in changed.items() if k in RAN}}
    return JournalEntry(position=position, content_hash=link, **learnt, **ran)


def chain(length: int, **changed: Any) -> list[JournalEntry]:
    entries: list[JournalEntry] = []
    for position in range(length):
        previous = entries[-1].content_hash if entries else GENESIS
        entries.append(sealed(position, previous, **changed))
    return entries


LINES = [entry.line() for entry in chain(3)]


def test_lines_read_back_as_the_same_entries() -> None:
    """R34: and replay to the same bank, vectors bit for bit."""
    entries = chain(3)
    read = list(verified(LINES, "journal"))
    assert read == entries
    assert replay(read).digest() == replay(entries).digest()


def test_a_line_is_one_line() -> None:
    assert all("\n" not in line and "\r" not in line for line in LINES)


@settings(deadline=None)
@given(place=st.integers(0, len(LINES) - 1), at=st.integers(0), flip=st.integers(1, 255))
def test_one_changed_byte_is_found_wherever_it_is(place: int, at: int, flip: int) -> None:
    """R34 (design "Journal is the truth"): any byte, any change, also one that leaves no UTF-8."""
    data = bytearray(LINES[place].encode())
    data[at % len(data)] ^= flip
    damaged = data.decode("utf-8", "surrogateescape")
    with pytest.raises(JournalError, match=f"journal, entry {place}: the line's hash does not match"):
        list(verified([*LINES[:place], damaged, *LINES[place + 1 :]], "journal"))


@settings(deadline=None)
@given(cut=st.integers(1, len(LINES[1].encode())))
def test_a_torn_line_is_found(cut: int) -> None:
    """H8: a line that lost its tail is never read as a shorter one."""
    torn = LINES[1].encode()[:-cut].decode("utf-8", "surrogateescape")
    with pytest.raises(JournalError, match="the journal was altered or cut"):
        list(verified([LINES[0], torn], "journal"))


@pytest.mark.parametrize(
    ("lines", "place", "says"),
    [
        ([LINES[0], LINES[2]], 1, 2),
        ([LINES[1]], 0, 1),
        ([LINES[0], LINES[0]], 1, 0),
        ([LINES[0], LINES[1], LINES[1], LINES[2]], 2, 1),
        ([LINES[1], LINES[0]], 0, 1),
    ],
)
def test_missing_doubled_and_swapped_entries_are_found(lines: list[str], place: int, says: int) -> None:
    with pytest.raises(
        JournalError, match=f"entry {place}: it says position {says}; an entry is missing or doubled"
    ):
        list(verified(lines, "journal"))


def test_good_entries_before_a_bad_one_are_given() -> None:
    """A reader can say how far a damaged journal is sound."""
    reader = verified([LINES[0], LINES[2]], "journal")
    assert next(reader) == chain(1)[0]
    with pytest.raises(JournalError):
        next(reader)


def test_a_well_sealed_line_of_another_history_breaks_the_chain() -> None:
    """R34: a fork, in which every line is whole by itself."""
    other = chain(3, task="another task")
    with pytest.raises(JournalError, match="entry 1: the content chain breaks here"):
        list(verified([LINES[0], other[1].line()], "journal"))


@pytest.mark.parametrize("body", ["[1, 2]", '{"position":0}', "not json"])
def test_a_sealed_line_that_is_no_entry_is_refused(body: str) -> None:
    seal = sha256_hex(body[:-1] + "}")
    with pytest.raises(JournalError, match="here: not a journal entry of this version"):
        parse_line(f'{body[:-1]},"line_hash":"{seal}"}}', "here")


def unspent(entry: JournalEntry) -> str:
    """The line as it was written before entries had ``usage``."""
    body = canonical_json(entry.model_dump(mode="json", exclude={"usage"}))
    return f'{body[:-1]},"line_hash":"{sha256_hex(body)}"}}'


def test_lines_of_before_entries_told_what_they_used_still_verify() -> None:
    """R34: neither the chain nor a state's digest knows of it, so old launches can be read and resumed."""
    old = [unspent(entry) for entry in chain(3)]
    assert all('"usage"' not in line for line in old)
    read = list(verified(old, "journal"))
    assert read == chain(3)
    newer = sealed(3, read[-1].content_hash).model_copy(update={"usage": USED})
    mixed = list(verified([*old, newer.line()], "journal"))
    assert (mixed[3].usage, mixed[3].content_hash) == (USED, sealed(3, read[-1].content_hash).content_hash)
    assert replay(mixed).digest() == replay(chain(4)).digest()


@pytest.mark.parametrize("old", [False, True], ids=["new line", "line of before"])
@pytest.mark.parametrize("used", [{}, USED], ids=["nothing", "something"])
@pytest.mark.parametrize(
    "text",
    ['"usage":{}', ',"usage":{"gate":{"calls":9}}', '"usage":{"gate":{"calls":9}},"line_hash":"'],
    ids=["bare", "as a key", "as a seal"],
)
def test_what_a_commit_used_is_read_off_its_line(old: bool, used: dict[str, Usage], text: str) -> None:
    """Wherever else a text or a payload says ``usage``."""
    inner = {"gate": {"calls": 8}}
    event = insert(0, text=text).model_copy(update={"detail": {"a": 1, "usage": inner}})
    entry = sealed(0, GENESIS, task=text, events=(event,), diagnosis={"a": 1, "usage": inner})
    entry = entry.model_copy(update={"usage": used})
    line = unspent(entry) if old else entry.line()
    for ending in (b"", b"\n"):
        assert usage_in(line.encode() + ending) == ({} if old else used)


@pytest.mark.parametrize("line", [b"", b"\n", b"{}\n", b'{"usage":{}}', b"x" * 200, b',"usage":{' + b"x" * 90])
def test_no_usage_is_read_off_what_is_no_entry(line: bytes) -> None:
    assert usage_in(line) == {}


def test_the_content_chain_does_not_know_where_and_when_it_ran() -> None:
    """Two runs that learnt the same have equal chains: no run id, fence, attempt, time or read version."""
    elsewhere = chain(
        3, run_id="other", fence=99, attempt="b7", read_version=2, committed_at="2031-01-01T00:00:00+00:00"
    )
    assert [e.content_hash for e in elsewhere] == [e.content_hash for e in chain(3)]
    assert [e.line() for e in elsewhere] != LINES


@pytest.mark.parametrize(
    "changed",
    [
        {"task": "t2"},
        {"outcome": Outcome.SUCCESS},
        {"diagnosis": None},
        {"events": ()},
        {"events": (insert(0, text="other"),)},
        {"events": (insert(0, vector=Vector.of([0.25, -1.25])),)},
        {"events": (insert(0).model_copy(update={"vectors": None}),)},
        {"events": (insert(0).model_copy(update={"detail": {"sim": 0.8}}),)},
    ],
)
def test_the_content_chain_covers_what_was_learnt(changed: dict[str, Any]) -> None:
    """Position, task, outcome, diagnosis, events with their audit, vector hashes, and the past."""
    plain = sealed(0, GENESIS)
    assert sealed(0, GENESIS, **changed).content_hash != plain.content_hash
    assert sealed(0, plain.content_hash).content_hash != plain.content_hash
    same = {**LEARNT, "events": plain.events}
    assert content_hash(GENESIS, position=1, **same) != plain.content_hash


def test_the_order_of_vector_names_does_not_matter() -> None:
    c, e = Vector.of([1.0]), Vector.of([2.0])
    one = insert(0).model_copy(update={"vectors": {"c": c, "e": e}})
    two = insert(0).model_copy(update={"vectors": {"e": e, "c": c}})
    assert sealed(0, GENESIS, events=(one,)).content_hash == sealed(0, GENESIS, events=(two,)).content_hash


def test_a_number_that_json_cannot_hold_never_reaches_the_journal() -> None:
    """B3: NaN would be written as invalid JSON."""
    event = insert(0).model_copy(update={"detail": {"sim": float("nan")}})
    with pytest.raises(ValueError, match="not JSON compliant"):
        sealed(0, GENESIS, events=(event,))


def test_canonical_json_has_one_spelling() -> None:
    assert canonical_json({"b": [1, 0.5], "a": "é"}) == '{"a":"é","b":[1,0.5]}'
    assert sha256_hex("é") == sha256_hex(json.loads('"\\u00e9"'))
