"""Which Ray and which Python a running cluster has, asked without joining it.

Ray's client ends its whole process where it does not like an answer, so it is asked from a process of its own:
``python -m chime_dist.adapters.ray.versions HOST:PORT``.
"""

from __future__ import annotations

import asyncio
import json
import platform
import sys
from importlib.metadata import version
from typing import NamedTuple

PATIENCE_S = 30.0
"""How long the answer may take, in seconds; Ray alone takes two to import."""


class Versions(NamedTuple):
    """Ray refuses a driver that differs from its cluster in one of them."""

    ray: str
    python: str

    @classmethod
    def ours(cls) -> Versions:
        """This process's."""
        return cls(version("ray"), platform.python_version())


async def cluster_versions(address: str) -> Versions | None:
    """Of the cluster whose head listens at ``address``; None where nothing there answers as a head does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __spec__.name, address),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Versions(*json.loads(out)) if process.returncode == 0 else None


def _tell(address: str) -> None:
    from ray._common.usage.usage_lib import get_cluster_metadata
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    found = get_cluster_metadata(GcsClient(address=address))
    sys.stdout.write(json.dumps([found["ray_version"], found["python_version"]]))


if __name__ == "__main__":
    _tell(sys.argv[1])
