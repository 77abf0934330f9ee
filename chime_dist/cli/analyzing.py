"""``analyze``: a question to a launch that is over, answered by a table, a picture and a CSV file."""

from __future__ import annotations

from pathlib import Path

import typer
from rich import box
from rich.table import Table as RichTable

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.analyses.catalogue import ANALYSES, Analysis
from chime_dist.analyses.finding import Finding
from chime_dist.analyses.plotting import require_matplotlib
from chime_dist.cli.output import foreign, show, show_json
from chime_dist.wiring.studies import studied_runs, write_finding

_PICTURE = ".png"


def list_analyses(as_json: bool) -> None:
    """What may be asked."""
    if as_json:
        show_json({"analyses": [{"name": one.name, "about": one.about} for one in ANALYSES.values()]})
    else:
        show(*(foreign(f"{one.name}  {one.about}") for one in ANALYSES.values()))


def analyze(name: str, directory: Path, out: Path | None, as_json: bool) -> None:
    """Answer one; the picture goes to ``out``, or into the launch's report folder."""
    analysis = _named(name)
    require_matplotlib()
    launch = LaunchDirectory.open(directory)
    picture = launch.report / f"{name}{_PICTURE}" if out is None else out
    if picture.suffix != _PICTURE:
        raise typer.BadParameter(f"--out {picture}: pictures are PNG files, name it *{_PICTURE}")
    finding = analysis.find(studied_runs(launch))
    lines = write_finding(finding, picture)
    if as_json:
        document = {"analysis": name, "directory": launch.path, "picture": picture, "csv": lines}
        show_json(document | {"finding": finding.document, "notes": finding.notes})
    else:
        show(_table(finding), *(foreign(note, "dim") for note in finding.notes))
        show(foreign(f"Picture: {picture}\nNumbers of every run: {lines}"))


def _named(name: str) -> Analysis:
    if name not in ANALYSES:
        raise typer.BadParameter(f"there is no analysis {name!r}; there are: {', '.join(ANALYSES)}")
    return ANALYSES[name]


def _table(finding: Finding) -> RichTable:
    table = RichTable(title=foreign(finding.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(finding.table.header):
        table.add_column(foreign(column), justify="left" if place < finding.table.names else "right")
    for row in finding.table.rows:
        table.add_row(*map(foreign, row))
    return table
