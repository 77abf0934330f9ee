"""The process in which llama.cpp's server runs: ``python -m chime_dist.adapters.models.llamacpp_child SETTINGS``.

Reports its address as one line on standard output, sends everything else to standard error, and ends with its
parent. A separate program, so that a crash of native code takes nothing else with it. Signals meant for the whole
process group are ignored: while the parent drains after Ctrl-C it still needs its model.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import time
from typing import Any

_SET_PARENT_DEATH_SIGNAL = 1
_PARENT_CHECK_S = 0.5


def main() -> None:
    """Serve until the parent, whose process id is in the settings, is gone."""
    settings = json.loads(sys.argv[1])
    for group_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(group_signal, signal.SIG_IGN)
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL) != 0:
        sys.exit("prctl failed: the server could outlive its parent")
    address_pipe = os.dup(1)
    # Native code prints to descriptor 1 as well.
    os.dup2(2, 1)
    try:
        server = serve(settings)
    except RuntimeError as error:
        sys.exit(f"llama.cpp cannot serve {settings['model']}: {error}")
    with os.fdopen(address_pipe, "w") as pipe:
        pipe.write(f"{server.listening_address}\n")
    # Where the kernel has no parent-death signal, or it came before prctl, this is what ends the server.
    while os.getppid() == settings["parent"]:
        time.sleep(_PARENT_CHECK_S)


def serve(settings: dict[str, Any]) -> Any:
    """A running ``xllamacpp.Server``; returns when the model is loaded."""
    library = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = settings["model"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["slots"] * settings["slot_tokens"]
    params.fit_params = False
    params.cache_ram_mib = settings["cache_ram_mib"]
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = settings["threads"]
        # Threads that wait for work sleep instead of spinning.
        cpu.poll = 0
    params.n_threads_http = settings["slots"] + 2
    params.warmup = False
    params.ui = False
    params.verbosity = 2
    return library.Server(params)


if __name__ == "__main__":
    main()
