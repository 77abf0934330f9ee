"""A plugin that vLLM loads into each of its processes: the process ends when the one that started it does.

Killing vLLM's API server leaves its engines alive otherwise, each with the memory of its GPUs. This folder is put
on PYTHONPATH as it is: the environment that vLLM runs in need not have chime_dist.
"""

import ctypes
import multiprocessing
import os
import signal

_SET_PARENT_DEATH_SIGNAL = 1


def tie() -> None:
    """Ask the kernel for SIGKILL at the death of the thread that started this process; may be called again."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        # It died before the kernel was asked.
        os.kill(os.getpid(), signal.SIGKILL)
