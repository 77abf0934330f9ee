"""Canonical JSON: one spelling per value, so that a hash of it means something on every machine."""

from __future__ import annotations

import hashlib
import json


def canonical_json(value: object) -> str:
    """Keys sorted, no white space, UTF-8 characters kept; raises ValueError for a non-finite number."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_hex(text: str) -> str:
    """Hex SHA-256 of the UTF-8 bytes of ``text``."""
    return hashlib.sha256(text.encode()).hexdigest()
