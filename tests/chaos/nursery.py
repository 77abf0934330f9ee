"""Processes by the dozen: forked from one that has imported everything, so that a start takes milliseconds.

Run as ``python -m tests.chaos.nursery``: takes one JSON order per line, answers each with one JSON line. A child
leads a session of its own and dies with the nursery.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import psutil

from tests.chaos.patience import PATIENCE_S

PRELOADED = ("chime_dist.cli.launching", "chime_dist.cli.app", "qdrant_edge", "tests.chaos.parts")

FAILED = 70
"""Exit code of a child whose function raised."""

_PR_SET_PDEATHSIG = 1


class Nursery:
    """The forking process, as a test sees it. A context manager; what still runs at its end is killed."""

    def __enter__(self) -> Nursery:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()

    def start(
        self, function: str, arguments: list[Any], folder: Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Run ``module:function`` with the arguments in a child with ``folder`` as its directory; what it says is
        appended to ``output.txt`` there."""
        order = {"do": "start", "function": function, "arguments": arguments, "folder": str(folder)}
        pid = self._ask(order | {"environment": dict(environment or {})})
        return Child(self, int(pid), folder)

    def code(self, pid: int) -> int | None:
        """The child's exit code, minus the number of the signal that killed it; None while it lives."""
        answer = self._ask({"do": "code", "pid": pid})
        return None if answer is None else int(answer)

    def _ask(self, order: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@dataclass
class Child:
    """One child and the session it leads."""

    nursery: Nursery
    pid: int
    folder: Path
    _code: int | None = field(default=None, init=False)

    def code(self) -> int | None:
        """See ``Nursery.code``."""
        if self._code is None:
            self._code = self.nursery.code(self.pid)
        return self._code

    def end(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for its end; returns the exit code."""
        deadline = time.monotonic() + patience_s
        while (code := self.code()) is None:
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
                raise AssertionError(f"no end within {patience_s:g} s:\n{self.said}")
            time.sleep(0.01)
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child itself."""
        if self.code() is None:
            os.kill(self.pid, number)

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    def descendants(self) -> list[psutil.Process]:
        """Everything it started that is alive, read while it lives."""
        return psutil.Process(self.pid).children(recursive=True)

    @property
    def said(self) -> str:
        """Its output and that of everything else that ran in its folder; empty before the first start is done."""
        output = self.folder / "output.txt"
        return output.read_text() if output.exists() else ""


def _start(order: dict[str, Any]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be(order, parent)
    return pid


def _be(order: dict[str, Any], parent: int) -> NoReturn:
    code = FAILED
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(code)
        os.setsid()
        os.chdir(order["folder"])
        os.environ.update(order["environment"])
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        module, _, function = order["function"].partition(":")
        code = getattr(importlib.import_module(module), function)(*order["arguments"]) or 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def main() -> None:
    """Serve orders until stdin ends."""
    for module in PRELOADED:
        importlib.import_module(module)
    for line in sys.stdin:
        order = json.loads(line)
        answer = _start(order) if order["do"] == "start" else _code(order["pid"])
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
