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
from chime_dist.cli.invocation import suggested
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
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens", metavar="N", help="Pause after so many tokens of the whole launch: cluster.limits.tokens."
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="X", help="Likewise for money, by the endpoints' prices: limits.cost."),
]
MaxWall = Annotated[
    str | None,
    typer.Option("--max-wall", metavar="S", help="Likewise for time, e.g. 2h30m or 900: limits.wall_s."),
]
CapturePrompts = Annotated[
    bool,
    typer.Option("--capture-prompts", help="Keep every prompt and reply, for show --prompts. They are large."),
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
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    max_wall: MaxWall = None,
    capture_prompts: CapturePrompts = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Launch every run of a sweep, and report.

    The first SIGINT or SIGTERM lets open episodes end (exit code 75), the second kills (130).
    """
    from chime_dist.cli import launching

    tasks = [] if limit is None else [f"protocol.limit={limit}"]
    kept = ["cluster.capture_prompts=true"] if capture_prompts else []
    changes = [*(overrides or ()), *tasks, *_limits(max_tokens, max_cost, max_wall), *kept]
    manner = launching.Manner(as_json, quiet)
    _exit(launching.sweep(_session(context), file, changes, dry_run, manner))


@app.command()
def resume(
    context: typer.Context,
    directory: LaunchPath,
    overrides: Set = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    max_wall: MaxWall = None,
    capture_prompts: CapturePrompts = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a launch: what is there is kept, what is owed is run.

    Results may grow (more epochs, orderings, methods), never change; cluster
    settings may always change. What a limit counts began with the launch, and a
    limit stays until it is changed. The config is the launch's own: --set changes it.
    """
    from chime_dist.cli import launching

    kept = ["cluster.capture_prompts=true"] if capture_prompts else []
    changes = [*(overrides or ()), *_limits(max_tokens, max_cost, max_wall), *kept]
    _exit(launching.resume(_session(context), directory, changes, launching.Manner(as_json, quiet)))


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
    prompts: Annotated[
        bool, typer.Option("--prompts", help="An episode's prompts and replies, where they were captured.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a launch, a run, or an episode with its memories, plan, steps, diagnosis and what it wrote."""
    from chime_dist.cli import inspecting, prompts_view

    if prompts:
        prompts_view.show_prompts(path, words or (), as_json)
        return
    inspecting.show_target(path, words or (), as_json)


@app.command()
def watch(
    directory: LaunchPath,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", metavar="S", min=0.1, help="Seconds from one look to the next.")
    ] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document per look, a line each.")] = False,
) -> None:
    """Watch a launch that another terminal runs: progress, rate, success, tokens, cost, outages, events.

    Ends with the launch and its exit code: 0 complete, 75 preempted, else 3. Ctrl-C ends only the watching.
    """
    from chime_dist.cli import watching

    _exit(watching.watch(directory, once, interval_s, as_json))


@app.command()
def clean(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Launches' folders, or runs/latest.")
    ],
    results: Annotated[
        bool, typer.Option("--results/--keep-results", help="Remove the launch's folder as well.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what launches left outside their folders: keys, points, embedded state, stray processes.

    Results stay readable, and an incomplete launch can still be resumed: it
    rebuilds the rest. A launch that runs is refused.
    """
    from chime_dist.cli import cleaning

    _exit(cleaning.clean_launches(directories, results, cleaning.Manner(yes, dry_run, as_json)))


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
            help="Only how these two did on the same tasks; a whole report has chime with every other.",
        ),
    ] = None,
    form: Annotated[
        Literal["table", "markdown", "csv", "json"],
        typer.Option("--format", help="How to print it; json is always the whole report."),
    ] = "table",
    as_json: AsJson = False,
) -> None:
    """Print accuracies, averages, paired comparisons and costs, and put them into the launch's report folder.

    Exits with 3 where anything planned is missing.
    """
    from chime_dist.cli import inspecting

    _exit(inspecting.report(directory, partial, denominator, compare, "json" if as_json else form))


@app.command()
def analyze(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which question; --list names them.", show_default=False)
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="A launch's folder, or runs/latest.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png", help="The picture; a CSV goes beside it. In the launch's report where left out."
        ),
    ] = None,
    wanted_list: Annotated[bool, typer.Option("--list", help="Name the analyses, and what they show.")] = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question about a complete launch by a table, a picture and a CSV file; needs the extra plots."""
    from chime_dist.cli import analyzing

    if wanted_list:
        analyzing.list_analyses(as_json)
        return
    if name is None or directory is None:
        raise typer.BadParameter("say which analysis of which launch: analyze NAME DIR (--list has the names)")
    analyzing.analyze(name, directory, out, as_json)


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
        raise typer.BadParameter(f"say which FILE holds this backbone: {suggested('serve', target, 'FILE')}")
    _exit(serving.serve_until_interrupted(_session(context), target, file, overrides or (), as_json))


def _limits(tokens: int | None, cost: float | None, wall: str | None) -> list[str]:
    given = {"tokens": tokens, "cost": cost, "wall_s": wall}
    return [f"cluster.limits.{name}={value}" for name, value in given.items() if value is not None]


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
