"""``python -m chime_dist`` is ``chime-dist``."""

from __future__ import annotations

from chime_dist.cli.app import main

if __name__ == "__main__":
    main()
