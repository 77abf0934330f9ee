"""How this program was called, for the commands that it suggests: what is printed can be pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

_NAME = "chime-dist"
_MODULE = "chime_dist"


def program() -> str:
    """``chime-dist`` where a shell finds this installation by that name; else its path as it was typed, or
    ``PYTHON -m chime_dist`` where no script was called."""
    called = sys.argv[0]
    script = Path(called)
    found = shutil.which(_NAME)
    if script.name == _NAME:
        on_path = os.sep not in called or (found is not None and _same(Path(found), script))
        return _NAME if on_path else shlex.quote(called)
    python = Path(sys.executable)
    if found is not None and _same(Path(found).parent, python.parent):
        return _NAME
    other = shutil.which(python.name)
    short = other is not None and _same(Path(other).parent, python.parent)
    return f"{python.name if short else shlex.quote(str(python))} -m {_MODULE}"


def suggested(*words: object) -> str:
    """A command line of this program, ready to be pasted."""
    return " ".join([program(), *(shlex.quote(str(word)) for word in words)])


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
