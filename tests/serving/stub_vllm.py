"""A server that is started, asked and killed like vLLM, in a tenth of a second: `python stub_vllm.py FLAGS`.

It has an engine in a process of its own, which loads vLLM's general plugins as the real one does and then does
nothing: what kills it is what is tested. FLAGS are vLLM's; those that it does not know are left alone. The
environment says how it behaves: STUB_FAILS has it end at once, STUB_LATENCY_S is how long a chat takes,
STUB_THINKS puts thoughts before the answer, STUB_SAYS is said in its place.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import entry_points
from typing import Any

ANSWER = "yes"
METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{{engine="0",model_name="m"}} {running}.0
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0.0
vllm:num_requests_waiting_by_reason{{engine="0",model_name="m",reason="capacity"}} 0.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.25
vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} 1000.0
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} 600.0
"""


def engine() -> None:
    """The engine's process."""
    for plugin in entry_points(group="vllm.general_plugins"):
        plugin.load()()
    print("the engine runs", flush=True)  # noqa: T201  its log is what shows that it does
    while True:
        time.sleep(3600)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    model = ""
    context = 0
    in_flight = 0
    lock = threading.Lock()

    def do_GET(self) -> None:
        """How the server is."""
        if self.path == "/metrics":
            self._say(METRICS.format(running=Handler.in_flight).encode())
        elif self.path == "/v1/models":
            self._say({"data": [{"id": self.model, "max_model_len": self.context}]})
        else:
            self._say({})

    def do_POST(self) -> None:
        """A completion, a chat or an embedding."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["model"] != self.model:
            self._say({"error": {"message": f"there is no model {body['model']}"}}, 404)
        elif self.path == "/v1/embeddings":
            self._say({"data": [{"index": i, "embedding": [1.0, 0.0]} for i, _ in enumerate(body["input"])]})
        elif self.path == "/v1/completions":
            self._say({"choices": [{"text": ANSWER, "finish_reason": "length"}]})
        else:
            self._chat(body)

    def _chat(self, body: Any) -> None:
        with Handler.lock:
            Handler.in_flight += 1
        time.sleep(float(os.environ.get("STUB_LATENCY_S", "0")))
        message = {
            "role": "assistant",
            "content": os.environ.get("STUB_SAYS", ANSWER),
            "reasoning": os.environ.get("STUB_THINKS"),
        }
        usage = {"prompt_tokens": 10, "completion_tokens": 1}
        with Handler.lock:
            Handler.in_flight -= 1
        choices = [{"message": message, "finish_reason": "stop"}]
        self._say({"choices": choices, "usage": usage, "pid": os.getpid(), "asked": body})

    def _say(self, what: Any, status: int = 200) -> None:
        content = what if isinstance(what, bytes) else json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(what, bytes) else "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def meet(host: str, port: int, headless: bool) -> None:
    """Wait for the other of two parts, as tensor-parallel ranks do; a headless one then stays until killed."""
    if not headless:
        socket.create_server((host, port)).accept()
        return
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((host, port))
            time.sleep(3600)
        time.sleep(0.05)


def main() -> None:
    """Serve until killed."""
    flags = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--served-model-name", "--host", "--master-addr"):
        flags.add_argument(flag)
    for flag in ("--port", "--master-port", "--node-rank"):
        flags.add_argument(flag, type=int)
    flags.add_argument("--headless", action="store_true")
    flags.add_argument("--max-model-len", type=int, default=4096)
    given, _ = flags.parse_known_args()
    if "STUB_FAILS" in os.environ:
        sys.exit("CUDA out of memory, or so")
    multiprocessing.get_context("spawn").Process(target=engine, daemon=True).start()
    if given.master_addr is not None:
        meet(given.master_addr, given.master_port, given.headless)
    Handler.model, Handler.context = given.served_model_name, given.max_model_len
    ThreadingHTTPServer((given.host, given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
