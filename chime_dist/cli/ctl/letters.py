"""Dead letters for people and programs."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.output import counted, foreign, plain_table, say, show, show_json
from chime_dist.wiring.dead_letters import DeadLetter, Fate, dead_letters

_FATES: dict[Fate, str] = {
    "committed_empty": "committed empty",
    "held": "held; a resume runs it again",
    "waits": "waits for its turn",
    "owed": "owed; a resume runs it again",
}


def show_dead_letters(path: Path, as_json: bool) -> None:
    """All of a launch."""
    launch = LaunchDirectory.open(path)
    letters = dead_letters(launch)
    if as_json:
        show_json({"directory": launch.path, "dead_letters": letters})
    elif letters:
        show(_table(letters), foreign(f"{counted(len(letters), 'dead letter')}; the rows are in failures.jsonl"))
    else:
        say(f"{launch.path} has no dead letters")


def _table(letters: tuple[DeadLetter, ...]) -> Table:
    table = plain_table("Episode", "Task", "Deliveries", "Reason", "What becomes of it", "Detail", "Row")
    for name in ("Episode", "Detail", "Row"):
        next(column for column in table.columns if column.header == name).overflow = "fold"
    for letter in letters:
        table.add_row(
            letter.unit,
            foreign(letter.task),
            str(letter.deliveries),
            letter.reason.value,
            _FATES[letter.fate],
            foreign(letter.detail),
            letter.row,
        )
    return table
