"""What an error of the disk means for whoever reads about it: what happened, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from types import MappingProxyType

_RIGHTS = "check its owner, its rights and its attributes"
_SPACE = "free some space"

_FIXES: Mapping[int, str] = MappingProxyType(
    {
        errno.ENOSPC: _SPACE,
        errno.EDQUOT: _SPACE,
        errno.EACCES: _RIGHTS,
        errno.EPERM: _RIGHTS,
        errno.EROFS: "mount its file system writable",
        errno.ENOENT: "put back what was moved or removed",
        errno.ENOTDIR: "a file is where a folder must be: move it away",
        errno.EISDIR: "a folder is where a file must be: move it away",
        errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
        errno.EMFILE: "raise the limit of open files (ulimit -n)",
        errno.EIO: "check the disk",
        errno.ESTALE: "end what else writes there",
    }
)


def explained(error: OSError) -> str:
    """The system's words and the fix, as ``WORDS; FIX`` without a full stop; the caller names the path."""
    fix = _FIXES.get(error.errno or 0, "check the path, its owner and the disk")
    return f"{error.strerror or error}; {fix}"
