"""Artifacts as the JSON bytes that files hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from chime_dist.adapters.directory.disk_errors import explained
from chime_dist.adapters.directory.durable_file import replace_files
from chime_dist.config.document import Document
from chime_dist.config.problems import Problem
from chime_dist.config.validation import problems_of
from chime_dist.core.frozen import Frozen
from chime_dist.errors import RunDirectoryError

_Artifact = TypeVar("_Artifact", bound=Frozen)

_SHOWN = 5
_RESTORE = "put the original back, or use that version"


def encode(artifact: Frozen, what: str) -> bytes:
    """One line of UTF-8 JSON, without a line break; raises RunDirectoryError where a value has no JSON form."""
    try:
        return artifact.model_dump_json().encode()
    except PydanticSerializationError:
        pass
    try:
        # Half a surrogate pair (an emoji that a model reply cut in two) has no UTF-8, but a JSON escape.
        return json.dumps(artifact.model_dump(mode="json"), separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:
        raise RunDirectoryError(f"{what} cannot be stored as JSON: {error}") from None


def read(model: type[_Artifact], file: Path, fix: str = _RESTORE) -> _Artifact | None:
    """The artifact that is the whole of a file; None where there is no file.

    Raises RunDirectoryError likewise; ``fix`` is what to do about content that cannot be used.
    """
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(file, error) from error
    return decode(model, data, str(file), fix)


def write(artifact: Frozen, file: Path, what: str) -> None:
    """Make the artifact the whole of a file, in one step and durably; ``what`` says what it is.

    Raises RunDirectoryError; then the file is as it was.
    """
    content = encode(artifact, what) + b"\n"
    try:
        replace_files([(file, content)])
    except OSError as error:
        raise unwritable(file, error) from error


def unwritable(file: Path, error: OSError) -> RunDirectoryError:
    """A file or folder of a launch that takes no bytes."""
    return RunDirectoryError(f"{file}: cannot be written: {explained(error)}")


def unreadable(file: Path, error: OSError) -> RunDirectoryError:
    """A file of a launch that is there, and cannot be read."""
    return RunDirectoryError(
        f"{file}: cannot be read ({error.strerror}); check what it is, its owner and its rights"
    )


def decode(model: type[_Artifact], data: bytes, where: str, fix: str = _RESTORE) -> _Artifact:
    """Inverse of ``encode``; raises RunDirectoryError naming ``where``, every key that is wrong, and its value.

    ``fix`` is what to do about it.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError:
        pass
    try:
        tree = json.loads(data)
        return model.model_validate(tree)
    except ValidationError as error:
        raise unusable(problems_of(error, model, Document(where, tree), {}), model, fix) from None
    except (ValueError, RecursionError) as error:
        raise unusable([Problem(where, (), f"it holds no JSON ({error})")], model, fix) from None


def unusable(problems: Sequence[Problem], model: type[Frozen], fix: str = _RESTORE) -> RunDirectoryError:
    """About an artifact of the kind ``model`` that this version cannot use; there is at least one problem."""
    told = [str(problem).removeprefix(f"{problems[0].place}: ") for problem in problems[:_SHOWN]]
    more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
    return RunDirectoryError(
        f"{problems[0].place} is no {model.__name__.lstrip('_')} of this version of chime_dist: "
        f"{'; '.join([*told, *more])}. The file is damaged, was edited, or is another version's: {fix}"
    )
