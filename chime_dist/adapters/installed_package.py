"""Files that ride in the wheel of another package: found without importing it and without a network."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from chime_dist.errors import MissingExtraError


def package_directory(package: str, install: str) -> Path:
    """The folder of an installed top-level package.

    Raises MissingExtraError, naming the ``install`` command, where it is not installed.
    """
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise MissingExtraError(f"the package {package!r} is not installed; run: {install}")
    return Path(places[0])
