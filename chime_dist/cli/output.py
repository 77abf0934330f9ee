"""What a person or a program reads: results on stdout, everything said on the way on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from typing import Annotated

import pydantic_core
import typer
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from chime_dist.core.episode import Json

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
"""The option that every command has."""

PIPE_WIDTH = 240
"""Columns where nobody looks: who reads a pipe or a file wraps lines itself."""

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Terminal(Console):
    """A console that leaves a closed pipe to its caller."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError; rich would end the process."""
        raise BrokenPipeError


def terminal(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr as they are now."""
    console = Terminal(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


def plain_table(*heads: str, title: Text | None = None) -> Table:
    """An empty table without lines between its columns: a line of the terminal is for the words."""
    return Table(
        *heads, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )


def on_one_line(text: str) -> Text:
    """``foreign`` for a table's last cell: it gets what room the others leave, and is cut there."""
    line = foreign(" ".join(text.split()))
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def show(*parts: RenderableType) -> None:
    """Print a result for people on stdout."""
    console = terminal()
    for part in parts:
        # A line stays a line for whoever reads a pipe.
        console.print(part, soft_wrap=isinstance(part, Text) and not console.is_terminal)


def show_text(text: str) -> None:
    """Print a text as it is on stdout, e.g. Markdown; it ends with a line break."""
    typer.echo(text.encode("utf-8", "backslashreplace"), nl=False)


def show_json(document: Json) -> None:
    """Print a result for programs on stdout; models, dataclasses and paths may be in it."""
    text = json.dumps(pydantic_core.to_jsonable_python(document), ensure_ascii=False, indent=2, allow_nan=False)
    # Half a surrogate pair has no UTF-8, but backslashreplace spells it as JSON does.
    show_text(f"{text}\n")


def show_json_line(document: Json) -> None:
    """One of several results for programs: a line of its own."""
    plain = pydantic_core.to_jsonable_python(document)
    show_text(f"{json.dumps(plain, ensure_ascii=False, allow_nan=False)}\n")


def abandon_stdout() -> None:
    """After a BrokenPipeError: nobody reads any more, and what is still buffered must not raise again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Tell the person something on stderr; nothing depends on whether it is read."""
    with suppress(OSError):
        print(printable(text), file=sys.stderr, flush=True)  # noqa: T201 - the one place that speaks


def printable(text: str) -> str:
    """A text of a model or a benchmark as a terminal may show it: control characters are spelled out.

    Line breaks and tabs stay.
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def counted(number: int, noun: str) -> str:
    """``1 episode``, ``1,787 episodes``; ``noun`` is regular."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def foreign(text: str, style: str = "") -> Text:
    """``printable`` for rich, which must not read markup or codes out of it either."""
    return Text(printable(text), style=style)
