"""The folder of one launch, ``runs/<sweep>/<launch>/``: where everything is, what it is, who drives it.

sweep.json            resolved config, versions, code commit, fingerprints; written once
status.json           what the driver last said about itself
driver.lock           held by the one driver (flock)
records.lock          held by the one writer of episode rows (flock)
log.jsonl             structured log
control.jsonl         what people asked of the driver; control-answers.jsonl: what it made of it
report/               tables and figures
prerequisites/        what tasks rest on, see ``prerequisite_files``
<run_id>/             see ``RunFolder``
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self
from uuid import uuid4

import pydantic_core
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from chime_dist.adapters.directory.artifact_json import read, unusable, write
from chime_dist.adapters.directory.code_version import code_commit, versions
from chime_dist.adapters.directory.directory_lock import DirectoryLock, Holder, holder_of
from chime_dist.adapters.directory.durable_file import make_folders
from chime_dist.config.stored import stored_problems
from chime_dist.core.episode import Json, Unit
from chime_dist.core.frozen import Frozen
from chime_dist.errors import RunDirectoryError

MANIFEST = "sweep.json"
STATUS = "status.json"
LATEST = "latest"
"""As the last part of a path: the newest launch below that folder. Not a file."""

_FOLDER_NAME = re.compile(r"[^\W_][\w.+@=-]*")
_RESERVED = frozenset({LATEST, "report"})
_SHOWN = 5
_CONFIG = "the sweep's config"

State = Literal["running", "complete", "incomplete", "paused", "preempted"]


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return text


Moment = Annotated[str, AfterValidator(_moment)]
"""UTC with offset, in ISO 8601."""

FolderName = Annotated[str, StringConstraints(pattern=rf"^(?:{_FOLDER_NAME.pattern})$")]
"""What may be a folder's name: it is put into paths."""


class ForkedFrom(Frozen):
    """Where a run left another one: it shares the positions before ``position`` and ran the rest itself."""

    run: str
    """The other run's id, in the same launch."""
    position: int
    """0-based train position."""


class RunEntry(Frozen):
    """What ``sweep.json`` keeps of one run: enough to report on it without its benchmark installed."""

    config: dict[str, Json]
    """The run's resolved config."""
    ordering: str
    """Digest of the recorded permutation (H4)."""
    train_size: int = Field(ge=0)
    epochs: int = Field(ge=1)
    window: int = Field(ge=1)
    eval_size: int = Field(ge=0)
    stateful: bool
    deviations: dict[str, str] = {}
    """What a table must say beside the names."""
    prerequisites: dict[str, str] = {}
    """What the run's tasks rest on: hex SHA-256 by name; empty until it is built, and where there is none."""
    forked_from: ForkedFrom | None = None
    """Of a run that the sweep did not ask for; None for the others."""


class Manifest(Frozen):
    """``sweep.json``: what was launched. No secret is in it."""

    format: Literal[1] = 1
    sweep: FolderName
    launch: FolderName
    created_at: Moment
    config: dict[str, Json]
    """The resolved sweep config."""
    runs: dict[FolderName, RunEntry] = {}
    """By run id, in the sweep's order."""
    versions: dict[str, str] = {}
    code_commit: str | None = None
    """None where the package does not run from a git checkout."""

    @model_validator(mode="after")
    def _runs_follow_their_origins(self) -> Self:
        known: set[str] = set()
        for run_id, entry in self.runs.items():
            if entry.forked_from is not None and entry.forked_from.run not in known:
                raise ValueError(f"runs.{run_id}.forked_from.run: {entry.forked_from.run!r} is no run before it")
            known.add(run_id)
        return self


class LaunchStatus(Frozen):
    """``status.json``: what the driver last said. ``running`` without a lock holder means it was killed."""

    state: State
    changed_at: Moment
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run inside a launch."""

    path: Path

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def episodes(self) -> Path:
        """One EpisodeRecord per finished attempt, append-only."""
        return self.path / "episodes.jsonl"

    @property
    def failures(self) -> Path:
        """What is known of every attempt that our machinery failed, append-only."""
        return self.path / "failures.jsonl"

    @property
    def journal(self) -> Path:
        """The bank's journal, one sealed line per position."""
        return self.path / "journal.jsonl"

    @property
    def evaluation(self) -> Path:
        """The bank's digests around the evaluation (R5)."""
        return self.path / "evaluation.json"

    def trajectory(self, unit: Unit) -> Path:
        """Where the final trace of ``unit`` is."""
        return self._place("trajectories", unit)

    def prompts(self, unit: Unit) -> Path:
        """Where its prompts are, if they were captured."""
        return self._place("prompts", unit)

    def _place(self, folder: str, unit: Unit) -> Path:
        part = f"train/{unit.epoch}" if unit.phase == "train" else f"eval/v{unit.read_version}"
        return self.path / folder / part / f"{unit.position}.json.zst"


@dataclass(frozen=True, slots=True)
class LaunchDirectory:
    """An existing launch. Make one with ``create`` or ``open``."""

    path: Path
    manifest: Manifest

    @classmethod
    def create(
        cls,
        runs_dir: Path,
        sweep: str,
        config: Mapping[str, Json],
        *,
        now: datetime,
        runs: Mapping[str, RunEntry] | None = None,
    ) -> Self:
        """Start a launch of ``sweep`` with its own new id; ``now`` is UTC with offset.

        Secrets of the config (``SecretStr``) are written masked. Raises RunDirectoryError.
        """
        launch = f"{now:%Y%m%dT%H%M%SZ}-{uuid4().hex[:8]}"
        path = runs_dir / _folder_name(sweep, "a sweep's name") / launch
        manifest = Manifest(
            sweep=sweep,
            launch=launch,
            created_at=now.isoformat(),
            config=pydantic_core.to_jsonable_python(dict(config)),
            runs=dict(runs or {}),
            versions=versions(),
            code_commit=code_commit(),
        )
        try:
            make_folders(path)
        except OSError as error:
            raise RunDirectoryError(
                f"{path}: cannot create the launch ({error}); choose another runs_dir"
            ) from error
        write(manifest, path / MANIFEST, _CONFIG)
        return cls(path, manifest)

    def extended(self, config: Mapping[str, Json], runs: Mapping[str, RunEntry]) -> Self:
        """The launch under a config with more runs or longer ones; rewrites sweep.json in one step.

        Only the holder of the driver's lock may, and of a manifest that is the file's. Raises RunDirectoryError.
        """
        manifest = self.manifest.model_copy(
            update={"config": pydantic_core.to_jsonable_python(dict(config)), "runs": dict(runs)}
        )
        write(manifest, self.path / MANIFEST, _CONFIG)
        return type(self)(self.path, manifest)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a launch by its folder, by its sweep's folder where that holds one launch, or by ``.../latest``.

        Raises RunDirectoryError that says what was expected and which launches are near.
        """
        found = _find(path)
        return cls(found, _manifest(found))

    def require_current(self) -> None:
        """Raise RunDirectoryError where sweep.json was rewritten since it was read.

        To be asked under the driver's lock: until then a fork or another resume may have been there.
        """
        if _manifest(self.path) != self.manifest:
            raise RunDirectoryError(f"{self.path}: the launch was changed meanwhile, so resume it again")

    @property
    def id(self) -> str:
        """The launch's id: sortable by time, unique, the folder's name."""
        return self.manifest.launch

    @property
    def log_file(self) -> Path:
        """The structured log, JSON lines."""
        return self.path / "log.jsonl"

    @property
    def report(self) -> Path:
        """Folder of tables and figures; may not exist yet."""
        return self.path / "report"

    def driver_lock(self) -> DirectoryLock:
        """What a driver must hold; not yet acquired."""
        return DirectoryLock(self.path / "driver.lock", "driver")

    def records_lock(self) -> DirectoryLock:
        """What the writer of episode rows must hold; not yet acquired."""
        return DirectoryLock(self.path / "records.lock", "records")

    def holder(self) -> Holder | None:
        """The driver that holds this launch now, or None."""
        return holder_of(self.path / "driver.lock")

    def require_undriven(self) -> None:
        """Raise RunDirectoryError, naming the holder, while a driver holds this launch."""
        if (holder := self.holder()) is not None:
            raise RunDirectoryError(
                f"{self.path}: process {holder.pid} on {holder.host} drives this launch since "
                f"{holder.started_at}; wait for its end, or end it first"
            )

    def run(self, run_id: str) -> RunFolder:
        """Files of a run, whether it has any yet or not. Raises RunDirectoryError for an unusable name."""
        return RunFolder(self.path / _folder_name(run_id, "a run id"))

    def runs(self) -> list[RunFolder]:
        """Runs that have written something, by run id."""
        folders = [RunFolder(path) for path in sorted(self.path.iterdir()) if path.is_dir()]
        return [run for run in folders if run.episodes.exists() or run.journal.exists()]

    def status(self) -> LaunchStatus | None:
        """What the driver last said; None before it said anything. Raises RunDirectoryError."""
        return read(LaunchStatus, self.path / STATUS, "remove it, and resume: the driver says anew how it stands")

    def set_status(self, state: State, *, now: datetime, reason: str = "") -> None:
        """Replace the status; ``now`` is UTC with offset. Raises RunDirectoryError."""
        status = LaunchStatus(state=state, changed_at=now.isoformat(), reason=reason)
        write(status, self.path / STATUS, "the status")


@dataclass(frozen=True, slots=True)
class LaunchSummary:
    """One line of ``ls``."""

    path: Path
    sweep: str
    launch: str
    state: State | Literal["new", "interrupted", "damaged"]
    """``interrupted``: it says running, but nobody holds it."""
    created_at: str = ""
    changed_at: str = ""
    reason: str = ""
    holder: Holder | None = None
    runs: int = 0
    """Runs that have written something."""


def list_launches(runs_dir: Path) -> list[LaunchSummary]:
    """All launches below ``runs_dir``, oldest first; a damaged one is listed as such. Empty without a folder."""
    return [_summary(path) for path in _launches_below(runs_dir, "*/*")]


def _summary(path: Path) -> LaunchSummary:
    try:
        launch = LaunchDirectory(path, _manifest(path))
        status = launch.status()
    except RunDirectoryError as error:
        return LaunchSummary(path, path.parent.name, path.name, "damaged", reason=str(error))
    holder = launch.holder()
    state: State | Literal["new", "interrupted"] = status.state if status else "new"
    if holder is None and state == "running":
        state = "interrupted"
    return LaunchSummary(
        path=path,
        sweep=launch.manifest.sweep,
        launch=launch.id,
        state=state,
        created_at=launch.manifest.created_at,
        changed_at=status.changed_at if status else "",
        reason=status.reason if status else "",
        holder=holder,
        runs=len(launch.runs()),
    )


def _find(path: Path) -> Path:
    if (path / MANIFEST).is_file():
        return path
    if path.name == LATEST and not path.exists():
        below = _launches_below(path.parent, "*") or _launches_below(path.parent, "*/*")
        if below:
            return below[-1]
    below = _launches_below(path, "*")
    if len(below) == 1:
        return below[0]
    if below:
        raise RunDirectoryError(
            f"{path} holds {len(below)} launches; name one of them, or {path / LATEST}. {_listed('Newest', below)}"
        )
    raise RunDirectoryError(
        f"{path} is not a launch: expected a folder runs/SWEEP/LAUNCH that holds {MANIFEST}. {_nearby(path)}"
    )


def _nearby(path: Path) -> str:
    for folder in (path, path.parent, path.parent.parent):
        below = [folder] if (folder / MANIFEST).is_file() else _launches_below(folder, "*")
        below = below or _launches_below(folder, "*/*")
        if below:
            return _listed("Launches nearby", below)
    return "There is no launch nearby; the command ls lists those of a runs folder"


def _listed(title: str, launches: list[Path]) -> str:
    return f"{title}: {', '.join(str(launch) for launch in reversed(launches[-_SHOWN:]))}"


def _launches_below(folder: Path, depth: str) -> list[Path]:
    found = [manifest.parent for manifest in folder.glob(f"{depth}/{MANIFEST}")]
    return sorted(found, key=lambda path: path.name)


def _manifest(path: Path) -> Manifest:
    file = path / MANIFEST
    if (manifest := read(Manifest, file)) is None:
        raise RunDirectoryError(f"{file} is not there any more; the command ls lists the launches that are")
    runs = {run_id: entry.config for run_id, entry in manifest.runs.items()}
    if problems := stored_problems(manifest.config, runs, str(file)):
        raise unusable(problems, Manifest)
    return manifest


def _folder_name(name: str, what: str) -> str:
    if _FOLDER_NAME.fullmatch(name) is None or name in _RESERVED:
        raise RunDirectoryError(
            f"{name!r} cannot be {what}: it becomes a folder, so use letters, digits and . _ - + @ = only, start "
            f"with a letter or digit, and none of {', '.join(sorted(_RESERVED))}"
        )
    return name
