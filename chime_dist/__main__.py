"""Where the program starts: ``chime-dist``, and ``python -m chime_dist``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the process's exit code says how it went."""
    try:
        # Most of the time that a short command takes goes here, and Ctrl-C must not print a traceback then either.
        from chime_dist.cli import app
    except KeyboardInterrupt:
        sys.exit(130)
    app.main()


if __name__ == "__main__":
    main()
