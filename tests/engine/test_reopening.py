"""What a driver does not do again when it takes up a launch."""

from __future__ import annotations

from pathlib import Path

from chime_dist.adapters.clock import SystemClock
from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.local.change_feed import ChangeFeed
from chime_dist.adapters.local.memory_store import MemoryStore
from chime_dist.adapters.local.queue import LocalQueue
from chime_dist.core.episode import Outcome
from chime_dist.engine.driver import Ending
from chime_dist.engine.resume import drop_unbacked
from chime_dist.ports import Appended
from tests.engine.owned_bank import proposal
from tests.integration.launching import RUN, Launched, new_directory, plan_of
from tests.integration.toy import JitteryBackbone, ToyBenchmark


class CountingJournal(FileJournal):
    """A journal in files that remembers which positions it was asked to hold."""

    def __init__(self, folder: Path) -> None:
        super().__init__(lambda run_id: folder / run_id)
        self.asked: list[int] = []

    async def append(self, run_id: str, fence: int, position: int, line: str) -> Appended:
        """Remembered, then done."""
        self.asked.append(position)
        return await super().append(run_id, fence, position, line)


def _launched(directory: LaunchDirectory, folder: Path, mirror: CountingJournal, size: int) -> Launched:
    clock = SystemClock()
    feed = ChangeFeed(clock)
    benchmark = ToyBenchmark(size)
    return Launched(
        directory,
        plan_of(benchmark, window=2),
        benchmark,
        JitteryBackbone(0.0, 0),
        LocalQueue(clock, feed, 30.0),
        FileJournal(lambda run_id: folder / run_id, feed),
        MemoryStore(),
        mirror=mirror,
    )


async def test_entries_that_the_mirror_holds_are_not_written_to_it_once_more(tmp_path: Path) -> None:
    """A long run is resumed as fast as its two journals are compared, which is done before the driver begins."""
    directory, mirror = new_directory(tmp_path), CountingJournal(tmp_path / "mirror")
    assert await _launched(directory, tmp_path / "server", mirror, 4).run() is Ending.COMPLETE
    assert mirror.asked == [0, 1, 2, 3]
    longer = _launched(directory, tmp_path / "server", mirror, 6)
    assert await longer.run() is Ending.COMPLETE
    assert mirror.asked == [0, 1, 2, 3, 4, 5]
    assert await mirror.read(RUN) == await longer.journal.read(RUN)


def test_the_keys_of_eval_units_are_those_of_the_units() -> None:
    plan = plan_of(ToyBenchmark(9), window=2, epochs=2, held_out=4)
    assert plan.eval_keys() == [plan.eval_unit(index).key for index in range(4)]


async def test_only_proposals_of_rows_that_the_directory_has_survive_a_resume() -> None:
    """D9, C8: what ended infra is tried anew, and what another directory's attempt proposed is not committed: the
    row would be one attempt's and what the bank learnt another's. What lies beyond the window stays."""
    clock = SystemClock()
    queue = LocalQueue(clock, ChangeFeed(clock), 30.0)
    run_id = proposal(0).run_id
    for position in (3, 4, 5, 6, 7):
        outcome = Outcome.INFRA if position == 3 else Outcome.SUCCESS
        attempt = f"attempt-{position}"
        await queue.submit(proposal(position).model_copy(update={"outcome": outcome, "attempt": attempt}))
    rows = {4: "attempt-4", 5: "another"}
    await drop_unbacked(queue, run_id, 3, 4, rows)
    assert [position for position in range(9) if await queue.proposal(run_id, position)] == [4, 7]
