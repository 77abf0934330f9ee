"""What code and which packages are running, for the record of a launch."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import chime_dist

_PACKAGES = ("chime-dist", "numpy", "pydantic", "qdrant-client", "qdrant-edge-py", "ray", "redis", "vllm")
_GIT_TIMEOUT_S = 10


def versions() -> dict[str, str]:
    """Python, the platform and every package of ours that is installed."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def code_commit() -> str | None:
    """Commit of the checkout the package runs from, with ``-dirty`` after it where tracked files differ.

    None for an installed package, also where a repository happens to surround its folder, and without git.
    """
    folder = Path(chime_dist.__file__).parent
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    # A hook's GIT_DIR would point every command at the hook's repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_GIT_TIMEOUT_S,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
