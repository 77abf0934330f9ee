"""Commands and answers as files that several processes append to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chime_dist.adapters.directory.control_file import ControlFile
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.engine.control import Answer, Command
from chime_dist.errors import RunDirectoryError


@pytest.fixture
def launch(tmp_path: Path) -> LaunchDirectory:
    """An empty one."""
    return LaunchDirectory.create(tmp_path, "steered", {}, now=datetime.now(UTC))


def _command(number: int) -> Command:
    return Command(id=f"{number}", command="slots", slots=number + 1, at="now", by="me")


async def test_a_command_reaches_the_driver_once_and_its_answer_comes_back(launch: LaunchDirectory) -> None:
    person, driver = ControlFile(launch), ControlFile(launch)
    assert await driver.received() == []
    person.ask(_command(0))
    assert person.answer_to(_command(0)) is None
    [exchange] = await driver.received()
    assert (exchange.command, exchange.answer) == (_command(0), None)
    answer = Answer(id="0", taken=True, text="done", at="later")
    await driver.answer(answer)
    assert person.answer_to(_command(0)) == answer
    assert await driver.received() == []
    [kept] = ControlFile(launch).exchanges()
    assert kept.answer == answer


def test_many_people_at_once_lose_no_command(launch: LaunchDirectory) -> None:
    """Every append is a whole line, whoever else appends."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ControlFile(launch).ask(_command(number)), range(40)))
    found = [exchange.command for exchange in ControlFile(launch).exchanges()]
    assert sorted(found, key=lambda command: int(command.id)) == [_command(number) for number in range(40)]


def test_a_torn_line_is_not_there_and_a_strange_one_is_passed_over(launch: LaunchDirectory) -> None:
    control = ControlFile(launch)
    control.ask(_command(0))
    file = launch.path / "control.jsonl"
    with file.open("ab") as lines:
        lines.write(b'{"id":"9","command":"dance"}\n{"id":"8","comm')
    assert [exchange.command.id for exchange in control.exchanges()] == ["0"]
    control.ask(_command(1))
    assert [exchange.command.id for exchange in control.exchanges()] == ["1"]
    assert b'"comm{' not in file.read_bytes()


def test_a_folder_that_cannot_be_written_says_so(launch: LaunchDirectory) -> None:
    (launch.path / "control.jsonl").mkdir()
    with pytest.raises(RunDirectoryError, match=r"control\.jsonl: cannot be written"):
        ControlFile(launch).ask(_command(0))
    with pytest.raises(RunDirectoryError, match=r"control\.jsonl: cannot be read"):
        ControlFile(launch).exchanges()


async def test_a_driver_whose_file_of_commands_was_removed_still_hears(launch: LaunchDirectory) -> None:
    """And who asked still gets the answer when the file of answers went as well."""
    person, driver = ControlFile(launch), ControlFile(launch)
    for number in range(4):
        for name in ("control.jsonl", "control-answers.jsonl"):
            (launch.path / name).unlink(missing_ok=True)
        person.ask(_command(number))
        [exchange] = await driver.received()
        assert exchange.command == _command(number)
        await driver.answer(Answer(id=f"{number}", taken=True, text="done", at="later"))
        answer = person.answer_to(_command(number))
        assert answer is not None
        assert answer.id == f"{number}"
