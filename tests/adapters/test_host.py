"""What a machine allows, asked of the one that runs the tests."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from chime_dist.adapters import host

MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:30 / {0} rw - nfs4 server:/export rw
24 23 0:31 / {0}/deep\\040down rw - fuse.sshfs host: rw
25 22 0:32 / {0}x rw - tmpfs tmpfs rw
"""


def test_a_place_that_is_not_there_yet_is_judged_by_the_folder_it_would_be_in(tmp_path: Path) -> None:
    place = tmp_path / "not" / "yet"
    assert host.existing_part(place) == tmp_path
    assert host.free_bytes(place) <= shutil.disk_usage(tmp_path).total
    assert host.writable(place)


def test_the_file_system_is_that_of_the_deepest_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design "Run directory": state on a network file system is found, also where a mount point holds a space."""
    table = tmp_path / "mountinfo"
    shared = tmp_path / "shared"
    for name in ("shared/deep down", "sharedx"):
        (tmp_path / name).mkdir(parents=True)
    table.write_text(MOUNTS.format(shared.resolve()))
    monkeypatch.setattr(host, "_MOUNTS", table)
    places = [tmp_path, shared, shared / "new", shared / "deep down" / "er", tmp_path / "sharedx"]
    kinds = [host.file_system(place) for place in places]
    assert kinds == ["ext4", "nfs4", "nfs4", "fuse.sshfs", "tmpfs"]
    assert [kind is not None and host.is_network(kind) for kind in kinds] == [False, True, True, True, False]
    monkeypatch.setattr(host, "_MOUNTS", tmp_path / "none")
    assert host.file_system(tmp_path) is None


def test_this_machine_tells_its_file_system() -> None:
    assert (host.file_system(Path("/")) is not None) == Path("/proc/self/mountinfo").exists()


def test_open_files_are_limited_softly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.open_files_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert host.open_files_limit() is None


@pytest.mark.parametrize(
    ("groups", "file", "text", "found"),
    [
        ("0::/pod/worker", "pod/worker/memory.events", "low 0\noom 2\noom_kill 3", (":/pod/worker", 3)),
        ("0::/pod/worker", "memory.events", "oom 1\noom_kill 1", (":/pod/worker", 1)),
        (
            "4:cpu:/x\n5:memory:/x\n0::/",
            "memory/x/memory.oom_control",
            "under_oom 0\noom_kill 7",
            ("memory:/x", 7),
        ),
        ("5:memory:/x", "memory/x/memory.oom_control", "under_oom 0", None),
        ("5:cpu:/x", "memory/x/memory.oom_control", "oom_kill 1", None),
        ("0::/x", "x/memory.events", "oom_kill many", None),
    ],
)
def test_the_kernels_kills_for_memory_are_counted_where_they_can_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    groups: str,
    file: str,
    text: str,
    found: tuple[str, int] | None,
) -> None:
    """D9: both versions of control groups, inside and outside of a container; None where nothing tells."""
    (tmp_path / "cgroup").write_text(groups + "\n")
    (tmp_path / "fs" / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "fs" / file).write_text(text + "\n")
    monkeypatch.setattr(host, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(host, "_CGROUP_FILES", tmp_path / "fs")
    assert host.out_of_memory_kills() == found
    monkeypatch.setattr(host, "_CGROUPS", tmp_path / "none")
    assert host.out_of_memory_kills() is None
