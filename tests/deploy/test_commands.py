"""Every chime-dist command that the files of deploy/, k8s/ and configs/ name is one that the program takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from chime_dist.cli.app import app
from tests.deploy.documents import ROOT

FOLDERS = ("deploy", "k8s", "configs/backbones")
COMMAND = re.compile(r"chime-dist ((?:sweep|resume|serve|doctor|bank|ctl|report|clean) [^`\n()]+)")


def commands() -> list[str]:
    found: dict[str, None] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file():
                for line in COMMAND.findall(path.read_text(encoding="utf-8")):
                    found.setdefault(re.split(r"\s{2,}|\s&&\s|[,;:)]\s|\.$", line)[0].strip())
    return list(found)


def test_there_are_commands_to_check() -> None:
    assert {line.split()[0] for line in commands()} >= {"sweep", "resume", "serve"}


@pytest.mark.parametrize("line", commands())
def test_a_named_command_parses(line: str) -> None:
    """Nothing is run: the words are parsed as the program would."""
    name, *words = shlex.split(line)
    group = typer.main.get_command(app)
    context = group.make_context("chime-dist", [name, *words], resilient_parsing=True)
    command = group.get_command(context, name)  # type: ignore[attr-defined]
    assert command is not None
    if hasattr(command, "commands"):
        assert words[0] in command.commands
        command, words = command.commands[words[0]], words[1:]
    assert command.make_context(name, words, parent=context).params


def test_paths_that_the_files_name_are_there() -> None:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if not path.is_file():
                continue
            for named in re.findall(
                r"(?<![\w/.-])((?:deploy|k8s|configs)/[\w./-]*\w)", path.read_text(encoding="utf-8")
            ):
                assert (ROOT / Path(named)).exists(), f"{path}: {named}"
