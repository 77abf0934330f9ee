"""``python -m tests.bench [--only NAME] [--json FILE] [--quick]``: measure, and show a table.

Nothing fails for being slow: a number is to be read beside its floor, which was measured a moment later on the
same machine. Run it on an idle machine; all benches take about eight minutes on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.catalogue import BENCHES
from tests.bench.measurement import Measurement

_PACKAGES = ("chime-dist", "aiohttp", "numpy", "pydantic", "redis", "qdrant-edge-py")


def main(arguments: Sequence[str]) -> None:
    """Run the named benches, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help=f"run this one and no other (may be given again): {', '.join(BENCHES)}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number to FILE as well")
    parser.add_argument(
        "--quick", action="store_true", help="show that the benches work, in sizes that measure nothing"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.only if name not in BENCHES]
    if unknown:
        parser.error(f"no bench {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    console = Console()
    document: dict[str, Any] = {"host": _host(), "quick": given.quick, "benches": {}}
    for name in given.only or BENCHES:
        began = time.perf_counter()
        with console.status(f"{name} ..."):
            found = asyncio.run(BENCHES[name].measure(given.quick))
        took_s = time.perf_counter() - began
        console.print(_table(f"{BENCHES[name].title} ({name}, {took_s:.0f} s)", found))
        document["benches"][name] = {
            "seconds": round(took_s, 1),
            "measurements": [_written(measurement) for measurement in found],
        }
    if given.json is not None:
        given.json.write_text(json.dumps(document, indent=2) + "\n")


def _host() -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
    }


def _written(measurement: Measurement) -> dict[str, Any]:
    return {
        **measurement.model_dump(mode="json", exclude={"bench"}),
        "ratio": measurement.ratio,
        "reached": measurement.reached,
    }


def _table(title: str, found: Sequence[Measurement]) -> Table:
    table = Table(title=title, title_justify="left", caption=_floors(found), caption_justify="left")
    for name in ("case", "metric"):
        table.add_column(name, overflow="fold")
    for name in ("measured", "floor", "ratio", "aim"):
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(
            one.case,
            one.metric,
            f"{_number(one.value)} {one.unit}",
            "" if one.floor is None else f"{_number(one.floor)} {one.unit}",
            "" if one.ratio is None else f"{one.ratio:.2f}",
            _aim(one),
        )
    return table


def _floors(found: Sequence[Measurement]) -> str:
    return "Floor: " + "; ".join(dict.fromkeys(one.floor_of for one in found if one.floor_of))


def _aim(one: Measurement) -> str:
    if one.aim is None:
        return ""
    bound = "<=" if one.better == "lower" else ">="
    what = "ratio " if one.aim_of == "ratio" else ""
    colour = "green" if one.reached else "yellow"
    return f"[{colour}]{what}{bound} {one.aim:g}: {'reached' if one.reached else 'missed'}[/]"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


if __name__ == "__main__":
    main(sys.argv[1:])
