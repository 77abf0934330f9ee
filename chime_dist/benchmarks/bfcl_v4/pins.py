"""Which ``bfcl-eval`` is meant: its version, and the hash of every data file in use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from chime_dist.errors import BenchmarkError

VERSION = "2026.3.23"
"""The only version of ``bfcl-eval`` whose data and checkers are known here."""

INSTALL = f"pip install 'chime-dist[bfcl]' && pip install --no-deps bfcl-eval=={VERSION}"

MEMORY = "memory_kv"
"""The memory category in use: one of the three backends (R3)."""

FILES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "live_simple": {
            "BFCL_v4_live_simple.json": "1af2ac87dca47556db7b7e37e51e28b459a38b594e3c7b3c792b4903598ca0c4",
            "possible_answer/BFCL_v4_live_simple.json": (
                "fec9cfa9744a936f9126981e85a2023da1e63e273eafebc81923a1162fad70ce"
            ),
        },
        "live_multiple": {
            "BFCL_v4_live_multiple.json": "fd8ccfad4d911420d0e3341dbe2fff77d1d341da934248b9bb2bda24ab3a10c8",
            "possible_answer/BFCL_v4_live_multiple.json": (
                "97e90d59c5bd76c55a2920ce93e5566e9046307d3f558578f085f9d3a56c3084"
            ),
        },
        "live_parallel": {
            "BFCL_v4_live_parallel.json": "6c26e9fdc3350cf596e6d1ea9c179cbff834761bccf562f4141ed29a839ca421",
            "possible_answer/BFCL_v4_live_parallel.json": (
                "8a9f189ff0e832ebbbbdade1fd95a7dbcc67406e9177df3f0aad76f59ab00350"
            ),
        },
        "live_parallel_multiple": {
            "BFCL_v4_live_parallel_multiple.json": (
                "21d4b9319c1faac431e22757b367ea28917fe467364c3a4b17f16ec06d4f6e79"
            ),
            "possible_answer/BFCL_v4_live_parallel_multiple.json": (
                "f5b5f360556c5feb51db46fb9f56ee4b304f4b45b161599bbb14161c98a2873f"
            ),
        },
        "live_irrelevance": {
            "BFCL_v4_live_irrelevance.json": "6559fda2beaceb609a2cd2e504c65b4a56cb448e1ef88fddfd199e163d163349"
        },
        "live_relevance": {
            "BFCL_v4_live_relevance.json": "e03f9e241657a137cba48a89ee12f47bf3fcb7e4f6274263e9c699a0c974203a"
        },
        MEMORY: {
            "BFCL_v4_memory.json": "40fc21d4528af53c6b44204def89e81515d0101654229e2c2e82bbf5f047b14f",
            "possible_answer/BFCL_v4_memory.json": (
                "2355cf8d842f94af6bcb7bfa6ad2f9e472bc6d825d6ecd45702cfc41e27d7e5d"
            ),
            "multi_turn_func_doc/memory_kv.json": (
                "96480cd9cbd3d4a34cd8f78879bc6622731768a26e080f7a34782e36e3402287"
            ),
            "memory_prereq_conversation/memory_customer.json": (
                "806ac91e558e3d933e526ecc0c286e417657f76a3c9b9073eef830a532eb4eb2"
            ),
            "memory_prereq_conversation/memory_finance.json": (
                "3cef1f235667f479b8f45c7082247454b2129ee88fe4fbcdbc53fd2cdf495b75"
            ),
            "memory_prereq_conversation/memory_healthcare.json": (
                "56e7bd7b2e7c01efe81f1e0be85149ea3886bb2d9cb59f90e9d9e27b91f4604d"
            ),
            "memory_prereq_conversation/memory_notetaker.json": (
                "07f3239ef2e9e1421901f05d3c8192469fa129324e124a47bcb35ff9c7785c91"
            ),
            "memory_prereq_conversation/memory_student.json": (
                "e2d6c32e9e2671c61f682e845dcdafd9eee7c9f3e2d5da1615d3afd2aeecf2f0"
            ),
        },
    }
)
"""By category: paths below the package's data folder, and the hex SHA-256 that each file must have."""

CATEGORIES = tuple(FILES)
"""Everything that can be run, in the paper's order, which is the order of the task stream (R3)."""

LIVE = tuple(category for category in CATEGORIES if category != MEMORY)
"""The categories that need nothing but one answer per task."""


def verified(data: Path, category: str) -> str:
    """The hashes of a category's files below ``data``, as one text.

    Raises BenchmarkError for a file that is absent or differs from the pinned one.
    """
    return ":".join(_check_file(data / path, pinned) for path, pinned in FILES[category].items())


def _check_file(path: Path, pinned: str) -> str:
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BenchmarkError(
            f"cannot read {path.name} of bfcl-eval: {error.strerror}; reinstall: {INSTALL}"
        ) from None
    if found != pinned:
        raise BenchmarkError(
            f"{path.parent.name}/{path.name} of bfcl-eval {VERSION} has SHA-256 {found}, expected {pinned}: "
            f"the installed data was changed; reinstall with `pip install --force-reinstall --no-deps "
            f"bfcl-eval=={VERSION}`"
        )
    return found
