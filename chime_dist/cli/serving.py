"""``serve``: one backbone of ours, for whoever asks it, until Ctrl-C; and how served backbones do."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from rich.table import Table
from rich.text import Text

from chime_dist.adapters.vllm.metrics import EngineMetrics
from chime_dist.adapters.vllm.need import need_of
from chime_dist.adapters.vllm.status import ReplicaStatus, ServingStatus
from chime_dist.cli.boundary import ExitCode, Session
from chime_dist.cli.interruption import SIGNALS
from chime_dist.cli.invocation import suggested
from chime_dist.cli.output import counted, foreign, plain_table, printable, say, show, show_json, show_text
from chime_dist.config.serving_file import ServedBackbone, load_served
from chime_dist.wiring.services import secrets_of
from chime_dist.wiring.serving import FOLDER, Serving, Wanted, cache_of, live_metrics, read_status, serve

_LOG = "log.jsonl"


def serve_until_interrupted(
    session: Session, name: str, file: Path, overrides: Sequence[str], as_json: bool
) -> ExitCode:
    """Serve the backbone called ``name`` of ``file``; the first SIGINT or SIGTERM drains and ends it."""
    backbone = load_served(name, file, overrides)
    session.secrets += secrets_of(backbone.cluster)
    launch = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
    folder = (Path(backbone.cluster.runs_dir) / FOLDER / f"{quote(name, safe='')}-{launch}").absolute()
    with session.log_to(folder / _LOG):
        try:
            asyncio.run(_served(backbone, launch, folder, as_json))
        except asyncio.CancelledError:
            say("killed before all requests had ended")
            return ExitCode.KILLED
        except Exception as error:
            error.add_note(f"the logs are in {folder}")
            raise
    return ExitCode.COMPLETE


def show_status(directory: Path, as_json: bool) -> None:
    """What the folder's driver serves, with what the replicas say now."""
    status = read_status(directory)
    metrics = asyncio.run(live_metrics(status))
    if as_json:
        live = [{"backbone": key[0], "replica": key[1], "metrics": value} for key, value in metrics.items()]
        show_json({"status": status, "live": live})
    else:
        show(*_lines(status), _table(status, metrics))


async def _served(backbone: ServedBackbone, launch: str, folder: Path, as_json: bool) -> None:
    endpoint = backbone.endpoint
    wanted = {backbone.name: Wanted(backbone.model, endpoint)}
    say(
        f"starting {counted(endpoint.replicas, 'replica')} of {backbone.name}, each on {need_of(endpoint)}; "
        f"logs: {folder}"
    )
    with _Interruption() as interruption:
        async with AsyncExitStack() as stack:
            ray = backbone.cluster.ray
            serving = await serve(launch, folder, wanted, ray, stack, interruption.happened)
            if serving is None:
                say("interrupted before it was ready")
                return
            _tell(backbone, serving, as_json)
            await interruption.happened.wait()
            say("ending when the requests in flight have ended; again to kill")
        for cache in serving.caches:
            say(f"prefix cache, {cache}")


def _tell(backbone: ServedBackbone, serving: Serving, as_json: bool) -> None:
    url = serving.urls[backbone.name]
    if as_json:
        show_json({"backbone": backbone.name, "model": backbone.model, "url": url, "directory": serving.folder})
    else:
        show_text(f"{url}\n")
    look = suggested("serve", serving.folder, "--status")
    say(f"serving {backbone.model} there until Ctrl-C; how it does: {look}")


class _Interruption:
    """The first signal ends the serving, or its start; the second cuts its end off."""

    def __init__(self) -> None:
        self.happened = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()

    def _take(self) -> None:
        if self.happened.is_set() and self._task is not None:
            self._task.cancel()
        self.happened.set()

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in SIGNALS:
            self._loop.remove_signal_handler(number)


def _lines(status: ServingStatus) -> list[Text]:
    lines = [foreign(f"{fleet.backbone} ({fleet.model}) at {fleet.url}") for fleet in status.fleets]
    if status.caches:
        lines.append(foreign(f"ended at {status.time:%Y-%m-%d %H:%M:%S} UTC"))
    return lines


def _table(status: ServingStatus, metrics: Mapping[tuple[str, int], EngineMetrics]) -> Table:
    table = plain_table("Replica", "State", "Restarts", "Start", "Running", "Waiting", "KV cache", "Prefix cache")
    kept = {(cache.backbone, cache.replica): cache for cache in status.caches}
    for fleet in status.fleets:
        for replica in fleet.replicas:
            key = fleet.backbone, replica.index
            cache = cache_of(*key, metrics[key]) if key in metrics else kept.get(key)
            table.add_row(*_row(fleet.backbone, replica, metrics.get(key)), "" if cache is None else cache.share)
    return table


def _row(backbone: str, replica: ReplicaStatus, metrics: EngineMetrics | None) -> list[str]:
    # What a replica that should serve does not say, it does not do.
    state = "no answer" if replica.state == "serving" and metrics is None else replica.state
    start = "" if replica.start_s is None else f"{replica.start_s:.0f} s"
    row = [printable(f"{backbone} {replica.index}"), state, str(replica.restarts), start]
    if metrics is None:
        return [*row, "", "", ""]
    return [*row, str(metrics.running), str(metrics.waiting), f"{metrics.kv_cache_used:.0%}"]
