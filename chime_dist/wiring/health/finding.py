"""What a check found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from chime_dist.core.frozen import Frozen

Level = Literal["ok", "warning", "problem"]


class Finding(Frozen):
    """The outcome of one check. A problem stops a launch, or has stopped it; a warning may."""

    check: str
    """What was looked at, e.g. ``redis`` or ``backbone qwen``."""
    level: Level
    what: str
    fix: str = ""
    """What to do; empty where there is nothing to do, or where ``command`` does it."""
    command: tuple[str, ...] = ()
    """Words of a command line of this program, without what the program is called; it follows ``fix``."""


def ok(check: str, what: str) -> Finding:
    """All is well."""
    return Finding(check=check, level="ok", what=what)


def warning(check: str, what: str, fix: str = "", command: tuple[str, ...] = ()) -> Finding:
    """It may become a problem, or explains something."""
    return Finding(check=check, level="warning", what=what, fix=fix, command=command)


def problem(check: str, what: str, fix: str = "", command: tuple[str, ...] = ()) -> Finding:
    """It must be put right."""
    return Finding(check=check, level="problem", what=what, fix=fix, command=command)


def healthy(findings: Iterable[Finding]) -> bool:
    """Whether there is no problem among them."""
    return all(finding.level != "problem" for finding in findings)
