"""The edge of the program: exit codes, words instead of tracebacks, and no secret in any of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import structlog
import typer
from typer.testing import CliRunner

import chime_dist
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.cli.boundary import Boundary, Session
from chime_dist.errors import ConfigError, FencedError, ServiceError
from tests.cli.conftest import SWEEP, Program

CANARY = "canary-7f3d9b52c1"

faulty = typer.Typer(cls=Boundary, pretty_exceptions_enable=False)


@faulty.callback()
def _root() -> None:
    """Commands that fail."""


@faulty.command()
def fail(context: typer.Context, kind: str) -> None:
    """Raise an exception of this kind, with a secret in it."""
    session = context.find_object(Session)
    assert session is not None
    session.secrets.append(CANARY)
    if kind == "warning":
        structlog.get_logger().warning("engine.odd", where="here", url=f"http://me:{CANARY}@host")
        return
    error: Exception = {"config": ConfigError, "service": ServiceError, "fenced": FencedError, "bug": KeyError}[
        kind
    ](f"no {CANARY} here")
    error.add_note("the log is runs/log.jsonl")
    raise error


@pytest.mark.parametrize(("kind", "code"), [("config", 2), ("service", 1), ("fenced", 1), ("bug", 1)])
def test_an_error_is_words_on_stderr_and_an_exit_code(
    kind: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H6: a secret that got into a message does not get out of the program."""
    monkeypatch.delenv("CHIME_DEBUG", raising=False)
    result = CliRunner().invoke(faulty, ["fail", kind])
    assert (result.exit_code, result.stdout) == (code, "")
    first, second = result.stderr.splitlines()
    assert first.startswith("error: unexpected KeyError: " if kind == "bug" else "error: no *** here")
    assert second == "the log is runs/log.jsonl"
    assert CANARY not in result.output


def test_a_traceback_comes_on_demand_and_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """H6: crash with traceback."""
    monkeypatch.setenv("CHIME_DEBUG", "1")
    result = CliRunner().invoke(faulty, ["fail", "bug"])
    assert "Traceback (most recent call last):" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: unexpected KeyError")
    assert CANARY not in result.output


def test_a_warning_is_told_in_words_on_stderr() -> None:
    result = CliRunner().invoke(faulty, ["fail", "warning"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "warning: engine.odd: where=here, url=http://***@host\n"


def test_the_version_is_the_packages(program: Program) -> None:
    assert program("--version").stdout == f"chime-dist {chime_dist.__version__}\n"


def test_the_module_is_the_program_and_help_names_the_commands(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "chime_dist", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    for command in ("sweep", "resume", "ls", "show", "report", "bank"):
        assert command in found.stdout


def test_an_interrupt_while_the_program_is_loaded_is_no_traceback(tmp_path: Path) -> None:
    """Ctrl-C in the second before anything was said."""
    stand_in = tmp_path / "typer"
    stand_in.mkdir()
    (stand_in / "__init__.py").write_text("raise KeyboardInterrupt\n")
    found = subprocess.run(
        [sys.executable, "-m", "chime_dist", "ls"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "")


@pytest.mark.parametrize("words", ["bank at {} chime --json", "report {} --format csv", "show {}"])
def test_a_reader_that_leaves_early_ends_the_program_quietly(complete: LaunchDirectory, words: str) -> None:
    """``chime-dist ... | head -1``."""
    with subprocess.Popen(
        [sys.executable, "-m", "chime_dist", *words.format(complete.path).split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def _bytes_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_secret_is_in_no_file_and_no_output_of_a_launch(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H6: a canary as key of an endpoint, in another one's URL, and as key of a service."""
    monkeypatch.setenv("CHIME_TEST_KEY", CANARY)
    url, key = "https://u:${CHIME_TEST_KEY}@models.test/v1", "${CHIME_TEST_KEY}"
    other = f"""\
    keyed: {{kind: http, url: 'http://models.test/v1', api_key: '{key}'}}
    named: {{kind: http, url: '{url}'}}
  secrets: {{search: '{key}'}}
"""
    file = program.write(SWEEP + other)
    outputs = [program(*words).output for words in (("sweep", file, "--dry-run"), ("sweep", file, "--limit", "6"))]
    outputs += [program(*words).output for words in (("show", "runs/latest", "--json"), ("resume", "runs/latest"))]
    assert url in outputs[0]
    assert CANARY not in "".join(outputs)
    written = _bytes_below(program.folder)
    assert b"${CHIME_TEST_KEY}" in written
    assert CANARY.encode() not in written


def test_a_secret_is_in_no_file_and_no_output_of_a_launch_that_fails(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H6: a backbone that is not there, with the secret in its URL and in a header."""
    monkeypatch.setenv("CHIME_TEST_KEY", CANARY)
    monkeypatch.setenv("CHIME_DEBUG", "1")
    url, key = "http://u:${CHIME_TEST_KEY}@127.0.0.1:9/v1", "${CHIME_TEST_KEY}"
    dead = f"m: {{kind: http, url: '{url}', headers: {{x-key: '{key}'}}}}"
    result = program("sweep", program.write(SWEEP.replace("m: {kind: scripted}", dead)))
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "error: backbone 'm' did not complete one token" in result.stderr
    assert CANARY not in result.output
    assert CANARY.encode() not in _bytes_below(program.folder)
