"""``doctor``: every check in a line, and what to do about those that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import structlog
from rich.text import Text

from chime_dist.adapters.directory.launch_directory import LATEST, LaunchDirectory
from chime_dist.cli.boundary import ExitCode, Session
from chime_dist.cli.invocation import suggested
from chime_dist.cli.output import foreign, show, show_json
from chime_dist.config.sweep import SweepConfig
from chime_dist.wiring.health.finding import Finding, Level, healthy
from chime_dist.wiring.health.launch import launch_findings
from chime_dist.wiring.health.packages import package_findings
from chime_dist.wiring.health.sweep import sweep_findings
from chime_dist.wiring.services import secrets_of

_STYLES: dict[Level, str] = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def examine(session: Session, target: Path | None, overrides: Sequence[str], as_json: bool) -> ExitCode:
    """Check an installation, a sweep or a launch."""
    # What a failed check logs on the way is what it finds.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    findings = asyncio.run(_told(session, _checks(session, target, overrides), as_json))
    if as_json:
        show_json({"target": target, "healthy": healthy(findings), "findings": findings})
    return ExitCode.COMPLETE if healthy(findings) else ExitCode.ERROR


def _checks(session: Session, target: Path | None, overrides: Sequence[str]) -> AsyncIterator[Finding]:
    if target is None:
        return _installation()
    if target.is_dir() or target.name == LATEST:
        return launch_findings(LaunchDirectory.open(target), datetime.now(UTC))

    def loaded(sweep: SweepConfig) -> None:
        session.secrets += secrets_of(sweep.cluster)

    return sweep_findings(target, overrides, loaded)


async def _installation() -> AsyncIterator[Finding]:
    for finding in package_findings():
        yield finding


async def _told(session: Session, findings: AsyncIterator[Finding], as_json: bool) -> list[Finding]:
    told = []
    async for finding in findings:
        # What a server or a library says may hold what it was sent.
        masked = {"what": session.masked(finding.what), "fix": session.masked(_fix(finding))}
        told.append(finding.model_copy(update=masked))
        if not as_json:
            show(*_lines(told[-1]))
    return told


def _fix(finding: Finding) -> str:
    command = suggested(*finding.command) if finding.command else ""
    return ": ".join(part for part in (finding.fix, command) if part)


def _lines(finding: Finding) -> list[Text]:
    head = Text.assemble(
        (f"{finding.level:<8}", _STYLES[finding.level]), foreign(f"{finding.check}: {finding.what}")
    )
    return [head, foreign(f"{'':8}fix: {finding.fix}")] if finding.fix else [head]
