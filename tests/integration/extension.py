"""The README's example of a user's package, taken out of the README and installed, and a model that can add."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"

_BLOCK = re.compile(r"^```\w+\n(?:# |\{# )(\S+)(?: #\})?\n.*?^```$", re.MULTILINE | re.DOTALL)
_SEEN = re.compile(r"Seen (\d+)")
_SUM = re.compile(r"What is (\d+) \+ (\d+)\?")


def unpacked(folder: Path) -> dict[str, str]:
    """Write every file that the README shows whole into ``folder``; their texts by name."""
    files = {}
    for block in _BLOCK.finditer(README.read_text(encoding="utf-8")):
        text = block[0].split("\n", 1)[1].removesuffix("```")
        files[block[1]] = text
        path = folder / block[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "my_agents" / "__init__.py").touch()
    return files


def installed(source: Path, target: Path) -> Path:
    """The package at ``source``, built and installed by pip into a folder that belongs on PYTHONPATH."""
    words = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--no-compile"]
    subprocess.run(
        [sys.executable, "-m", "pip", *words, "--target", str(target), str(source)],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    return target


class Adding(BaseHTTPRequestHandler):
    """A model server that can add, and that keeps count of the tasks it was told of on its cheatsheet."""

    def do_POST(self) -> None:
        """One chat completion."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = "\n".join(str(message["content"]) for message in request["messages"])
        if "Rewrite this cheatsheet" in said:
            seen = _SEEN.search(said)
            text = f"Seen {1 + int(seen[1] if seen else 0)} sums."
        else:
            text = str(sum(int(number) for asked in _SUM.findall(said)[:1] for number in asked))
        message = {"role": "assistant", "content": text}
        body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def model_that_adds() -> Iterator[str]:
    """Its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Adding) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()
