"""Journal entries: the truth about a bank, one per train position, in two hash chains.

The *content chain* covers what was learnt (position, task, outcome, diagnosis, events, vector hashes): it is
equal for two runs that learnt the same, whatever ran where. The *line hash* covers the whole stored line, so
one flipped byte is found (design "Journal is the truth").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from pydantic import TypeAdapter, ValidationError

from chime_dist.core.bank import Event
from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.episode import Json, Outcome, Usage
from chime_dist.core.frozen import Frozen
from chime_dist.errors import JournalError

GENESIS = "0" * 64
"""The content hash before the first entry."""

_HASH_KEY = ',"line_hash":"'
_SEAL_LENGTH = len(_HASH_KEY) + 64 + len('"}')
_USAGE_KEY = b',"usage":'
_NO_USAGE = _USAGE_KEY + b"{}"
_USAGE = TypeAdapter(dict[str, Usage])
_ATTEMPT = re.compile(rb'\{"attempt":"([^"\\]*)",')


class JournalEntry(Frozen):
    """What was committed at one position. ``position`` n takes the bank from version n to n + 1."""

    position: int
    task: str
    outcome: Outcome
    diagnosis: dict[str, Json] | None
    events: tuple[Event, ...]
    content_hash: str
    """Hex SHA-256 over this entry's content and the previous entry's content hash."""

    run_id: str
    fence: int
    """The bank owner's number when it was written."""
    attempt: str
    read_version: int
    committed_at: str
    """UTC with offset; not part of the content chain."""
    empty_reason: str | None = None
    usage: dict[str, Usage] = {}
    """By role, what the commit's requests used, attempts that failed and still told it included; not part of the
    content chain. It is what the owner that committed has used: one that died before it told nobody."""

    def line(self) -> str:
        """The stored form: canonical JSON sealed with its own hash, without a line break."""
        body = canonical_json(self.model_dump(mode="json"))
        return f'{body[:-1]}{_HASH_KEY}{sha256_hex(body)}"}}'


def content_hash(
    previous: str,
    *,
    position: int,
    task: str,
    outcome: Outcome,
    diagnosis: dict[str, Json] | None,
    events: tuple[Event, ...],
) -> str:
    """The next link of the content chain; no run id, fence, attempt, time, tokens or read version in it."""
    content = {
        "previous": previous,
        "position": position,
        "task": task,
        "outcome": outcome.value,
        "diagnosis": diagnosis,
        "events": [_hashed(event) for event in events],
    }
    return sha256_hex(canonical_json(content))


def _hashed(event: Event) -> dict[str, Json]:
    dumped = event.model_dump(mode="json", exclude={"vectors"})
    vectors = event.vectors
    dumped["vectors"] = None if vectors is None else {name: v.sha256 for name, v in sorted(vectors.items())}
    return dumped


def parse_line(line: str, where: str) -> JournalEntry:
    """Read one stored line; raises JournalError naming ``where`` for any byte that is not as it was written."""
    body, seal = line[:-_SEAL_LENGTH] + "}", line[-_SEAL_LENGTH:]
    try:
        sealed = seal == f'{_HASH_KEY}{sha256_hex(body)}"}}'
    except UnicodeEncodeError:
        # Bytes that were not UTF-8 and came through as surrogates: they are not what was written.
        sealed = False
    if not sealed:
        raise JournalError(f"{where}: the line's hash does not match its bytes; the journal was altered or cut")
    try:
        return JournalEntry.model_validate(json.loads(body))
    except (ValidationError, ValueError) as error:
        raise JournalError(f"{where}: not a journal entry of this version of chime_dist: {error}") from None


def usage_in(line: bytes) -> dict[str, Usage]:
    """``JournalEntry.usage`` of a stored line, read off its end: neither hashed nor parsed but for that.

    Of entries with many vectors that is most of the work. Canonical JSON sorts its keys and escapes quotes inside
    texts, so ``usage`` is the last one before the seal and its spelling is nowhere inside a text. Empty for a line
    written before entries had it, and for one that is damaged, which ``verified`` finds.
    """
    end = max(0, len(line) - line.endswith(b"\n") - _SEAL_LENGTH)
    if line.endswith(_NO_USAGE, 0, end):
        return {}
    start = line.rfind(_USAGE_KEY, 0, end)
    if start < 0:
        return {}
    try:
        return _USAGE.validate_json(line[start + len(_USAGE_KEY) : end])
    except ValidationError:
        # In a line of before it was a key of a payload.
        return {}


def attempt_in(line: bytes) -> str:
    """``JournalEntry.attempt`` of a stored line, read off its start: canonical JSON sorts its keys.

    Empty for a line that is damaged, which ``verified`` finds.
    """
    found = _ATTEMPT.match(line)
    return found[1].decode("utf-8", "replace") if found is not None else ""


def counts(attempts: Sequence[str], phase: str, position: int, attempt: str) -> bool:
    """Whether a row can be its unit's result, or is only history; ``attempts`` are the journal's, by position.

    At a committed position the journal decides, because the bank learnt from its attempt and everything after it
    depends on that: a worker that had lost its lease may still store a result after the position was committed
    empty (D9). Elsewhere, and where the entry is damaged, every row can.
    """
    return phase == "eval" or position >= len(attempts) or attempts[position] in ("", attempt)


def verified(lines: Iterable[str], name: str) -> Iterator[JournalEntry]:
    """Parse lines and check order, line hashes and the content chain as they come.

    ``name`` says which journal it is (a path or a key). Raises JournalError at the first bad entry, naming
    the 0-based position.
    """
    previous = GENESIS
    for position, line in enumerate(lines):
        where = f"{name}, entry {position}"
        entry = parse_line(line, where)
        if entry.position != position:
            raise JournalError(f"{where}: it says position {entry.position}; an entry is missing or doubled")
        expected = content_hash(
            previous,
            position=entry.position,
            task=entry.task,
            outcome=entry.outcome,
            diagnosis=entry.diagnosis,
            events=entry.events,
        )
        if entry.content_hash != expected:
            raise JournalError(f"{where}: the content chain breaks here: {entry.content_hash} is not {expected}")
        previous = entry.content_hash
        yield entry
