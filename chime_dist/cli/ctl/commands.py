"""``chime-dist ctl``: names, options and help; what they do is in the modules beside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from chime_dist.cli.invocation import suggested
from chime_dist.cli.output import AsJson


class FolderFirst(TyperGroup):
    """Commands behind a launch's folder, which tell who wrote them the other way round."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See ``click.Group``."""
        if (directory := str(ctx.params["directory"])) in self.commands:
            raise typer.BadParameter(f"the folder comes first: {suggested('ctl', args[0], directory, *args[1:])}")
        return super().resolve_command(ctx, args)


ctl = typer.Typer(
    cls=FolderFirst,
    no_args_is_help=True,
    help="Steer a launch, e.g. chime-dist ctl DIR pause. Its driver looks once a second, and answers.",
)

_LAUNCH = "chime_dist.ctl.launch"

NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait for the driver's answer.")]
Run = Annotated[str, typer.Argument(help="A run's id, a prefix or a part of it.")]


@ctl.callback()
def launch(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A launch's folder, or runs/latest.")],
) -> None:
    """Keep what every command is about."""
    context.meta[_LAUNCH] = directory


def _launch(context: typer.Context) -> Path:
    path: Path = context.meta[_LAUNCH]
    return path


@ctl.command("pause")
def pause(context: typer.Context, no_wait: NoWait = False, as_json: AsJson = False) -> None:
    """Admit nothing more; open episodes end, the driver stays. A resume does not stay paused."""
    from chime_dist.cli.ctl import asking

    raise typer.Exit(asking.ask(_launch(context), "pause", asking.Manner(no_wait, as_json)))


@ctl.command("continue")
def continue_(context: typer.Context, no_wait: NoWait = False, as_json: AsJson = False) -> None:
    """Go on after a pause."""
    from chime_dist.cli.ctl import asking

    raise typer.Exit(asking.ask(_launch(context), "continue", asking.Manner(no_wait, as_json)))


@ctl.command("slots")
def slots(
    context: typer.Context,
    number: Annotated[
        int, typer.Argument(metavar="N", min=1, help="1 to what the launch was started with (cluster.slots).")
    ],
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Keep at most N episodes in flight, until the driver ends; those that are open are left alone."""
    from chime_dist.cli.ctl import asking

    manner = asking.Manner(no_wait, as_json)
    raise typer.Exit(asking.ask(_launch(context), "slots", manner, slots=number))


@ctl.command("cancel")
def cancel(context: typer.Context, run: Run, no_wait: NoWait = False, as_json: AsJson = False) -> None:
    """Admit nothing more of a run; the others go on and the launch ends incomplete (exit code 3).

    It stays cancelled when the launch is resumed, until it is revived. May be said while no driver runs.
    """
    from chime_dist.cli.ctl import asking

    manner = asking.Manner(no_wait, as_json)
    raise typer.Exit(asking.ask(_launch(context), "cancel", manner, run=run))


@ctl.command("revive")
def revive(context: typer.Context, run: Run, no_wait: NoWait = False, as_json: AsJson = False) -> None:
    """Take a cancelled run up again: in the launch that runs, or with its next resume."""
    from chime_dist.cli.ctl import asking

    manner = asking.Manner(no_wait, as_json)
    raise typer.Exit(asking.ask(_launch(context), "revive", manner, run=run))


@ctl.command("dead-letters")
def dead_letters(context: typer.Context, as_json: AsJson = False) -> None:
    """List the episodes that our machinery failed on their last delivery, why, and what becomes of them."""
    from chime_dist.cli.ctl import letters

    letters.show_dead_letters(_launch(context), as_json)


@ctl.command("requeue")
def requeue(
    context: typer.Context,
    run: Run,
    position: Annotated[
        int,
        typer.Option("--fork-at", metavar="POSITION", min=0, help="First train position to run again, 0-based."),
    ],
    as_json: AsJson = False,
) -> None:
    """Run a train stream again from a position on, as a new run; the next resume does it.

    What a position taught, or did not because it was committed empty, stays
    with its run. The new run shares what lies before the position. No driver may
    hold the launch.
    """
    from chime_dist.cli.ctl import requeueing

    requeueing.requeue(_launch(context), run, position, as_json)
