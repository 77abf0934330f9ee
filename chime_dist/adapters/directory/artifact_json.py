"""Artifacts as the JSON bytes that files hold."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from chime_dist.core.frozen import Frozen
from chime_dist.errors import RunDirectoryError

_Artifact = TypeVar("_Artifact", bound=Frozen)


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


def decode(model: type[_Artifact], data: bytes, where: str) -> _Artifact:
    """Inverse of ``encode``; raises RunDirectoryError naming ``where``."""
    try:
        return model.model_validate_json(data)
    except ValidationError as strict:
        try:
            return model.model_validate(json.loads(data))
        except ValueError:
            raise RunDirectoryError(
                f"{where} is no {model.__name__} of this version of chime_dist; the file is damaged or was "
                f"written by another version: {strict}"
            ) from None
