"""Whether this machine has room for a launch: disks and open files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from chime_dist.adapters import host
from chime_dist.config.cluster import ClusterConfig
from chime_dist.wiring.health.finding import Finding, ok, problem, warning

ROOM = 5 * 2**30
"""Less than this is worth a warning, in bytes: journals, trajectories and Redis's append-only file grow."""
LEAST_ROOM = 2**29
"""With less than this a launch does not get far, in bytes."""

_FILES_AT_REST = 128
_FILES_PER_SLOT = 8
"""Sockets to models, Redis and Qdrant, and what an evaluator opens."""


def place_finding(name: str, path: Path, *, local: bool) -> Finding:
    """Room and rights for ``path``; ``local``: it must not be on another machine's disk."""
    check, free = f"disk of {name}", host.free_bytes(path)
    room = f"{path} has {free / 2**30:.1f} GiB free"
    kind = host.file_system(path)
    if not host.writable(path):
        return problem(check, f"{host.existing_part(path)} may not be written", f"change its owner, or {name}")
    if free < LEAST_ROOM:
        return problem(check, room, f"free some space, or put {name} on another disk")
    if local and kind is not None and host.is_network(kind):
        return problem(
            check,
            f"{path} is on a network file system ({kind}), where embedded Redis and Qdrant may lose data",
            f"set {name} to a folder on a local disk",
        )
    if not local and kind is not None and host.is_network(kind):
        return warning(
            check,
            f"{room}, on a network file system ({kind}): results may lie there if it has locks (flock) and keeps"
            " what was synced; every row waits for it",
            f"set {name} to a local disk if episodes are short, and copy the results afterwards",
        )
    if free < ROOM:
        return warning(check, room, "free some space before a long launch")
    return ok(check, f"{room} ({kind or 'unknown file system'})")


def file_limit_finding(cluster: ClusterConfig) -> Finding:
    """Open files against slots."""
    limit, needed = host.open_files_limit(), _FILES_AT_REST + _FILES_PER_SLOT * cluster.slots
    if limit is None or limit >= needed:
        return ok("open files", f"up to {'any number' if limit is None else limit}, about {needed} are needed")
    return problem(
        "open files",
        f"this process may open {limit}, but {cluster.slots} slots need about {needed}",
        f"run: ulimit -n {max(needed, 65_536)}",
    )


def results_finding(cluster: ClusterConfig, needed: int) -> Finding:
    """About ``needed`` bytes of results against what is free."""
    free, prompts = host.free_bytes(Path(cluster.runs_dir)), cluster.capture_prompts
    what = f"about {needed / 2**30:.1f} GiB{', prompts come on top' if prompts else ''}"
    if needed > free:
        fix = "free some space, or set cluster.runs_dir to a larger disk"
        return problem("size of results", f"{what}, but {cluster.runs_dir} has {free / 2**30:.1f} GiB free", fix)
    return ok("size of results", what)


def place_findings(cluster: ClusterConfig, state_dir: Path, needed: int) -> Iterator[Finding]:
    """Both folders of a launch, the room for its results (``needed`` bytes), and the limit of open files."""
    yield place_finding("cluster.runs_dir", Path(cluster.runs_dir), local=False)
    yield results_finding(cluster, needed)
    embedded = cluster.redis.mode == "embedded" or cluster.qdrant.mode == "edge"
    if embedded:
        yield place_finding("cluster.state_dir", state_dir, local=True)
    yield file_limit_finding(cluster)
