"""``chime-dist bank``: names, options and help; what they do is in the modules beside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chime_dist.cli.output import AsJson
from chime_dist.core.memory import Stage

bank = typer.Typer(no_args_is_help=True, help="The memory bank at any version: what, since when, by whom.")

LaunchPath = Annotated[Path, typer.Argument(metavar="DIR", help="A launch's folder, or runs/latest.")]
Run = Annotated[str, typer.Argument(help="A run's id, a prefix or a part of it.")]
VERSION_HELP = "Commits so far (0 to the head), last, or a checkpoint: epoch-1, 50%."


@bank.command("at")
def at(
    directory: LaunchPath,
    run: Run,
    version: Annotated[str, typer.Argument(help=VERSION_HELP)] = "last",
    as_json: AsJson = False,
) -> None:
    """Show a run's bank at a version; --json has everything, vectors included."""
    from chime_dist.cli.bank import contents

    contents.at(directory, run, version, as_json)


@bank.command("checkpoints")
def checkpoints(directory: LaunchPath, run: Run, as_json: AsJson = False) -> None:
    """List the named versions of a run: its epochs, and 25, 50, 75 and 100% of its train stream."""
    from chime_dist.cli.bank import opened

    opened.show_checkpoints(directory, run, as_json)


@bank.command("diff")
def diff(
    directory: LaunchPath,
    run: Run,
    start: Annotated[str, typer.Argument(metavar="V1", help=VERSION_HELP)],
    end: Annotated[str, typer.Argument(metavar="V2", help="Likewise.")],
    as_json: AsJson = False,
) -> None:
    """Show what was inserted, removed and changed from one version to another, and which positions did it."""
    from chime_dist.cli.bank import comparison

    comparison.show_diff(directory, run, start, end, as_json)


@bank.command("search")
def search(
    directory: LaunchPath,
    run: Run,
    text: Annotated[
        str, typer.Argument(help="What to search for; an episode asks with its task, or task and plan.")
    ],
    stage: Annotated[
        Stage | None, typer.Option(help="Only this stage; all that the method remembers where left out.")
    ] = None,
    version: Annotated[str, typer.Option(help=VERSION_HELP)] = "last",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Memories shown of each stage.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Search a run's bank as its episodes do: exactly, with its own embedder and retrieval settings."""
    from chime_dist.cli.bank import searching

    searching.show_search(directory, run, text, stage, version, limit, as_json)


@bank.command("blame")
def blame(
    directory: LaunchPath,
    run: Run,
    item: Annotated[str | None, typer.Argument(help="An item's id, e.g. 12-0.", show_default=False)] = None,
    episode: Annotated[
        str | None, typer.Option(help="Instead of an item: train:12, eval:3, eval:v40:3.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show who wrote, moved and read an item; or what an episode read and wrote.

    Exits with 3 where a trace that should tell is missing or damaged.
    """
    from chime_dist.cli.bank import blaming

    if (item is None) == (episode is None):
        raise typer.BadParameter("name an item, e.g. 12-0, or --episode, e.g. --episode train:12")
    if item is not None:
        raise typer.Exit(blaming.show_item(directory, run, item, as_json))
    assert episode is not None
    blaming.show_episode(directory, run, episode, as_json)


@bank.command("export")
def export(
    directory: LaunchPath,
    run: Run,
    words: Annotated[
        list[str], typer.Argument(metavar="[VERSION] FILE", help="The last version where none is named.")
    ],
    as_json: AsJson = False,
) -> None:
    """Write a run's bank, vectors included, into one file; compressed where its name ends in .zst."""
    from chime_dist.cli.bank import transfer

    transfer.export(directory, run, words, as_json)


@bank.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What bank export wrote.")],
    check: Annotated[bool, typer.Option("--check", help="Only check the file and say what is in it.")] = False,
    sweep: Annotated[
        Path | None,
        typer.Option("--for", metavar="SWEEP", help="A sweep file or a launch whose embedder must fit."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check an exported bank: checksum, digest, ids, vectors, and whether it fits a sweep's embedder."""
    from chime_dist.cli.bank import transfer

    if not check:
        raise typer.BadParameter("say --check: nothing is written, the file is read and compared")
    raise typer.Exit(transfer.check_import(file, sweep, as_json))


@bank.command("verify")
def verify(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A launch's folder, DIR/RUN, or a journal.jsonl.")],
    run: Annotated[str | None, typer.Argument(help="Only this run.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Check every journal: hashes, order, content chain, replay and digests; says where it is damaged.

    The final rows of committed positions are compared with it: both are of one
    attempt and one outcome.

    Where a projection is within reach (a Qdrant server, or what a killed launch
    left on this disk), every point of it is compared with the journal.
    """
    from chime_dist.cli.bank import checking

    raise typer.Exit(checking.verify(path, run, as_json))


@bank.command("rebuild")
def rebuild(directory: LaunchPath, run: Run, as_json: AsJson = False) -> None:
    """Prove that a run's projection follows from its journal: make a fresh one aside, compare it, remove it.

    A launch does the first part by itself whenever it starts.
    """
    from chime_dist.cli.bank import checking

    raise typer.Exit(checking.rebuild_projection(directory, run, as_json))
