"""A Ray cluster of several hosts on one machine: network namespaces on a bridge, each of which can be cut off."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import psutil

from tests.chaos.counting import chime_dist
from tests.chaos.nursery import Child, Nursery
from tests.chaos.patience import until
from tests.chaos.ray_nodes import SOON_DEAD

NETWORK = f"198.19.{os.getpid() % 256}"
"""Out of the block that is reserved for tests of networks; another one for each process that runs tests."""
BRIDGE = f"{NETWORK}.254"
"""The address that all hosts reach, whoever is cut off from the others."""
PORT = 6379
UP = "Ray runtime started"


def ip(*words: str) -> None:
    """Run ``ip``."""
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10)


@dataclass(frozen=True, slots=True)
class RayHost:
    """One host: a namespace and its link to the bridge."""

    number: int

    @property
    def name(self) -> str:
        """Of the namespace."""
        return f"cd{os.getpid() % 100_000}h{self.number}"

    @property
    def address(self) -> str:
        """Its only one."""
        return f"{NETWORK}.{self.number}"

    def build(self, bridge: str) -> None:
        """Make it, and plug it in."""
        outside, inside = f"{self.name}a", f"{self.name}b"
        ip("netns", "add", self.name)
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self.name)
        ip("link", "set", outside, "master", bridge, "up")
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", inside)
        for device in ("lo", inside):
            ip("-n", self.name, "link", "set", device, "up")
        # Ray asks the routes which of its addresses the others see.
        ip("-n", self.name, "route", "add", "default", "via", BRIDGE)

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told."""
        ip("link", "set", f"{self.name}a", "down")

    def heal(self) -> None:
        """Everything passes again."""
        ip("link", "set", f"{self.name}a", "up")

    def processes(self, title: str) -> list[psutil.Process]:
        """Its processes whose command line holds ``title``."""
        here, found = Path("/run/netns", self.name).stat().st_ino, []
        for process in psutil.process_iter():
            try:
                there = Path(f"/proc/{process.pid}/ns/net").stat().st_ino
                if there == here and title in " ".join(process.cmdline()):
                    found.append(process)
            except (psutil.Error, OSError):
                continue  # gone, or none of ours
        return found


@dataclass
class RayHosts:
    """``with RayHosts(...) as hosts``: the network. Hosts join when they are told to, the first as the head."""

    nursery: Nursery
    folder: Path
    hosts: list[RayHost] = field(default_factory=lambda: [RayHost(number) for number in (1, 2, 3)])
    _joined: list[Child] = field(default_factory=list)

    @property
    def bridge(self) -> str:
        """Its device."""
        return f"cd{os.getpid() % 100_000}br"

    @property
    def address(self) -> str:
        """Of the cluster."""
        return f"{self.hosts[0].address}:{PORT}"

    def __enter__(self) -> RayHosts:
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{BRIDGE}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for host in self.hosts:
            host.build(self.bridge)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            # First these: one that has only just been forked is on no host yet.
            for child in self._joined:
                child.signal(signal.SIGKILL)
                child.end()
            until(self._empty)
        finally:
            for host in self.hosts:
                subprocess.run(["ip", "netns", "del", host.name], check=False, capture_output=True, timeout=10)
            subprocess.run(["ip", "link", "del", self.bridge], check=False, capture_output=True, timeout=10)

    def _empty(self) -> bool:
        """Whether no host has a process; kills those that are there."""
        left = [process for host in self.hosts for process in host.processes("")]
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return not left

    def join(self, host: RayHost, environment: dict[str, str] | None = None) -> Child:
        """Start Ray on the host; ``environment`` reaches every actor there."""
        words = ["--block", f"--node-ip-address={host.address}", "--num-cpus=1"]
        if host is self.hosts[0]:
            words += ["--head", f"--port={PORT}", "--include-dashboard=false"]
            words.append(f"--system-config={json.dumps(SOON_DEAD)}")
        else:
            words.append(f"--address={self.address}")
        folder = self.folder / host.name
        folder.mkdir(parents=True)
        child = self.nursery.start(
            "tests.chaos.ray_hosts:start_ray",
            [host.name, words],
            folder,
            self._environment() | (environment or {}),
        )
        self._joined.append(child)
        if host is self.hosts[0]:
            until(self._answers)
        return child

    def joined(self, child: Child) -> bool:
        """Whether it has."""
        assert child.code() is None, child.said
        return UP in child.said

    def sweep(self, folder: Path) -> Child:
        """The launch of the sweep in ``folder``, driven from the first host."""
        arguments = [self.hosts[0].name, "sweep", "sweep.yaml"]
        return self.nursery.start("tests.chaos.ray_hosts:drive", arguments, folder, self._environment())

    def _answers(self) -> bool:
        try:
            socket.create_connection((self.hosts[0].address, PORT), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _environment(self) -> dict[str, str]:
        return {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
        }


def start_ray(host: str, words: list[str]) -> NoReturn:
    """Become ``ray start`` on a host."""
    _enter(host)
    os.execv(
        sys.executable, [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", *words]
    )


def drive(host: str, *arguments: str) -> None:
    """``chime-dist`` on a host."""
    _enter(host)
    chime_dist(*arguments)


def _enter(host: str) -> None:
    with Path("/run/netns", host).open() as namespace:
        assert ctypes.CDLL(None).setns(namespace.fileno(), 0) == 0, host
