"""The command ``chime-dist``: names, options and help; what they do is in the modules beside.

Commands import their module when they run: a launch's parts take a second to import, and ``ls`` needs none.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import chime_dist
from chime_dist.cli.bank.commands import bank
from chime_dist.cli.boundary import Boundary, ExitCode, Session
from chime_dist.cli.ctl.commands import ctl
from chime_dist.cli.output import AsJson
from chime_dist.core.aggregate import Denominator

app = typer.Typer(
    name="chime-dist",
    cls=Boundary,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    help="LLM agents that learn from experience, run at cluster scale on one ordered, auditable bank.",
    epilog="Exit codes: 0 complete, 1 error, 2 usage, 3 incomplete or paused, 75 preempted (resume me), "
    "130 killed by the second signal (resume me too).",
)
app.add_typer(bank, name="bank")
app.add_typer(ctl, name="ctl")

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change the config, e.g. protocol.window=1. May be repeated."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; print only where the results are.")]
LaunchPath = Annotated[Path, typer.Argument(metavar="DIR", help="A launch's folder, or runs/latest.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"chime-dist {chime_dist.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""


@app.command()
def sweep(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The sweep, a YAML file.")],
    overrides: Set = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Train and eval tasks of a run together: protocol.limit.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run; start and write nothing.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Launch every run of a sweep, and report.

    The first SIGINT or SIGTERM lets open episodes end (exit code 75), the second kills (130).
    """
    from chime_dist.cli import launching

    limits = [] if limit is None else [f"protocol.limit={limit}"]
    manner = launching.Manner(as_json, quiet)
    _exit(launching.sweep(_session(context), file, [*(overrides or ()), *limits], dry_run, manner))


@app.command()
def resume(
    context: typer.Context,
    directory: LaunchPath,
    overrides: Set = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a launch: what is there is kept, what is owed is run.

    Results may grow (more epochs, orderings, methods), never change; cluster settings may always change.
    """
    from chime_dist.cli import launching

    _exit(launching.resume(_session(context), directory, overrides or (), launching.Manner(as_json, quiet)))


@app.command()
def ls(
    runs_dir: Annotated[Path, typer.Option(help="The folder of all sweeps.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List launches, oldest first."""
    from chime_dist.cli import inspecting

    inspecting.ls(runs_dir, as_json)


@app.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A launch's folder, runs/latest, or DIR/RUN.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN] [EPISODE]",
            help="A run's id, a prefix or a part of it; an episode: train:12, eval:3.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a launch, a run, or an episode with its memories, plan, steps, diagnosis and what it wrote."""
    from chime_dist.cli import inspecting

    inspecting.show_target(path, words or (), as_json)


@app.command()
def report(
    directory: LaunchPath,
    partial: Annotated[
        bool, typer.Option("--partial", help="Average incomplete orderings, with their n.")
    ] = False,
    denominator: Annotated[
        Denominator | None, typer.Option(help="What accuracy divides by; the sweep's choice where left out.")
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="METHOD_A METHOD_B",
            help="The two methods to compare task by task; chime, or the first, with every other where left out.",
        ),
    ] = None,
    form: Annotated[
        Literal["table", "markdown", "csv", "json"],
        typer.Option("--format", help="How to print it; csv with --compare holds the comparisons."),
    ] = "table",
    as_json: AsJson = False,
) -> None:
    """Print accuracies, averages, paired comparisons and costs, and put them into the launch's report folder.

    Exits with 3 where anything planned is missing.
    """
    from chime_dist.cli import inspecting

    _exit(inspecting.report(directory, partial, denominator, compare, "json" if as_json else form))


@app.command()
def doctor(
    context: typer.Context,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE|DIR]", help="A sweep's file, or a launch's folder.", show_default=False),
    ] = None,
    overrides: Set = None,
    as_json: AsJson = False,
) -> None:
    """Check what a sweep needs before it is launched, or why a launch stands still; every problem names its fix.

    Without a target only this installation is checked. Exits with 1 where there is a problem.
    """
    from chime_dist.cli import doctor

    _exit(doctor.examine(_session(context), target, overrides or (), as_json))


@app.command()
def serve(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="NAME|DIR", help="A backbone; with --status, a folder.")],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A sweep, or a file with its cluster alone.", show_default=False),
    ] = None,
    overrides: Set = None,
    status: Annotated[
        bool, typer.Option("--status", help="How the replicas of a launch, or of a serve, do.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Serve a backbone of kind vllm, as FILE has it at cluster.endpoints.NAME, and print its URL.

    The first SIGINT or SIGTERM lets requests in flight end. A launch serves its backbones itself.
    """
    from chime_dist.cli import serving

    if status:
        serving.show_status(Path(target), as_json)
        return
    if file is None:
        raise typer.BadParameter("say which FILE holds this backbone: chime-dist serve NAME FILE")
    _exit(serving.serve_until_interrupted(_session(context), target, file, overrides or (), as_json))


def _session(context: typer.Context) -> Session:
    session = context.find_object(Session)
    assert session is not None, "Boundary makes one"
    return session


def _exit(code: ExitCode) -> None:
    raise typer.Exit(code)


def main() -> None:
    """Run the command line; the process's exit code says how it went."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot spell a character gets its number, not an exception.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    app()
