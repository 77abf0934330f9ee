"""What tasks rest on, as files of a launch: ``prerequisites/<benchmark>/<backbone>-<digest>/<name>.json``.

Each holds one artifact with its own hash and the hash of what it goes on from, so a changed file is found when it
is read, whichever one it is; and what its building used. A file is written whole or not at all, read-only, and
never again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict

from chime_dist.adapters.directory.artifact_json import decode, read, unreadable, unwritable, write
from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.episode import Json, Usage
from chime_dist.core.frozen import Frozen
from chime_dist.core.spending import add_usage
from chime_dist.errors import RunDirectoryError
from chime_dist.ports import Prerequisite

FOLDER = "prerequisites"
"""Inside a launch's folder."""

_NOTHING = Usage()
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


_NOT_HASHED = {"sha256", "backbone", "usage"}


class BuiltPrerequisite(Frozen):
    """One file: an artifact and what it is."""

    format: Literal[1] = 1
    name: str
    origin: str
    """Hex digest of the benchmark's and the backbone's set-up that built it."""
    after: str | None
    """``sha256`` of the one that it goes on from."""
    artifact: Json
    backbone: str = ""
    """Who was asked for it, by name."""
    usage: Usage = Usage()
    """What its building used, attempts that failed included."""
    sha256: str = ""
    """Hex SHA-256 of the canonical JSON of all but ``backbone`` and ``usage``: what a build cost is no part of
    what it built."""

    @property
    def content_hash(self) -> str:
        """What ``sha256`` must be."""
        return sha256_hex(canonical_json(self.model_dump(mode="json", exclude=_NOT_HASHED)))

    def sealed(self) -> Self:
        """The same with its hash."""
        return self.model_copy(update={"sha256": self.content_hash})


@dataclass(frozen=True, slots=True)
class PrerequisiteFiles:
    """The files of one benchmark on one backbone. ``folder`` need not exist."""

    folder: Path
    origin: str

    @classmethod
    def below(cls, launch: Path, benchmark: str, backbone: str, origin: str) -> Self:
        """In the folder of ``launch``; ``origin`` is a hex digest of all that the artifacts depend on."""
        return cls(launch / FOLDER / _slug(benchmark) / f"{_slug(backbone)}-{origin[:8]}", origin)

    def read(self, wanted: Prerequisite, after: str | None) -> BuiltPrerequisite | None:
        """What was built for ``wanted`` on top of the artifact with the hash ``after``; None where nothing was.

        Raises RunDirectoryError, with the fix, for a file that is damaged or was changed or exchanged.
        """
        file = self._file(wanted)
        if (found := read(BuiltPrerequisite, file)) is None:
            return None
        if found.sha256 != found.content_hash:
            raise _changed(
                file, f"its content has SHA-256 {found.content_hash}, and it was stored as {found.sha256}"
            )
        if (found.name, found.origin) != (wanted.name, self.origin):
            raise _changed(file, f"it holds {found.name} of {found.origin[:8]}, another prerequisite")
        if found.after != after:
            raise _changed(file, f"it goes on from {found.after}, and {wanted.after} is {after} now")
        return found

    def require_absent(self, wanted: Prerequisite) -> None:
        """Of one whose predecessor is not there: built on something that is gone, it could not be trusted.

        Raises RunDirectoryError.
        """
        file = self._file(wanted)
        if file.exists():
            raise RunDirectoryError(
                f"{file} is there, and {wanted.after}.json, which it goes on from, is not: put that back, or "
                "start a new launch"
            )

    def write(
        self, wanted: Prerequisite, after: str | None, artifact: Json, backbone: str = "", usage: Usage = _NOTHING
    ) -> BuiltPrerequisite:
        """Keep a new artifact, and what ``backbone`` was asked for it; durable on return, both or neither.

        Raises RunDirectoryError.
        """
        built = BuiltPrerequisite(
            name=wanted.name, origin=self.origin, after=after, artifact=artifact, backbone=backbone, usage=usage
        ).sealed()
        file = self._file(wanted)
        write(built, file, f"prerequisite {wanted.name}")
        try:
            file.chmod(0o444)
        except OSError as error:
            raise unwritable(file, error) from error
        return built

    def _file(self, wanted: Prerequisite) -> Path:
        if _FILE_NAME.fullmatch(wanted.name) is None:
            raise RunDirectoryError(
                f"{wanted.name!r} cannot name a prerequisite: it becomes a file, so the benchmark must use "
                "letters, digits and _.- only, and start with a letter or digit"
            )
        return self.folder / f"{wanted.name}.json"


class PrerequisiteCost(Frozen):
    """What counts of a prerequisite's file here."""

    model_config = ConfigDict(extra="ignore")

    backbone: str = ""
    usage: Usage = _NOTHING


class PrerequisiteCosts:
    """What building the prerequisites of a launch used: of those that are there, each file read once."""

    def __init__(self, launch: Path) -> None:
        """Nothing is read yet; nothing need be there."""
        self._folder = launch / FOLDER
        self._read: dict[tuple[str, int, int], PrerequisiteCost] = {}

    def look(self) -> dict[str, Usage]:
        """Sums by backbone as of now. Raises RunDirectoryError for a file that cannot be read."""
        found, sums = {}, dict[str, Usage]()
        for file in sorted(self._folder.glob("*/*/*.json")):
            try:
                status = file.stat()
                stamp = (str(file), status.st_ino, status.st_mtime_ns)
                cost = self._read.get(stamp) or decode(PrerequisiteCost, file.read_bytes(), str(file))
            except OSError as error:
                raise unreadable(file, error) from error
            found[stamp] = cost
            if cost.backbone:
                add_usage(sums, [(cost.backbone, cost.usage)])
        self._read = found
        return sums


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9._]+", "_", name.lower()).strip("._") or "_"


def _changed(file: Path, what: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"{file} was changed: {what}. Episodes may rest on what it held: put the original back, or start a new "
        "launch"
    )
