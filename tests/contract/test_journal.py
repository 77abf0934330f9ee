"""One contract for every journal: append-only, in order, one owner at a time, honest about repeated appends."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chime_dist.errors import ChimeDistError
from chime_dist.ports import Appended, Journal
from tests.contract.labs import Kind, open_lab


@pytest.fixture(params=["local", "redis", "secured"], ids=["file", "redis", "secured"])
async def journal(request: pytest.FixtureRequest, redis_url: str, tmp_path: Path) -> AsyncIterator[Journal]:
    async with open_lab(request.param, redis_url, tmp_path) as lab:
        yield lab.journal


async def test_a_run_without_entries_is_empty(journal: Journal) -> None:
    assert await journal.head("run") == 0
    assert await journal.read("run") == []
    assert await journal.read("run", 5) == []


async def test_entries_come_back_in_order_and_as_they_were(journal: Journal) -> None:
    lines = ['{"n":0}', '{"text":"订单 \\n \u2028 “x”"}', "x" * 200_000]
    fence = await journal.take_fence("run")
    for position, line in enumerate(lines):
        assert await journal.append("run", fence, position, line) is Appended.APPENDED
    assert await journal.read("run") == lines
    assert await journal.read("run", 1) == lines[1:]
    assert await journal.read("run", 3) == []
    assert await journal.head("run") == 3


async def test_a_long_journal_is_read_whole_from_any_position(journal: Journal) -> None:
    fence = await journal.take_fence("run")
    for position in range(513):
        await journal.append("run", fence, position, f"line {position}")
    assert await journal.read("run") == [f"line {p}" for p in range(513)]
    assert await journal.read("run", 257) == [f"line {p}" for p in range(257, 513)]
    assert await journal.read("run", 512) == ["line 512"]


async def test_fences_grow_and_runs_have_their_own(journal: Journal) -> None:
    fences = [await journal.take_fence("run") for _ in range(3)]
    assert fences == sorted(set(fences))
    other = await journal.take_fence("another run")
    assert await journal.append("another run", other, 0, "theirs") is Appended.APPENDED
    assert await journal.append("run", fences[-1], 0, "ours") is Appended.APPENDED
    assert (await journal.read("run"), await journal.read("another run")) == (["ours"], ["theirs"])


async def test_appending_the_same_line_again_is_the_same_append(journal: Journal) -> None:
    """D4: an append that is sent again after a lost reply adds nothing, also when later ones followed."""
    fence = await journal.take_fence("run")
    for position in range(3):
        await journal.append("run", fence, position, f"line {position}")
    for position in range(3):
        assert await journal.append("run", fence, position, f"line {position}") is Appended.ALREADY_SAME
    assert await journal.head("run") == 3


async def test_another_line_at_a_taken_position_is_a_conflict(journal: Journal) -> None:
    fence = await journal.take_fence("run")
    await journal.append("run", fence, 0, "line")
    assert await journal.append("run", fence, 0, "another line") is Appended.CONFLICT
    assert await journal.append("run", fence, 0, "lin") is Appended.CONFLICT
    assert await journal.read("run") == ["line"]


async def test_a_position_beyond_the_head_is_a_conflict(journal: Journal) -> None:
    fence = await journal.take_fence("run")
    assert await journal.append("run", fence, 1, "line 1") is Appended.CONFLICT
    assert await journal.head("run") == 0


async def test_an_owner_that_was_replaced_appends_nothing(journal: Journal) -> None:
    old = await journal.take_fence("run")
    await journal.append("run", old, 0, "line 0")
    new = await journal.take_fence("run")
    assert await journal.append("run", old, 1, "by the old owner") is Appended.FENCED
    assert await journal.append("run", new, 1, "by the new owner") is Appended.APPENDED
    assert await journal.append("run", old, 1, "by the old owner") is Appended.FENCED, "a fork is not its business"
    assert await journal.append("run", old, 7, "by the old owner") is Appended.FENCED
    assert await journal.read("run") == ["line 0", "by the new owner"]


async def test_a_replaced_owner_is_told_that_its_line_is_there(journal: Journal) -> None:
    """D4: the commit happened, so an append repeated after a lost reply must not read as if it had not.

    The replaced owner stops at its next append; until then its bank is equal to its successor's.
    """
    old = await journal.take_fence("run")
    await journal.append("run", old, 0, "line 0")
    await journal.take_fence("run")
    assert await journal.append("run", old, 0, "line 0") is Appended.ALREADY_SAME
    assert await journal.append("run", old, 1, "line 1") is Appended.FENCED


async def test_a_fence_that_was_never_given_is_an_error(journal: Journal) -> None:
    """D7: the store was emptied or exchanged under a living owner; that is no replaced owner and no fork."""
    with pytest.raises(ChimeDistError):
        await journal.append("run", 1, 0, "line")
    fence = await journal.take_fence("run")
    with pytest.raises(ChimeDistError):
        await journal.append("run", fence + 1, 0, "line")
    assert await journal.head("run") == 0


@pytest.mark.parametrize(("position", "line"), [(-1, "line"), (0, ""), (0, "two\nlines"), (0, "line\n")])
async def test_what_is_not_one_line_at_a_position_is_refused(journal: Journal, position: int, line: str) -> None:
    fence = await journal.take_fence("run")
    with pytest.raises(ValueError, match="single lines"):
        await journal.append("run", fence, position, line)


async def test_of_two_owners_that_race_one_line_per_position_counts(journal: Journal) -> None:
    async def own(name: str) -> list[Appended]:
        fence = await journal.take_fence("run")
        return [await journal.append("run", fence, position, f"{position} {name}") for position in range(20)]

    answers = await asyncio.gather(own("a"), own("b"))
    appended = sum(answer is Appended.APPENDED for answer in answers[0] + answers[1])
    lines = await journal.read("run")
    assert len(lines) == appended
    assert [line.split()[0] for line in lines] == [str(position) for position in range(len(lines))]


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 2), st.just(0), st.just("")),
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(-1, 1), st.sampled_from(["x", "y"])),
        st.tuples(st.just("repeat"), st.integers(0, 2), st.integers(0, 20), st.just("")),
    ),
    max_size=30,
)


async def _walk(kind: Kind, redis_url: str, ops: list[tuple[str, int, int, str]]) -> None:
    """Three owners act in any order; each answer is predicted from a list and a number."""
    lines: list[str] = []
    newest = 0
    fences: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with open_lab(kind, redis_url, Path(folder)) as lab:
            for op, owner, offset, text in ops:
                if op == "take":
                    fences[owner] = await lab.journal.take_fence("run")
                    assert fences[owner] > newest
                    newest = fences[owner]
                    continue
                if owner not in fences or (op == "repeat" and not lines):
                    continue
                position = offset % len(lines) if op == "repeat" else max(0, len(lines) + offset)
                line = lines[position] if op == "repeat" else f"{position} {text}"
                answer = await lab.journal.append("run", fences[owner], position, line)
                if position < len(lines) and lines[position] == line:
                    assert answer is Appended.ALREADY_SAME
                elif fences[owner] < newest:
                    assert answer is Appended.FENCED
                elif position != len(lines):
                    assert answer is Appended.CONFLICT
                else:
                    assert answer is Appended.APPENDED
                    lines.append(line)
                assert await lab.journal.head("run") == len(lines)
            assert await lab.journal.read("run") == lines


@given(ops=OPS)
@settings(max_examples=60, deadline=None)
def test_every_answer_of_every_history_is_the_contracts_on_files(
    redis_url: str, ops: list[tuple[str, int, int, str]]
) -> None:
    asyncio.run(_walk("local", redis_url, ops))


@given(ops=OPS)
@settings(max_examples=60, deadline=None)
def test_every_answer_of_every_history_is_the_contracts_in_redis(
    redis_url: str, ops: list[tuple[str, int, int, str]]
) -> None:
    asyncio.run(_walk("redis", redis_url, ops))
