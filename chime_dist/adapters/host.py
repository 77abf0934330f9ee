"""What this machine allows: room on its disks, what kind of file system they are, how many files may be open, and
whether its kernel killed for want of memory."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_CGROUPS = Path("/proc/self/cgroup")
_CGROUP_FILES = Path("/sys/fs/cgroup")

_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "gcsfuse", "glusterfs", "goofys", "gpfs", "juicefs", "lustre", "nfs"}
    | {"nfs4", "rclone", "s3fs", "smb3", "smbfs", "sshfs", "wekafs"}
)


def existing_part(path: Path) -> Path:
    """``path``, or the nearest folder above it that is there."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def free_bytes(path: Path) -> int:
    """What this user may still write on the disk of ``path`` (or of where it would be made)."""
    return shutil.disk_usage(existing_part(path)).free


def writable(path: Path) -> bool:
    """Whether this user may make or change files there."""
    return os.access(existing_part(path), os.W_OK | os.X_OK)


def file_system(path: Path) -> str | None:
    """The type of the file system of ``path``, e.g. ``ext4``; None where the system does not tell (macOS)."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    target = existing_part(path).resolve()
    found: tuple[int, str] | None = None
    for line in mounts:
        mount, _, source = line.partition(" - ")
        point = Path(_unescaped(mount.split(" ")[4]))
        # Of two mounts on one point the later one is seen.
        if target.is_relative_to(point) and (found is None or len(point.parts) >= found[0]):
            found = len(point.parts), source.split(" ")[0]
    return None if found is None else found[1]


def is_network(kind: str) -> bool:
    """Whether a file system of this type has its disk on another machine."""
    return kind.removeprefix("fuse.") in _NETWORK


def open_files_limit() -> int | None:
    """Files and sockets that one process may have open (soft RLIMIT_NOFILE); None where there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def out_of_memory_kills() -> tuple[str, int] | None:
    """This process's control group, and how many processes of it the kernel has killed for want of memory.

    None where no such count can be read. The count covers all processes of the group and never falls while the
    group lives.
    """
    try:
        lines = _CGROUPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            # A container may see its group as the root, or by the name that it has outside.
            files = [_CGROUP_FILES / part / "memory.events" for part in (group.lstrip("/"), "")]
        elif "memory" in controllers.split(","):
            files = [_CGROUP_FILES / "memory" / part / "memory.oom_control" for part in (group.lstrip("/"), "")]
        else:
            continue
        for file in files:
            if (count := _count_in(file, "oom_kill")) is not None:
                return f"{controllers}:{group}", count
    return None


def _count_in(file: Path, name: str) -> int | None:
    try:
        words = dict(line.split(" ", 1) for line in file.read_text().splitlines())
        return int(words[name])
    except (OSError, KeyError, ValueError):
        return None


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
